//! The sink's listening sockets.

use crate::address::{Endpoint, Family};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{
        AddressFamily, SocketAddrAny, SocketFlags, SocketType, bind, getsockname, listen, socket_with,
        sockopt,
    },
};
use std::net::{Ipv4Addr, SocketAddrV4};

/// The settings of -4, -6, -T, --reuse-port and the backlog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) family: Family,
    pub(crate) backlog: i32,
    pub(crate) window_bytes: Option<usize>,
    /// Other processes may listen on the same port; the kernel spreads connections over them (SO_REUSEPORT).
    pub(crate) shares_port: bool,
    /// Addresses to listen on, from that of the endpoint on.
    pub(crate) address_count: u16,
}

/// Listens on every address of `endpoint`. A wildcard IPv6 that the kernel lacks is left out as long as
/// another address is there.
pub(crate) fn open(endpoint: &Endpoint, settings: Settings) -> Result<Vec<OwnedFd>, String> {
    if let Endpoint::Unix(path) = endpoint {
        remove_old_socket(path)?;
    }
    let mut listeners = Vec::new();
    let mut refused = None;
    let mut addresses = endpoint.resolve(settings.family)?;
    if settings.address_count > 1 {
        addresses = following(&addresses, settings.address_count)
            .ok_or_else(|| format!("--addresses: {endpoint} is not an IPv4 address with a port"))?;
    }
    for address in addresses {
        match open_one(&address, settings) {
            Ok(listener) => listeners.push(listener),
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if !listeners.is_empty() => {}
            Err(error) => refused = Some(format!("listen on {endpoint}: {}", std::io::Error::from(error))),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => Ok(listeners),
    }
}

/// Returns so many addresses, from the only one of a list on. Returns none if it is not of IPv4, or has no port: the kernel
/// would choose another one for each.
fn following(addresses: &[SocketAddrAny], count: u16) -> Option<Vec<SocketAddrAny>> {
    let [address] = addresses else { return None };
    let first = SocketAddrV4::try_from(address.clone()).ok().filter(|first| first.port() != 0)?;
    let bits = first.ip().to_bits();
    let last = bits.checked_add(u32::from(count) - 1)?;
    Some(
        (bits..=last).map(|bits| SocketAddrV4::new(Ipv4Addr::from_bits(bits), first.port()).into()).collect(),
    )
}

/// A socket without a listener is removed; anything else stays.
fn remove_old_socket(path: &std::path::Path) -> Result<(), String> {
    use std::os::unix::{fs::FileTypeExt as _, net::UnixStream};
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).map_err(|e| format!("remove the old socket {}: {e}", path.display()))?;
    }
    Ok(())
}

fn open_one(address: &SocketAddrAny, settings: Settings) -> Result<OwnedFd, Errno> {
    let family = address.address_family();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if family != AddressFamily::UNIX {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if settings.shares_port {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
        // Replies are whole when they are written; waiting for more would only delay them. Connections inherit it.
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    if family == AddressFamily::INET6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    if let Some(bytes) = settings.window_bytes {
        // Before listen(2), so that connections inherit it (tcp(7)).
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    bind(&socket, address)?;
    listen(&socket, settings.backlog)?;
    Ok(socket)
}

/// The address that was really taken: the kernel chooses for port 0.
pub(crate) fn local_address(listener: &OwnedFd) -> Result<SocketAddrAny, Errno> {
    getsockname(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_first_one_with_its_port() {
        let shown = |text: &str| {
            let endpoint: Endpoint = text.parse().unwrap();
            let addresses = following(&endpoint.resolve(Family::Any).unwrap(), 3)?;
            Some(addresses.iter().map(crate::address::shown).collect::<Vec<_>>())
        };
        let three = ["127.2.0.254:25", "127.2.0.255:25", "127.2.1.0:25"].map(str::to_owned);
        assert_eq!(shown("127.2.0.254:25"), Some(three.to_vec()));
        for other in ["127.2.0.1:0", "[::1]:25", "255.255.255.254:25"] {
            assert_eq!(shown(other), None, "{other}");
        }
    }
}
