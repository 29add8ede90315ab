//! Routes: which way mail for some domains goes.

use crate::{choice::RouteTls, domain::DomainPattern};
use mail::Domain;
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

/// One `[[route]]`. The first whose domains match decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Which domains it is for.
    pub domains: Vec<DomainPattern>,
    /// Where their mail goes.
    pub target: Target,
    /// How it gets there; says nothing for a Maildir, a socket in the file system or discarding.
    pub tls: RouteTls,
}

impl Route {
    /// Is it for this domain, given as [`mail::Domain::key`]?
    pub fn matches(&self, key: &str) -> bool {
        self.domains.iter().any(|pattern| pattern.matches(key))
    }
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// By SMTP to this host, whatever MX records say.
    Smarthost(HostPort),
    /// By LMTP (RFC 2033).
    Lmtp(LmtpTarget),
    /// Into Maildirs here.
    Maildir(MaildirTemplate),
    /// By SMTP to the domain's mail exchangers.
    Mx,
    /// Nowhere: taken and thrown away.
    Discard,
}

/// `host:port`. The host is a name or an IP address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
            _ => Err("not a host name"),
        }
    }

    fn checked(host: String, port: u16) -> Result<Self, &'static str> {
        if port == 0 { Err("not a port from 1 to 65535") } else { Ok(Self { host, port }) }
    }

    /// The host, when it is an address.
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

/// An LMTP server: a socket in the file system, or a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LmtpTarget {
    /// `unix:/path`.
    Unix(PathBuf),
    /// `host:port`.
    Tcp(HostPort),
}

/// Longest socket path the kernel takes (`sun_path` with its final NUL; unix(7)).
const SOCKET_PATH_MAX: usize = 107;

impl LmtpTarget {
    pub(crate) fn parse(text: &str, base: &Path) -> Result<Self, &'static str> {
        let Some(path) = text.strip_prefix("unix:") else {
            return HostPort::parse(text).map(Self::Tcp);
        };
        let full = base.join(path);
        if path.is_empty() {
            return Err("the socket's path is missing");
        }
        if full.as_os_str().len() > SOCKET_PATH_MAX {
            return Err("longer than a socket's path may be (107 bytes)");
        }
        Ok(Self::Unix(full))
    }
}

impl fmt::Display for LmtpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => host.fmt(f),
        }
    }
}

/// An absolute path with `{local}` and `{domain}` in it. Whoever fills them in must keep a
/// recipient from naming another folder: it is not this type's business.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MaildirTemplate(String);

impl MaildirTemplate {
    pub(crate) fn parse(text: &str, base: &Path) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err("not a path".to_owned());
        }
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let name = rest[at..].strip_prefix('{').and_then(|inner| inner.split_once('}'));
            match name {
                Some(("local" | "domain", behind)) => rest = behind,
                Some((other, _)) => {
                    return Err(format!("{{{other}}} is no placeholder: {{local}} and {{domain}} are"));
                }
                None => return Err("a brace without its partner".to_owned()),
            }
        }
        let full = base.join(text);
        full.into_os_string().into_string().map(Self).map_err(|_| "not UTF-8".to_owned())
    }

    /// The template.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MaildirTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    fn maildir_templates_know_their_placeholders() {
        let base = Path::new("/etc/postrider");
        assert_eq!(
            MaildirTemplate::parse("mail/{local}", base).unwrap().as_str(),
            "/etc/postrider/mail/{local}"
        );
        assert!(MaildirTemplate::parse("/m/{domain}/{local}/x", base).is_ok());
        for junk in ["", "/m/{user}", "/m/{local", "/m/local}", "/m/{}"] {
            assert!(MaildirTemplate::parse(junk, base).is_err(), "{junk}");
        }
    }
}
