//! Messages between controller and agent: a JSON object a line, over TLS.

use crate::source::Report;
use rustls::{ConnectionCommon, SideData, StreamOwned};
use serde::{Deserialize, Serialize};
use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    ops::{Deref, DerefMut},
    time::{Duration, Instant},
};

/// Version of the protocol between controller and agent; both need the same.
pub(super) const VERSION: u32 = 1;
/// A read waits so long; then the reader may look at something else.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// The other side is given up after that.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The other side is no controller or agent of this program.
const LINE_BYTES: usize = 16 << 20;

/// One line in either direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// Controller: the command line of the source.
    Prepare {
        /// [`VERSION`] of the controller.
        version: u32,
        /// Options and target.
        arguments: Vec<String>,
    },
    /// Agent: the options are right, and the source can begin.
    Ready,
    /// Controller: begin now.
    Go,
    /// Controller: end early, and report.
    Stop,
    /// Agent: so many messages are done.
    Done(u64),
    /// Agent: the result, and its histograms in HDR log format V2.
    Result {
        /// What the agent's source has measured.
        report: Box<Report>,
        /// Times by phase.
        hdr: String,
    },
    /// Agent: it cannot be done.
    Error(String),
}

/// An encrypted connection between controller and agent, by lines.
#[derive(Debug)]
pub(super) struct Channel<C> {
    stream: StreamOwned<C, TcpStream>,
    input: Vec<u8>,
}

impl<C, S> Channel<C>
where
    C: DerefMut + Deref<Target = ConnectionCommon<S>>,
    S: SideData,
{
    /// Puts TLS on a connection.
    ///
    /// # Errors
    /// The connection cannot be set up.
    pub(super) fn new(connection: C, socket: TcpStream) -> Result<Self, String> {
        let ready = socket
            .set_read_timeout(Some(READ_TIMEOUT))
            .and_then(|()| socket.set_write_timeout(Some(WRITE_TIMEOUT)))
            .and_then(|()| socket.set_nodelay(true));
        ready.map_err(|e| format!("set up the connection: {e}"))?;
        Ok(Self { stream: StreamOwned::new(connection, socket), input: Vec::new() })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is broken, or the other side has another key.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).map_err(|e| format!("send: {e}"))?;
        line.push(b'\n');
        self.shake_hands()
            .and_then(|()| self.stream.write_all(&line))
            .and_then(|()| self.stream.flush())
            .map_err(|e| reason("send", &e))
    }

    /// Ends the handshake. It waits for the other side, which may need longer than a read has.
    fn shake_hands(&mut self) -> std::io::Result<()> {
        let until = Instant::now() + WRITE_TIMEOUT;
        while self.stream.conn.is_handshaking() {
            match self.stream.conn.complete_io(&mut self.stream.sock) {
                Err(e) if is_late(&e) && Instant::now() < until => {}
                done => done.map(drop)?,
            }
        }
        Ok(())
    }

    /// Returns the next message; none if nothing has come for a quarter of a second.
    ///
    /// # Errors
    /// The connection is closed or broken, the other side has another key, or it sent something else.
    pub(super) fn receive(&mut self) -> Result<Option<Message>, String> {
        loop {
            if let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.input.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|e| format!("receive: {e}"));
            }
            if self.input.len() > LINE_BYTES {
                return Err("receive: a line is too long".to_owned());
            }
            let mut block = [0; 16 << 10];
            match self.stream.read(&mut block) {
                Ok(0) => return Err("the connection was closed".to_owned()),
                Ok(count) => self.input.extend_from_slice(&block[..count]),
                Err(e) if is_late(&e) => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(reason("receive", &e)),
            }
        }
    }
}

/// Has a time limit passed?
fn is_late(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// An error, with the usual cause where TLS failed.
fn reason(what: &str, e: &std::io::Error) -> String {
    if e.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>) {
        return format!("{what}: {e}; have both sides the same key file?");
    }
    format!("{what}: {e}")
}
