//! Events as Postfix's lines for the system log. The journal of systemd reads the socket of the system log, too.

use super::{postfix, time::with_second};
use crate::{Event, Sink, UnixMicros};
use std::{
    io::{self, Write as _},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    time::Duration,
};

/// The facility `mail`, in its place of the priority (RFC 3164 §4.1.1).
const FACILITY: u8 = 2 << 3;
const WARNING: u8 = 4;
const INFORMATIONAL: u8 = 6;
/// The longest wait for a system log that does not read.
const SEND_TIMEOUT: Duration = Duration::from_millis(100);

/// The system log, by its socket. Lines that it does not take are dropped and counted.
pub struct Syslog {
    path: PathBuf,
    pid: u32,
    socket: Option<UnixDatagram>,
    lost_count: u64,
    /// Why lines are lost.
    fault: Option<String>,
}

impl Syslog {
    /// Connects to the socket, mostly `/dev/log`. A system log that is not there yet is connected to later.
    pub fn open(path: PathBuf, pid: u32) -> Self {
        let mut log = Self { path, pid, socket: None, lost_count: 0, fault: None };
        log.reopen();
        log
    }

    fn send(&mut self, datagram: &[u8]) {
        let socket = match &self.socket {
            Some(socket) => socket,
            None => match connect(&self.path) {
                Ok(socket) => self.socket.insert(socket),
                Err(e) => return self.fail(&e),
            },
        };
        match socket.send(datagram) {
            Ok(_) => {
                if self.fault.take().is_some() {
                    let _ = socket.set_nonblocking(false);
                }
            }
            // Another socket of the same system log would be as full.
            Err(full) if full.kind() == io::ErrorKind::WouldBlock => {
                // Until it reads again, no further line waits for it.
                let _ = socket.set_nonblocking(true);
                self.fail(&"it does not read");
            }
            Err(first) => {
                // The system log was started again: its socket is a new one.
                match connect(&self.path).and_then(|socket| socket.send(datagram).map(|_| socket)) {
                    Ok(socket) => (self.socket, self.fault) = (Some(socket), None),
                    Err(_) => {
                        self.socket = None;
                        self.fail(&first);
                    }
                }
            }
        }
    }

    fn fail(&mut self, e: &dyn std::fmt::Display) {
        self.lost_count += 1;
        let text = format!("write to the system log {}: {e}", self.path.display());
        if self.fault.is_none() {
            tracing::error!("{text}");
        }
        self.fault = Some(text);
    }
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    socket.connect(path)?;
    Ok(socket)
}

impl Sink for Syslog {
    fn write(&mut self, at: UnixMicros, event: &Event<'_>) {
        let pid = self.pid;
        let mut datagrams: Vec<Vec<u8>> = Vec::new();
        postfix::lines(event, &mut |program, text| {
            let text = mail::escape_invisible(&text.to_string()).into_owned();
            let severity = if text.starts_with("warning:") { WARNING } else { INFORMATIONAL };
            let mut datagram = Vec::new();
            with_second(at, |_, syslog| {
                let priority = FACILITY | severity;
                let _ = write!(datagram, "<{priority}>{syslog} postfix/{program}[{pid}]: {text}");
            });
            datagrams.push(datagram);
        });
        datagrams.iter().for_each(|datagram| self.send(datagram));
    }

    fn reopen(&mut self) {
        self.socket = connect(&self.path).ok();
    }

    fn lost_count(&self) -> u64 {
        self.lost_count
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::QueueId;

    #[test]
    fn lines_reach_a_system_log_that_was_started_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Syslog::open(path.clone(), 42);
        let at = UnixMicros(1_795_242_355_048_000);
        log.write(at, &Event::Completed(QueueId(1)));
        assert_eq!(log.lost_count(), 1, "nobody listens");
        for id in [2, 3] {
            let _ = std::fs::remove_file(&path);
            let server = UnixDatagram::bind(&path).unwrap();
            log.write(at, &Event::Completed(QueueId(id)));
            let mut bytes = [0; 200];
            let count = server.recv(&mut bytes).unwrap();
            let line = String::from_utf8_lossy(&bytes[..count]).into_owned();
            assert!(line.starts_with("<22>"), "{line}");
            assert!(line.ends_with(&format!("postfix/qmgr[42]: {}: removed", QueueId(id))), "{line}");
        }
        assert_eq!(log.lost_count(), 1);
    }
}
