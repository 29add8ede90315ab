//! A file of users in Dovecot's passwd-file format: `user:password:uid:gid:gecos:home:shell:extra fields`. Everything behind the
//! password is Dovecot's alone.

use crate::{password::StoredPassword, scram::ScramHash};
use std::collections::{BTreeMap, HashMap, hash_map::Entry};

/// Kinds of stored passwords that a failed login checks at most.
pub const KINDS_MAX: usize = 8;

/// Users in the format of Dovecot's passwd-file, by name in lower case.
#[derive(Debug, Clone, Default)]
pub struct PasswdFile {
    logins: HashMap<Box<str>, Login>,
    /// A password of each kind, in the order of the kinds' names.
    kinds: Vec<StoredPassword>,
}

/// A user and the password that the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// In the letter case of the file.
    pub name: Box<str>,
    /// Hash and parameters, or the password itself.
    pub password: StoredPassword,
}

/// A line that is left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineProblem {
    /// From 1.
    pub line: usize,
    /// The column of the password or name, from 1.
    pub column: usize,
    /// The problem, and what to write instead. No secret is in it.
    pub text: String,
}

impl PasswdFile {
    /// Reads a file. Empty lines and lines with `#` at their front are comments. Names are compared in lower case, as Dovecot does
    /// unless it is told otherwise. The last line needs no newline.
    ///
    /// # Errors
    /// Every line that cannot be used.
    pub fn parse(text: &str) -> Result<Self, Vec<LineProblem>> {
        let (mut logins, mut problems) = (HashMap::new(), Vec::new());
        // Some editors write a byte order mark. It would be a part of the first name.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match read(line) {
                Ok(login) => match logins.entry(login.name.to_lowercase().into()) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(login);
                    }
                    Entry::Occupied(_) => {
                        let text =
                            format!("the user {} stands in the file twice: remove one line", login.name);
                        problems.push(LineProblem { line: number + 1, column: 1, text });
                    }
                },
                Err((column, text)) => problems.push(LineProblem { line: number + 1, column, text }),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut kinds = BTreeMap::new();
        for login in logins.values() {
            kinds.entry(login.password.kind()).or_insert_with(|| login.password.clone());
        }
        Ok(Self { logins, kinds: kinds.into_values().take(KINDS_MAX).collect() })
    }

    /// Returns the user with this name, in any letter case.
    pub fn get(&self, name: &str) -> Option<&Login> {
        self.logins.get(&*name.to_lowercase())
    }

    /// Returns a stored password of each kind ([`StoredPassword::kind`]) that users have. A failed login that checks one of each
    /// takes the same time for each user, and for a name that nobody has.
    pub fn kinds(&self) -> &[StoredPassword] {
        &self.kinds
    }

    /// Returns the number of users.
    pub fn count(&self) -> usize {
        self.logins.len()
    }

    /// Returns whether every user can use a SCRAM mechanism. Where one cannot, the mechanism is not to be offered: his client would
    /// choose it, and fail.
    pub fn all_have_scram(&self, hash: ScramHash) -> bool {
        !self.logins.is_empty() && self.logins.values().all(|login| login.password.has_scram(hash))
    }
}

impl Login {
    /// Reads the value that a map has for a user: the stored password, as in a line of the file behind the name. Returns none if
    /// the account is locked: the password is empty, `*`, or begins with `!`.
    ///
    /// # Errors
    /// What is wrong with the value. The text never quotes the password or its hash.
    pub fn of_value(name: &str, value: &str) -> Result<Option<Self>, String> {
        let password = value.split(':').next().unwrap_or("");
        if password.is_empty() || password == "*" || password.starts_with('!') {
            return Ok(None);
        }
        Ok(Some(Self { name: name.into(), password: StoredPassword::parse(password)? }))
    }
}

