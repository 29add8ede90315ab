//! The interface between a delivery and the driver of the engine: leases in, outcomes back.

use crate::Progress;
use bytes::Bytes;
use mail::{Attempt, ChunkId, ForwardPath, Outcome, QueueId, SharedMessage};
use std::{future::Future, sync::Arc};

/// A leased job: one message to some of its recipients, all at one destination.
#[derive(Debug, Clone)]
pub struct LeasedMessage {
    /// Queue id of the message to deliver.
    pub id: QueueId,
    /// Indexes into the envelope's recipients.
    pub recipients: Vec<u32>,
    /// The message, if it is still in memory; else [`WorkSource::message`] reads it.
    pub message: Option<SharedMessage>,
    /// The time since acceptance or the last attempt in milliseconds, for the log.
    pub queued_ms: u64,
}

/// The work of one connection to one destination. All methods are cheap; none blocks.
pub trait WorkSource: Send + Sync + 'static {
    /// Leases the next job of the destination, if there is one and its window allows.
    fn next_lease(&self) -> Option<LeasedMessage>;

    /// Resolves when [`WorkSource::next_lease`] may return a lease again, and at shutdown: then `next_lease` returns
    /// nothing and [`WorkSource::should_close`] returns true.
    fn wait_for_work(&self) -> impl Future<Output = ()> + Send;

    /// Returns whether the delivery should finish its leases and return.
    fn should_close(&self) -> bool;

    /// Returns the message of a lease, from memory or read from the spool. An error is the outcome of the recipients.
    fn message(&self, lease: &LeasedMessage) -> impl Future<Output = Result<SharedMessage, Outcome>> + Send;

    /// Reads a chunk of content from the spool.
    fn chunk(&self, chunk_id: ChunkId) -> impl Future<Output = Result<Bytes, Outcome>> + Send;

    /// Returns whether a recipient of a local domain exists.
    fn is_local_user(&self, recipient: &ForwardPath) -> bool;

    /// Completes a lease with the outcome of each recipient, by index: every recipient exactly once.
    fn complete(&self, lease: LeasedMessage, results: Vec<(u32, Outcome)>, attempt: &Attempt);

    /// Returns a lease whose transaction never began on the wire. No attempt is counted.
    fn return_lease(&self, lease: LeasedMessage);

    /// Resolves when the connection should be given up, whatever it waits for, unless it sends content: with the deferral
    /// that says why, or with none if nobody wants its mail delivered any more.
    fn abandoned(&self) -> impl Future<Output = Option<Outcome>> + Send {
        std::future::pending()
    }

    /// Returns where the connection keeps its current step for operators.
    fn progress(&self) -> &Progress;

    /// Reports that a connection is ready. `tls`: as in [`Attempt::tls`].
    fn connected(&self, _relay: &str, _tls: &str) {}

    /// Reports that the server is a mail exchanger: its address, and the names of all exchangers of the domain.
    fn connected_to_exchanger(&self, _exchangers: [Arc<str>; 2]) {}

    /// Reports that no host of the destination could be used. A deferred `outcome` suspends the destination. A failed
    /// one (null MX, no such domain) fails every recipient that waits for it.
    fn unreachable(&self, outcome: Outcome, attempt: &Attempt);
}
