//! The submit socket, the commands' side. Commands do one thing and end, so they block.

use crate::{
    envelope::{Header, Refusal},
    submit_socket::{Answer, READY},
};
use control::{
    client::{ClientError, connect},
    protocol::RESPONSE_BYTES_MAX,
};
use mail::{Envelope, QueueId};
use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The result of a submission that reached the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// The message is durable, with this queue id.
    Accepted(QueueId),
    /// The message was not taken, for this reason.
    Refused(Refusal),
}

/// Hands a message in. An error means that the daemon did not answer: it may have the message or not.
pub fn submit(socket: &Path, envelope: &Envelope, content: &[u8]) -> Result<Submitted, ClientError> {
    submit_within(READY_TIMEOUT, socket, envelope, content)
}

fn submit_within(
    ready: Duration,
    socket: &Path,
    envelope: &Envelope,
    content: &[u8],
) -> Result<Submitted, ClientError> {
    let mut stream = connect(socket)?;
    let timeout = stream.read_timeout()?;
    stream.set_read_timeout(Some(ready))?;
    let first = read_line(&stream).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            ClientError::Broken(format!("the daemon does not answer within {} seconds", ready.as_secs()))
        }
        _ => error.into(),
    })?;
    if first != READY {
        return answer(&first).ok_or_else(without_answer);
    }
    stream.set_read_timeout(timeout)?;
    let sent = stream
        .write_all(&Header::new(envelope, content.len() as u64).to_line())
        .and_then(|()| stream.write_all(content));
    let read = read_line(&stream);
    // A daemon that refuses the envelope does not read the content: its answer comes before the error.
    match read.as_ref().ok().and_then(|line| answer(line)) {
        Some(submitted) => Ok(submitted),
        None => {
            sent?;
            read?;
            Err(without_answer())
        }
    }
}

/// A daemon that works greets at once. One that does not is hung.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

fn read_line(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(stream).take(RESPONSE_BYTES_MAX).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn answer(line: &[u8]) -> Option<Submitted> {
    Some(match serde_json::from_slice(line).ok()? {
        Answer::Accepted(id) => Submitted::Accepted(id.0),
        Answer::Refused(refusal) => Submitted::Refused(refusal),
    })
}

fn without_answer() -> ClientError {
    ClientError::Broken("the daemon ended the connection without an answer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::ReversePath;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_daemon_that_hangs_is_given_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let envelope = Envelope::new(ReversePath::Null);
        let error = submit_within(Duration::from_millis(1), &socket, &envelope, b"x").unwrap_err();
        assert!(matches!(error, ClientError::Broken(why) if why.contains("does not answer")));
        // What the daemon finds when it goes on.
        let mut given = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut given).unwrap();
        assert_eq!(given, b"");
    }
}
