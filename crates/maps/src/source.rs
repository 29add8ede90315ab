//! Places that named maps ask: a server of the socketmap protocol, a database, or a directory.

use crate::secret::SecretPlace;
use mail::HostPort;
use std::{fmt, net::IpAddr, path::PathBuf};

/// The address of a server that answers look-ups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// A Unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp(HostPort),
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "{host}"),
        }
    }
}

/// The place that a `[map.NAME]` asks, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Asked in the socketmap protocol.
    Socketmap {
        /// Where the server listens.
        server: Server,
        /// The server may have several maps; this one is asked.
        remote_name: String,
    },
    /// An SQLite database.
    Sqlite {
        /// Opened for reading only.
        file: PathBuf,
        /// The query; each of its parameters is the key.
        query: String,
    },
    /// A PostgreSQL database.
    Postgres {
        /// The connection, in the form of libpq, without a password.
        connection: String,
        /// The query; each of its parameters is the key.
        query: String,
        /// Password and authorities.
        trust: Trust,
    },
    /// A database of MySQL or MariaDB.
    MySql {
        /// The connection, `mysql://user@host/database`, without a password.
        connection: String,
        /// The query; each of its parameters is the key.
        query: String,
        /// Password and authorities.
        trust: Trust,
    },
    /// A server of Redis or Valkey.
    Redis {
        /// Where the server listens.
        server: Server,
        /// True for a connection by TLS.
        is_tls: bool,
        /// `{key}` stands for the key that is looked up.
        key: String,
        /// Number of the database on the server.
        database: u32,
        /// The user, if there is another than `default`.
        user: Option<String>,
        /// Password and authorities.
        trust: Trust,
    },
    /// A directory server.
    Ldap(Ldap),
}

/// Credentials for a server, and those for the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// Where the password is read from; none for a server without one.
    pub secret: Option<SecretPlace>,
    /// A PEM file of certification authorities; without it those of Mozilla.
    pub ca_file: Option<PathBuf>,
}

/// How a directory is searched for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ldap {
    /// Where the server listens, and whether by `ldaps:`.
    pub server: LdapServer,
    /// True if a connection begins with StartTLS (RFC 4511 §4.14).
    pub starts_tls: bool,
    /// Distinguished name of the entry below which the search looks.
    pub base: String,
    /// RFC 4515; `{key}` stands for the key that is looked up.
    pub filter: String,
    /// The attribute whose values are the answer.
    pub attribute: String,
    /// The distinguished name for the login; without it the search is anonymous.
    pub bind: Option<String>,
    /// Password and authorities.
    pub trust: Trust,
}

/// Where a directory server is, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapServer {
    /// Where the server listens.
    pub server: Server,
    /// True for `ldaps:`.
    pub is_tls: bool,
}

/// Placeholder for the key in the texts of Redis and LDAP.
pub const KEY: &str = "{key}";

impl Server {
    /// Returns whether bytes to the server stay on this machine.
    pub fn is_here(&self) -> bool {
        match self {
            Self::Unix(_) => true,
            Self::Tcp(host) => is_this_machine(&host.host),
        }
    }
}

/// Returns whether a host, a name or an address that may have brackets, is this machine: nobody can listen on the way to it.
pub(crate) fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

impl fmt::Display for LdapServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.server, self.is_tls) {
            (Server::Tcp(host), true) => write!(f, "ldaps://{host}"),
            (Server::Tcp(host), false) => write!(f, "ldap://{host}"),
            (unix, _) => write!(f, "{unix}"),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socketmap { server, .. } => write!(f, "{server}"),
            Self::Sqlite { file, .. } => write!(f, "sqlite {}", file.display()),
            Self::Postgres { connection, .. } => write!(f, "postgres {connection}"),
            Self::MySql { connection, .. } => f.write_str(connection),
            Self::Redis { server, is_tls, .. } => {
                write!(f, "redis {}{server}", if *is_tls { "rediss://" } else { "" })
            }
            Self::Ldap(ldap) => write!(f, "{}", ldap.server),
        }
    }
}

