//! The submit socket, the commands' side. Commands do one thing and end, so they block.

use crate::{
    envelope::{Header, Refusal},
    submit_socket::Answer,
};
use control::{
    client::{ClientError, connect},
    protocol::RESPONSE_BYTES_MAX,
};
use mail::{Envelope, QueueId};
use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
};

/// The result of a submission that reached the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// Durable.
    Accepted(QueueId),
    /// The daemon says no.
    Refused(Refusal),
}

/// Hands a message in. An error means that the daemon did not answer: it may have the message or not.
pub fn submit(socket: &Path, envelope: &Envelope, content: &[u8]) -> Result<Submitted, ClientError> {
    let mut stream = connect(socket)?;
    let sent = stream
        .write_all(&Header::new(envelope, content.len() as u64).to_line())
        .and_then(|()| stream.write_all(content));
    let mut line = Vec::new();
    let read = BufReader::new(&stream).take(RESPONSE_BYTES_MAX).read_until(b'\n', &mut line);
    // A daemon that refuses the envelope does not read the content: its answer comes before the error.
    let Ok(answer) = serde_json::from_slice(&line) else {
        sent?;
        read?;
        return Err(ClientError::Broken("the daemon ended the connection without an answer".to_owned()));
    };
    Ok(match answer {
        Answer::Accepted(id) => Submitted::Accepted(id.0),
        Answer::Refused(refusal) => Submitted::Refused(refusal),
    })
}
