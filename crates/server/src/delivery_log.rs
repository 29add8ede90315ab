//! The events of the daemon: facts about messages, sessions and destinations, for the stream.

mod message_id;

use accept::AcceptLog;
use control::Matched;
use mail::{
    Attempt, Cause, DeliverBy, DeliverByMode, Destination, Disposition, Message, Outcome, QueueId, UnixMillis,
};
use message_id::message_id;
use report::{
    Event, EventStream,
    dsn::DsnKind,
    event::{Accepted, Attempted, Changed, NotMailed, Notification, Status, Waiting},
};

/// Called with the outcomes of every attempt.
type Observer = Box<dyn Fn(&[(u32, Outcome)]) + Send + Sync>;

/// Appends events of messages and clients to the stream.
pub struct DeliveryLog {
    accept: AcceptLog,
    observer: Option<Observer>,
}

impl DeliveryLog {
    /// Returns a log that writes into a stream.
    pub fn new(stream: EventStream, logs_connections: bool) -> Self {
        Self { accept: AcceptLog::new(stream, logs_connections), observer: None }
    }

    /// Creates a log whose outcomes are also passed to an observer.
    pub fn observed(
        stream: EventStream,
        observer: impl Fn(&[(u32, Outcome)]) + Send + Sync + 'static,
    ) -> Self {
        Self { accept: AcceptLog::new(stream, false), observer: Some(Box::new(observer)) }
    }

    /// Returns the log of what happens before a message is in the queue.
    pub fn of_accept(&self) -> &AcceptLog {
        &self.accept
    }

    fn stream(&self) -> &EventStream {
        self.accept.stream()
    }

    /// Appends an event that needs nothing of the daemon's types.
    pub fn write(&self, event: &Event<'_>) {
        self.stream().write(event);
    }

    /// Logs that a message is durable and queued.
    pub fn accepted(&self, message: &Message) {
        let options = message.envelope.options.as_deref();
        let origin = message.origin.to_string();
        let deliver_by = options.and_then(|options| options.deliver_by.map(deadline_text));
        self.stream().write(&Event::Accepted(Accepted {
            id: message.id,
            from: message.envelope.reverse_path.as_str(),
            recipient_count: message.envelope.recipients.len() as u32,
            size_bytes: message.content.size_bytes(),
            origin: &origin,
            message_id: message_id(message),
            login: options.and_then(|options| options.login.as_deref()),
            requires_tls: options.is_some_and(|options| options.requiretls),
            release: options.and_then(|options| options.release),
            deliver_by: deliver_by.as_deref(),
            priority: options.and_then(|options| Some(options.priority?.value())),
        }));
    }

    /// Logs what one attempt has brought, a line for each recipient.
    pub fn attempt(&self, message: &Message, results: &[(u32, Outcome)], attempt: &Attempt) {
        if let Some(observer) = &self.observer {
            observer(results);
        }
        let age_ms = age_ms(message);
        let mut expired_from = None;
        for (recipient, outcome) in results {
            let status = match (outcome.disposition, outcome.cause) {
                (Disposition::Delivered, Cause::Redirected) => Status::Redirected,
                (Disposition::Delivered, _) => Status::Sent,
                (Disposition::Deferred, _) => Status::Deferred,
                (Disposition::Failed, Cause::Expired) => Status::Expired,
                (Disposition::Failed, _) => Status::Bounced,
            };
            let from = message.envelope.reverse_path_of(*recipient).as_str();
            let (relay, tls) = attempt.answered_by(*recipient);
            if status == Status::Expired {
                expired_from = Some(from);
            }
            self.stream().write(&Event::Attempt(Attempted {
                id: message.id,
                from,
                to: recipient_of(message, *recipient),
                status,
                dsn: outcome.status,
                relay,
                tls,
                reply: &outcome.text,
                age_ms,
                queued_ms: attempt.queued_ms,
                setup_ms: attempt.setup_ms,
                transfer_ms: attempt.transfer_ms,
                index: Some(*recipient),
            }));
        }
        if let Some(from) = expired_from {
            self.stream().write(&Event::Expired { id: message.id, from });
        }
    }

    /// Logs that a recipient waits, because its destination is suspended.
    pub fn waiting(
        &self,
        message: &Message,
        recipient: u32,
        destination: &str,
        outcome: &Outcome,
        until: Option<UnixMillis>,
    ) {
        self.stream().write(&Event::Waiting(Waiting {
            id: message.id,
            from: message.envelope.reverse_path_of(recipient).as_str(),
            to: recipient_of(message, recipient),
            dsn: outcome.status,
            destination,
            reason: &outcome.text,
            age_ms: age_ms(message),
            until,
            index: Some(recipient),
        }));
    }

