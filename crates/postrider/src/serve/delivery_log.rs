//! The events of the daemon: facts about messages, sessions and destinations, for the stream.

mod message_id;

use control::Matched;
use inbound::{Break, Client, ConnectionEvent};
use mail::{
    Attempt, Cause, DeliverBy, DeliverByMode, Destination, Disposition, Envelope, Message, Outcome, QueueId,
    Reply, UnixMillis, plain_text,
};
use message_id::message_id;
use report::{
    Event, EventStream,
    dsn::DsnKind,
    event::{Accepted, Attempted, Changed, NotMailed, Notification, Rejected, SessionBreak, Status, Waiting},
};
use std::net::SocketAddr;

/// Called with the outcomes of every attempt.
type Observer = Box<dyn Fn(&[(u32, Outcome)]) + Send + Sync>;

/// Appends events of messages and clients to the stream.
pub(crate) struct DeliveryLog {
    stream: EventStream,
    /// Connections and TLS handshakes are logged, too.
    logs_connections: bool,
    observer: Option<Observer>,
}

impl DeliveryLog {
    pub(crate) fn new(stream: EventStream, logs_connections: bool) -> Self {
        Self { stream, logs_connections, observer: None }
    }

    /// Creates a log whose outcomes are also passed to an observer.
    pub(crate) fn observed(
        stream: EventStream,
        observer: impl Fn(&[(u32, Outcome)]) + Send + Sync + 'static,
    ) -> Self {
        Self { stream, logs_connections: false, observer: Some(Box::new(observer)) }
    }

    /// Appends an event that needs nothing of the daemon's types.
    pub(crate) fn write(&self, event: &Event<'_>) {
        self.stream.write(event);
    }