/// Reads a line, or returns the column and the problem.
fn read(line: &str) -> Result<Login, (usize, String)> {
    let (name, rest) = line.split_once(':').ok_or((1, "write USER:PASSWORD".to_owned()))?;
    if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err((1, "a user name is not empty, and has no spaces".to_owned()));
    }
    // A password in clear text may have braces in it, but no colon.
    let password = rest.split(':').next().unwrap_or("");
    let column = name.chars().count() + 2;
    let password = StoredPassword::parse(password).map_err(|why| {
        (column, format!("the password of {name} cannot be used: {why}; `postrider auth hash` makes one"))
    })?;
    Ok(Login { name: name.into(), password })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_name() {
        let users = PasswdFile::parse("\u{feff}joe:{PLAIN}secret\nann:{PLAIN}secret\n").unwrap();
        assert!(users.get("joe").is_some() && users.get("ann").is_some());
    }
    use crate::Secret;

    #[test]
    fn users_are_found_by_name_in_any_case() {
        let file = "# users\n\nJoe@example.com:{PLAIN}secret:1000:1000::/home/joe::userdb_mail=maildir:~/Maildir\nann:{PLAIN}a b\n";
        let users = PasswdFile::parse(file).unwrap();
        assert_eq!(users.count(), 2);
        let joe = users.get("joe@EXAMPLE.com").unwrap();
        assert!(&*joe.name == "Joe@example.com" && joe.password.is(&Secret::new("secret")));
        assert!(users.get("ann").unwrap().password.is(&Secret::new("a b")));
        assert_eq!(users.get("joe"), None);
    }

    #[test]
    fn the_last_line_needs_no_newline() {
        let users = PasswdFile::parse("joe:{PLAIN}secret\nann:{PLAIN}other").unwrap();
        assert!(users.get("joe").is_some() && users.get("ann").is_some());
        assert!(PasswdFile::parse("").is_ok());
    }

    #[test]
    fn the_value_of_a_map_is_what_follows_the_name_in_a_line() {
        for value in ["{PLAIN}secret", "{PLAIN}secret:1000:1000::/home/joe::"] {
            let joe = Login::of_value("joe", value).unwrap().unwrap();
            assert!(&*joe.name == "joe" && joe.password.is(&Secret::new("secret")), "{value}");
        }
        for locked in ["", "*", "!", "!{PLAIN}secret", ":1000:1000"] {
            assert_eq!(Login::of_value("joe", locked), Ok(None), "{locked}");
        }
        let error = Login::of_value("joe", "{MD5}hushhush").unwrap_err();
        assert!(error.contains("{MD5}") && !error.contains("hushhush"), "{error}");
    }

    #[test]
    fn a_file_knows_each_kind_of_its_passwords() {
        let file = "a:{PLAIN}x\nb:{PLAIN}y\nc:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
             d:{BLF-CRYPT}$2y$05$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe\n\
             e:{BLF-CRYPT}$2y$06$bvIG6Nmid91Mu9RcmmWZfO5HJIMCT8riNW0hEp8f6/FuA2/mHZFpe\n";
        let users = PasswdFile::parse(file).unwrap();
        let kinds: Vec<String> = users.kinds().iter().map(StoredPassword::kind).collect();
        assert_eq!(kinds, ["$2y$05", "$2y$06", "Sha1", "clear"]);
        assert!(PasswdFile::parse("").unwrap().kinds().is_empty());
    }

    #[test]
    fn every_bad_line_is_named_with_its_place() {
        let file = "joe\nann:{MD5}x\nann:{PLAIN}x\nANN:{PLAIN}y\n a:{PLAIN}x\n:{PLAIN}x\n";
        let problems = PasswdFile::parse(file).unwrap_err();
        let places: Vec<_> = problems.iter().map(|p| (p.line, p.column)).collect();
        assert_eq!(places, [(1, 1), (2, 5), (4, 1), (5, 1), (6, 1)]);
        assert!(problems[1].text.contains("{MD5}") && problems[1].text.contains("postrider auth hash"));
        assert!(problems[2].text.contains("twice"));
    }

    #[test]
    fn scram_is_for_files_whose_users_all_have_it() {
        let of = |text: &str| PasswdFile::parse(text).unwrap();
        assert!(of("a:{PLAIN}x\n").all_have_scram(ScramHash::Sha256));
        assert!(!of("a:{PLAIN}x\nb:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").all_have_scram(ScramHash::Sha256));
        assert!(!of("").all_have_scram(ScramHash::Sha256));
    }
}
