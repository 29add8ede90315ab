//! A filter that answers what a test wants: right, wrong, or not at all.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

/// A packet that the server has sent to the filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: u8,
    pub(super) data: Vec<u8>,
}

/// What the filter does with a packet.
pub(super) enum Act {
    /// It answers that all is well, if there is something to answer.
    Usual,
    /// It writes these octets.
    Write(Vec<u8>),
    /// It writes these octets, and closes the connection.
    WriteAndClose(Vec<u8>),
    /// It says nothing, now and later.
    Hang,
}

type Script = dyn Fn(&Packet) -> Act + Send + Sync;

struct Shared {
    script: Mutex<Box<Script>>,
    packets: Mutex<Vec<Packet>>,
    streams: Mutex<Vec<UnixStream>>,
}

/// Listens until it is dropped.
pub(super) struct Fake {
    pub(super) socket: PathBuf,
    listener: UnixListener,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub(super) fn start(socket: &Path) -> Self {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(|_| Act::Usual)),
            packets: Mutex::default(),
            streams: Mutex::default(),
        });
        let (serving, accepting) = (shared.clone(), listener.try_clone().unwrap());
        let thread = std::thread::spawn(move || {
            for stream in accepting.incoming().map_while(Result::ok) {
                serving.streams.lock().unwrap().push(stream.try_clone().unwrap());
                let serving = serving.clone();
                std::thread::spawn(move || serve(stream, &serving));
            }
        });
        Self { socket: socket.to_owned(), listener, shared, thread: Some(thread) }
    }

    /// Sets what the filter does from now on, and forgets the packets.
    pub(super) fn act(&self, script: impl Fn(&Packet) -> Act + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Box::new(script);
        self.packets();
    }

    /// Returns the packets since the last time.
    pub(super) fn packets(&self) -> Vec<Packet> {
        std::mem::take(&mut self.shared.packets.lock().unwrap())
    }

    /// Closes all connections.
    pub(super) fn hang_up(&self) {
        for stream in std::mem::take(&mut *self.shared.streams.lock().unwrap()) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        // The folder of the socket may be gone.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.hang_up();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Returns a packet as it is sent.
pub(super) fn packet(kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len() + 1).unwrap().to_be_bytes();
    [&length, &[kind][..], data].concat()
}

/// The answer to an offer: version 6, with these actions and steps.
pub(super) fn agreement(actions: u32, steps: u32) -> Vec<u8> {
    let numbers = [6, actions, steps].map(u32::to_be_bytes);
    packet(b'O', numbers.as_flattened())
}

/// The answer to a packet of a filter that may do everything, and wants nothing.
pub(super) fn usual(kind: u8) -> Vec<u8> {
    match kind {
        b'O' => agreement(0xff, 0),
        b'D' | b'A' | b'Q' | b'K' => Vec::new(),
        _ => packet(b'c', b""),
    }
}

fn serve(mut stream: UnixStream, shared: &Shared) {
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        if stream.read_exact(&mut bytes).is_err() {
            return;
        }
        let data = bytes.split_off(1);
        let packet = Packet { kind: bytes[0], data };
        shared.packets.lock().unwrap().push(packet.clone());
        let act = shared.script.lock().unwrap()(&packet);
        let written = match act {
            Act::Usual => stream.write_all(&usual(packet.kind)),
            Act::Write(bytes) => stream.write_all(&bytes),
            Act::WriteAndClose(bytes) => {
                let _ = stream.write_all(&bytes);
                let _ = stream.shutdown(std::net::Shutdown::Both);
                return;
            }
            Act::Hang => {
                // The server gives up at last.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
                return;
            }
        };
        if written.is_err() {
            return;
        }
    }
}
