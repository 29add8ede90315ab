//! References to maps, as the configuration writes them.

use crate::source::Source;
use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

/// How the file of a map is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Lines `key value`.
    Text,
    /// aliases(5).
    Aliases,
    /// Lines `/pattern/ value`.
    Regex,
    /// Lines `network value`.
    Cidr,
    /// cdb(5).
    Cdb,
    /// passwd(5): the names of accounts.
    Accounts,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Text, Self::Aliases, Self::Regex, Self::Cidr, Self::Cdb, Self::Accounts];

    /// Returns the word before the colon of a reference, such as `cidr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Aliases => "aliases",
            Self::Regex => "regex",
            Self::Cidr => "cidr",
            Self::Cdb => "cdb",
            Self::Accounts => "accounts",
        }
    }
}

/// A map as settings name it: a file with its format, or a named map.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// `text:FILE` and the other kinds of file.
    File(Kind, PathBuf),
    /// `map:NAME`: a `[map.NAME]` of the configuration.
    Named(Box<str>),
    /// `accounts:nss`: the users of this machine by all services of `/etc/nsswitch.conf`.
    Accounts,
}

/// The word for the accounts of all services, where others name a file.
const NSS: &str = "nss";
/// Advice for a text that is no reference.
const HELP: &str = "write \"text:FILE\", \"aliases:FILE\", \"regex:FILE\", \"cidr:FILE\", \"cdb:FILE\", \"accounts:/etc/passwd\", \"accounts:nss\" or \"map:NAME\"";

impl Reference {
    /// Returns whether the text has the form of a reference, right or wrong: host names and local parts have no colon
    /// behind such a word.
    pub fn is_meant(text: &str) -> bool {
        text.split_once(':')
            .is_some_and(|(word, _)| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()))
    }

    /// Reads a reference; a relative path starts at `base`.
    ///
    /// # Errors
    /// The fault, and what to write instead.
    pub fn parse(text: &str, base: &Path) -> Result<Self, (String, String)> {
        let Some((word, rest)) = text.split_once(':') else {
            return Err(("not a reference to a map".to_owned(), HELP.to_owned()));
        };
        if (word, rest) == ("accounts", NSS) {
            return Ok(Self::Accounts);
        }
        if word == "map" {
            return if is_name(rest) {
                Ok(Self::Named(rest.into()))
            } else {
                Err(("not the name of a map".to_owned(), "write \"map:NAME\" for [map.NAME]".to_owned()))
            };
        }
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.as_str() == word) else {
            let help = match word {
                "hash" | "btree" | "lmdb" | "texthash" | "dbm" => {
                    format!(
                        "write \"text:{rest}\", or \"aliases:{rest}\" if its lines are `name: targets`; the file is read as it is, \
                         without postmap"
                    )
                }
                "passwd" | "unix" => {
                    "write \"accounts:nss\" for the users of this machine, or \"accounts:/etc/passwd\" for those of the file"
                        .to_owned()
                }
                "pcre" | "regexp" => format!("write \"regex:{rest}\""),
                "socketmap" => {
                    "write [map.NAME] with socketmap = \"unix:/path\", and \"map:NAME\" here".to_owned()
                }
                "sqlite" | "mysql" | "ldap" | "redis" => {
                    format!("write [map.NAME] with {word} = \"…\", and \"map:NAME\" here")
                }
                "pgsql" | "postgres" | "postgresql" => {
                    "write [map.NAME] with postgres = \"…\", and \"map:NAME\" here".to_owned()
                }
                _ => HELP.to_owned(),
            };
            return Err((format!("there is no kind of map `{word}`"), help));
        };
        if rest.is_empty() || rest.contains(char::is_control) {
            return Err((format!("the file is missing behind `{word}:`"), format!("write \"{word}:FILE\"")));
        }
        Ok(Self::File(kind, base.join(rest)))
    }

    /// Returns whether names without a domain are looked up, beside complete addresses: in tables of this machine. Patterns
    /// are for complete addresses, and each question to a server costs time.
    pub fn has_bare_names(&self) -> bool {
        matches!(self, Self::File(Kind::Text | Kind::Cdb, _))
    }

    /// Returns the name behind `map:`; `None` for files.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::File(..) | Self::Accounts => None,
            Self::Named(name) => Some(name),
        }
    }
}

/// Returns whether a `[map.NAME]` can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=64).contains(&text.len()) && text.bytes().all(is_letter)
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(kind, path) => write!(f, "{}:{}", kind.as_str(), path.display()),
            Self::Named(name) => write!(f, "map:{name}"),
            Self::Accounts => write!(f, "accounts:{NSS}"),
        }
    }
}

/// A `[map.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedMap {
    /// `NAME`, as in references of the form `map:NAME`.
    pub name: String,
    /// The server, database or directory that is asked.
    pub source: Source,
    /// Time for one look-up.
    pub timeout: Duration,
    /// Time that an answer is kept; zero: not at all.
    pub cache_ttl: Duration,
    /// Connections to the server at the same time; for SQLite: files that are open at the same time.
    pub connections_max: usize,
}

impl NamedMap {
    /// Returns whether a `[map.NAME]` can have this name.
    pub fn is_name(text: &str) -> bool {
        is_name(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_and_shown_as_they_are_written() {
        let base = Path::new("/etc/postrider");
        for (text, shown) in [
            ("text:domains", "text:/etc/postrider/domains"),
            ("aliases:/etc/aliases", "aliases:/etc/aliases"),
            ("regex:a b", "regex:/etc/postrider/a b"),
            ("map:users", "map:users"),
            ("accounts:passwd", "accounts:/etc/postrider/passwd"),
            ("accounts:nss", "accounts:nss"),
        ] {
            let read = Reference::parse(text, base).unwrap();
            assert_eq!(read.to_string(), shown);
            assert_eq!(Reference::parse(shown, base).unwrap(), read);
            assert!(Reference::is_meant(text));
        }
        for bad in ["domains", "text:", "hash:/etc/x", "map:", "map:a b", "map:a.b", "sql:x", ":x"] {
            assert!(Reference::parse(bad, base).is_err(), "{bad}");
        }
        for other in ["example.com", "[IPv6:::1]", "[192.0.2.1]", "*", "joe", "2001:db8::/32"] {
            assert!(!Reference::is_meant(other), "{other}");
        }
    }

    #[test]
    fn kinds_of_postfix_are_answered_with_ours() {
        let help = |text| Reference::parse(text, Path::new("/")).unwrap_err().1;
        assert!(help("hash:/etc/postfix/virtual").contains("text:/etc/postfix/virtual"));
        assert!(help("hash:/etc/aliases").contains("aliases:/etc/aliases"));
        assert!(help("pcre:/x").contains("regex:/x") && help("socketmap:unix:/x:y").contains("[map.NAME]"));
        assert!(help("pgsql:/etc/postfix/users.cf").contains("[map.NAME] with postgres = "));
        assert!(help("ldap:/etc/postfix/users.cf").contains("[map.NAME] with ldap = "));
    }
}
