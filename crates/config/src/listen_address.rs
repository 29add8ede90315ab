//! The place of a listener: a port, a Unix socket, or a socket that systemd opened.

use crate::{
    account::{Group, SocketMode, User},
    route::parse_unix_path,
    value::{Context, Found, Value, text, text_value},
};
use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

/// The address of a listener as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// An IP address; without a port, that of the listener's kind.
    Ip(IpAddr, Option<u16>),
    /// `unix:/path`.
    Unix(PathBuf),
    /// `systemd:NAME`.
    Systemd(String),
}

text_value!(
    ListenAddress,
    "an IP address, with or without a port, or a socket",
    "\"127.0.0.1:25\", \"0.0.0.0:25\", \"[::]:25\", \"unix:/run/postrider/lmtp.sock\" or \"systemd:NAME\"",
    parse,
    |address| match address {
        ListenAddress::Ip(ip, None) => ip.to_string(),
        ListenAddress::Ip(ip, Some(port)) => SocketAddr::new(*ip, *port).to_string(),
        ListenAddress::Unix(path) => format!("unix:{}", path.display()),
        ListenAddress::Systemd(name) => format!("systemd:{name}"),
    }
);

fn parse(text: &str, base: &Path) -> Result<ListenAddress, (String, Option<String>)> {
    match text.split_once(':') {
        Some(("unix", path)) => {
            return parse_unix_path(path, base)
                .map(ListenAddress::Unix)
                .map_err(|why| (why.to_owned(), None));
        }
        Some(("systemd", name)) => return parse_name(name),
        _ => {}
    }
    match ip_and_port(text) {
        Ok((ip, port)) => Ok(ListenAddress::Ip(ip, port)),
        Err(_) if text.parse::<u16>().is_ok() => {
            let help = format!("write \"127.0.0.1:{text}\", or \"0.0.0.0:{text}\" for all addresses");
            Err(("a port without an address".to_owned(), Some(help)))
        }
        Err(why) => Err((why.to_owned(), None)),
    }
}

/// Reads an IP address with or without a port; one of IPv6 may stand in brackets.
pub(crate) fn ip_and_port(text: &str) -> Result<(IpAddr, Option<u16>), &'static str> {
    match (text.parse::<SocketAddr>(), text.trim_matches(['[', ']']).parse::<IpAddr>()) {
        (Ok(address), _) => Ok((address.ip(), Some(address.port()))),
        (_, Ok(ip)) => Ok((ip, None)),
        _ if has_address(text) => Err("the port is not a number from 1 to 65535"),
        _ => Err("not an IP address"),
    }
}

/// Returns whether an IP address stands before the last colon.
fn has_address(text: &str) -> bool {
    let Some((address, port)) = text.rsplit_once(':') else { return false };
    !port.contains(']') && address.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

/// Names of `FileDescriptorName=` (systemd.socket(5)).
fn parse_name(name: &str) -> Result<ListenAddress, (String, Option<String>)> {
    let is_plain = |c: char| c.is_ascii_graphic() && c != ':';
    if name.is_empty() || name.len() > 255 || !name.chars().all(is_plain) {
        let help =
            "write the value of FileDescriptorName=, or the name of the unit, such as systemd:smtp.socket";
        return Err(("not the name of a socket".to_owned(), Some(help.to_owned())));
    }
    Ok(ListenAddress::Systemd(name.to_owned()))
}

/// The place of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAt {
    /// Address and port.
    Ip(SocketAddr),
    /// A socket in the file system.
    Unix {
        /// Absolute, or below the directory of the configuration.
        path: PathBuf,
        /// Who may connect.
        mode: SocketMode,
        /// The owner, where it is not the user of the daemon.
        owner: Option<User>,
        /// The group, where it is not that of the daemon.
        group: Option<Group>,
    },
    /// All sockets of this name that systemd opened.
    Systemd(String),
}

impl ListenAt {
    /// The address, if it is known before the daemon listens.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(*address),
            Self::Unix { .. } | Self::Systemd(_) => None,
        }
    }
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "unix:{}", path.display()),
            Self::Systemd(name) => write!(f, "systemd:{name}"),
        }
    }
}
