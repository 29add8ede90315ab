//! Addresses to listen on or to connect to: `[inet:][host]:port` or `unix:path`, as Postfix's tools take them, and
//! `[host]port`, as Postal takes them.

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
};

/// Where to connect or to listen, not resolved yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Without a host: any.
    Inet {
        /// A name, or an address without brackets; `None` is any address.
        host: Option<String>,
        /// TCP port.
        port: u16,
    },
    /// A Unix socket, by its path.
    Unix(PathBuf),
}

/// Which addresses of a name are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Family {
    /// IPv4 and IPv6.
    #[default]
    Any,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Endpoint {
    /// Reads an endpoint; without a port it has `default_port`, if there is one.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path".into())
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let text = text.strip_prefix("inet:").unwrap_or(text);
        let (host, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
            (Some(bracketed), _) => in_brackets(text, bracketed)?,
            (None, Some((host, _))) if host.contains(':') => (text, None),
            (None, Some((host, port))) => (host, Some(port)),
            (None, None) => (text, None),
        };
        let port = match (port, default_port) {
            (Some("smtp"), _) => 25,
            (Some("lmtp"), _) => 24,
            (Some(port), _) => port
                .parse()
                .ok()
                .or_else(|| service(&std::fs::read_to_string("/etc/services").unwrap_or_default(), port))
                .ok_or_else(|| {
                    format!("`{text}`: `{port}` is neither a port number nor a service of /etc/services; write host:port or [host]:port")
                })?,
            (None, Some(port)) => port,
            (None, None) => return Err(format!("`{text}` has no port: write host:port")),
        };
        Ok(Self::Inet { host: (!host.is_empty()).then(|| host.to_owned()), port })
    }

    /// The socket addresses it stands for, all of them of the wanted family.
    pub fn resolve(&self, family: Family) -> Result<Vec<SocketAddrAny>, String> {
        match self {
            Self::Unix(path) => {
                let address = SocketAddrUnix::new(path).map_err(|e| format!("use {self}: {e}"))?;
                Ok(vec![address.into()])
            }
            Self::Inet { host: None, port } => Ok(any(family, *port)),
            Self::Inet { host: Some(host), port } => {
                let found =
                    (host.as_str(), *port).to_socket_addrs().map_err(|e| format!("look up {host}: {e}"))?;
                let fits = |a: &SocketAddr| match family {
                    Family::Any => true,
                    Family::V4 => a.is_ipv4(),
                    Family::V6 => a.is_ipv6(),
                };
                let addresses: Vec<SocketAddrAny> = found.filter(fits).map(Into::into).collect();
                if addresses.is_empty() {
                    return Err(format!("look up {host}: no address of the wanted family"));
                }
                Ok(addresses)
            }
        }
    }
}

/// The servers of a source: endpoints with commas between them, which take turns. An endpoint behind a `+` is looked
/// up again for each connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Servers {
    endpoints: Vec<Endpoint>,
    looks_up_again: bool,
}

impl Servers {
    /// Reads `[+]endpoint,…`; the default port is 25.
    ///
    /// # Errors
    /// One of them is no endpoint.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let one = |text: &str| match Endpoint::parse(text.strip_prefix('+').unwrap_or(text), Some(25)) {
            // As smtp-source: any address is nothing to connect to.
            Ok(Endpoint::Inet { host: None, port }) => {
                Err(format!("`{text}`: the host is missing; write host:port, such as localhost:{port}"))
            }
            endpoint => endpoint,
        };
        // A path may have commas.
        let texts: Vec<&str> = if text.starts_with("unix:") { vec![text] } else { text.split(',').collect() };
        if texts.iter().any(|text| matches!(*text, "" | "+")) {
            return Err(format!("`{text}`: a host is missing; write [+]host[:port],…"));
        }
        let endpoints = texts.iter().map(|text| one(text)).collect::<Result<_, _>>()?;
        Ok(Self { endpoints, looks_up_again: texts.iter().any(|text| text.starts_with('+')) })
    }

    /// Returns the text, if it names servers; for command lines that pass it on.
    pub(crate) fn checked(text: &str) -> Result<String, String> {
        Self::parse(text).map(|_| text.to_owned())
    }

    /// Returns the endpoints in the order in which they were written.
    pub(crate) fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Are names to be looked up for each connection?
    pub(crate) fn looks_up_again(&self) -> bool {
        self.looks_up_again
    }

    /// Returns the servers with the numbers of their addresses; nothing of one server, which needs no name.
    ///
    /// # Errors
    /// A name has no address of the wanted family.
    pub(crate) fn counted(&self, family: Family) -> Result<Vec<(String, usize)>, String> {
        if self.endpoints.len() < 2 {
            return Ok(Vec::new());
        }
        let count = |endpoint: &Endpoint| Ok((endpoint.to_string(), endpoint.resolve(family)?.len()));
        self.endpoints.iter().map(count).collect()
    }

    /// Returns the addresses of all servers.
    ///
    /// # Errors
    /// A name has no address of the wanted family.
    pub(crate) fn resolve(&self, family: Family) -> Result<Vec<SocketAddrAny>, String> {
        let all: Result<Vec<_>, _> = self.endpoints.iter().map(|endpoint| endpoint.resolve(family)).collect();
        Ok(all?.concat())
    }
}

/// Returns the host between brackets, and the port behind them: `[host]`, `[host]:port`, or Postal's `[host]port`.
fn in_brackets<'a>(text: &str, bracketed: &'a str) -> Result<(&'a str, Option<&'a str>), String> {
    let Some((host, rest)) = bracketed.split_once(']') else {
        return Err(format!("`{text}` has no `]`: write [host]:port"));
    };
    if host.is_empty() {
        return Err(format!("`{text}` has no host between its brackets: write [host]:port"));
    }
    let port = rest.strip_prefix(':').unwrap_or(rest);
    Ok((host, (!rest.is_empty()).then_some(port)))
}

