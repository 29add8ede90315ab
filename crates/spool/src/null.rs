//! Keeps everything in memory and calls it durable at once: the laboratory's ceiling, never for mail.

use crate::{
    CommitSeq, ControlOp, Durable, Entry, Failed, Pressure, Recovered, RecoveryReport, Refused, Spool,
    SpoolFailure, Transaction,
};
use bytes::Bytes;
use mail::{ChunkId, QueueId, SharedMessage};
use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A backend in memory that calls each message durable at once; it is never for mail.
#[derive(Debug, Default)]
pub struct NullSpool {
    contents: Mutex<Contents>,
    commit_seq: AtomicU64,
}

#[derive(Debug, Default)]
struct Contents {
    messages: HashMap<QueueId, SharedMessage>,
    chunks: HashMap<ChunkId, Bytes>,
    next_place: u64,
    closed: bool,
}

impl Contents {
    fn forget(&mut self, id: QueueId) {
        let Some(message) = self.messages.remove(&id) else { return };
        for part in message.content.parts() {
            if let mail::Part::Stored { chunk_id, .. } = part {
                self.chunks.remove(chunk_id);
            }
        }
    }
}

impl NullSpool {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spool for NullSpool {
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        let mut contents = self.contents();
        if contents.closed {
            return Err(Refused::Poisoned);
        }
        for entry in std::mem::take(transaction) {
            match entry {
                Entry::Accept(message) => drop(contents.messages.insert(message.id, message)),
                Entry::Import(found) => drop(contents.messages.insert(found.message.id, found.message)),
                Entry::Outcome { id, last: true, .. } | Entry::Control { id, op: ControlOp::Delete } => {
                    contents.forget(id);
                }
                Entry::Outcome { .. } | Entry::Control { .. } | Entry::Count(_) => {}
            }
        }
        Ok(CommitSeq(self.commit_seq.fetch_add(1, Ordering::Relaxed) + 1))
    }

    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        let mut contents = self.contents();
        contents.next_place += 1;
        let chunk_id = ChunkId(contents.next_place);
        contents.chunks.insert(chunk_id, chunk);
        Ok(chunk_id)
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        let mut contents = self.contents();
        chunk_ids.iter().for_each(|chunk_id| drop(contents.chunks.remove(chunk_id)));
    }

    fn durable(&self, _: CommitSeq) -> Durable {
        Box::pin(std::future::ready(Ok(())))
    }

    fn poll_durable(&self, _: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        Some(Ok(()))
    }

    fn failed(&self) -> Failed {
        Box::pin(std::future::pending())
    }

    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.contents().messages.get(&id).cloned().ok_or(SpoolFailure::Missing)
    }

    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.contents().chunks.get(&chunk_id).cloned().ok_or(SpoolFailure::Missing)
    }

    fn recover(&mut self, _: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        Ok(RecoveryReport::default())
    }

    fn pressure(&self) -> Pressure {
        let message_count = self.contents().messages.len() as u64;
        let transaction_count = self.commit_seq.load(Ordering::Relaxed);
        Pressure { message_count, transaction_count, free_bytes: u64::MAX, ..Pressure::default() }
    }

    fn close(&self) {
        self.contents().closed = true;
    }
}
