//! Events of clients, and of messages before they are in the queue, for the stream.

use inbound::{Break, Client, ConnectionEvent};
use mail::{Envelope, QueueId, Reply, plain_text};
use report::{
    Event, EventStream,
    event::{Rejected, SessionBreak},
};
use std::net::SocketAddr;

/// Appends events of clients to the stream.
pub struct AcceptLog {
    stream: EventStream,
    /// Connections and TLS handshakes are logged, too.
    logs_connections: bool,
}

impl AcceptLog {
    /// Returns a log that appends to a stream; `logs_connections`: also connections and TLS handshakes that succeed.
    pub fn new(stream: EventStream, logs_connections: bool) -> Self {
        Self { stream, logs_connections }
    }

    /// Returns the event stream that the log writes to.
    pub fn stream(&self) -> &EventStream {
        &self.stream
    }

    /// Returns whether connections and TLS handshakes are logged.
    pub fn logs_connections(&self) -> bool {
        self.logs_connections
    }

    /// Logs that a client's command was rejected.
    pub fn rejected(&self, client: &Client, stage: &str, envelope: Option<&Envelope>, reply: &Reply) {
        let (rule, reply) = (reply.rule(), reply.to_string());
        let from = envelope.map(|e| e.reverse_path.as_str());
        let to = envelope.and_then(|e| e.recipients.last()).map(|r| r.path.as_str());
        let rejected = Rejected { client: client.peer, stage, login: None, from, to, reply: &reply, rule };
        self.stream.write(&Event::Rejected(rejected));
    }

    /// Logs that a client has logged in.
    pub fn logged_in(&self, client: SocketAddr, user: &str, mechanism: &str) {
        self.stream.write(&Event::LoggedIn { client, user, mechanism });
    }

    /// Logs that a client could not log in. `user`: the name that it gave.
    pub fn login_failed(&self, client: SocketAddr, user: Option<&str>, mechanism: &str, reply: &Reply) {
        let (stage, reply) = (format!("AUTH {mechanism}"), reply.to_string());
        let rejected =
            Rejected { client, stage: &stage, login: user, from: None, to: None, reply: &reply, rule: None };
        self.stream.write(&Event::Rejected(rejected));
    }

    /// Logs an event of a client's connection, if connections are logged. What fails is always logged.
    pub fn connection(&self, client: &Client, event: &ConnectionEvent<'_>) {
        let peer = client.peer;
        match *event {
            ConnectionEvent::Connected if self.logs_connections => {
                self.stream.write(&Event::Connected { client: peer, listener: client.listener.as_str() });
            }
            ConnectionEvent::TlsEstablished if self.logs_connections => {
                let cipher = client.cipher().unwrap_or_default();
                let is_trusted = client.certificate().is_some_and(|certificate| certificate.is_trusted);
                let key_exchange = client.tls.as_ref().and_then(|tls| tls.key_exchange);
                let event = Event::ClientTls { client: peer, cipher, is_trusted, key_exchange };
                self.stream.write(&event);
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

    /// Logs that a message was accepted and discarded.
    pub fn discarded(&self, id: QueueId, from: &str, to: Option<&str>, reason: &str) {
        self.stream.write(&Event::Discarded { id, from, to, reason });
    }
}
