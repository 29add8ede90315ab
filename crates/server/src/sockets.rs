//! Sockets of listeners: bound by the daemon, or opened by systemd.

use crate::port_owner::owner_of;
use config::{Listen, ListenAt};
use inbound::{ListenSocket, ListenTls};
use listenfd::ListenFd;
use rustix::io::FdFlags;
use std::{
    io,
    net::{SocketAddr, TcpListener},
    os::fd::AsFd,
};
use tokio::net::TcpSocket;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;

/// Sockets that systemd has opened (sd_listen_fds(3)), with the names of their units or `FileDescriptorName=`.
pub(super) struct Inherited {
    sockets: ListenFd,
    names: Vec<String>,
}

impl Inherited {
    /// Takes the sockets that the environment names.
    pub(super) fn from_env() -> Self {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let sockets = ListenFd::from_env();
        let mut names: Vec<String> = names.split(':').map(str::to_owned).collect();
        names.resize(sockets.len(), "unknown".to_owned());
        Self { sockets, names }
    }

    /// Takes the sockets that systemd passed under this name.
    fn take(&mut self, name: &str) -> Result<Vec<ListenSocket>, String> {
        let numbers: Vec<usize> =
            (0..self.names.len()).filter(|number| self.names[*number] == name).collect();
        if numbers.is_empty() {
            let known = if self.names.is_empty() { "none".to_owned() } else { self.names.join(", ") };
            return Err(format!(
                "listen on systemd:{name}: systemd has opened no socket of this name; the sockets are: {known}"
            ));
        }
        numbers.into_iter().map(|number| self.take_one(number, name)).collect()
    }

    /// Takes all sockets of this name, which have to be TCP.
    pub(super) fn take_tcp(&mut self, name: &str) -> Result<Vec<TcpListener>, String> {
        let tcp = |socket: ListenSocket| match socket {
            ListenSocket::Tcp(socket) => {
                socket.set_nonblocking(true).map_err(|e| failed(name, &e))?;
                Ok(socket)
            }
            ListenSocket::Unix { .. } => {
                Err(format!("listen on systemd:{name}: this is a Unix socket, and TCP is needed"))
            }
        };
        self.take(name)?.into_iter().map(tcp).collect()
    }

    /// Closes the connections of sockets that nothing in the configuration takes, and says so: a client would wait for a
    /// greeting until it gives up. The sockets themselves are systemd's. Needs the context of a runtime.
    pub(super) fn refuse_rest(mut self) {
        for number in 0..self.names.len() {
            let name = self.names[number].clone();
            let Ok(socket) = self.take_one(number, &name) else { continue };
            tracing::warn!(
                "systemd has opened the socket \"{name}\" ({socket}), which nothing in the configuration names; its connections \
                 are closed: write `address = \"systemd:{name}\"` in a [[listen]], or disable the unit of the socket"
            );
            let ListenSocket::Tcp(socket) = socket else { continue };
            let listener =
                socket.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(socket));
            if let Ok(listener) = listener {
                tokio::spawn(async move { while listener.accept().await.is_ok() {} });
            }
        }
    }

    fn take_one(&mut self, number: usize, name: &str) -> Result<ListenSocket, String> {
        let taken = || format!("listen on systemd:{name}: two listeners have this name");
        if let Ok(socket) = self.sockets.take_tcp_listener(number) {
            let socket = socket.ok_or_else(taken)?;
            own(&socket, name)?;
            rustix::net::sockopt::set_tcp_nodelay(&socket, true).map_err(|e| failed(name, &e.into()))?;
            return Ok(socket.into());
        }
        let socket =
            self.sockets.take_unix_listener(number).map_err(|e| failed(name, &e))?.ok_or_else(taken)?;
        own(&socket, name)?;
        Ok(socket.into())
    }
}

/// Keeps a socket from programs that the daemon starts.
fn own(socket: impl AsFd, name: &str) -> Result<(), String> {
    rustix::io::fcntl_setfd(socket, FdFlags::CLOEXEC).map_err(|e| failed(name, &e.into()))
}

fn failed(name: &str, error: &io::Error) -> String {
    format!("listen on systemd:{name}: {error}; the socket must be a stream: write ListenStream= in its unit")
}

