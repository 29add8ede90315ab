//! Ports for tests that run at the same time, in one process or in several.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{self as unix, UnixListener},
    },
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

/// Below those that the kernel gives to whoever asks for any: it would give one of them to another test while nobody
/// listens.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// Returns a port that nobody listens on. No test of another process is given it until this process ends, and no test
/// of this one at all.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    // Processes that run at the same time begin far from each other.
    let first = (std::process::id() as u16).wrapping_mul(1009);
    loop {
        let port =
            PORTS.start + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u16;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // The kernel forgets this name with the process, and leaves no file.
        let name = unix::SocketAddr::from_abstract_name(format!("postrider-test-port-{port}")).unwrap();
        let Ok(reservation) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(address).is_ok() {
            RESERVED.lock().unwrap().push(reservation);
            return address;
        }
    }
}
