//! The interface between a delivery and the queue's driver: jobs in, outcomes back.

use bytes::Bytes;
use mail::{Attempt, ChunkId, ForwardPath, Outcome, QueueId, SharedMessage};
use std::future::Future;

/// One message to some of its recipients, all at one destination: one transaction.
#[derive(Debug, Clone)]
pub struct Job {
    /// The message.
    pub id: QueueId,
    /// Indexes into the envelope's recipients.
    pub recipients: Vec<u32>,
    /// Still in memory on a first attempt; else [`Jobs::message`] reads it back.
    pub message: Option<SharedMessage>,
    /// Milliseconds it waited since acceptance or its last attempt, for the log.
    pub queued_ms: u64,
}

/// The queue's side of one connection to one destination. All methods are cheap; none blocks.
pub trait Jobs: Send + Sync + 'static {
    /// The next job for this destination, if there is one and its window allows.
    fn take(&self) -> Option<Job>;

    /// Resolves when [`Jobs::take`] may have something again, and at shutdown (`take` then gives
    /// nothing and [`Jobs::is_closing`] is true).
    fn ready(&self) -> impl Future<Output = ()> + Send;

    /// Asks the delivery to finish its job in hand and return.
    fn is_closing(&self) -> bool;

    /// The job's message, from memory or read back from the spool. An error is the outcome to settle with.
    fn message(&self, job: &Job) -> impl Future<Output = Result<SharedMessage, Outcome>> + Send;

    /// A stored part of its content.
    fn chunk(&self, chunk_id: ChunkId) -> impl Future<Output = Result<Bytes, Outcome>> + Send;

    /// Is there such a user? Asked of those whose Maildirs are ours.
    fn knows(&self, recipient: &ForwardPath) -> bool;

    /// Takes the outcome of each recipient of the job, by index: every recipient exactly once.
    fn settle(&self, job: Job, results: Vec<(u32, Outcome)>, attempt: &Attempt);

    /// The connection was lost before the job's transaction began on the wire: give it back, no attempt counted.
    fn put_back(&self, job: Job);

    /// No host of the destination could be used at all. `outcome` deferred: the whole destination is
    /// suspended. Failed (null MX, no such domain): every recipient waiting for it fails with it.
    fn unreachable(&self, outcome: Outcome, attempt: &Attempt);
}
