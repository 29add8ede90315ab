//! Events of sessions, messages, destinations and the process, as facts without a format. Sessions and the engine append
//! them to an [`EventStream`](crate::EventStream); each [`Sink`](crate::Sink) writes them in its own way.
//!
//! The binary form is that of `postcard`: variants have numbers, integers are varints, texts have a length. It is stored
//! in the history, so a new variant stands at the end of [`Event`], and the fields of a variant never change. Fields that
//! earlier builds did not write stand at the end of a variant, and are read with [`later`].

use mail::{Enhanced, QueueId, UnixMillis};
use serde::{Deserialize, Deserializer, Serialize};
use std::{
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

/// A time: microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct UnixMicros(pub u64);

impl UnixMicros {
    /// Returns the system clock now; zero before 1970.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    /// Returns the time in milliseconds, rounded down.
    pub fn millis(self) -> UnixMillis {
        UnixMillis(self.0 / 1000)
    }
}

/// What the daemon tells its logs, metrics and history.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Event<'a> {
    /// A message is durable and queued.
    #[serde(borrow)]
    Accepted(Accepted<'a>),
    /// The outcome of one recipient in one attempt.
    Attempt(Attempted<'a>),
    /// A recipient waits without an attempt, because its destination is suspended.
    Waiting(Waiting<'a>),
    /// Recipients of a message have ended because its lifetime was over. After their [`Event::Attempt`].
    Expired {
        /// Queue id of the message that expired.
        id: QueueId,
        /// The reverse-path of the last recipient that expired; empty for `<>`.
        from: &'a str,
    },
    /// An operator deleted a recipient: it is not tried any more, and its sender gets no report.
    Deleted {
        /// Queue id of the message that the recipient belonged to.
        id: QueueId,
        /// The reverse-path of the recipient; empty for `<>`.
        from: &'a str,
        /// Address of the recipient, without angle brackets.
        to: &'a str,
        /// The index of the recipient in the envelope; `None` in events of earlier builds.
        #[serde(deserialize_with = "later")]
        index: Option<u32>,
    },
    /// A message is held from the start. After [`Event::Accepted`]; before it in events of earlier builds.
    Held {
        /// Queue id of the message that is held.
        id: QueueId,
        /// Who or what holds it, and why.
        reason: &'a str,
    },
    /// The client heard that a message is accepted, and it was discarded.
    Discarded {
        /// As in the reply; no message has it.
        id: QueueId,
        /// Empty for `<>`.
        from: &'a str,
        /// The recipient, where only one of a message was discarded.
        to: Option<&'a str>,
        /// The reason to discard the message or the recipient.
        reason: &'a str,
    },
    /// A notification about a message is durable and queued. After the [`Event::Accepted`] of the notification.
    Notified {
        /// Queue id of the message that the notification is about.
        id: QueueId,
        /// Queue id of the notification itself.
        notification: QueueId,
        /// The kind of the notification.
        kind: Notification,
    },
    /// Nothing is left to do for a message.
    Completed(QueueId),
    /// A client's command was rejected.
    Rejected(Rejected<'a>),
    /// A client is connected.
    Connected {
        /// Address and port of the client.
        client: SocketAddr,
        /// Such as `mx`.
        listener: &'a str,
    },
    /// A session has ended.
    Disconnected {
        /// Address and port of the client.
        client: SocketAddr,
        /// The commands of the session, as Postfix counts them: ` ehlo=1 mail=1 rcpt=0/1 commands=2/3`.
        commands: &'a str,
    },
    /// A session is about to end before its client has sent QUIT.
    SessionBroken {
        /// Address and port of the client.
        client: SocketAddr,
        /// Why the session broke.
        cause: SessionBreak,
        /// The last command: `RCPT`; `CONNECT` before the first one.
        after: &'a str,
    },
    /// A TLS handshake with a client is done.
    ClientTls {
        /// Address and port of the client.
        client: SocketAddr,
        /// `TLSv1.3:TLS_AES_256_GCM_SHA384`.
        cipher: &'a str,
        /// The client showed a certificate that is trusted.
        is_trusted: bool,
        /// The group of the key exchange: `X25519MLKEM768`; `None` in events of earlier builds, and for a resumed session.
        #[serde(deserialize_with = "later")]
        key_exchange: Option<&'a str>,
    },
    /// A TLS handshake with a client failed.
    ClientTlsFailed {
        /// Address and port of the client.
        client: SocketAddr,
        /// As the TLS library says it.
        error: &'a str,
    },
    /// A TLS handshake with a next hop is done.
    ServerTls {
        /// `mx.example.com[192.0.2.1]:25`.
        relay: &'a str,
        /// `TLSv1.3:TLS_AES_256_GCM_SHA384`.
        cipher: &'a str,
        /// True if the certificate is trusted and names the host.
        is_verified: bool,
    },
    /// A destination cannot be reached, and is suspended.
    Suspended {
        /// Name of the destination: `mx:example.com`.
        destination: &'a str,
        /// The reply or the error of the last attempt.
        reason: &'a str,
        /// No host could be reached since then.
        since: UnixMillis,
        /// When the destination is tried again; `None` while it is being tried.
        until: Option<UnixMillis>,
    },
    /// A probe found the destination reachable again.
    Resumed {
        /// Name of the destination: `mx:example.com`.
        destination: &'a str,
    },
    /// An operator held, released, deleted or redirected messages.
    Operator {
        /// Such as `hold`.
        action: &'a str,
        /// Messages that were changed.
        messages: u64,
        /// The operator; `None` in events of earlier builds.
        #[serde(deserialize_with = "later")]
        user: Option<&'a str>,
    },
    /// The daemon has started.
    Started {
        /// Such as `0.1.0`.
        version: &'a str,
        /// Messages in the queue.
        queued: u64,
    },
    /// The configuration was read again.
    Reloaded,
    /// The daemon is stopping.
    Stopping,
    /// Events were dropped, because the disk of a log did not take them.
    Dropped(u64),
    /// An operator told listeners to refuse new sessions, or to take them again.
    Listeners {
        /// The action: `drain` or `resume`.
        action: &'a str,
        /// The addresses of the listeners, with commas between them.
        listeners: &'a str,
    },
    /// A reload was refused: the former configuration stays in use.
    ReloadFailed {
        /// Why it was refused, in one line: the configuration in use stays.
        reason: &'a str,
    },
    /// An operator changed a message, or ordered the end of recipients whose [`Event::Deleted`] or [`Event::Attempt`]
    /// follows.
    Changed(Changed<'a>),
    /// A notification of this server failed for a recipient, and no mail to the postmaster is made for it. Before the
    /// [`Event::Attempt`] of the recipient.
    NotMailed {
        /// Queue id of the notification that failed.
        id: QueueId,
        /// Address of the notification's recipient, without angle brackets.
        to: &'a str,
        /// The reply or the error of its last attempt.
        reason: &'a str,
        /// Why the postmaster gets no mail about it.
        why: NotMailed,
    },
    /// A client has logged in.
    LoggedIn {
        /// Address and port of the client.
        client: SocketAddr,
        /// The name of the login.
        user: &'a str,
        /// Such as `SCRAM-SHA-256`.
        mechanism: &'a str,
    },
}

/// The facts of a message when it is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accepted<'a> {
    /// Queue id of the message that was accepted.
    pub id: QueueId,
    /// Empty for `<>`.
    pub from: &'a str,
    /// After expansion.
    pub recipient_count: u32,
    /// The size of the content, with the trace field of this server.
    pub size_bytes: u64,
    /// As [`mail::Origin`] is written.
    pub origin: &'a str,
    /// The value of the Message-ID field; empty if there is none that can stand in a log.
    pub message_id: &'a str,
    /// `None` without a login.
    pub login: Option<&'a str>,
    /// `REQUIRETLS` was given (RFC 8689).
    pub requires_tls: bool,
    /// The time before which the message is not tried.
    pub release: Option<UnixMillis>,
    /// The deadline: `2026-11-21T06:25:54.048Z;R`.
    pub deliver_by: Option<&'a str>,
    /// `MT-PRIORITY` (RFC 6710); `None` if it was not given.
    pub priority: Option<i8>,
}

/// A change that an operator made to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed<'a> {
    /// Queue id of the message that was changed.
    pub id: QueueId,
    /// The action: `hold`, `release`, `retry`, `bounce`, `delete`, `redirect`.
    pub action: &'a str,
    /// The name of the operator's user; `uid-1000` where it has none.
    pub user: &'a str,
    /// The number of the operator's user, as the kernel says it.
    pub uid: u32,
    /// `None` if the operator gave none.
    pub reason: Option<&'a str>,
    /// What was changed, where the action does not say all: `<a@b.test> to <c@d.test>`.
    pub detail: Option<&'a str>,
}

/// What an attempt has brought for one recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Delivered to the next hop or into the mailbox.
    Sent,
    /// Another attempt will follow.
    Deferred,
    /// No attempt will be made.
    Bounced,
    /// No attempt will be made, because the lifetime of the message is over.
    Expired,
    /// No attempt was made: an operator redirected the recipient, and another message has it.
    Redirected,
}

impl Status {
    /// Returns the word of the JSON log, which calls an expired recipient bounced.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Deferred => "deferred",
            Self::Bounced | Self::Expired => "bounced",
            Self::Redirected => "redirected",
        }
    }
}

