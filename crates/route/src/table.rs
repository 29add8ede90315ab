//! The routing table: the first rule that matches a domain decides.

use mail::{Destination, TlsMode, Transport};
use std::{fmt, path::PathBuf, sync::Arc};

/// An LMTP server (RFC 2033).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LmtpServer {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host.
    Tcp {
        /// A-label name or address without brackets.
        host: String,
        /// TCP port.
        port: u16,
    },
}

/// Where a rule leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By SMTP to this host, whatever MX records say.
    Smarthost {
        /// A-label name or address without brackets.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// By LMTP.
    Lmtp(LmtpServer),
    /// Into Maildirs: an absolute path with `{local}` and `{domain}` in it.
    Maildir(String),
    /// By SMTP to the domain's mail exchangers.
    Mx,
    /// Nowhere: taken and thrown away.
    Discard,
}

impl Target {
    /// The destination's name; the domain only matters for MX.
    fn name(&self) -> String {
        match self {
            Self::Smarthost { host, port } | Self::Lmtp(LmtpServer::Tcp { host, port })
                if host.contains(':') =>
            {
                format!("[{host}]:{port}")
            }
            Self::Smarthost { host, port } | Self::Lmtp(LmtpServer::Tcp { host, port }) => {
                format!("{host}:{port}")
            }
            Self::Lmtp(LmtpServer::Unix(path)) => format!("unix:{}", path.display()),
            Self::Maildir(template) => template.clone(),
            Self::Mx => String::new(),
            Self::Discard => "discard".to_owned(),
        }
    }

    fn transport(&self) -> Transport {
        match self {
            Self::Smarthost { .. } => Transport::Smarthost,
            Self::Lmtp(_) => Transport::Lmtp,
            Self::Maildir(_) => Transport::Maildir,
            Self::Mx => Transport::Mx,
            Self::Discard => Transport::Discard,
        }
    }
}

/// Says of a domain, given as [`mail::Domain::key`], whether a rule is for it.
pub type Matcher = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// How the mail of some domains leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Where to.
    pub target: Target,
    /// How.
    pub tls: TlsMode,
}

impl Rule {
    /// What a destination was made of, whatever the routes are now.
    pub fn of(destination: &Destination) -> Self {
        let target = &*destination.target;
        let host_port = || {
            let (host, port) = target.rsplit_once(':').unwrap_or((target, "25"));
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            (host, port.parse().unwrap_or(25))
        };
        let target = match destination.transport {
            Transport::Mx => Target::Mx,
            Transport::Maildir => Target::Maildir(target.to_owned()),
            Transport::Discard => Target::Discard,
            Transport::Smarthost => {
                let (host, port) = host_port();
                Target::Smarthost { host, port }
            }
            Transport::Lmtp => match target.strip_prefix("unix:") {
                Some(path) => Target::Lmtp(LmtpServer::Unix(PathBuf::from(path))),
                None => {
                    let (host, port) = host_port();
                    Target::Lmtp(LmtpServer::Tcp { host, port })
                }
            },
        };
        Self { target, tls: destination.tls }
    }
}

struct Row {
    matches: Matcher,
    rule: Rule,
    /// Shared by every destination this rule makes, unless the domain is its name.
    name: Arc<str>,
}

/// Rules in order; behind them stands MX for everything else.
pub struct Table {
    rows: Vec<Row>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows.iter().map(|row| &row.rule)).finish()
    }
}

impl Table {
    /// The rules that come first, and how mail leaves by MX where none of them matches.
    pub fn new(rules: impl IntoIterator<Item = (Matcher, Rule)>, mx_tls: TlsMode) -> Self {
        let last: (Matcher, Rule) = (Box::new(|_| true), Rule { target: Target::Mx, tls: mx_tls });
        let rows = rules.into_iter().chain([last]).map(|(matches, rule)| Row {
            matches,
            name: rule.target.name().into(),
            rule,
        });
        Self { rows: rows.collect() }
    }

    /// Where mail for a domain goes, given as [`mail::Domain::key`].
    pub fn destination(&self, key: &str) -> Destination {
        let found = self.rows.iter().find(|row| (row.matches)(key));
        let row = found.expect("the last rule matches everything");
        let target = if row.rule.target == Target::Mx { Arc::from(key) } else { row.name.clone() };
        Destination { transport: row.rule.target.transport(), tls: row.rule.tls, target }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn smarthost(host: &str) -> Rule {
        Rule { target: Target::Smarthost { host: host.into(), port: 25 }, tls: TlsMode::May }
    }

    fn table() -> Table {
        let below: Matcher = Box::new(|key| key.ends_with(".a.test"));
        let exact: Matcher = Box::new(|key| key == "x.a.test" || key == "b.test");
        Table::new([(below, smarthost("one")), (exact, smarthost("2001:db8::1"))], TlsMode::May)
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let table = table();
        let shown = |key| table.destination(key).to_string();
        assert_eq!(shown("x.a.test"), "smarthost:one:25");
        assert_eq!(shown("b.test"), "smarthost:[2001:db8::1]:25");
        assert_eq!(shown("c.test"), "mx:c.test");
    }

    #[test]
    fn a_destination_says_what_it_was_made_of() {
        let rules = [
            smarthost("one"),
            smarthost("2001:db8::1"),
            Rule { target: Target::Mx, tls: TlsMode::Verify },
            Rule { target: Target::Lmtp(LmtpServer::Unix("/run/a:b".into())), tls: TlsMode::Off },
            Rule {
                target: Target::Lmtp(LmtpServer::Tcp { host: "::1".into(), port: 24 }),
                tls: TlsMode::Require,
            },
            Rule { target: Target::Maildir("/m/{domain}/{local}".into()), tls: TlsMode::Off },
            Rule { target: Target::Discard, tls: TlsMode::May },
        ];
        for rule in rules {
            let all: Matcher = Box::new(|_| true);
            let table = Table::new([(all, rule.clone())], TlsMode::May);
            assert_eq!(Rule::of(&table.destination("a.test")), rule);
        }
    }

    #[test]
    fn routes_that_differ_in_tls_alone_lead_to_two_destinations() {
        let to = |tls| {
            let all: Matcher = Box::new(|_| true);
            Table::new([(all, Rule { tls, ..smarthost("one") })], TlsMode::May).destination("a.test")
        };
        assert_ne!(to(TlsMode::May), to(TlsMode::Require));
    }
}
