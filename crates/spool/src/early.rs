//! A spool that calls messages durable before they are: `durability = "none"`.
//!
//! Everything is written and synced as always, by the commit thread and in its order, only nobody waits for it. A crash of
//! the process, of the system or of the power loses the mail that was acknowledged and not yet committed: that of one or
//! two commits, and at most what the commit queue holds.

use crate::{
    CommitSeq, CommitStats, Durable, Entry, Failed, Pressure, Recovered, RecoveryReport, Refused, Spool,
    SpoolFailure, Transaction, block_on,
};
use bytes::Bytes;
use mail::{ChunkId, Envelope, QueueId, SharedMessage};
use std::sync::atomic::{AtomicU64, Ordering};

/// A spool that calls a message durable before it is written (`durability = "none"`).
pub struct EarlySpool {
    spool: Box<dyn Spool>,
    /// The highest commit sequence number of a message.
    last_message: AtomicU64,
}

impl EarlySpool {
    /// Makes a spool reply early. It must have one order of commits ([`Spool::shard_count`]).
    pub fn new(spool: Box<dyn Spool>) -> Self {
        assert_eq!(spool.shard_count(), 1, "each store of a sharded spool replies early by itself");
        Self { spool, last_message: AtomicU64::new(0) }
    }

    /// After a failure of the spool nothing is called durable that is not.
    fn reply(&self, commit_seq: CommitSeq) -> Result<(), SpoolFailure> {
        self.spool.poll_durable(commit_seq).unwrap_or(Ok(()))
    }

    /// Reads, and once more when all messages are committed: the commit of this one may be under way.
    fn retrying<T>(&self, read: impl Fn() -> Result<T, SpoolFailure>) -> Result<T, SpoolFailure> {
        match read() {
            Err(SpoolFailure::Missing) => {
                block_on(self.spool.durable(CommitSeq(self.last_message.load(Ordering::Acquire))))?;
                read()
            }
            result => result,
        }
    }
}

impl Spool for EarlySpool {
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        let has_message =
            transaction.iter().any(|entry| matches!(entry, Entry::Accept(_) | Entry::Import(_)));
        let commit_seq = self.spool.submit_or_keep(transaction)?;
        if has_message {
            self.last_message.fetch_max(commit_seq.0, Ordering::AcqRel);
            // Begins the commit; nobody waits for the result.
            drop(self.spool.durable(commit_seq));
        }
        Ok(commit_seq)
    }

    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.spool.store(chunk)
    }

    fn store_for(&self, envelope: &Envelope, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.spool.store_for(envelope, chunk)
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        self.spool.discard_chunks(chunk_ids);
    }

    fn durable(&self, commit_seq: CommitSeq) -> Durable {
        Box::pin(std::future::ready(self.reply(commit_seq)))
    }

    fn poll_durable(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        Some(self.reply(commit_seq))
    }

    fn failed(&self) -> Failed {
        self.spool.failed()
    }

    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.retrying(|| self.spool.read(id))
    }

    fn read_cached(&self, id: QueueId) -> Option<SharedMessage> {
        self.spool.read_cached(id)
    }

    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        // A message is submitted behind its chunks.
        self.retrying(|| self.spool.load(chunk_id))
    }

    fn load_cached(&self, chunk_id: ChunkId) -> Option<Bytes> {
        self.spool.load_cached(chunk_id)
    }

    fn recover(&mut self, found: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        self.spool.recover(found)
    }

    fn pressure(&self) -> Pressure {
        self.spool.pressure()
    }

    fn commit_stats(&self) -> CommitStats {
        self.spool.commit_stats()
    }

    fn faults(&self) -> Vec<String> {
        self.spool.faults()
    }

    fn room_bytes(&self) -> u64 {
        self.spool.room_bytes()
    }

    fn close(&self) {
        self.spool.close();
    }
}
