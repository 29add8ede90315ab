//! Connections that are open and say nothing.

use crate::{
    address::{Endpoint, Family},
    limits,
};
use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{SocketAddrAny, SocketFlags, SocketType, bind, connect, socket_with},
};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

/// An address has about 28,000 ports for one server: more connections come from further addresses of the loopback. bind(2) looks for a
/// free port among the 14,000 odd ones first, and takes long where nearly all are used.
const PER_ADDRESS: u32 = 10_000;

/// Descriptors that are left for everything else.
const FILES: u64 = 100;

/// Opens connections that say nothing. Fewer are returned where the server takes no more.
///
/// # Errors
/// The server takes none.
pub(super) fn open(endpoint: &str, count: u32) -> Result<Vec<OwnedFd>, String> {
    let say = |error: io::Error| format!("connect to the MTA at {endpoint}: {error}");
    let mut open = Vec::new();
    if count == 0 {
        return Ok(open);
    }
    let files = limits::files();
    if u64::from(count) + FILES > files {
        return Err(format!(
            "open {count} idle connections: this process may have {files} files open: `ulimit -n` sets more, for the MTA too"
        ));
    }
    let addresses = Endpoint::parse(endpoint, Some(25))?.resolve(Family::Any)?;
    let address = addresses.first().ok_or_else(|| format!("connect to the MTA at {endpoint}: no address"))?;
    let server = SocketAddr::try_from(address.clone()).ok();
    for number in 0..count {
        match connection(address, server.and_then(|server| local_address(server, number))) {
            Ok(socket) => open.push(socket),
            Err(error) if open.is_empty() => return Err(say(error.into())),
            Err(_) => break,
        }
    }
    Ok(open)
}

/// Connects to an address, from the local one if it is given.
///
/// # Errors
/// As connect(2).
pub(super) fn connection(address: &SocketAddrAny, local: Option<SocketAddr>) -> Result<OwnedFd, Errno> {
    let socket = socket_with(address.address_family(), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if let Some(local) = local {
        bind(&socket, &local)?;
    }
    connect(&socket, address)?;
    Ok(socket)
}

/// Returns the address that a connection comes from, if the kernel is not to choose it.
fn local_address(server: SocketAddr, number: u32) -> Option<SocketAddr> {
    let IpAddr::V4(ip) = server.ip() else { return None };
    let first = u32::from(Ipv4Addr::new(127, 1, 0, 1));
    let local = Ipv4Addr::from(first + number / PER_ADDRESS);
    ip.is_loopback().then(|| SocketAddr::from((local, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_the_loopback_has_so_many_connections_as_it_has_ports() {
        let from = |server: &str, number| {
            local_address(server.parse().unwrap(), number).map(|address| address.ip().to_string())
        };
        assert_eq!(from("127.0.0.1:25", 0).as_deref(), Some("127.1.0.1"));
        assert_eq!(from("127.0.0.1:25", 9_999).as_deref(), Some("127.1.0.1"));
        assert_eq!(from("127.0.0.1:25", 999_999).as_deref(), Some("127.1.0.100"));
        assert_eq!(from("192.0.2.1:25", 999_999), None);
        assert_eq!(from("[::1]:25", 0), None);
    }

    #[test]
    fn connections_are_opened_until_a_server_takes_no_more() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert_eq!(open(&address, 0).unwrap().len(), 0);
        assert_eq!(open(&address, 3).unwrap().len(), 3);
        let (peer, from) = listener.accept().unwrap();
        assert_eq!(from.ip().to_string(), "127.1.0.1");
        let error = open(&address, u32::MAX).unwrap_err();
        assert!(error.contains("files open: `ulimit -n` sets more"), "{error}");
        drop(peer);
        let (_kept, silent) = measure::kept_port::kept_port(Ipv4Addr::LOCALHOST).unwrap();
        assert!(open(&silent.to_string(), 3).unwrap_err().contains("refused"));
    }
}
