//! The outcome of one attempt for one recipient.

use crate::{Enhanced, Reply};
use std::fmt;

/// The result of an attempt for one recipient, in the sense of the *Action* field of RFC 3464.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// The next hop or the mailbox has it.
    Delivered,
    /// A new attempt may succeed: 4yz, or no answer.
    Deferred,
    /// No attempt will: 5yz, or expired.
    Failed,
}

impl Disposition {
    /// As written in logs and in the DSN `Action` field's sense: `sent`, `deferred`, `bounced`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "sent",
            Self::Deferred => "deferred",
            Self::Failed => "bounced",
        }
    }
}

/// One recipient's outcome. A remote 4yz or 5yz is news, not an error: it travels as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Delivered, deferred, failed.
    pub disposition: Disposition,
    /// RFC 3463 status; the remote's own where it gave one.
    pub status: Enhanced,
    /// The remote's reply on one line (`250 2.0.0 Ok: queued as X`), of a long one an excerpt, or our own words.
    pub text: Box<str>,
    /// True if `text` comes from the remote (DSN: `Diagnostic-Code: smtp; …`).
    pub from_remote: bool,
}

impl Outcome {
    /// Delivered, with the final reply or our own words.
    pub fn delivered(status: Enhanced, text: impl Into<Box<str>>) -> Self {
        Self { disposition: Disposition::Delivered, status, text: text.into(), from_remote: false }
    }

    /// We could not, but may later.
    pub fn deferred(status: Enhanced, text: impl Into<Box<str>>) -> Self {
        Self { disposition: Disposition::Deferred, status, text: text.into(), from_remote: false }
    }

    /// Returns an outcome that no further attempt can change.
    pub fn failed(status: Enhanced, text: impl Into<Box<str>>) -> Self {
        Self { disposition: Disposition::Failed, status, text: text.into(), from_remote: false }
    }

    /// From the remote's final reply to a command: 2yz delivered, 4yz deferred, 5yz failed,
    /// anything else a protocol error and deferred.
    pub fn from_reply(reply: &Reply) -> Self {
        let (disposition, class) = match reply.code {
            200..=299 => (Disposition::Delivered, 2),
            500..=599 => (Disposition::Failed, 5),
            _ => (Disposition::Deferred, 4),
        };
        // A code of another class than the reply's would contradict it (RFC 2034 §4).
        let status = reply.enhanced.filter(|e| e.0 == class).unwrap_or(Enhanced(class, 0, 0));
        Self { disposition, status, text: reply.excerpt().into(), from_remote: true }
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
}