/// The TCP port of that name or alias (services(5)).
fn service(services: &str, name: &str) -> Option<u16> {
    services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_ascii_whitespace();
        let (official, port) = (words.next()?, words.next()?.strip_suffix("/tcp")?);
        if official == name || words.any(|alias| alias == name) { port.parse().ok() } else { None }
    })
}

fn any(family: Family, port: u16) -> Vec<SocketAddrAny> {
    let v4: IpAddr = Ipv4Addr::UNSPECIFIED.into();
    let v6: IpAddr = Ipv6Addr::UNSPECIFIED.into();
    let hosts: &[IpAddr] = match family {
        Family::Any => &[v4, v6],
        Family::V4 => &[v4],
        Family::V6 => &[v6],
    };
    hosts.iter().map(|ip| SocketAddr::new(*ip, port).into()).collect()
}

/// The address of a peer, as people read it: without port.
pub fn host_of(address: &SocketAddrAny) -> String {
    match (address.address_family(), SocketAddr::try_from(address.clone())) {
        (AddressFamily::UNIX, _) | (_, Err(_)) => "localhost".to_owned(),
        (_, Ok(SocketAddr::V6(v6))) => {
            v6.ip().to_ipv4_mapped().map_or(format!("ipv6:{}", v6.ip()), |v4| v4.to_string())
        }
        (_, Ok(SocketAddr::V4(v4))) => v4.ip().to_string(),
    }
}

/// Returns a socket's address for people: with its port, or as a path.
pub fn shown(address: &SocketAddrAny) -> String {
    match (SocketAddr::try_from(address.clone()), SocketAddrUnix::try_from(address.clone())) {
        (Ok(inet), _) => inet.to_string(),
        (_, Ok(unix)) => {
            let path = unix.path_bytes().map(String::from_utf8_lossy);
            format!("unix:{}", path.unwrap_or_default())
        }
        _ => "an unknown address".to_owned(),
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text, None)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet { host: Some(host), port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Inet { host, port } => write!(f, "{}:{port}", host.as_deref().unwrap_or("*")),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_by_its_name_or_alias() {
        let services =
            "# x 1/tcp\nsmtp\t\t25/tcp\t\tmail\nsubmission 587/udp\nsubmission\t587/tcp # mail x\n";
        let ports = ["smtp", "mail", "submission", "x", "#", ""].map(|name| service(services, name));
        assert_eq!(ports, [Some(25), Some(25), Some(587), None, None, None]);
    }

    #[test]
    fn endpoints_are_read_as_postfix_writes_them() {
        let inet = |host: &str, port| Ok(Endpoint::Inet { host: Some(host.into()), port });
        assert_eq!(Endpoint::parse("inet:localhost:2525", None), inet("localhost", 2525));
        assert_eq!(Endpoint::parse("[::1]:2525", None), inet("::1", 2525));
        assert_eq!(Endpoint::parse("[::1]", Some(25)), inet("::1", 25));
        assert_eq!(Endpoint::parse("::1", Some(25)), inet("::1", 25));
        assert_eq!(Endpoint::parse("mx.example", Some(25)), inet("mx.example", 25));
        assert_eq!(Endpoint::parse(":25", None), Ok(Endpoint::Inet { host: None, port: 25 }));
        assert_eq!(Endpoint::parse("unix:/a", None), Ok(Endpoint::Unix("/a".into())));
        for bad in ["host", "host:99999", "host:no service", "unix:"] {
            assert!(Endpoint::parse(bad, None).is_err(), "{bad}");
        }
    }

    #[test]
    fn servers_are_a_list_and_a_plus_asks_for_another_look_up() {
        let servers = Servers::parse("[127.0.0.1]2600,+localhost:26").unwrap();
        assert_eq!((servers.endpoints().len(), servers.looks_up_again()), (2, true));
        assert!(!Servers::parse("a,b").unwrap().looks_up_again());
        assert_eq!(Servers::parse("unix:/a,b").unwrap().endpoints(), [Endpoint::Unix("/a,b".into())]);
        for bad in ["", "+", "a,", ",a", "a,+"] {
            assert!(Servers::parse(bad).unwrap_err().contains("a host is missing"), "{bad}");
        }
        for bad in [":25", "inet::25", "localhost,+:25"] {
            let error = Servers::parse(bad).unwrap_err();
            assert!(error.contains("the host is missing; write host:port, such as localhost:25"), "{error}");
        }
    }

    #[test]
    fn a_port_directly_behind_brackets_is_the_port_and_other_text_is_refused() {
        let inet = |host: &str, port| Ok(Endpoint::Inet { host: Some(host.into()), port });
        assert_eq!(Endpoint::parse("[127.0.0.1]2600", Some(25)), inet("127.0.0.1", 2600));
        assert_eq!(Endpoint::parse("[::1]smtp", None), inet("::1", 25));
        for (bad, words) in [
            ("[127.0.0.1]junk", "`junk` is neither a port number"),
            ("[127.0.0.1]:", "`` is neither a port number"),
            ("[127.0.0.1]2600x", "`2600x` is neither a port number"),
            ("[127.0.0.1]:2600]", "`2600]` is neither a port number"),
            ("[127.0.0.1", "has no `]`"),
            ("[]:25", "no host between its brackets"),
        ] {
            let error = Endpoint::parse(bad, Some(25)).unwrap_err();
            assert!(error.contains(words) && error.contains("host]:port"), "{bad}: {error}");
        }
    }
}
