//! The operations that operators ask of the daemon, and the protocol of the control socket: [`server`] and [`client`]
//! speak [`protocol`], and [`selection`] says which messages are meant.
//!
//! The daemon implements [`Operations`]. What commands end with is in [`exit`].

mod attempt_info;
mod certificate_info;
pub mod client;
pub mod copy;
mod directory;
pub mod exit;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod options_info;
pub mod protocol;
pub mod selection;
pub mod server;
pub mod socket;
mod summary;

pub use attempt_info::{AttemptInfo, SilentServers};
pub use certificate_info::{CertificateInfo, CertificateOrigin, RenewalFailure, RenewalInfo};
pub use copy::{BackupItem, Copied, CopyEnd, MessageCopy};
pub use directory::{open_directory, open_parent_directory};
pub use exit::{CommandError, Exit};
pub use options_info::OptionsInfo;
pub use protocol::{
    Action, ConnectionShare, DeliveryHelper, ExchangerConnections, Failure, Gauges, Id, MessageInfo,
    RecipientInfo, RedirectTo, Request, Resource, Response, Status, WaitInfo, held_text,
};
pub use selection::{Matched, Selection};
pub use server::serve_control;
pub use summary::{AGE_MINUTES, DestinationInfo, NO_REASON, Summary, SummaryBy};

use bytes::Bytes;
use mail::{ChunkId, QueueId};
use report::RecipientCounters;
use std::{collections::BTreeMap, future::Future};

/// What became of the messages that were selected for an action.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Selected messages that were in the queue.
    pub found: u64,
    /// Messages among them that were left as they were, by the reason.
    pub unchanged: BTreeMap<String, u64>,
    /// Messages that are due, and wait nevertheless, by the reason.
    pub waiting: BTreeMap<String, u64>,
}

impl Applied {
    /// Returns the number of messages that were left as they were.
    pub fn unchanged_count(&self) -> u64 {
        self.unchanged.values().sum()
    }

    /// Counts a message that was left as it was.
    pub fn add_unchanged(&mut self, reason: &str) {
        *self.unchanged.entry(reason.to_owned()).or_default() += 1;
    }
}

/// The operations that the daemon offers to operators.
pub trait Operations: Send + Sync + 'static {
    /// The ids of all queued messages, in the order of acceptance (8 bytes each, so a million are 8 MB).
    fn ids(&self) -> Vec<QueueId>;

    /// Waits until the notifications of everything that has failed up to now are among the ids: a failure and its notification are
    /// decided together, and the notification is queued once both are durable.
    fn notified(&self) -> impl Future<Output = ()> + Send;

    /// Returns the messages with these ids, in this order; those that are gone are left out. Asked for at most
    /// [`server::PAGE`] at a time. May read the spool; what that cannot give is listed as damaged.
    fn messages(&self, ids: &[QueueId]) -> impl Future<Output = Vec<MessageInfo>> + Send;

    /// The header of a message, at most about `max_bytes` of it; none when the message is gone.
    fn header(
        &self,
        id: QueueId,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Failure>> + Send;

    /// Applies an action of the user with this number to each of these messages that is still there, durably. At most
    /// [`server::PAGE`] at a time.
    fn apply(
        &self,
        action: Action,
        matched: &[Matched],
        uid: u32,
    ) -> impl Future<Output = Result<Applied, Failure>> + Send;

    /// Looks whether redirected mail can go there. Returns a warning if it would wait there.
    fn check_redirect(&self, to: &RedirectTo)
    -> impl Future<Output = Result<Option<String>, Failure>> + Send;

    /// Queues other messages in place of these messages or of some of their recipients, durably, for the user with this number.
    fn redirect(
        &self,
        to: &RedirectTo,
        matched: &[Matched],
        uid: u32,
    ) -> impl Future<Output = Result<Applied, Failure>> + Send;

    /// Makes everything that waits due now and revives every destination; says how many messages that is.
    fn flush(&self, uid: u32) -> u64;

    /// Returns the rows of all queued recipients.
    fn summary(&self, by: SummaryBy) -> impl Future<Output = Vec<DestinationInfo>> + Send;

    /// Returns all metrics in the text format of OpenMetrics.
    fn metrics(&self) -> String;

    /// Returns the counters of recipients, all taken at one moment.
    fn counters(&self) -> RecipientCounters;

    /// Returns health, speed and room of the spool, taken at one moment.
    fn gauges(&self) -> Gauges;

    /// Begins a copy of a message; none when the message is gone.
    fn copy(&self, id: QueueId) -> impl Future<Output = Result<Option<MessageCopy>, Failure>> + Send;

    /// Returns a chunk of the content of a message; none when the message is gone.
    fn chunk(
        &self,
        id: QueueId,
        chunk_id: ChunkId,
    ) -> impl Future<Output = Result<Option<Bytes>, Failure>> + Send;

    /// Returns the certificates that listeners show.
    fn certificates(&self) -> Vec<CertificateInfo>;

    /// Returns what is known of the certificate that the daemon obtains; none if it obtains none.
    fn renewal(&self) -> Option<RenewalInfo>;

    /// Asks the authority for a new certificate now.
    ///
    /// # Errors
    /// The daemon obtains none.
    fn renew(&self) -> Result<(), Failure>;

    /// Reads the configuration again. Notes name what takes a restart.
    fn reload(&self) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

    /// Refuses new sessions of all listeners or of those that have this address, port or kind, or takes them again. Returns
    /// the addresses of the listeners.
    ///
    /// # Errors
    /// There is no such listener.
    fn set_drained(&self, listener: Option<&str>, is_drained: bool) -> Result<Vec<String>, Failure>;
}

#[cfg(test)]
mod tests;