    /// Logs that a notification about a message is durable and queued.
    pub fn notified(&self, id: QueueId, notification: QueueId, kind: DsnKind) {
        let kind = match kind {
            DsnKind::Failed => Notification::Failure,
            DsnKind::Delayed => Notification::Delay,
            DsnKind::Delivered | DsnKind::Relayed | DsnKind::DeadlineRelayed | DsnKind::Expanded => {
                Notification::Success
            }
            DsnKind::DoubleBounce => Notification::DoubleBounce,
        };
        self.stream().write(&Event::Notified { id, notification, kind });
    }

    /// Logs failures of a notification about which the postmaster gets no mail.
    pub fn not_mailed(&self, message: &Message, failures: &[(u32, Outcome)], why: NotMailed) {
        for (recipient, outcome) in failures {
            let (id, to) = (message.id, recipient_of(message, *recipient));
            self.stream().write(&Event::NotMailed { id, to, reason: &outcome.text, why });
        }
    }

    /// Logs that an operator deleted these recipients.
    pub fn deleted(&self, message: &Message, results: &[(u32, Outcome)]) {
        for (recipient, _) in results {
            let from = message.envelope.reverse_path_of(*recipient).as_str();
            let to = recipient_of(message, *recipient);
            self.stream().write(&Event::Deleted { id: message.id, from, to, index: Some(*recipient) });
        }
    }

    /// Logs that all recipients of a message are finished.
    pub fn completed(&self, id: QueueId) {
        self.stream().write(&Event::Completed(id));
    }

    /// Logs the TLS of a new connection to a next hop. `tls`: as in [`Attempt::tls`].
    pub fn server_tls(&self, relay: &str, tls: &str) {
        if self.accept.logs_connections() && !tls.is_empty() {
            let (cipher, is_verified) = match tls.strip_suffix(":verified") {
                Some(cipher) => (cipher, true),
                None => (tls, false),
            };
            self.stream().write(&Event::ServerTls { relay, cipher, is_verified });
        }
    }

    /// Logs that a destination is suspended.
    pub fn suspended(
        &self,
        destination: &Destination,
        outcome: &Outcome,
        until: Option<UnixMillis>,
        since: UnixMillis,
    ) {
        let destination = destination.to_string();
        self.stream().write(&Event::Suspended {
            destination: &destination,
            reason: &outcome.text,
            until,
            since,
        });
    }

    /// Logs that a destination is reached again.
    pub fn resumed(&self, destination: &Destination) {
        self.stream().write(&Event::Resumed { destination: &destination.to_string() });
    }

    /// Logs that a message is held from the start.
    pub fn held(&self, id: QueueId, reason: &str) {
        self.stream().write(&Event::Held { id, reason });
    }

    /// Logs what an operator does to a message.
    pub fn changed(&self, action: &str, meant: &Matched, (user, uid): (&str, u32), detail: Option<&str>) {
        let (id, reason) = (meant.id, meant.reason.as_deref());
        self.stream().write(&Event::Changed(Changed { id, action, user, uid, reason, detail }));
    }

    /// Returns the number of events and lines that were dropped.
    pub fn lost_count(&self) -> u64 {
        self.stream().lost_count()
    }

    /// Returns why logs or the history lose events now, in words.
    pub fn faults(&self) -> Vec<String> {
        self.stream().faults()
    }

    /// Opens the files again after a log rotation.
    pub fn reopen(&self) {
        self.stream().reopen();
    }
}

/// `2026-11-21T06:25:54.048Z;R`, with the by-mode and the by-trace of RFC 2852.
fn deadline_text(by: DeliverBy) -> String {
    let mode = if by.mode == DeliverByMode::Return { 'R' } else { 'N' };
    format!("{};{mode}{}", by.deadline.rfc3339(), if by.trace { "T" } else { "" })
}

fn age_ms(message: &Message) -> u64 {
    u64::try_from(UnixMillis::now().since(message.arrived).as_millis()).unwrap_or(u64::MAX)
}

fn recipient_of(message: &Message, index: u32) -> &str {
    message.envelope.recipients.get(index as usize).map_or("", |r| r.path.as_str())
}
