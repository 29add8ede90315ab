//! The outcome of one attempt for one recipient.

use crate::{Enhanced, Reply, plain_text};
use std::{collections::BTreeMap, fmt};

/// The result of an attempt for one recipient, in the sense of the *Action* field of RFC 3464.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// The next hop or the mailbox has it.
    Delivered,
    /// A new attempt may succeed: 4yz, a reply that does not fit, or no answer.
    Deferred,
    /// No attempt will: 5yz, a domain that takes no mail, a message that expired, or an operator's command.
    Failed,
}

impl Disposition {
    /// Returns the word of the delivery log: `sent`, `deferred`, `bounced`. RFC 3464 calls them delivered, delayed and failed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "sent",
            Self::Deferred => "deferred",
            Self::Failed => "bounced",
        }
    }
}

/// The command whose reply decided an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplyStage {
    /// The connection, or EHLO.
    Connect,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA.
    Data,
    /// The end of the content.
    Content,
}

impl ReplyStage {
    /// As in the text of an outcome: `in reply to RCPT TO`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "EHLO",
            Self::Mail => "MAIL FROM",
            Self::Rcpt => "RCPT TO",
            Self::Data => "DATA",
            Self::Content => "end of DATA",
        }
    }
}

/// The reply that decided an outcome, in the parts that decisions are made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplyTo {
    /// Which command, or the end of the content, was answered.
    pub stage: ReplyStage,
    /// The reply code, such as 550.
    pub code: u16,
    /// The enhanced code as the server sent it, even if its class contradicts the reply code.
    pub enhanced: Option<Enhanced>,
}

impl ReplyTo {
    /// The facts of a reply to this command.
    pub fn new(reply: &Reply, stage: ReplyStage) -> Self {
        Self { stage, code: reply.code, enhanced: reply.enhanced }
    }
}

/// The cause of an outcome. The spool does not store it: after a restart no decision is made on an outcome of before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Cause {
    /// A decision of this server, without a reply. Also the cause of an outcome that was read from the spool.
    #[default]
    Local,
    /// A reply of the next hop.
    Reply(ReplyTo),
    /// The lifetime of the message is over.
    Expired,
    /// An operator returned the message to its sender.
    Returned,
    /// An operator deleted the message.
    Deleted,
    /// An operator redirected the recipient: another message has taken the place of this one.
    Redirected,
}

impl Cause {
    /// Returns whether the outcome is not that of an attempt: the time or an operator ended the message.
    pub fn is_without_attempt(self) -> bool {
        matches!(self, Self::Expired | Self::Returned | Self::Deleted | Self::Redirected)
    }
}

/// The counter that a finished recipient adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FinishedAs {
    /// The next hop or the mailbox has the message.
    Delivered,
    /// Failed permanently; the sender gets a DSN unless `NOTIFY` says otherwise.
    Bounced,
    /// Failed because the lifetime of the message was over.
    Expired,
    /// Deleted by an operator.
    Deleted,
    /// Another message has taken the place of this one.
    Moved,
}

/// One recipient's outcome. A remote 4yz or 5yz is news, not an error: it travels as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Delivered, deferred, failed.
    pub disposition: Disposition,
    /// RFC 3463 status: the remote's own, where it gave one of the class of its reply.
    pub status: Enhanced,
    /// The remote's reply on one line (`250 2.0.0 Ok: queued as X`), of a long one an excerpt, or our own words.
    pub text: Box<str>,
    /// True if `text` comes from the remote (DSN: `Diagnostic-Code: smtp; …`).
    pub from_remote: bool,
    /// The cause. Decisions are made on it, never on the text.
    pub cause: Cause,
}

impl Outcome {
    fn local(disposition: Disposition, status: Enhanced, text: impl Into<Box<str>>) -> Self {
        let text: Box<str> = text.into();
        let text = match plain_text(&text) {
            std::borrow::Cow::Borrowed(_) => text,
            std::borrow::Cow::Owned(plain) => plain.into(),
        };
        Self { disposition, status, text, from_remote: false, cause: Cause::Local }
    }

    /// Delivered by this server, in its own words; see [`Outcome::from_reply`] for a reply.
    pub fn delivered(status: Enhanced, text: impl Into<Box<str>>) -> Self {
        Self::local(Disposition::Delivered, status, text)
    }

    /// We could not, but may later.
    pub fn deferred(status: Enhanced, text: impl Into<Box<str>>) -> Self {
        Self::local(Disposition::Deferred, status, text)
    }

