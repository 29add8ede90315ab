//! Removes secrets from texts, and replaces names of people and machines by pseudonyms.

use aws_lc_rs::hmac;
use console::CliError;
use control::Exit;
use data_encoding::HEXLOWER;
use regex::{Captures, Regex};
use std::{collections::HashSet, net::IpAddr};

/// Hexadecimal digits of a pseudonym.
const DIGITS: usize = 8;

/// The replacement of addresses, names and logins, with a key that is nowhere else.
pub(super) struct Pseudonyms {
    key: hmac::Key,
    words: Regex,
    /// Names with dots that are no hosts: keys of the configuration.
    known: HashSet<String>,
    /// Names of people, which are replaced in quotes.
    people: Vec<String>,
}

/// Endings of file names, which are no domains.
const FILE_ENDINGS: [&str; 16] = [
    "toml",
    "pem",
    "key",
    "crt",
    "log",
    "json",
    "jsonl",
    "seg",
    "conf",
    "txt",
    "sock",
    "socket",
    "service",
    "md",
    "cdb",
    "quarantined",
];

/// A login in a line of the log; an address; an IPv6 address; a name with dots, or an IPv4 address.
const WORDS: &str = r#"(?x)
    (?P<login>"(?:login|user|sasl_username)":"[^"]*"|sasl_username=[^,\s]+)
    |(?P<mailbox>delivered\ to\ (?:Maildir|mailbox)\ [^\s"<>]+)
    |(?P<user>login\ =\ \{\ user\ =\ "[^"]*")
    |(?P<address>[^\s<>"'\\,;:()\[\]{}=|/]+@[A-Za-z0-9._-]+)
    |(?P<six>[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)
    |(?P<name>/?[\p{L}0-9_](?:[\p{L}0-9_-]*[\p{L}0-9_])?(?:\.[\p{L}0-9_](?:[\p{L}0-9_-]*[\p{L}0-9_])?)+)
"#;

impl Pseudonyms {
    /// Makes a key. `people`: names that stand alone in quotes.
    ///
    /// # Errors
    /// An expression of this file is wrong.
    pub(super) fn new(people: Vec<String>) -> Result<Self, CliError> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &accept::logins::random::<32>());
        let words = Regex::new(WORDS).map_err(|error| CliError::new(Exit::Software, error.to_string()))?;
        let mut known = HashSet::new();
        for section in config::schema() {
            known.extend(section.keys.iter().map(|key| format!("{}.{}", section.name, key.name)));
        }
        Ok(Self { key, words, known, people })
    }

    /// Returns the text with pseudonyms in place of everything that is hidden.
    pub(super) fn hide(&self, text: &str) -> String {
        let replace = |found: &Captures<'_>| {
            let whole = &found[0];
            if found.name("login").is_some() {
                let (name, login) = whole.split_once([':', '=']).unwrap_or(("", whole));
                let quote = if whole.ends_with('"') { "\"" } else { "" };
                let separator = if quote.is_empty() { "=" } else { ":" };
                return format!("{name}{separator}{quote}{}{quote}", self.named("login", login));
            }
            if found.name("mailbox").is_some() {
                // Which part of a path is a name is not known.
                let (words, mailbox) = whole.rsplit_once(' ').unwrap_or(("", whole));
                let path = mailbox.split('/').map(|name| match name {
                    "" => String::new(),
                    name => self.named("local", name),
                });
                return format!("{words} {}", path.collect::<Vec<_>>().join("/"));
            }
            if found.name("user").is_some() {
                let user = whole.rsplit('"').nth(1).unwrap_or_default();
                return format!("login = {{ user = \"{}\"", self.named("login", user));
            }
            if let Some((local, domain)) = whole.rsplit_once('@') {
                return format!("{}@{}", self.named("local", local), self.domain(domain));
            }
            if found.name("six").is_some() {
                return match whole.parse::<IpAddr>() {
                    Ok(address) => self.ip(address),
                    Err(_) => whole.to_owned(),
                };
            }
            self.name(whole)
        };
        let mut hidden = self.words.replace_all(text, replace).into_owned();
        for name in &self.people {
            hidden = hidden.replace(&format!("\"{name}\""), &format!("\"{}\"", self.named("local", name)));
        }
        hidden
    }

    fn name(&self, name: &str) -> String {
        if let Ok(address) = name.parse::<IpAddr>() {
            return self.ip(address);
        }
        let ending = name.rsplit('.').next().unwrap_or_default();
        let is_number = name.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_word = !ending.chars().all(char::is_alphabetic) || ending.chars().count() < 2;
        // A version, a key, or a file.
        if name.starts_with('/')
            || is_number
            || is_word
            || self.known.contains(name)
            || FILE_ENDINGS.contains(&ending)
        {
            return name.to_owned();
        }
        self.domain(name)
    }

    fn domain(&self, domain: &str) -> String {
        // A name at the end of a sentence.
        let bare = domain.trim_end_matches('.');
        if bare.eq_ignore_ascii_case("localhost") {
            return domain.to_owned();
        }
        format!("{}.invalid{}", self.named("host", &bare.to_ascii_lowercase()), &domain[bare.len()..])
    }

    fn ip(&self, address: IpAddr) -> String {
        if address.is_loopback() || address.is_unspecified() {
            return address.to_string();
        }
        self.named(if address.is_ipv4() { "ip4" } else { "ip6" }, &address.to_string())
    }

    fn named(&self, kind: &str, text: &str) -> String {
        let tag = hmac::sign(&self.key, format!("{kind} {text}").as_bytes());
        format!("{kind}-{}", &HEXLOWER.encode(tag.as_ref())[..DIGITS])
    }
}

/// Removes values of keys that name a secret, and passwords in connections and URLs. The configuration has its secrets in files;
/// an operator may have written one to the wrong place.
pub(super) fn without_secrets(toml: &str) -> String {
    const REMOVED: &str = "(removed)";
    let is_secret_key = |key: &str| {
        let key = key.to_ascii_lowercase();
        ["password", "passwd", "secret", "token", "external_account"].iter().any(|word| key.contains(word))
    };
    let in_url = Regex::new(r"(?P<begin>//[^\s/@:]*:)[^\s/@]+@");
    let in_words = Regex::new(r#"(?i)(?P<begin>(?:password|passwd|secret|token)\s*=\s*)[^\s"',}\]]+"#);
    // Of a program: the argument behind an option that names one.
    let in_arguments =
        Regex::new(r#"(?i)(?P<begin>"-[^"=]*(?:password|passwd|secret|token|key)[^"=]*",\s*")[^"]*"#);
    let (Ok(in_url), Ok(in_words), Ok(in_arguments)) = (in_url, in_words, in_arguments) else {
        return REMOVED.to_owned();
    };
    let mut out = String::with_capacity(toml.len());
    for line in toml.lines() {
        let (key, value) = line.split_once(" = ").unwrap_or(("", ""));
        let names_file = ["\"file:", "\"credential:", "\"env:"].iter().any(|kind| value.starts_with(kind));
        if is_secret_key(key) && !names_file && !value.starts_with(|c: char| c.is_ascii_digit()) {
            out.push_str(&format!("{key} = \"{REMOVED}\"\n"));
            continue;
        }
        let line = in_url.replace_all(line, format!("${{begin}}{REMOVED}@"));
        let line = in_arguments.replace_all(&line, format!("${{begin}}{REMOVED}"));
        out.push_str(&in_words.replace_all(&line, format!("${{begin}}{REMOVED}")));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_people_and_machines_are_replaced_and_nothing_else() {
        let pseudonyms = Pseudonyms::new(vec!["joe".to_owned(), "box".to_owned()]).unwrap();
        let text = "{\"from\":\"jane.doe+x@Example.com\",\"to\":\"j\u{fc}rgen@m\u{fc}ller.example\",\"login\":\"jane\",\
                    \"client\":\"192.0.2.7:4711\",\"relay\":\"mx1.example.com[2001:db8::25]:25\",\"v\":1}\n\
                    mx:example.com 127.0.0.1:25 [::1]:25 /etc/postrider/postrider.toml Linux 6.18.44 fullchain.pem \
                    spool.min_free 550 5.7.1 12:30:05 sasl_username=jane, localhost\n\
                    {\"reply\":\"delivered to Maildir jane\"} delivered to mailbox /home/jane/jane\nlogin = { user = \"jane\", secret = \"file:x\" }\n\
                    users = [\"joe\", \"ann\"]\nlogin = { secret = \"file:y\", user = \"box\" }";
        let hidden = pseudonyms.hide(text);
        for name in
            ["\"joe\"", "\"box\"", "jane", "doe", "xample", "rgen", "ller", "192.0.2.7", "2001:db8", "mx1"]
        {
            assert!(!hidden.contains(name), "{name} in {hidden}");
        }
        for kept in [
            "127.0.0.1:25",
            "[::1]:25",
            "/etc/postrider/postrider.toml",
            "6.18.44",
            "fullchain.pem",
            "spool.min_free",
            "550 5.7.1",
            "12:30:05",
            "mx:host-",
            ":4711",
            "localhost",
            "\"v\":1",
        ] {
            assert!(hidden.contains(kept), "{kept} not in {hidden}");
        }
        assert!(
            serde_json::from_str::<serde_json::Value>(hidden.lines().next().unwrap()).is_ok(),
            "{hidden}"
        );
    }

    #[test]
    fn a_name_has_one_pseudonym_in_a_bundle_and_another_in_the_next() {
        let (one, other) = (Pseudonyms::new(vec![]).unwrap(), Pseudonyms::new(vec![]).unwrap());
        let address = one.hide("a@example.com");
        assert_eq!(address.rsplit('@').next(), Some(&*one.hide("EXAMPLE.com")));
        assert_eq!(one.hide("<a@example.com>"), format!("<{address}>"));
        assert_ne!(address, other.hide("a@example.com"));
    }

    #[test]
    fn secrets_are_removed() {
        let toml = "secret = \"file:/etc/x\"\nauth.password = \"s3cret\"\n\
                    external_account = \"s3cret\"\nhook = [\"/etc/hook\", \"--token\", \"s3cret\"]\n\
                    connection = \"host=db password=s3cret\"\nurl = \"https://u:s3cret@db.test/x\"\nsize = 5\n";
        let clean = without_secrets(toml);
        assert!(!clean.contains("s3cret"), "{clean}");
        assert!(
            clean.contains("file:/etc/x") && clean.contains("size = 5") && clean.contains("host=db"),
            "{clean}"
        );
    }
}
