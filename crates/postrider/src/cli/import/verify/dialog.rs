//! An SMTP dialog over a connection to this machine.

use control::Exit;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::cli::CliError;

/// Servers wait for DNS before some replies.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
/// No reply is longer.
const REPLY_BYTES_MAX: u64 = 1 << 16;

/// Code and text of the last line of a reply.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    pub(super) code: u16,
    pub(super) text: String,
}

/// An SMTP connection to the other server.
pub(super) struct Dialog {
    stream: BufReader<TcpStream>,
}

impl Dialog {
    /// Connects, and reads the greeting.
    ///
    /// # Errors
    /// Nobody listens.
    pub(super) fn connect(address: SocketAddr) -> Result<(Self, Reply), CliError> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
            stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
            Ok(stream)
        };
        let stream = connect().map_err(|error| failed(&error))?;
        let mut dialog = Self { stream: BufReader::new(stream) };
        let greeting = dialog.reply()?;
        Ok((dialog, greeting))
    }

    /// Sends a command, and returns the reply.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn command(&mut self, command: &str) -> Result<Reply, CliError> {
        self.stream
            .get_mut()
            .write_all(format!("{command}\r\n").as_bytes())
            .map_err(|error| failed(&error))?;
        self.reply()
    }

    fn reply(&mut self) -> Result<Reply, CliError> {
        loop {
            let mut line = Vec::new();
            let mut limited = self.stream.by_ref().take(REPLY_BYTES_MAX);
            limited.read_until(b'\n', &mut line).map_err(|error| failed(&error))?;
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let code = line.get(..3).and_then(|code| code.parse().ok());
            let Some(code) = code else {
                return Err(CliError::new(Exit::Unavailable, format!("the other server says {line:?}")));
            };
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(Reply { code, text: line });
            }
        }
    }
}

fn failed(error: &std::io::Error) -> CliError {
    CliError::new(Exit::Unavailable, format!("talk to the other server: {error}"))
}
