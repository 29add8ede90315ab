//! What the rules or another check decide.

use bytes::Bytes;
use mail::{Edits, Recipient, Reply, ReversePath};

/// What a check decides at a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the next check is asked.
    Pass,
    /// The stage is over; no further check is asked at it.
    Accept,
    /// The client gets this permanent refusal, a 5yz.
    Reject(Reply),
    /// The client gets this temporary refusal, a 4yz.
    Defer(Reply),
    /// The client is answered that the message is accepted, but it is not. At RCPT this means one recipient. The text is the
    /// reason, for the log.
    Discard(Box<str>),
    /// The message is accepted and held until an operator releases it. The text is the reason, for the log.
    Hold(Box<str>),
    /// Other recipients replace the recipient that is judged; at another stage than RCPT, all recipients.
    Redirect(Vec<Recipient>),
    /// As [`Verdict::Redirect`], and no further check is asked about the recipient.
    Settle(Vec<Recipient>),
    /// Further recipients of the message. One that the message has already is left out.
    Bcc(Vec<Recipient>),
    /// Targets of aliases that do not exist, with the reasons: the other ones get the mail, and the log says who does not.
    Missing(Box<[(Box<str>, Box<str>)]>),
    /// Several verdicts, in their order, up to the first that ends the stage.
    All(Vec<Self>),
    /// The recipient that is judged leaves by the route with this name; at another stage than RCPT, all recipients.
    Route(Box<str>),
    /// Another reverse-path replaces the one that was given.
    ReplaceSender(ReversePath),
    /// The header is changed when the content is complete; at [`Stage::Seal`](crate::Stage::Seal), at once.
    Edit(Edits),
    /// Another body replaces the one that was given, when the content is complete.
    ReplaceBody(Bytes),
}

impl Verdict {
    /// Returns whether the client gets a 4yz or 5yz.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Reject(_) | Self::Defer(_))
    }
}
