//! Destinations: where recipients' mail goes next, and how.

use crate::{Domain, Program};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

/// `host:port`. The host is a name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// A-label name, or an address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl HostPort {
    /// Reads `name:port`, `192.0.2.1:port` or `[2001:db8::1]:port`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Self::checked(address.ip().to_string(), address.port());
        }
        if text.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6()) {
            return Err("an IPv6 address needs brackets, and the port is missing");
        }
        let Some((host, port)) = text.rsplit_once(':') else { return Err("the port is missing") };
        let plain = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = plain.then(|| port.parse().ok()).flatten().ok_or("not a port from 1 to 65535")?;
        match Domain::parse(host) {
            Ok(domain) if !host.starts_with('[') => Self::checked(domain.key().into_owned(), port),
            _ if host.starts_with('[') && Domain::parse(host.trim_matches(['[', ']'])).is_ok() => {
                Err("a name is written without brackets: its MX records are never looked up")
            }
            _ => Err("not a host name"),
        }
    }

    fn checked(host: String, port: u16) -> Result<Self, &'static str> {
        if port == 0 { Err("not a port from 1 to 65535") } else { Ok(Self { host, port }) }
    }

    /// Returns the host if it is an address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// An LMTP server (RFC 2033): a socket in the file system, or a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LmtpServer {
    /// `unix:/path`.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(HostPort),
}

impl fmt::Display for LmtpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => host.fmt(f),
        }
    }
}

/// How TLS is used towards a destination, and whether its certificate has to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TlsMode {
    /// Mail is sent without TLS.
    Off,
    /// Mail is sent with TLS if the server offers it; the certificate does not matter (RFC 7435).
    May,
    /// Mail is sent with TLS only, and waits otherwise; the certificate does not matter.
    Require,
    /// Mail is sent with TLS and a trusted certificate that names the host, and waits otherwise.
    Verify,
    /// Mail is sent as with [`TlsMode::Verify`], to hosts that offer REQUIRETLS, and is returned otherwise: the messages
    /// require it (RFC 8689).
    RequireTls,
}

/// Where a message goes next: another server, or a delivery on this machine. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NextHop {
    /// SMTP to the mail exchangers of a domain, given as [`Domain::key`].
    Mx(Arc<str>),
    /// SMTP to a fixed host, whatever MX records say.
    Smarthost(Arc<HostPort>),
    /// LMTP to a fixed host or socket.
    Lmtp(Arc<LmtpServer>),
    /// Maildirs on this machine: an absolute path with `{local}` and `{domain}` in it.
    Maildir(Arc<str>),
    /// Files on this machine in the mbox format: an absolute path with `{local}` and `{domain}` in it.
    Mbox(Arc<str>),
    /// A program on this machine, started for each recipient.
    Pipe(Arc<Program>),
    /// None: the mail is returned with this text, `550 5.7.1 …`.
    Reject(Arc<str>),
    /// None: the mail is thrown away, because a route says so.
    Discard,
    /// No host: this server expands the recipients again.
    Expand,
}

impl NextHop {
    /// Returns whether mail leaves by SMTP.
    pub fn is_smtp(&self) -> bool {
        matches!(self, Self::Mx(_) | Self::Smarthost(_))
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mx(domain) => write!(f, "mx:{domain}"),
            Self::Smarthost(host) => write!(f, "smarthost:{host}"),
            Self::Lmtp(server) => write!(f, "lmtp:{server}"),
            Self::Maildir(template) => write!(f, "maildir:{template}"),
            Self::Mbox(template) => write!(f, "mbox:{template}"),
            Self::Pipe(program) => write!(f, "pipe:{program}"),
            Self::Reject(reply) => write!(f, "reject:{reply}"),
            Self::Discard => f.write_str("discard:discard"),
            Self::Expand => f.write_str("expand:aliases"),
        }
    }
}

