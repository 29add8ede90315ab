//! A proxy before a server, which breaks the replies.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

/// Treatment of a reply or of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    /// Octets are passed on.
    Passed,
    /// The connection is closed.
    Closed,
    /// Passing on of a part, and closing of the connection.
    Cut,
    /// Other octets in its place.
    Replaced,
    /// Octets are kept back.
    Withheld,
}

const TREATMENTS: [Treatment; 9] = [
    Treatment::Passed,
    Treatment::Closed,
    Treatment::Passed,
    Treatment::Cut,
    Treatment::Passed,
    Treatment::Replaced,
    Treatment::Passed,
    Treatment::Withheld,
    Treatment::Cut,
];
/// Replies and connections that have the same treatment, one behind the other.
const SPELL: usize = 16;

/// Where the server is that the proxy connects to.
#[derive(Debug, Clone)]
pub enum Upstream {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

trait Stream: Read + Write + Send {
    fn again(&self) -> Box<dyn Stream>;
    fn end(&self);
}

impl Stream for TcpStream {
    fn again(&self) -> Box<dyn Stream> {
        Box::new(self.try_clone().unwrap())
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for UnixStream {
    fn again(&self) -> Box<dyn Stream> {
        Box::new(self.try_clone().unwrap())
    }

    fn end(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Upstream {
    fn connect(&self) -> Option<Box<dyn Stream>> {
        Some(match self {
            Self::Tcp(address) => Box::new(TcpStream::connect(address).ok()?),
            Self::Unix(path) => Box::new(UnixStream::connect(path).ok()?),
        })
    }
}

#[derive(Debug, Default)]
struct State {
    is_repaired: AtomicBool,
    seen: AtomicUsize,
    cuts: AtomicUsize,
}

impl State {
    fn treatment(&self) -> Treatment {
        let seen = self.seen.fetch_add(1, Ordering::SeqCst);
        if self.is_repaired.load(Ordering::SeqCst) {
            Treatment::Passed
        } else {
            TREATMENTS[seen / SPELL % TREATMENTS.len()]
        }
    }
}

/// Passes connections on to a server, or interferes with them.
pub struct Proxy {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Proxy {
    pub fn start(upstream: Upstream) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::new(State::default()));
        let shared = state.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.treatment() == Treatment::Closed {
                    continue;
                }
                let Some(server) = upstream.connect() else { continue };
                let (from, to) = (client.try_clone().unwrap(), server.again());
                thread::spawn(move || requests(from, to));
                let state = shared.clone();
                thread::spawn(move || replies(server, client, &state));
            }
        });
        Self { address, state }
    }

    /// Passes everything on from now on.
    pub fn repair(&self) {
        self.state.is_repaired.store(true, Ordering::SeqCst);
    }

    /// Returns whether each treatment was met.
    pub fn has_done_everything(&self) -> bool {
        self.state.seen.load(Ordering::SeqCst) >= SPELL * TREATMENTS.len()
    }
}

fn requests(mut from: TcpStream, mut to: Box<dyn Stream>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    to.end();
}

fn replies(mut from: Box<dyn Stream>, mut to: TcpStream, state: &State) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let sent = match state.treatment() {
            Treatment::Passed => to.write_all(&buffer[..count]).is_ok(),
            Treatment::Closed => false,
            Treatment::Cut => {
                // Each cut is at another place.
                let cut = state.cuts.fetch_add(1, Ordering::SeqCst) % count;
                let _ = to.write_all(&buffer[..cut]);
                false
            }
            Treatment::Replaced => to.write_all(&b"\xA5HTTP/1.1 400\r\n\x00".repeat(9)).is_ok(),
            Treatment::Withheld => true,
        };
        if !sent {
            break;
        }
    }
    to.end();
    from.end();
}
