//! What the acceptor asks of the program around it.

use crate::{accept_config::AcceptConfig, log::AcceptLog, unstored::UnstoredMessages};
use bytes::Bytes;
use mail::{ChunkId, Destination, QueueId, SharedMessage, UnixMillis};
use spool::{CommitSeq, SpoolFailure};
use std::{future::Future, sync::Arc};

/// The program around an [`Acceptor`](crate::Acceptor): its configuration, its way to wait for the disk, and its queue.
pub trait Intake: Send + Sync + 'static {
    /// Returns the configuration as it is now. A transaction keeps the one with which it began.
    fn config(&self) -> Arc<AcceptConfig>;

    /// Returns the time by the wall clock.
    fn now(&self) -> UnixMillis;

    /// Returns the log of clients.
    fn log(&self) -> &AcceptLog;

    /// Waits until a transaction would survive a power cut.
    ///
    /// # Errors
    /// The spool failed, and promises nothing any more.
    fn durable(&self, commit_seq: CommitSeq) -> impl Future<Output = Result<(), SpoolFailure>> + Send;

    /// Reads a piece of content from the spool.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn load(&self, chunk_id: ChunkId) -> impl Future<Output = Result<Bytes, SpoolFailure>> + Send;

    /// Logs and queues a message, which is durable or in [`Self::unstored`]. `is_late`: its client was told to try again.
    fn accepted(self: &Arc<Self>, message: SharedMessage, held: Option<Box<str>>, is_late: bool);

    /// Takes notice that the spool failed: nothing more can be promised until it is recovered. Without a failure, the spool had
    /// stopped before.
    fn spool_failed(&self, failure: Option<&SpoolFailure>);

    /// Returns the queued messages that are not in the spool.
    fn unstored(&self) -> &UnstoredMessages;

    /// Deletes a queued message, because its client is told to send it again. A delivery attempt that has begun is not stopped.
    fn forgo(self: &Arc<Self>, id: QueueId, reason: &str);

    /// Makes due what is queued for some destinations. Returns the number of messages, or nothing if it cannot be done.
    fn start_queue(
        self: &Arc<Self>,
        is_meant: impl Fn(&Destination) -> bool + Send,
    ) -> impl Future<Output = Option<u64>> + Send;
}
