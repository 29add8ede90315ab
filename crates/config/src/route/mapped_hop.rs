//! The next hops that maps have for recipients.

use super::{Route, parse_lmtp_server};
use mail::{Domain, HostPort, LmtpServer, NextHop};
use std::{fmt, net::IpAddr, path::Path, sync::Arc};

/// A next hop, as a map has it for a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MappedHop {
    /// SMTP to the mail exchangers of a domain, given as [`Domain::key`].
    Mx(Arc<str>),
    /// SMTP to a host; MX records are ignored.
    Smarthost(HostPort),
    /// LMTP (RFC 2033).
    Lmtp(LmtpServer),
    /// The route with this name.
    Route(Box<str>),
}

/// Returns the route that a value of a map may name: one with a next hop of its own.
pub fn named_by_map<'r>(routes: &'r [Route], name: &str) -> Option<&'r Route> {
    let named = routes.iter().find(|route| route.label.as_deref() == Some(name));
    named.filter(|route| route.next_hop_maps().is_empty())
}

impl MappedHop {
    /// Reads a value: the name of a route, `smtp:HOST`, `relay:HOST` or `lmtp:HOST`, where the host may have brackets around it and a port
    /// behind it, `lmtp:unix:/path`, or a host alone. `smtp:DOMAIN` and `relay:DOMAIN` without both are the mail exchangers of the domain,
    /// as in Postfix. None: the map has no next hop for the recipient.
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
        let word = value.split(':').next().unwrap_or_default();
        if matches!(word, "error" | "retry" | "discard" | "hold") && value.contains(':') {
            return Err(bad("write the name of a [[route]] with `reject`, `discard` or `hold`"));
        }
        let (kind, rest) = match value.split_once(':') {
            Some((kind @ ("smtp" | "relay" | "lmtp"), rest)) => (kind, rest),
            _ if value.contains(['.', '[']) => ("smtp", value),
            _ => return Err(bad("it is neither a host nor the name of a [[route]]")),
        };
        if let (true, Some(path)) = (kind == "lmtp", rest.strip_prefix("unix:")) {
            if !path.starts_with('/') {
                return Err(bad("the path of the socket is not absolute: write lmtp:unix:/path"));
            }
            let server = parse_lmtp_server(rest, Path::new("/")).map_err(bad)?;
            return Ok(Some(Self::Lmtp(server)));
        }
        let is_domain = kind != "lmtp" && rest.len() < value.len() && !rest.contains([':', '[']);
        if is_domain
            && rest.parse::<IpAddr>().is_err()
            && let Ok(domain) = Domain::parse(rest)
        {
            return Ok(Some(Self::Mx(domain.key().into())));
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
            Self::Mx(domain) => Some(NextHop::Mx(domain.clone())),
            Self::Smarthost(host) => Some(NextHop::Smarthost(host.clone().into())),
            Self::Lmtp(server) => Some(NextHop::Lmtp(server.clone().into())),
            Self::Route(_) => None,
        }
    }

    /// Returns the TCP port.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Smarthost(host) | Self::Lmtp(LmtpServer::Tcp(host)) => Some(host.port),
            Self::Mx(_) | Self::Lmtp(LmtpServer::Unix(_)) | Self::Route(_) => None,
        }
    }
}

/// The form that [`MappedHop::parse`] reads.
impl fmt::Display for MappedHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mx(domain) => write!(f, "smtp:{domain}"),
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
            ("smtp:b.test", "smtp:b.test"),
            ("relay:B\u{fc}cher.test", "smtp:xn--bcher-kva.test"),
            ("smtp:b.test:26", "smtp:b.test:26"),
            ("smtp:192.0.2.1", "smtp:192.0.2.1:25"),
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
}
