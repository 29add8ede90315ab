//! The recipients of a route, and the next hops that maps have for them.

use super::parse_lmtp_server;
use crate::value::OrMap;
use mail::{ForwardPath, HostPort, LmtpServer, Mailbox, NextHop};
use maps::Reference;
use policy::{AddressPattern, AddressPatterns};
use rewrite::Separator;
use std::{fmt, path::Path};

/// The recipients of a route; empty: all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipients {
    /// Patterns, one of which matches.
    pub patterns: AddressPatterns,
    /// Maps whose keys match: an address, an address without its detail, or `@domain`.
    pub maps: Vec<Reference>,
    /// The separator of a detail.
    separator: Option<Separator>,
}

impl Recipients {
    pub(crate) fn new(list: Vec<OrMap<AddressPattern>>, separator: Option<Separator>) -> Self {
        let (patterns, maps) = OrMap::split(list);
        Self { patterns: patterns.into(), maps, separator }
    }

    /// Returns whether the route is for all recipients.
    pub fn is_all(&self) -> bool {
        self.patterns.is_empty() && self.maps.is_empty()
    }

    /// Returns whether a recipient matches without the maps.
    pub fn match_by_pattern(&self, path: &ForwardPath) -> bool {
        self.is_all()
            || path.mailbox().is_some_and(|mailbox| self.patterns.match_mailbox(mailbox, self.separator))
    }

    /// Returns the keys of a recipient in the maps.
    pub fn keys(&self, mailbox: &Mailbox) -> impl Iterator<Item = String> {
        rewrite::map_keys(mailbox, self.separator, false)
    }

    /// Returns the keys of a recipient in maps of next hops: the address, the address without its detail, the domain, each domain above
    /// it with a dot in front, and `*` (transport(5) of Postfix).
    pub fn next_hop_keys(&self, mailbox: &Mailbox) -> Vec<String> {
        let domain = mailbox.domain().key().into_owned();
        let mut keys: Vec<String> =
            rewrite::map_keys(mailbox, self.separator, false).filter(|key| !key.starts_with('@')).collect();
        let above = domain.match_indices('.').map(|(at, _)| domain[at..].to_owned()).collect::<Vec<_>>();
        keys.push(domain);
        keys.extend(above);
        keys.push("*".to_owned());
        keys
    }
}

/// A next hop, as a map has it for a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappedHop {
    /// SMTP to a host; MX records are ignored.
    Smarthost(HostPort),
    /// LMTP (RFC 2033).
    Lmtp(LmtpServer),
    /// The route with this name.
    Route(Box<str>),
}

impl MappedHop {
    /// Reads a value: the name of a route, `smtp:HOST`, `relay:HOST` or `lmtp:HOST`, where the host may have brackets around it and a port
    /// behind it, `lmtp:unix:/path`, or a host alone. None: the map has no next hop for the recipient.
    ///
    /// # Errors
    /// The value is none of these: why.
    pub fn parse(value: &str, is_route: impl Fn(&str) -> bool) -> Result<Option<Self>, String> {
        let value = value.trim();
        let bad = |what: &str| format!("the next hop {value:?} cannot be used: {what}");
        if value.is_empty() || value == ":" {
            return Ok(None);
        }
        if let Some(name) =
            [value, value.strip_suffix(':').unwrap_or(value)].into_iter().find(|name| is_route(name))
        {
            return Ok(Some(Self::Route(name.into())));
        }
        let (kind, rest) = match value.split_once(':') {
            Some((kind @ ("smtp" | "relay" | "lmtp"), rest)) => (kind, rest),
            _ if value.contains(['.', '[']) => ("smtp", value),
            _ => return Err(bad("it is neither a host nor the name of a [[route]]")),
        };
        if let (true, Some(path)) = (kind == "lmtp", rest.strip_prefix("unix:")) {
            if !path.starts_with('/') {
                return Err(bad("the path of the socket is not absolute"));
            }
            let server = parse_lmtp_server(rest, Path::new("/")).map_err(bad)?;
            return Ok(Some(Self::Lmtp(server)));
        }
        let host = rest.strip_prefix("inet:").unwrap_or(rest);
        if host.contains([',', ' ']) {
            return Err(bad("it names several"));
        }
        let host = host_and_port(host, if kind == "lmtp" { 24 } else { 25 }).map_err(|what| {
            bad(&format!(
                "{what}; write smtp:HOST:PORT, lmtp:HOST:PORT, lmtp:unix:/path, or the name of a [[route]]"
            ))
        })?;
        if host.port == 465 {
            return Err(bad("port 465 needs a [[route]] of its own, whose name is the value here"));
        }
        Ok(Some(if kind == "lmtp" { Self::Lmtp(LmtpServer::Tcp(host)) } else { Self::Smarthost(host) }))
    }