/// The outcome of one recipient in one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Attempted<'a> {
    /// Queue id of the message that was tried.
    pub id: QueueId,
    /// Of the copy for this recipient, which a mailing list may have replaced.
    pub from: &'a str,
    /// Address of the recipient, without angle brackets.
    pub to: &'a str,
    /// How the attempt ended.
    pub status: Status,
    /// Of the reply, or as the error is classified (RFC 3463).
    pub dsn: Enhanced,
    /// `mx.example.com[192.0.2.1]:25`, `unix:/run/lmtp`, `maildir`, or empty when no host was reached.
    pub relay: &'a str,
    /// `TLSv1.3:TLS_AES_128_GCM_SHA256:verified`, or empty in clear text.
    pub tls: &'a str,
    /// The reply of the other server, or this server's own words.
    pub reply: &'a str,
    /// Time since the message was accepted.
    pub age_ms: u64,
    /// Time in the queue before this attempt.
    pub queued_ms: u64,
    /// Connecting, greeting and TLS; zero on a kept connection.
    pub setup_ms: u64,
    /// From MAIL to the final reply.
    pub transfer_ms: u64,
    /// The index of the recipient in the envelope, since several recipients can have one address: the targets of an alias.
    /// `None` in events of earlier builds.
    #[serde(deserialize_with = "later")]
    pub index: Option<u32>,
}

