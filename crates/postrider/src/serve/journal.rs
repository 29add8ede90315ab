//! The delivery log, in the daemon's own terms.

use inbound::Client;
use mail::{Attempt, Destination, Envelope, Message, Outcome, QueueId, Reply, UnixMillis};
use report::{
    Log,
    line::{Event, Rejected},
};

/// Is told of every attempt's outcomes.
type Observer = Box<dyn Fn(&[(u32, Outcome)]) + Send + Sync>;

/// Tells the log what happened.
pub(crate) struct Journal {
    log: Log,
    observer: Option<Observer>,
}

impl Journal {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, observer: None }
    }

    /// Creates a log whose outcomes are also passed to an observer.
    pub(crate) fn observed(log: Log, observer: impl Fn(&[(u32, Outcome)]) + Send + Sync + 'static) -> Self {
        Self { log, observer: Some(Box::new(observer)) }
    }

    /// A message is durable and queued.
    pub(crate) fn accepted(&self, message: &Message) {
        self.log.write(&Event::Accepted(message));
    }

    /// What became of recipients in one attempt.
    pub(crate) fn attempt(&self, message: &Message, results: &[(u32, Outcome)], attempt: &Attempt) {
        if let Some(observer) = &self.observer {
            observer(results);
        }
        for (recipient, outcome) in results {
            self.log.write(&Event::Attempt { message, recipient: *recipient, outcome, attempt });
        }
    }

    /// An operator threw these recipients of it away.
    pub(crate) fn deleted(&self, message: &Message, results: &[(u32, Outcome)]) {
        for (recipient, _) in results {
            self.log.write(&Event::Deleted { message, recipient: *recipient });
        }
    }

    /// Nothing is left to do for it.
    pub(crate) fn removed(&self, id: QueueId) {
        self.log.write(&Event::Completed(id));
    }

    /// A client was refused.
    pub(crate) fn refused(&self, client: &Client, stage: &str, envelope: Option<&Envelope>, reply: &Reply) {
        let reply = reply.to_string();
        let from = envelope.map(|e| e.reverse_path.as_str());
        let to = envelope.and_then(|e| e.recipients.last()).map(|r| r.path.as_str());
        self.log.write(&Event::Rejected(Rejected { client: client.peer, stage, from, to, reply: &reply }));
    }

    /// A destination is left alone until then.
    pub(crate) fn suspended(&self, destination: &Destination, outcome: &Outcome, until: Option<UnixMillis>) {
        self.log.write(&Event::Suspended { destination, outcome, until });
    }

    /// After a log rotation.
    pub(crate) fn reopen(&self) {
        self.log.reopen();
    }
}
