//! A port that nobody else is given.

use rustix::{
    fd::OwnedFd,
    net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt},
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

/// Returns a bound socket that does not listen, and its address. As long as it is kept, the kernel gives the port to nobody,
/// and who connects is refused; but a server that sets SO_REUSEADDR, as Postrider does, can listen there.
///
/// # Errors
/// Of the system calls: the address is of no interface, or there is no port or descriptor left.
pub fn kept_port(ip: Ipv4Addr) -> io::Result<(OwnedFd, SocketAddr)> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddr::from((ip, 0)))?;
    let address = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_kept_port_refuses_until_a_server_listens_on_it() {
        let (_kept, address) = kept_port(Ipv4Addr::LOCALHOST).unwrap();
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        // The standard library sets SO_REUSEADDR.
        let _server = TcpListener::bind(address).unwrap();
        TcpStream::connect(address).unwrap();
    }
}