/// A recipient that waits for its destination.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Waiting<'a> {
    /// Queue id of the message that the recipient belongs to.
    pub id: QueueId,
    /// Of the copy for this recipient, which a mailing list may have replaced.
    pub from: &'a str,
    /// Address of the recipient, without angle brackets.
    pub to: &'a str,
    /// The enhanced status code of the outcome that suspended the destination.
    pub dsn: Enhanced,
    /// Name of the destination: `mx:example.com`.
    pub destination: &'a str,
    /// The outcome that suspended the destination.
    pub reason: &'a str,
    /// Time since the message was accepted.
    pub age_ms: u64,
    /// When the destination is tried again; `None` while it is being tried.
    pub until: Option<UnixMillis>,
    /// As in [`Attempted::index`].
    #[serde(deserialize_with = "later")]
    pub index: Option<u32>,
}

/// Who gets a notification, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Notification {
    /// A bounce for the sender.
    Failure,
    /// A delay warning for the sender.
    Delay,
    /// A report of success for the sender.
    Success,
    /// A bounce that could not be delivered, for the postmaster.
    DoubleBounce,
}

impl Notification {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Failure, Self::Delay, Self::Success, Self::DoubleBounce];

    /// Returns the word of the JSON log and of the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failure => "failure",
            Self::Delay => "delay",
            Self::Success => "success",
            Self::DoubleBounce => "double_bounce",
        }
    }
}

/// The reason that the postmaster gets no mail about a notification that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NotMailed {
    /// `notifications.double_bounces` is false, or `notifications.max_double_bounces_per_hour` is 0.
    Off,
    /// The postmaster has had as many in the last hour as `notifications.max_double_bounces_per_hour` permits. A summary
    /// follows.
    Limit,
    /// The notification was for the postmaster, about another one that failed.
    DoubleBounce,
}

impl NotMailed {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Limit, Self::DoubleBounce];

    /// Returns the word of the JSON log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Limit => "limit",
            Self::DoubleBounce => "double_bounce",
        }
    }
}

/// A command that a client was refused, and what is known of the client.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rejected<'a> {
    /// `192.0.2.1:1234`.
    pub client: SocketAddr,
    /// The command: `CONNECT`, `AUTH PLAIN`, `MAIL`, `RCPT`, `DATA`.
    pub stage: &'a str,
    /// The user name of a login that failed, as the client gave it.
    pub login: Option<&'a str>,
    /// `None` before MAIL.
    pub from: Option<&'a str>,
    /// `None` if the rejection is not about one recipient.
    pub to: Option<&'a str>,
    /// With its codes.
    pub reply: &'a str,
    /// The rule of the configuration that decided.
    pub rule: Option<&'a str>,
}

/// The cause of the end of a session whose client has not sent QUIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SessionBreak {
    /// The client closed the connection, or the network did.
    Lost,
    /// The client sent nothing for too long.
    Timeout,
    /// The client made too many errors.
    TooManyErrors,
    /// The client sent commands before it could know the reply to others.
    OutOfSync,
    /// The client speaks another protocol.
    OtherProtocol,
}

impl SessionBreak {
    /// All causes.
    pub const ALL: [Self; 5] =
        [Self::Lost, Self::Timeout, Self::TooManyErrors, Self::OutOfSync, Self::OtherProtocol];

    /// Returns the word of the JSON log and of the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Timeout => "timeout",
            Self::TooManyErrors => "too_many_errors",
            Self::OutOfSync => "out_of_sync",
            Self::OtherProtocol => "other_protocol",
        }
    }
}

