//! Processes that begin each phase together: `-p` serves, `-y` takes part.

use std::{
    io::{self, BufRead as _, Read as _, Write as _},
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

/// The way to begin a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sync {
    /// With the other processes of `-p`
    #[value(name = "s")]
    Server,
    /// After a line on standard input
    #[value(name = "p")]
    Prompt,
}

/// How this process waits for the begin of a phase.
#[derive(Debug)]
pub(super) enum PhaseStart {
    Alone,
    Prompt,
    Server(UnixStream),
}

/// Sent where a process is ready, and back when all are.
const READY: u8 = b'r';
/// Sent to end the server.
const END: u8 = b'e';

/// A name of this user's, which vanishes with the server.
fn address() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("postlab-bonnie-{}", rustix::process::getuid().as_raw()))
}

impl PhaseStart {
    pub(super) fn new(sync: Option<Sync>) -> Result<Self, String> {
        match sync {
            None => Ok(Self::Alone),
            Some(Sync::Prompt) => Ok(Self::Prompt),
            Some(Sync::Server) => {
                address().and_then(|address| UnixStream::connect_addr(&address)).map(Self::Server).map_err(
                    |e| format!("-y: find the process that begins phases: {e}; start one with -p COUNT"),
                )
            }
        }
    }

    /// Returns when the phase may begin.
    pub(super) fn wait(&self) -> io::Result<()> {
        match self {
            Self::Alone => Ok(()),
            Self::Prompt => {
                eprintln!("press Enter to begin the next phase");
                io::stdin().lock().read_line(&mut String::new()).map(|_| ())
            }
            Self::Server(stream) => {
                let mut stream = stream;
                stream.write_all(&[READY])?;
                stream.read_exact(&mut [0])
            }
        }
    }
}

/// Begins the phases of `count` processes, until all of them have ended; -1 ends such a server.
pub(super) fn serve(count: i32) -> Result<(), String> {
    let failed = |e: io::Error| format!("-p: {e}");
    let address = address().map_err(failed)?;
    if count == -1 {
        let mut stream =
            UnixStream::connect_addr(&address).map_err(|e| format!("-p -1: there is no server: {e}"))?;
        return stream.write_all(&[END]).map_err(failed);
    }
    let listener = UnixListener::bind_addr(&address)
        .map_err(|e| format!("-p: {e}; is there another server? -p -1 ends it"))?;
    let mut all = Vec::new();
    println!("begins the phases of {count} processes: start them with -y s");
    while all.len() < count as usize {
        let (stream, _) = listener.accept().map_err(failed)?;
        all.push(stream);
        // A request to end comes on a connection of its own.
        let Some(is_ready) = all.last_mut().map(is_ready) else { continue };
        match is_ready {
            Some(true) => {}
            Some(false) => return Ok(()),
            None => drop(all.pop()),
        }
    }
    loop {
        for stream in &mut all {
            // One that has ended is waited for no longer.
            let _ = stream.write_all(&[READY]);
        }
        all.retain_mut(|stream| is_ready(stream) == Some(true));
        if all.is_empty() {
            return Ok(());
        }
    }
}

/// True if the process is at its next phase, false if it asks for the end, nothing if it has ended.
fn is_ready(stream: &mut UnixStream) -> Option<bool> {
    let mut byte = [0];
    stream.read_exact(&mut byte).ok()?;
    Some(byte[0] == READY)
}
