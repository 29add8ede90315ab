//! Copies of all queued messages, for a backup: lines as in every answer, and behind some of them raw bytes.

use crate::{
    Operations,
    client::{Client, ClientError},
    protocol::{Id, Request, Response},
    server::{Connection, Ended},
};
use mail::{Part, QueueId};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    io::{self, Read as _},
};

/// Longest run of raw bytes; content comes in several.
const RUN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The longest chain of messages that take the place of one: that of its expansion, a notification, a double bounce.
const SUCCESSORS_MAX: usize = 3;

/// A queued message, as the daemon begins to copy it.
#[derive(Debug, Clone)]
pub struct MessageCopy {
    /// Everything but the content, as `spool::export_envelope` writes it.
    pub envelope: Vec<u8>,
    /// The content in order, in memory or by the ids of chunks.
    pub parts: Vec<Part>,
}

/// How the copy of a message ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyEnd {
    /// All of its content was sent.
    Whole,
    /// The message has left the queue in the meantime.
    Gone,
    /// The spool cannot give the message, in words.
    Damaged(String),
}

/// A copy as a client receives it, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// As in the queue that it was copied from.
    pub id: QueueId,
    /// Everything but the content, as in [`MessageCopy::envelope`].
    pub envelope: Vec<u8>,
    /// Header and body, in wire form without dot-stuffing.
    pub content: Vec<u8>,
}

/// A part of the answer, as a client receives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupItem {
    /// A message that was copied as a whole.
    Message(Copied),
    /// A message that the spool cannot give, and why.
    Damaged(QueueId, String),
}

impl<T: Operations> Connection<T> {
    /// Sends every queued message, in several passes. A message that has ended before its turn may have left another one, which
    /// the next pass finds: the message of its expansion, the notification about it, or the one about the notification.
    pub(crate) async fn copy_all(&mut self) -> Result<u64, Ended> {
        let (mut seen, mut count) = (HashSet::new(), 0);
        for _ in 0..=SUCCESSORS_MAX {
            self.target.notified().await;
            let new: Vec<QueueId> = self.target.ids().into_iter().filter(|id| seen.insert(*id)).collect();
            if new.is_empty() {
                break;
            }
            for id in new {
                count += u64::from(self.copy_one(id).await?);
            }
        }
        Ok(count)
    }

    /// Sends a message. Returns whether all of it was sent.
    async fn copy_one(&mut self, id: QueueId) -> Result<bool, Ended> {
        let end = match self.target.copy(id).await {
            Ok(Some(copy)) => {
                self.send(&Response::Copy { id: Id(id), length: copy.envelope.len() as u64 }).await?;
                self.send_raw(&copy.envelope).await?;
                self.copy_content(id, &copy.parts).await?
            }
            Ok(None) => return Ok(false),
            Err(failure) => {
                self.send(&Response::Copy { id: Id(id), length: 0 }).await?;
                CopyEnd::Damaged(failure.text().to_owned())
            }
        };
        let is_whole = end == CopyEnd::Whole;
        self.send(&Response::CopyEnd { end }).await?;
        Ok(is_whole)
    }

    async fn copy_content(&mut self, id: QueueId, parts: &[Part]) -> Result<CopyEnd, Ended> {
        for part in parts {
            let bytes = match part {
                Part::Memory(bytes) => bytes.clone(),
                Part::Stored { chunk_id, .. } => match self.target.chunk(id, *chunk_id).await {
                    Ok(Some(bytes)) => bytes,
                    Ok(None) => return Ok(CopyEnd::Gone),
                    Err(failure) => return Ok(CopyEnd::Damaged(failure.text().to_owned())),
                },
            };
            for run in bytes.chunks(RUN_BYTES_MAX as usize) {
                self.send(&Response::Content { length: run.len() as u64 }).await?;
                self.send_raw(run).await?;
            }
        }
        Ok(CopyEnd::Whole)
    }
}

impl Client {
    /// Asks for all queued messages, and passes each of them on. Returns the number of messages.
    ///
    /// # Errors
    /// As for [`Client::ask`].
    pub fn backup(&mut self, each: &mut dyn FnMut(BackupItem) -> io::Result<()>) -> Result<u64, ClientError> {
        self.send(&Request::Backup)?;
        let mut begun: Option<Copied> = None;
        loop {
            match (self.response()?, begun.as_mut()) {
                (Response::Done { count }, None) => return Ok(count),
                (Response::Failed(failure), _) => return Err(ClientError::Refused(failure)),
                (Response::Copy { id, length }, None) => {
                    let envelope = self.raw(length, Vec::new())?;
                    begun = Some(Copied { id: id.0, envelope, content: Vec::new() });
                }
                (Response::Content { length }, Some(copy)) => {
                    copy.content = self.raw(length, std::mem::take(&mut copy.content))?;
                }
                (Response::CopyEnd { end }, Some(_)) => {
                    let Some(copy) = begun.take() else { continue };
                    match end {
                        CopyEnd::Whole => each(BackupItem::Message(copy))?,
                        CopyEnd::Gone => {}
                        CopyEnd::Damaged(why) => each(BackupItem::Damaged(copy.id, why))?,
                    }
                }
                _ => return Err(ClientError::Broken("the daemon's answer is out of order".to_owned())),
            }
        }
    }

    /// Appends raw bytes.
    fn raw(&mut self, length: u64, mut to: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        if length > RUN_BYTES_MAX {
            return Err(ClientError::Broken(format!("the daemon's answer has a part of {length} bytes")));
        }
        let read = self.reader().take(length).read_to_end(&mut to)?;
        if read as u64 != length {
            return Err(ClientError::Broken("the daemon ended the connection".to_owned()));
        }
        Ok(to)
    }
}