/// Reads a field that events of earlier builds end before.
fn later<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::deserialize(from).unwrap_or_default())
}

/// Appends the binary form of an event.
pub fn encode(event: &Event<'_>, out: &mut Vec<u8>) {
    struct Appender<'a>(&'a mut Vec<u8>);
    impl postcard::ser_flavors::Flavor for Appender<'_> {
        type Output = ();
        fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
            self.0.push(byte);
            Ok(())
        }
        fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
            self.0.extend_from_slice(bytes);
            Ok(())
        }
        fn finalize(self) -> postcard::Result<()> {
            Ok(())
        }
    }
    let written = postcard::serialize_with_flavor(event, Appender(out));
    debug_assert!(written.is_ok(), "texts and numbers have a binary form");
}

/// Reads the binary form of an event; `None` for bytes that no version of [`encode`] writes.
pub fn decode(bytes: &[u8]) -> Option<Event<'_>> {
    postcard::from_bytes(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_form_of_an_event_is_read_as_it_was() {
        let client = "[2001:db8::1]:25".parse().unwrap();
        let attempt = Attempted {
            id: QueueId(u64::MAX),
            from: "",
            to: "é@x.test",
            status: Status::Expired,
            dsn: Enhanced(5, 4, 7),
            relay: "mx[192.0.2.1]:25",
            tls: "",
            reply: "550 no",
            age_ms: 1 << 40,
            queued_ms: 0,
            setup_ms: 1,
            transfer_ms: 127,
            index: None,
        };
        let rejected = Rejected {
            client,
            stage: "RCPT",
            login: None,
            from: Some("a@b"),
            to: None,
            reply: "550 x",
            rule: None,
        };
        for event in [
            Event::Rejected(rejected),
            Event::SessionBroken { client, cause: SessionBreak::Timeout, after: "DATA" },
            Event::Completed(QueueId(7)),
            Event::Dropped(3),
            Event::Changed(CHANGED),
            NOT_MAILED,
        ] {
            let mut bytes = Vec::new();
            encode(&event, &mut bytes);
            assert_eq!(decode(&bytes), Some(event));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None, "a part of it is no event");
        }
        for event in [
            Event::Attempt(attempt),
            Event::Attempt(Attempted { index: Some(70_000), ..attempt }),
            Event::Deleted { id: QueueId(7), from: "", to: "a@b", index: Some(0) },
        ] {
            let mut bytes = Vec::new();
            encode(&event, &mut bytes);
            assert_eq!(decode(&bytes), Some(event));
        }
    }

    #[test]
    fn an_event_of_a_build_that_knew_no_indices_is_read_without_one() {
        // As they were written before: the fields end with `transfer_ms`, and with `to`.
        let attempt = b"\x01\x07\x03a@b\x03c@d\x00\x02\x00\x00\x01r\x00\x02ok\x01\x02\x03\x04";
        let Some(Event::Attempt(read)) = decode(attempt) else { panic!("an attempt") };
        assert_eq!((read.id, read.to, read.transfer_ms, read.index), (QueueId(7), "c@d", 4, None));
        assert_eq!(decode(&attempt[..attempt.len() - 1]), None);
        let deleted = Event::Deleted { id: QueueId(7), from: "a@b", to: "c@d", index: None };
        assert_eq!(decode(b"\x04\x07\x03a@b\x03c@d"), Some(deleted));
    }

    const NOT_MAILED: Event<'_> =
        Event::NotMailed { id: QueueId(7), to: "a@b", reason: "550 no", why: NotMailed::Limit };

    const CHANGED: Changed<'_> =
        Changed { id: QueueId(7), action: "hold", user: "root", uid: 0, reason: Some("odd"), detail: None };

    #[test]
    fn an_operators_command_of_a_build_that_knew_no_users_is_read_without_one() {
        let read = decode(b"\x12\x04hold\x03");
        assert_eq!(read, Some(Event::Operator { action: "hold", messages: 3, user: None }));
    }

    #[test]
    fn the_numbers_of_variants_stay_as_they_are_stored() {
        let number = |event: Event<'_>| {
            let mut bytes = Vec::new();
            encode(&event, &mut bytes);
            bytes[0]
        };
        let client = "192.0.2.1:25".parse().unwrap();
        let numbers = [
            number(Event::Expired { id: QueueId(0), from: "" }),
            number(Event::Completed(QueueId(0))),
            number(Event::Connected { client, listener: "mx" }),
            number(Event::Resumed { destination: "" }),
            number(Event::Dropped(0)),
            number(Event::ReloadFailed { reason: "" }),
            number(Event::Changed(CHANGED)),
            number(NOT_MAILED),
        ];
        assert_eq!(numbers, [3, 8, 10, 17, 22, 24, 25, 26]);
    }
}
