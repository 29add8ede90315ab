//! The delivery log of the daemon.

use inbound::Client;
use mail::{Attempt, Destination, Envelope, Message, Outcome, QueueId, Reply, UnixMillis};
use report::{
    Log,
    line::{Event, Rejected},
};
use std::net::SocketAddr;

/// Called with the outcomes of every attempt.
type Observer = Box<dyn Fn(&[(u32, Outcome)]) + Send + Sync>;

/// Writes events of messages and clients to the log.
pub(crate) struct DeliveryLog {
    log: Log,
    observer: Option<Observer>,
}

impl DeliveryLog {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, observer: None }
    }

    /// Creates a log whose outcomes are also passed to an observer.
    pub(crate) fn observed(log: Log, observer: impl Fn(&[(u32, Outcome)]) + Send + Sync + 'static) -> Self {
        Self { log, observer: Some(Box::new(observer)) }
    }

    /// Logs that a message is durable and queued.
    pub(crate) fn accepted(&self, message: &Message) {
        self.log.write(&Event::Accepted(message));
    }

    /// Logs the outcomes of one attempt.
    pub(crate) fn attempt(&self, message: &Message, results: &[(u32, Outcome)], attempt: &Attempt) {
        if let Some(observer) = &self.observer {
            observer(results);
        }
        for (recipient, outcome) in results {
            self.log.write(&Event::Attempt { message, recipient: *recipient, outcome, attempt });
        }
    }

    /// Logs that an operator deleted these recipients.
    pub(crate) fn deleted(&self, message: &Message, results: &[(u32, Outcome)]) {
        for (recipient, _) in results {
            self.log.write(&Event::Deleted { message, recipient: *recipient });
        }
    }

    /// Logs that all recipients of a message are finished.
    pub(crate) fn completed(&self, id: QueueId) {
        self.log.write(&Event::Completed(id));
    }

    /// Logs that a client's command was rejected.
    pub(crate) fn rejected(&self, client: &Client, stage: &str, envelope: Option<&Envelope>, reply: &Reply) {
        let (rule, reply) = (reply.rule(), reply.to_string());
        let from = envelope.map(|e| e.reverse_path.as_str());
        let to = envelope.and_then(|e| e.recipients.last()).map(|r| r.path.as_str());
        let rejected = Rejected { client: client.peer, stage, login: None, from, to, reply: &reply, rule };
        self.log.write(&Event::Rejected(rejected));
    }

    /// Logs that a client could not log in. `user`: the name that it gave.
    pub(crate) fn login_failed(
        &self,
        client: SocketAddr,
        user: Option<&str>,
        mechanism: &str,
        reply: &Reply,
    ) {
        let (stage, reply) = (format!("AUTH {mechanism}"), reply.to_string());
        let rejected =
            Rejected { client, stage: &stage, login: user, from: None, to: None, reply: &reply, rule: None };
        self.log.write(&Event::Rejected(rejected));
    }

    /// Logs that a destination is suspended.
    pub(crate) fn suspended(&self, destination: &Destination, outcome: &Outcome, until: Option<UnixMillis>) {
        self.log.write(&Event::Suspended { destination, outcome, until });
    }

    /// A message is held from the start.
    pub(crate) fn held(&self, id: QueueId, reason: &str) {
        self.log.write(&Event::Held { id, reason });
    }

    /// A message was accepted and discarded.
    pub(crate) fn discarded(&self, id: QueueId, from: &str, to: Option<&str>, reason: &str) {
        self.log.write(&Event::Discarded { id, from, to, reason });
    }

    /// Opens the file again after a log rotation.
    pub(crate) fn reopen(&self) {
        self.log.reopen();
    }
}
