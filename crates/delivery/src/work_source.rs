//! The interface between a delivery and the queue's driver: leases in, outcomes back.

use bytes::Bytes;
use mail::{Attempt, ChunkId, ForwardPath, Outcome, QueueId, SharedMessage};
use std::future::Future;

/// One message to some of its recipients, all at one destination: one transaction.
#[derive(Debug, Clone)]
pub struct LeasedMessage {
    /// The message.
    pub id: QueueId,
    /// Indexes into the envelope's recipients.
    pub recipients: Vec<u32>,
    /// Still in memory on a first attempt; else [`WorkSource::message`] reads it back.
    pub message: Option<SharedMessage>,
    /// Milliseconds it waited since acceptance or its last attempt, for the log.
    pub queued_ms: u64,
}

/// The queue's side of one connection to one destination. All methods are cheap; none blocks.
pub trait WorkSource: Send + Sync + 'static {
    /// The next lease for this destination, if there is one and its window allows.
    fn next_lease(&self) -> Option<LeasedMessage>;

    /// Resolves when [`WorkSource::next_lease`] may have something again, and at shutdown (`next_lease` then gives
    /// nothing and [`WorkSource::should_close`] is true).
    fn wait_for_work(&self) -> impl Future<Output = ()> + Send;

    /// Asks the delivery to finish its leases and return.
    fn should_close(&self) -> bool;

    /// The lease's message, from memory or read back from the spool. An error is the outcome to settle with.
    fn message(&self, lease: &LeasedMessage) -> impl Future<Output = Result<SharedMessage, Outcome>> + Send;

    /// A stored part of its content.
    fn chunk(&self, chunk_id: ChunkId) -> impl Future<Output = Result<Bytes, Outcome>> + Send;

    /// Is there such a user? Asked of those whose Maildirs are ours.
    fn is_local_user(&self, recipient: &ForwardPath) -> bool;

    /// Takes the outcome of each recipient of the lease, by index: every recipient exactly once.
    fn complete(&self, lease: LeasedMessage, results: Vec<(u32, Outcome)>, attempt: &Attempt);

    /// The connection was lost before the lease's transaction began on the wire: give it back, no attempt counted.
    fn return_lease(&self, lease: LeasedMessage);

    /// No host of the destination could be used at all. `outcome` deferred: the whole destination is
    /// suspended. Failed (null MX, no such domain): every recipient waiting for it fails with it.
    fn unreachable(&self, outcome: Outcome, attempt: &Attempt);
}