/// A fault of a source, with the key of `[map.NAME]` that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFault {
    /// The setting that is wrong, such as `query`.
    pub key: &'static str,
    /// What is wrong, in a few words.
    pub what: String,
    /// What would be right.
    pub help: String,
}

impl SourceFault {
    fn new(key: &'static str, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { key, what: what.into(), help: help.into() }
    }
}

impl Source {
    /// The key of `[map.NAME]` that names the place, and the Cargo feature.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Socketmap { .. } => "socketmap",
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
            Self::MySql { .. } => "mysql",
            Self::Redis { .. } => "redis",
            Self::Ldap(_) => "ldap",
        }
    }

    /// Returns whether this build of the program has the kind.
    fn is_built(&self) -> bool {
        match self {
            Self::Socketmap { .. } => true,
            Self::Sqlite { .. } => cfg!(feature = "sqlite"),
            Self::Postgres { .. } => cfg!(feature = "postgres"),
            Self::MySql { .. } => cfg!(feature = "mysql"),
            Self::Redis { .. } => cfg!(feature = "redis"),
            Self::Ldap(_) => cfg!(feature = "ldap"),
        }
    }

    /// Returns where the password is, and which authorities are trusted; `None` for sources without a login.
    pub fn trust(&self) -> Option<&Trust> {
        match self {
            Self::Socketmap { .. } | Self::Sqlite { .. } => None,
            Self::Postgres { trust, .. } | Self::MySql { trust, .. } | Self::Redis { trust, .. } => {
                Some(trust)
            }
            Self::Ldap(ldap) => Some(&ldap.trust),
        }
    }

    /// Returns the faults that show without asking.
    pub fn faults(&self) -> Vec<SourceFault> {
        let mut faults: Vec<SourceFault> = not_built(self.word(), self.is_built()).into_iter().collect();
        match self {
            Self::Socketmap { .. } => {}
            Self::Sqlite { query, .. } => faults.extend(without_parameter(query, &["?", ":", "@", "$"], "?")),
            Self::Postgres { connection, query, .. } => {
                faults.extend(without_parameter(query, &["$1"], "$1"));
                faults.extend(postgres_fault(connection));
            }
            Self::MySql { connection, query, .. } => {
                faults.extend(without_parameter(query, &["?"], "?"));
                faults.extend(mysql_fault(connection));
            }
            Self::Redis { server, is_tls, key, user, trust, .. } => {
                faults.extend(without_key("key", key, "alias:{key}"));
                faults.extend(in_clear_text(
                    server,
                    *is_tls,
                    trust,
                    "write redis = \"rediss://host:port\", for TLS",
                ));
                if user.is_some() && trust.secret.is_none() {
                    faults.push(without_secret("user"));
                }
            }
            Self::Ldap(ldap) => faults.extend(ldap.faults()),
        }
        faults
    }
}

impl Ldap {
    /// Returns whether TLS protects what is sent.
    pub fn is_encrypted(&self) -> bool {
        self.server.is_tls || self.starts_tls
    }

    fn faults(&self) -> Vec<SourceFault> {
        let mut faults = Vec::new();
        faults.extend(without_key("filter", &self.filter, "(mail={key})"));
        #[cfg(feature = "ldap")]
        if !crate::servers::ldap::is_filter(&self.filter) {
            faults.push(SourceFault::new(
                "filter",
                "not a filter of RFC 4515",
                "write \"(mail={key})\" or \"(&(objectClass=person)(mail={key}))\"",
            ));
        }
        // RFC 4514: each part is a name and a value.
        if !self.base.is_empty()
            && !self.base.split(',').all(|part| part.contains('='))
            && !self.base.contains('\\')
        {
            let help = "write the distinguished name of an entry: \"dc=example,dc=com\"";
            faults.push(SourceFault::new("base", "not a distinguished name", help));
        }
        let help = "write ldap = \"ldaps://host\", or add starttls = true";
        faults.extend(in_clear_text(&self.server.server, self.is_encrypted(), &self.trust, help));
        if self.starts_tls && (self.server.is_tls || matches!(self.server.server, Server::Unix(_))) {
            let help = "write ldap = \"ldap://host\", or remove `starttls`";
            faults.push(SourceFault::new(
                "starttls",
                "the connection has TLS from its beginning, or none at all",
                help,
            ));
        }
        match (&self.bind, &self.trust.secret) {
            // A login without a password is anonymous, and would seem to succeed (RFC 4513 §5.1.2).
            (Some(_), None) => faults.push(without_secret("bind")),
            (None, Some(_)) => {
                let help = "add bind = \"cn=postrider,dc=example,dc=com\", or remove `secret`";
                faults.push(SourceFault::new("secret", "nobody logs in with it", help));
            }
            _ => {}
        }
        faults
    }
}

