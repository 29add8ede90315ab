//! The questions of a session to the daemon.

use bytes::Bytes;
use mail::{ChunkId, Envelope, Message, QueueId, Recipient, Reply};
use smtp::{Limits, server::Capabilities};
use std::{future::Future, net::SocketAddr, sync::Arc};

/// The client of a session.
#[derive(Debug, Clone)]
pub struct Client {
    /// The client's address.
    pub peer: SocketAddr,
    /// Ours, where it came in.
    pub local: SocketAddr,
    /// `TLSv1.3:TLS_AES_256_GCM_SHA384`, when TLS is active.
    pub tls: Option<Box<str>>,
}

/// Why a piece of content is not in the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The disk is behind: again when [`Service::room`] says so.
    Busy,
    /// The message cannot be taken.
    Refused(Reply),
}

/// The daemon's side of a session: policy's verdicts and the spool's promise.
pub trait Service: Send + Sync + 'static {
    /// May this client have a session? A refusal is its greeting.
    fn client(&self, client: &Client) -> Result<(), Reply>;

    /// Is this client one of ours, so that talking early is overlooked?
    fn is_trusted(&self, client: &Client) -> bool;

    /// May it begin a transaction? Back-pressure belongs here: never after the content where it can be helped.
    fn sender(&self, client: &Client, envelope: &Envelope) -> Reply;

    /// May it mail this recipient?
    fn recipient(&self, client: &Client, envelope: &Envelope, recipient: &Recipient) -> Reply;

    /// An id for the message whose content begins.
    fn next_id(&self) -> QueueId;

    /// Puts a piece of content into the spool while the rest arrives: all pieces of an envelope to where
    /// its message will be.
    fn store(&self, envelope: &Envelope, chunk: Bytes) -> Result<ChunkId, StoreError>;

    /// Resolves when storing is worth another try.
    fn wait_for_space(&self) -> impl Future<Output = ()> + Send;

    /// Discards stored chunks that no message will name.
    fn discard_chunks(&self, chunk_ids: &[ChunkId]);

    /// Makes the message durable and queues it. The reply is for the client; positive only when the
    /// message would survive a power cut.
    fn commit(&self, client: &Client, message: Message) -> impl Future<Output = Reply> + Send;

    /// A refusal worth a line in the log: at which command, the reply, and what it was about.
    fn log_reject(&self, client: &Client, stage: &'static str, envelope: Option<&Envelope>, reply: &Reply);
}

/// The settings of inbound sessions; the configuration describes each.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits and timeouts of sessions.
    pub limits: Arc<Limits>,
    /// Our name, and whether STARTTLS can be offered.
    pub capabilities: Arc<Capabilities>,
    /// Content above this goes to the spool in pieces of this size.
    pub chunk_bytes: usize,
    /// Content in memory of all sessions together above which pieces become small, and no transaction begins.
    pub memory_bytes: usize,
    /// Sessions at once; the next one gets 421.
    pub sessions_max: usize,
    /// Sessions at once from one address; trusted clients are not counted.
    pub sessions_per_client: usize,
}
