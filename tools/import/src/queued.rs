//! A message as the queue of another server has it.

use mail::{
    BodyType, DeliveryOptions, Enhanced, ForwardPath, Notify, Recipient, Ret, ReversePath, UnixMillis,
};
use std::fmt;

/// A message in the queue of another server, with the recipients that are left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// In the form of the other server.
    pub id: String,
    /// The time of acceptance, in microseconds since 1970. Together with the id it names the message for ever.
    pub arrived_us: u64,
    /// `<>` for a DSN.
    pub reverse_path: ReversePath,
    /// Recipients that are not finished, in their order.
    pub recipients: Vec<QueuedRecipient>,
    /// Addresses that were delivered or failed in the other server.
    pub finished: Vec<String>,
    /// True if an operator or a rule of the other server holds the message.
    pub held: bool,
    /// `BODY=` of MAIL.
    pub body: BodyType,
    /// True if the client gave SMTPUTF8.
    pub smtputf8: bool,
    /// `RET=` of MAIL (RFC 3461 §4.3).
    pub ret: Option<Ret>,
    /// `ENVID=` of MAIL, decoded (RFC 3461 §4.4).
    pub envid: Option<Box<str>>,
    /// Options that few messages have.
    pub options: DeliveryOptions,
    /// Attempts so far, as far as the other queue has their number.
    pub attempt_count: u32,
    /// `None` if the queue does not say that one was made.
    pub last_attempt: Option<LastAttempt>,
    /// Header and body in wire form: CRLF line ends, no stuffed dots.
    pub content: Vec<u8>,
    /// Facts about this message that the operator must know, a sentence each.
    pub notes: Vec<String>,
}

/// The last attempt of a message that was deferred.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastAttempt {
    /// When the attempt ended.
    pub at: UnixMillis,
    /// The status code, 4.0.0 if the queue does not say.
    pub status: Enhanced,
    /// On one line: a reply, or the words of the other server.
    pub text: String,
}

/// A recipient to whom the message is still to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedRecipient {
    /// Address, NOTIFY and ORCPT.
    pub recipient: Recipient,
    /// The last attempt for this recipient, if the queue has one for each.
    pub last_attempt: Option<LastAttempt>,
}

impl QueuedRecipient {
    /// Returns a recipient without an attempt of its own.
    pub fn new(path: ForwardPath, notify: Notify, orcpt: Option<Box<str>>) -> Self {
        Self { recipient: Recipient { notify, orcpt, ..Recipient::new(path) }, last_attempt: None }
    }
}

impl QueuedMessage {
    /// Returns a message with nothing but an id.
    pub(crate) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            arrived_us: 0,
            reverse_path: ReversePath::Null,
            recipients: Vec::new(),
            finished: Vec::new(),
            held: false,
            body: BodyType::SevenBit,
            smtputf8: false,
            ret: None,
            envid: None,
            options: DeliveryOptions::default(),
            attempt_count: 0,
            last_attempt: None,
            content: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the time of acceptance.
    pub fn arrived(&self) -> UnixMillis {
        UnixMillis(self.arrived_us / 1000)
    }

    /// Returns the name of the message in a list of imported messages: one word for the id, and one for the time.
    pub fn key(&self) -> String {
        format!("{} {}.{:06}", self.id, self.arrived_us / 1_000_000, self.arrived_us % 1_000_000)
    }
}

/// The reason why a file of a queue is not a whole message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage(pub String);

impl Damage {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damage {}
