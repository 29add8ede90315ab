//! The nouns of mail, shared by every other crate: addresses, envelopes, content, queue ids,
//! replies and outcomes. No I/O, no runtime, no clock: time comes in as a value.
//!
//! Read first: [`Envelope`] (who a message is from and for) and [`Outcome`] (what became of one
//! attempt). Protocol syntax beyond addresses lives in `smtp`; durability in `spool`.

pub mod address;
pub mod answer;
mod client_certificate;
pub mod content;
pub mod delivery_options;
pub mod destination;
pub mod encoded_word;
pub mod envelope;
mod fold;
pub mod header;
pub mod header_edit;
mod header_fields;
pub mod id;
mod invisible;
pub mod listener;
pub mod origin;
pub mod outcome;
pub mod pattern;
mod plain_text;
mod plural;
mod program;
pub mod received;
mod reply;
pub mod seven_bit;
pub mod time;

pub use address::{AddressError, Domain, ForwardPath, Mailbox, ReversePath};
pub use answer::Answer;
pub use client_certificate::ClientCertificate;
pub use content::{ChunkId, Content, ContentTraits, Part};
pub use delivery_options::{DeliverBy, DeliverByMode, DeliveryOptions, Priority};
pub use destination::{Destination, HostPort, LmtpServer, NextHop, TlsMode};
pub use envelope::{
    AliasTarget, BodyType, Envelope, Expansion, Notify, Recipient, RecipientOptions, Ret, ReturnPath,
};
pub use fold::fold;
pub use header_edit::{Edit, Edits, Field, FieldError};
pub use header_fields::HeaderFields;
pub use id::{IdSource, QueueId};
pub use invisible::{escape_invisible, is_invisible};
pub use listener::ListenerKind;
pub use origin::{Origin, TransmissionType};
pub use outcome::{
    AnsweredBy, Attempt, Cause, Disposition, DsnDuty, FinishedAs, Outcome, ReplyStage, ReplyTo,
};
pub use plain_text::plain_text;
pub use plural::counted;
pub use program::{Argument, EnvelopeField, Program, RunAs};
pub use received::ReceivedContent;
pub use reply::{Enhanced, Reply};
pub use time::UnixMillis;

use std::sync::Arc;

/// A message the product has taken responsibility for, or is about to: one envelope, one content.
/// Cheap to clone through its `Arc`; never changed after acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Names the message in the 250 reply, `Received`, log and queue; unique for ever.
    pub id: QueueId,
    /// The time at which the end of data was seen; age and expiry count from here.
    pub arrived: UnixMillis,
    /// Where the message came from: a client, a user of this machine, or this server itself.
    pub origin: Origin,
    /// Who sent the message, and who gets it.
    pub envelope: Envelope,
    /// Header and body, trace headers included, in wire form without dot-stuffing.
    pub content: Content,
}

impl Message {
    /// Returns whether this server composed the message as a DSN.
    pub fn is_report(&self) -> bool {
        matches!(self.origin, Origin::Dsn | Origin::DoubleBounce)
    }
}

/// Sessions, queue and deliveries hold one copy of a [`Message`].
pub type SharedMessage = Arc<Message>;
