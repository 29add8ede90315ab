//! Ports for tests that run at the same time, in one process or in several.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{self as unix, UnixListener},
    },
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

/// Below those that the kernel gives to whoever asks for any: it would give one of them to another test while nobody
/// listens.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A program is started in much less time, also on a busy machine.
const COPY_TIMEOUT: Duration = Duration::from_secs(20);

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
        // To listen here for a moment would do the same, but see `listen`.
        if TcpStream::connect(address).is_err() {
            RESERVED.lock().unwrap().push(reservation);
            return address;
        }
    }
}

/// Listens at an address of [`free_address`], also if a listener was closed there only now.
///
/// A program that another test starts has a copy of each listener of this process from its fork to its exec.
pub fn listen(address: SocketAddr) -> TcpListener {
    let begun = Instant::now();
    loop {
        match TcpListener::bind(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < COPY_TIMEOUT => {
                std::thread::yield_now();
            }
            bound => return bound.unwrap(),
        }
    }
}

#[test]
fn a_listener_is_replaced_while_other_tests_start_programs() {
    let address = free_address();
    std::thread::scope(|scope| {
        let starter = scope.spawn(|| {
            for _ in 0..300 {
                assert!(Command::new("true").status().unwrap().success());
            }
        });
        while !starter.is_finished() {
            drop(listen(address));
        }
    });
}
