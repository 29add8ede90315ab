//! The sockets, the commands' side. Commands do one thing and end, so they block.

use super::{
    protocol::{Failure, IDS_MAX, Id, RESPONSE_BYTES_MAX, Request, Response},
    selection::Selection,
};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The reason why a request was not answered, by what the caller does next.
#[derive(Debug)]
pub enum ClientError {
    /// Nobody listens: do without the daemon, or say so.
    NotRunning,
    /// The daemon has refused the request, or could not carry it out.
    Refused(Failure),
    /// The connection, or what came over it, is broken.
    Broken(String),
    /// An answer was not taken: standard output, for example, is closed.
    NotTaken(io::Error),
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// Longest wait for one line of an answer. Changing many messages takes its time.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest wait for the first answer, to a request that takes no time: a daemon that hangs has the connection, too.
const FIRST_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to the operators' socket.
#[derive(Debug)]
pub struct Client {
    from: BufReader<UnixStream>,
    has_answered: bool,
}

impl Client {
    /// Connects. Who may not gets [`Failure::Denied`].
    pub fn connect(socket: &Path) -> Result<Self, ClientError> {
        let stream = connect(socket)?;
        Ok(Self { from: BufReader::new(stream), has_answered: false })
    }

    /// Asks, passes on each line of the answer but the last, and returns that one's count. When
    /// `each` fails, so does this, and the connection is of no use any more.
    pub fn ask(
        &mut self,
        request: &Request,
        each: &mut dyn FnMut(Response) -> io::Result<()>,
    ) -> Result<u64, ClientError> {
        if !self.has_answered {
            self.wait_for_life(FIRST_TIMEOUT)?;
        }
        self.send(request)?;
        loop {
            match self.response()? {
                Response::Done { count } => return Ok(count),
                Response::Failed(failure) => return Err(ClientError::Refused(failure)),
                other => each(other).map_err(ClientError::NotTaken)?,
            }
        }
    }

    /// Waits for any answer, for a short time.
    pub(crate) fn wait_for_life(&mut self, timeout: Duration) -> Result<(), ClientError> {
        self.from.get_ref().set_read_timeout(Some(timeout))?;
        self.send(&Request::Status)?;
        loop {
            match self.response()? {
                Response::Done { .. } => break,
                Response::Failed(failure) => return Err(ClientError::Refused(failure)),
                _ => {}
            }
        }
        self.from.get_ref().set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        self.has_answered = true;
        Ok(())
    }

    /// Sends a request for a selection of any length: long lists of ids go in several requests.
    pub fn ask_each(
        &mut self,
        selection: &Selection,
        request: impl Fn(Selection) -> Request,
        each: &mut dyn FnMut(Response) -> io::Result<()>,
    ) -> Result<u64, ClientError> {
        let mut count = 0;
        for part in split(selection) {
            count += self.ask(&request(part), each)?;
        }
        Ok(count)
    }

    pub(crate) fn send(&mut self, request: &Request) -> Result<(), ClientError> {
        let mut line = serde_json::to_vec(request).map_err(io::Error::from)?;
        line.push(b'\n');
        Ok(self.from.get_mut().write_all(&line)?)
    }

    pub(crate) fn reader(&mut self) -> &mut BufReader<UnixStream> {
        &mut self.from
    }

    pub(crate) fn response(&mut self) -> Result<Response, ClientError> {
        let mut line = Vec::new();
        (&mut self.from).take(RESPONSE_BYTES_MAX).read_until(b'\n', &mut line).map_err(silent)?;
        if line.last() != Some(&b'\n') {
            return Err(ClientError::Broken("the daemon ended the connection".to_owned()));
        }
        serde_json::from_slice(&line)
            .map_err(|error| ClientError::Broken(format!("the daemon's answer: {error}")))
    }
}

/// Returns the error of a read; a timeout in words.
fn silent(error: io::Error) -> ClientError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            ClientError::Broken("the daemon is running, and does not answer".to_owned())
        }
        _ => error.into(),
    }
}

/// Splits a selection so that each request fits: ids are divided, the conditions stay.
fn split(selection: &Selection) -> Vec<Selection> {
    if selection.ids.len() <= IDS_MAX {
        return vec![selection.clone()];
    }
    let with = |ids: &[Id]| Selection { ids: ids.to_vec(), ..selection.clone() };
    selection.ids.chunks(IDS_MAX).map(with).collect()
}

/// Connects to one of the daemon's sockets.
///
/// # Errors
/// The daemon is not running, or the user may not connect.
pub fn connect(socket: &Path) -> Result<UnixStream, ClientError> {
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NotRunning,
        io::ErrorKind::PermissionDenied => {
            let text = format!(
                "{}: permission denied: only root, the daemon's own user and members of control.group may do this",
                socket.display()
            );
            ClientError::Refused(Failure::Denied { text })
        }
        _ => ClientError::Broken(format!("connect to {}: {error}", socket.display())),
    })?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    Ok(stream)
}
