//! Messages as the daemon hands them to its spool, for measurements that drive the spool without a daemon.

use mail::{
    Content, Enhanced, Envelope, ForwardPath, IdSource, Message, Outcome, QueueId, Recipient, ReversePath,
    SharedMessage, UnixMillis,
};
use spool::Entry;
use std::sync::Arc;

/// Makes them, each with an id of its own and one recipient.
#[derive(Debug)]
pub(crate) struct MessageFactory {
    ids: IdSource,
    envelope: Envelope,
}

impl MessageFactory {
    /// With a sender and a recipient.
    pub(crate) fn new() -> Result<Self, String> {
        let from = ReversePath::parse("a@b.test", true).map_err(|e| e.to_string())?;
        let to = ForwardPath::parse("c@d.test", true).map_err(|e| e.to_string())?;
        let mut envelope = Envelope::new(from);
        envelope.recipients.push(Recipient::new(to));
        Ok(Self { ids: IdSource::default(), envelope })
    }

    /// Returns a message that has arrived just now, with an id of its own.
    pub(crate) fn message(&self, content: Content) -> SharedMessage {
        let arrived = UnixMillis::now();
        let (id, envelope) = (self.ids.next(arrived.0), self.envelope.clone());
        Arc::new(Message { id, arrived, origin: "lab".into(), envelope, content })
    }
}

/// The outcome "delivered" of the only recipient of a message, after which the spool may forget it.
pub(crate) fn delivered(id: QueueId) -> Entry {
    let outcome =
        Outcome { from_remote: true, ..Outcome::delivered(Enhanced(2, 0, 0), "2.0.0 Ok: queued as 4XyZ") };
    Entry::Outcome { id, results: vec![(0, outcome)], last: true }
}