    /// Returns an outcome that no further attempt can change.
    pub fn failed(status: Enhanced, text: impl Into<Box<str>>) -> Self {
        Self::local(Disposition::Failed, status, text)
    }

    /// Makes a failure a deferral: the class of its status becomes 4.
    pub fn soften(&mut self) {
        if self.disposition == Disposition::Failed {
            self.disposition = Disposition::Deferred;
            self.status.0 = 4;
        }
    }

    /// Returns the outcome with another cause.
    #[must_use]
    pub fn because(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// Returns the counter that the recipient adds to; `None` if the recipient is not finished.
    pub fn finished_as(&self) -> Option<FinishedAs> {
        match (self.cause, self.disposition) {
            (_, Disposition::Deferred) => None,
            (Cause::Redirected, _) => Some(FinishedAs::Moved),
            (_, Disposition::Delivered) => Some(FinishedAs::Delivered),
            (Cause::Deleted, Disposition::Failed) => Some(FinishedAs::Deleted),
            (Cause::Expired, Disposition::Failed) => Some(FinishedAs::Expired),
            (Cause::Local | Cause::Reply(_) | Cause::Returned, Disposition::Failed) => {
                Some(FinishedAs::Bounced)
            }
        }
    }

    /// Returns the reply that decided; `None` if the server was not asked or did not answer.
    pub fn reply(&self) -> Option<ReplyTo> {
        match self.cause {
            Cause::Reply(reply) => Some(reply),
            _ => None,
        }
    }

    /// From the remote's final reply to a command: 2yz delivered, 4yz deferred, 5yz failed,
    /// anything else a protocol error and deferred.
    pub fn from_reply(reply: &Reply, stage: ReplyStage) -> Self {
        let (disposition, class) = match reply.code {
            200..=299 => (Disposition::Delivered, 2),
            500..=599 => (Disposition::Failed, 5),
            _ => (Disposition::Deferred, 4),
        };
        // A code of another class than the reply's would contradict it (RFC 2034 §4).
        let status = reply.enhanced.filter(|e| e.0 == class).unwrap_or(Enhanced(class, 0, 0));
        let cause = Cause::Reply(ReplyTo::new(reply, stage));
        Self { disposition, status, text: reply.excerpt().into(), from_remote: true, cause }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.disposition.as_str(), self.status)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, " ({})", self.text) }
    }
}

/// Says who sends a DSN about success, if the sender asked for one (RFC 3461 §5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DsnDuty {
    /// Report from this server: the message was delivered (action `delivered`).
    #[default]
    ReportDelivered,
    /// Report from this server: the message was passed to a next hop that does not send DSNs (action `relayed`).
    ReportRelayed,
    /// The next hop, which got the NOTIFY parameters.
    NextHop,
}

/// One attempt as the log and `why` tell it: where to, how, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attempt {
    /// `mx.example.com[192.0.2.1]:25`, `unix:/run/lmtp`, `maildir`, or empty when no host was reached.
    pub relay: Box<str>,
    /// `TLSv1.3:TLS_AES_128_GCM_SHA256:verified` or empty in clear text.
    pub tls: Box<str>,
    /// Waiting for this attempt since acceptance or the last one, in milliseconds.
    pub queued_ms: u64,
    /// Connecting, greeting and TLS, in milliseconds; zero on a kept connection.
    pub setup_ms: u64,
    /// From MAIL to the final reply, in milliseconds.
    pub transfer_ms: u64,
    /// The server that sends a DSN about success.
    pub dsn_duty: DsnDuty,
    /// The next hop offers DELIVERBY (RFC 2852), and has got the deadline of the message, if it has one; or it is the end
    /// of the way.
    pub takes_deadline: bool,
    /// Recipients whose outcome is not of `relay`, but of a server that was asked before it. Empty with one server.
    pub elsewhere: BTreeMap<u32, AnsweredBy>,
}

/// A server that gave an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnsweredBy {
    /// As [`Attempt::relay`].
    pub relay: Box<str>,
    /// As [`Attempt::tls`].
    pub tls: Box<str>,
}

impl Attempt {
    /// Returns the server that gave a recipient's outcome, and its TLS.
    pub fn answered_by(&self, index: u32) -> (&str, &str) {
        match self.elsewhere.get(&index) {
            Some(server) => (&server.relay, &server.tls),
            None => (&self.relay, &self.tls),
        }
    }
}