    /// Logs that a message is durable and queued.
    pub(crate) fn accepted(&self, message: &Message) {
        let options = message.envelope.options.as_deref();
        let origin = message.origin.to_string();
        let deliver_by = options.and_then(|options| options.deliver_by.map(deadline_text));
        self.stream.write(&Event::Accepted(Accepted {
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

    /// Logs the outcomes of one attempt.
    pub(crate) fn attempt(&self, message: &Message, results: &[(u32, Outcome)], attempt: &Attempt) {
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
            self.stream.write(&Event::Attempt(Attempted {
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
            self.stream.write(&Event::Expired { id: message.id, from });
        }
    }

    /// Logs that a recipient waits, because its destination is suspended.
    pub(crate) fn waiting(
        &self,
        message: &Message,
        recipient: u32,
        destination: &str,
        outcome: &Outcome,
        until: Option<UnixMillis>,
    ) {
        self.stream.write(&Event::Waiting(Waiting {
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
    pub(crate) fn notified(&self, id: QueueId, notification: QueueId, kind: DsnKind) {
        let kind = match kind {
            DsnKind::Failed => Notification::Failure,
            DsnKind::Delayed => Notification::Delay,
            DsnKind::Delivered | DsnKind::Relayed | DsnKind::DeadlineRelayed | DsnKind::Expanded => {
                Notification::Success
            }
            DsnKind::DoubleBounce => Notification::DoubleBounce,
        };
        self.stream.write(&Event::Notified { id, notification, kind });
    }

    /// Logs failures of a notification about which the postmaster gets no mail.
    pub(crate) fn not_mailed(&self, message: &Message, failures: &[(u32, Outcome)], why: NotMailed) {
        for (recipient, outcome) in failures {
            let (id, to) = (message.id, recipient_of(message, *recipient));
            self.stream.write(&Event::NotMailed { id, to, reason: &outcome.text, why });
        }
    }

    /// Logs that an operator deleted these recipients.
    pub(crate) fn deleted(&self, message: &Message, results: &[(u32, Outcome)]) {
        for (recipient, _) in results {
            let from = message.envelope.reverse_path_of(*recipient).as_str();
            let to = recipient_of(message, *recipient);
            self.stream.write(&Event::Deleted { id: message.id, from, to, index: Some(*recipient) });
        }
    }

    /// Logs that all recipients of a message are finished.
    pub(crate) fn completed(&self, id: QueueId) {
        self.stream.write(&Event::Completed(id));
    }

    /// Logs that a client's command was rejected.
    pub(crate) fn rejected(&self, client: &Client, stage: &str, envelope: Option<&Envelope>, reply: &Reply) {
        let (rule, reply) = (reply.rule(), reply.to_string());
        let from = envelope.map(|e| e.reverse_path.as_str());
        let to = envelope.and_then(|e| e.recipients.last()).map(|r| r.path.as_str());
        let rejected = Rejected { client: client.peer, stage, login: None, from, to, reply: &reply, rule };
        self.stream.write(&Event::Rejected(rejected));
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
        self.stream.write(&Event::Rejected(rejected));
    }

    /// Logs an event of a client's connection, if connections are logged. What fails is always logged.
    pub(crate) fn connection(&self, client: &Client, event: &ConnectionEvent<'_>) {
        let peer = client.peer;
        match *event {
            ConnectionEvent::Connected if self.logs_connections => {
                self.stream.write(&Event::Connected { client: peer, listener: client.listener.as_str() });
            }
            ConnectionEvent::TlsEstablished if self.logs_connections => {
                let cipher = client.cipher().unwrap_or_default();
                let is_trusted = client.certificate().is_some_and(|certificate| certificate.is_trusted);
                self.stream.write(&Event::ClientTls { client: peer, cipher, is_trusted });
            }
            ConnectionEvent::Disconnected(counts) if self.logs_connections => {
                let commands = counts.to_string();
                self.stream.write(&Event::Disconnected { client: peer, commands: &commands });
            }
            ConnectionEvent::Connected
            | ConnectionEvent::TlsEstablished
            | ConnectionEvent::Disconnected(_) => {}
            ConnectionEvent::TlsFailed(e) => {
                let error = plain_text(&e.to_string()).into_owned();
                self.stream.write(&Event::ClientTlsFailed { client: peer, error: &error });
            }
            ConnectionEvent::Broken { cause, after } => {
                let cause = match cause {
                    Break::Lost => SessionBreak::Lost,
                    Break::Timeout => SessionBreak::Timeout,
                    Break::TooManyErrors => SessionBreak::TooManyErrors,
                    Break::OutOfSync => SessionBreak::OutOfSync,
                    Break::OtherProtocol => SessionBreak::OtherProtocol,
                };
                self.stream.write(&Event::SessionBroken { client: peer, cause, after });
            }
        }
    }

    /// Logs the TLS of a new connection to a next hop. `tls`: as in [`Attempt::tls`].
    pub(crate) fn server_tls(&self, relay: &str, tls: &str) {
        if self.logs_connections && !tls.is_empty() {
            let (cipher, is_verified) = match tls.strip_suffix(":verified") {
                Some(cipher) => (cipher, true),
                None => (tls, false),
            };
            self.stream.write(&Event::ServerTls { relay, cipher, is_verified });
        }
    }

    /// Logs that a destination is suspended.
    pub(crate) fn suspended(
        &self,
        destination: &Destination,
        outcome: &Outcome,
        until: Option<UnixMillis>,
        since: UnixMillis,
    ) {
        let destination = destination.to_string();
        self.stream.write(&Event::Suspended {
            destination: &destination,
            reason: &outcome.text,
            until,
            since,
        });
    }

    /// Logs that a destination is reached again.
    pub(crate) fn resumed(&self, destination: &Destination) {
        self.stream.write(&Event::Resumed { destination: &destination.to_string() });
    }

    /// Logs that a message is held from the start.
    pub(crate) fn held(&self, id: QueueId, reason: &str) {
        self.stream.write(&Event::Held { id, reason });
    }

    /// Logs what an operator does to a message.
    pub(crate) fn changed(
        &self,
        action: &str,
        meant: &Matched,
        (user, uid): (&str, u32),
        detail: Option<&str>,
    ) {
        let (id, reason) = (meant.id, meant.reason.as_deref());
        self.stream.write(&Event::Changed(Changed { id, action, user, uid, reason, detail }));
    }

    /// Logs that a message was accepted and discarded.
    pub(crate) fn discarded(&self, id: QueueId, from: &str, to: Option<&str>, reason: &str) {
        self.stream.write(&Event::Discarded { id, from, to, reason });
    }

    /// Returns the number of events and lines that were dropped.
    pub(crate) fn lost_count(&self) -> u64 {
        self.stream.lost_count()
    }

    /// Returns why logs or the history lose events now, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.stream.faults()
    }

    /// Opens the files again after a log rotation.
    pub(crate) fn reopen(&self) {
        self.stream.reopen();
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