/// A unit of scheduling: the recipients that share a next hop, its TLS mode and its route. Displayed as
/// `mx:example.com`, `smarthost:mail.isp.example:587`, `lmtp:unix:/run/lmtp`. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Destination {
    /// Where the mail goes, such as the mail exchangers of a domain.
    pub next_hop: NextHop,
    /// The TLS mode is part of the destination, so that what is queued leaves no less safely when the routes change.
    pub tls: TlsMode,
    /// The name of the route, if connections of the route differ from others: they log in, or come from another address.
    pub route: Option<Arc<str>>,
}

impl Destination {
    /// A next hop without settings of a route.
    pub fn new(next_hop: NextHop, tls: TlsMode) -> Self {
        Self { next_hop, tls, route: None }
    }

    /// Returns the destination of a message that requires TLS (RFC 8689). The level only rises; mail that stays on this
    /// machine needs none.
    #[must_use]
    pub fn requiring_tls(self) -> Self {
        let leaves = match &self.next_hop {
            NextHop::Mx(_) | NextHop::Smarthost(_) => true,
            NextHop::Lmtp(server) => match &**server {
                LmtpServer::Unix(_) => false,
                LmtpServer::Tcp(host) => !host.ip().is_some_and(|ip| ip.is_loopback()),
            },
            _ => false,
        };
        let tls = if leaves { self.tls.max(TlsMode::RequireTls) } else { self.tls };
        Self { tls, ..self }
    }

    /// The mail exchangers of a domain, given as [`Domain::key`].
    pub fn mx(domain: impl Into<Arc<str>>, tls: TlsMode) -> Self {
        Self::new(NextHop::Mx(domain.into()), tls)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.next_hop.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_ports_read_back_as_shown() {
        for text in ["mail.example.com:587", "192.0.2.1:25", "[2001:db8::1]:25", "localhost:1"] {
            assert_eq!(HostPort::parse(text).unwrap().to_string(), text);
        }
        for junk in [
            "mail.example.com",
            "a:",
            "a:0",
            "a:65536",
            ":25",
            "a b:25",
            "::1",
            "[::1]",
            "a:+25",
            "127.0.0.1:0",
        ] {
            assert!(HostPort::parse(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn mail_that_requires_tls_raises_the_level_where_it_leaves_the_machine() {
        let lmtp = |text| NextHop::Lmtp(Arc::new(LmtpServer::Tcp(HostPort::parse(text).unwrap())));
        let raised = |next_hop| Destination::new(next_hop, TlsMode::May).requiring_tls().tls;
        assert_eq!(raised(NextHop::Mx("a.test".into())), TlsMode::RequireTls);
        assert_eq!(raised(lmtp("192.0.2.1:24")), TlsMode::RequireTls);
        assert_eq!(raised(lmtp("127.0.0.1:24")), TlsMode::May);
        assert_eq!(raised(NextHop::Lmtp(Arc::new(LmtpServer::Unix("/run/s".into())))), TlsMode::May);
        assert_eq!(raised(NextHop::Discard), TlsMode::May);
    }

    #[test]
    fn destinations_are_shown_with_their_transport() {
        let host = HostPort { host: "2001:db8::1".into(), port: 25 };
        let lmtp = |server| NextHop::Lmtp(Arc::new(server));
        for (next_hop, text) in [
            (NextHop::Mx("a.test".into()), "mx:a.test"),
            (NextHop::Smarthost(Arc::new(host.clone())), "smarthost:[2001:db8::1]:25"),
            (lmtp(LmtpServer::Tcp(host)), "lmtp:[2001:db8::1]:25"),
            (lmtp(LmtpServer::Unix("/run/a:b".into())), "lmtp:unix:/run/a:b"),
            (NextHop::Maildir("/m/{local}".into()), "maildir:/m/{local}"),
            (NextHop::Discard, "discard:discard"),
            (NextHop::Expand, "expand:aliases"),
        ] {
            assert_eq!(Destination::new(next_hop, TlsMode::May).to_string(), text);
        }
    }

    #[test]
    fn next_hops_that_differ_in_tls_or_route_alone_are_two_destinations() {
        let plain = Destination::mx("a.test", TlsMode::May);
        assert_ne!(plain, Destination { route: Some("bob".into()), ..plain.clone() });
        assert_ne!(Destination::mx("a.test", TlsMode::May), Destination::mx("a.test", TlsMode::Require));
    }
}