fn not_built(word: &'static str, is_built: bool) -> Option<SourceFault> {
    let help = format!(
        "use a program that was built with it: cargo build --release --package postrider --features {word}"
    );
    (!is_built)
        .then(|| SourceFault::new(word, format!("this program was built without the feature `{word}`"), help))
}

fn without_parameter(query: &str, marks: &[&str], example: &str) -> Option<SourceFault> {
    if let Some(mark) = ["%s", "%u", "%d"].into_iter().find(|mark| query.contains(mark)) {
        let help = format!("write {example} in place of {mark}, without quotes around it");
        return Some(SourceFault::new(
            "query",
            format!("{mark} is of Postfix: it is no parameter here"),
            help,
        ));
    }
    let has_one = marks.iter().any(|mark| query.contains(mark));
    let help = format!("write {example} for the key: \"SELECT target FROM alias WHERE address = {example}\"");
    (!has_one).then(|| SourceFault::new("query", "it has no parameter for the key", help))
}

fn without_key(key: &'static str, text: &str, example: &str) -> Option<SourceFault> {
    let help = format!("write {KEY} where the key stands: \"{example}\"");
    (!text.contains(KEY)).then(|| SourceFault::new(key, format!("it has no {KEY}"), help))
}

fn without_secret(key: &'static str) -> SourceFault {
    SourceFault::new(key, "its password is missing", "add secret = \"file:FILE\"")
}

fn in_clear_text(server: &Server, is_tls: bool, trust: &Trust, help: &str) -> Option<SourceFault> {
    let is_open = trust.secret.is_some() && !is_tls && !server.is_here();
    is_open.then(|| SourceFault::new("secret", "the password would be sent in clear text", help))
}

#[cfg(feature = "postgres")]
fn postgres_fault(connection: &str) -> Option<SourceFault> {
    crate::servers::postgres::fault(connection).map(|(what, help)| SourceFault::new("postgres", what, help))
}

#[cfg(not(feature = "postgres"))]
fn postgres_fault(_: &str) -> Option<SourceFault> {
    None
}

#[cfg(feature = "mysql")]
fn mysql_fault(connection: &str) -> Option<SourceFault> {
    crate::servers::mysql::fault(connection).map(|(what, help)| SourceFault::new("mysql", what, help))
}

#[cfg(not(feature = "mysql"))]
fn mysql_fault(_: &str) -> Option<SourceFault> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_was_not_built_names_the_feature_to_build_with() {
        assert_eq!(not_built("redis", true), None);
        let fault = not_built("redis", false).unwrap();
        assert_eq!(fault.key, "redis");
        assert!(fault.what.contains("without the feature `redis`"), "{}", fault.what);
        assert!(
            fault.help.contains("cargo build --release --package postrider --features redis"),
            "{}",
            fault.help
        );
    }

    #[test]
    fn servers_of_this_machine_are_told_from_others() {
        let tcp = |text| Server::Tcp(HostPort::parse(text).unwrap());
        assert!(Server::Unix("/run/s".into()).is_here());
        for here in ["127.0.0.1:1", "[::1]:1", "localhost:1"] {
            assert!(tcp(here).is_here(), "{here}");
        }
        for far in ["192.0.2.1:1", "db.test:1", "[2001:db8::1]:1"] {
            assert!(!tcp(far).is_here(), "{far}");
        }
    }
}