/// Opens the sockets of a listener; `all` are the addresses of all listeners. Unix sockets are given to the user and the group of
/// the daemon, unless the configuration names others.
pub(super) fn open(
    listen: &Listen,
    all: &[SocketAddr],
    inherited: &mut Inherited,
    daemon: Option<(u32, u32)>,
) -> Result<Vec<ListenSocket>, String> {
    let failed = |e: &io::Error| not_bound(&listen.address, e);
    let sockets = match &listen.address {
        ListenAt::Ip(address) => vec![bind(*address, all).map_err(|e| failed(&e))?.into()],
        ListenAt::Unix { path, mode, owner, group } => {
            let owner = owner.as_ref().map(|user| user.uid).or(daemon.map(|(uid, _)| uid));
            let group = group.as_ref().map(|group| group.gid).or(daemon.map(|(_, gid)| gid));
            let socket = control::socket::bind_for(path, mode.0, owner, group).map_err(|e| failed(&e))?;
            vec![ListenSocket::Unix { socket, path: Some(path.into()) }]
        }
        ListenAt::Systemd(name) => inherited.take(name)?,
    };
    let is_unix = sockets.iter().any(|socket| matches!(socket, ListenSocket::Unix { .. }));
    if is_unix && listen.tls == ListenTls::Implicit {
        return Err(format!("listen on {}: a Unix socket has no TLS", listen.address));
    }
    Ok(sockets)
}

/// Tries the addresses of listeners, before a first start makes folders and files that would be left when it fails.
///
/// # Errors
/// The first address that cannot be bound. If it is in use, the text names the program that listens there.
pub fn try_addresses<'a>(listen: impl IntoIterator<Item = &'a ListenAt>) -> Result<(), String> {
    let addresses: Vec<SocketAddr> = listen.into_iter().filter_map(ListenAt::ip).collect();
    let one = |address: &SocketAddr| {
        bound(*address, &addresses).map(drop).map_err(|e| not_bound(&ListenAt::Ip(*address), &e))
    };
    addresses.iter().try_for_each(one)
}

/// Tries whether this process could listen at an address. Nothing listens meanwhile: a client that came in that moment would be
/// cut off.
///
/// # Errors
/// Another program listens there, the address is not one of this machine, or the port needs root.
pub fn try_address(address: SocketAddr) -> io::Result<()> {
    bound(address, &[address]).map(drop)
}

/// Returns the text about an address of `[[listen]]` that cannot be listened at, with what to do about it.
pub(super) fn not_bound(address: &ListenAt, error: &io::Error) -> String {
    const OTHER: &str = "`address` in [[listen]], or without a configuration file with `postrider serve --listen ADDRESS:PORT`";
    not_bound_by(address, OTHER, error)
}

/// Returns the text about an address that cannot be listened at; `key` says where to choose another one.
pub(super) fn not_bound_by(address: &ListenAt, key: &str, error: &io::Error) -> String {
    let port = address.ip().map(|address| address.port());
    match (error.kind(), port) {
        (io::ErrorKind::AddrInUse, Some(port)) => {
            let owner = owner_of(port).map(|(name, pid)| format!(" by {name} (process {pid})"));
            format!(
                "listen on {address}: the address is in use{}; stop that program, or choose another address with {key}",
                owner.unwrap_or_default()
            )
        }
        _ => format!("listen on {address}: {error}"),
    }
}

pub(super) fn bind(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    bound(address, all)?.listen(BACKLOG)?.into_std()
}

/// `[::]` takes IPv4 as well, unless that is listened on by its own address.
fn bound(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() && all.iter().any(|other| other.is_ipv4() && other.port() == address.port()) {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    // Its connections inherit it: replies are small and awaited, and never wait for more to send.
    socket.set_nodelay(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        net::{Ipv4Addr, TcpStream},
        thread,
    };

    #[test]
    fn an_address_that_is_tried_takes_no_client() {
        // Clients have the address 127.0.0.1, so that none of them reaches itself.
        let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 3), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(try_address(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        thread::scope(|scope| {
            let client = scope.spawn(|| (0..2_000).all(|_| TcpStream::connect(address).is_err()));
            while !client.is_finished() {
                try_address(address).unwrap();
            }
            assert!(client.join().unwrap());
        });
    }
}