    /// Returns the next hop; none for a route.
    pub fn next_hop(&self) -> Option<NextHop> {
        match self {
            Self::Smarthost(host) => Some(NextHop::Smarthost(host.clone().into())),
            Self::Lmtp(server) => Some(NextHop::Lmtp(server.clone().into())),
            Self::Route(_) => None,
        }
    }

    /// Returns the TCP port.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Smarthost(host) | Self::Lmtp(LmtpServer::Tcp(host)) => Some(host.port),
            Self::Lmtp(LmtpServer::Unix(_)) | Self::Route(_) => None,
        }
    }
}

/// The form that [`MappedHop::parse`] reads.
impl fmt::Display for MappedHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Smarthost(host) => write!(f, "smtp:{host}"),
            Self::Lmtp(server) => write!(f, "lmtp:{server}"),
            Self::Route(name) => f.write_str(name),
        }
    }
}

fn host_and_port(text: &str, default: u16) -> Result<HostPort, &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or("`]` is missing")?;
            let port = match behind {
                "" => None,
                behind => Some(behind.strip_prefix(':').ok_or("not a port behind `]`")?),
            };
            let host = host.get(5..).filter(|_| host[..5].eq_ignore_ascii_case("ipv6:")).unwrap_or(host);
            (host, port)
        }
        None => match text.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map_or_else(|| default.to_string(), str::to_owned);
    HostPort::parse(&if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_are_read_as_transports_hosts_and_names_of_routes() {
        let read = |value: &str| MappedHop::parse(value, |name| name == "virtual" || name == "my hub");
        for (value, hop) in [
            ("smtp:[mx.test]:2525", "smtp:mx.test:2525"),
            ("relay:[192.0.2.1]", "smtp:192.0.2.1:25"),
            ("imap3.b.test", "smtp:imap3.b.test:25"),
            ("smtp:[IPv6:2001:db8::1]:26", "smtp:[2001:db8::1]:26"),
            ("lmtp:[127.0.0.1]:8024", "lmtp:127.0.0.1:8024"),
            ("lmtp:inet:localhost", "lmtp:localhost:24"),
            ("lmtp:unix:/run/dovecot/lmtp", "lmtp:unix:/run/dovecot/lmtp"),
            ("virtual:", "virtual"),
            (" my hub ", "my hub"),
        ] {
            let found = read(value).unwrap().unwrap();
            assert_eq!(found.to_string(), hop, "{value}");
            assert_eq!(read(&found.to_string()).unwrap().unwrap(), found);
        }
        assert_eq!(read(":"), Ok(None));
        assert_eq!(read(""), Ok(None));
        for bad in [
            "lmtp:unix:private/lmtp",
            "smtp:[a.test]:465",
            "a.test, b.test",
            "error:5.1.1 gone",
            "smtp:[a.test",
            "smtp:",
            "local",
        ] {
            assert!(read(bad).is_err(), "{bad}: {:?}", read(bad));
        }
    }

    #[test]
    fn maps_of_next_hops_are_asked_as_postfix_asks() {
        let mailbox = Mailbox::parse("Joe+x@a.b.test", true).unwrap();
        let recipients = Recipients::new(Vec::new(), Separator::parse("+"));
        let keys = ["joe+x@a.b.test", "joe@a.b.test", "a.b.test", ".b.test", ".test", "*"];
        assert_eq!(recipients.next_hop_keys(&mailbox), keys);
    }
}
