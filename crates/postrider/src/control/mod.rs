//! How commands on this machine talk to the daemon, over two Unix sockets: one for operators
//! ([`server`], [`client`], speaking [`protocol`]), one for everybody that takes mail in and nothing
//! else ([`submit`]). While the daemon is down, mail goes to the drop directory ([`drop_dir`]).
//!
//! The daemon implements [`Target`]; how it does what is asked is its business.

pub(crate) mod client;
pub(crate) mod drop_dir;
pub(crate) mod pick_up;
pub(crate) mod protocol;
pub(crate) mod selection;
pub(crate) mod server;
pub(crate) mod socket;
pub(crate) mod submission;
pub(crate) mod submit;

pub(crate) use pick_up::PickUp;
pub(crate) use protocol::{
    Action, Failure, Gauges, Id, Listed, ListedRecipient, RecipientCounters, Request, Response, Status,
};
pub(crate) use selection::{Meant, Selection};
pub(crate) use server::serve_control;
pub(crate) use submission::{Refusal, Submission};
pub(crate) use submit::serve_submit;

use mail::QueueId;
use std::future::Future;

/// What the daemon does for the sockets.
pub(crate) trait Target: Send + Sync + 'static {
    /// The ids of all queued messages, in the order of acceptance (8 bytes each, so a million are 8 MB).
    fn ids(&self) -> Vec<QueueId>;

    /// Returns the messages with these ids, in this order; those that are gone are left out. Asked for at most
    /// [`server::PAGE`] at a time. May read the spool; what that cannot give is listed as damaged.
    fn messages(&self, ids: &[QueueId]) -> impl Future<Output = Vec<Listed>> + Send;

    /// The header of a message, at most about `max_bytes` of it; none when the message is gone.
    fn header(
        &self,
        id: QueueId,
        max_bytes: usize,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Failure>> + Send;

    /// Does it to each of these that is still there, durably, and says to how many messages. At most
    /// [`server::PAGE`] at a time.
    fn apply(&self, action: Action, meant: &[Meant]) -> impl Future<Output = Result<u64, Failure>> + Send;

    /// Makes everything that waits due now and revives every destination; says how many messages that is.
    fn flush(&self) -> u64;

    /// The counters, taken at one moment.
    fn counters(&self) -> RecipientCounters;

    /// Speed and room.
    fn gauges(&self) -> Gauges;

    /// Reads the configuration again. Notes name what takes a restart.
    fn reload(&self) -> impl Future<Output = Result<Vec<String>, Failure>> + Send;

    /// Accepts a message durably, as after the end of data.
    fn submit(&self, submission: Submission) -> impl Future<Output = Result<QueueId, Refusal>> + Send;
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
