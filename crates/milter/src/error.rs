//! What a filter did wrong, and what its driver did.

use crate::{Actions, Stage, Steps, answer::name_of};
use std::fmt;

/// A filter broke the protocol. Nothing that it says afterwards counts: the driver closes the connection, and does with the
/// message what is configured for a filter that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolError {
    /// A packet is of zero length, which leaves no place for its kind.
    Empty,
    /// A packet is longer than [`crate::Session::ANSWER_MAX_BYTES`].
    TooLong {
        /// Length that the packet announced, in bytes.
        bytes: u32,
    },
    /// The filter sent something while no answer was awaited.
    Unsolicited,
    /// No such answer exists.
    Unknown {
        /// Its code, an ASCII character.
        answer: u8,
    },
    /// A known answer, which may not come at this stage.
    Misplaced {
        /// Its code, an ASCII character.
        answer: u8,
        /// What was answered.
        stage: Stage,
    },
    /// The filter did not ask for leave to send this answer when it negotiated.
    NotNegotiated {
        /// Its code, an ASCII character.
        answer: u8,
    },
    /// The data of a known answer cannot be parsed.
    Malformed {
        /// Its code, an ASCII character.
        answer: u8,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The filter wants a version of the protocol that does not exist, or is newer than the one offered.
    Version(u32),
    /// The filter wants actions or steps that were not offered.
    NotOffered {
        /// The actions that were not offered.
        actions: Actions,
        /// The steps that were not offered.
        steps: Steps,
    },
    /// The changes to one message, replaced bodies apart, are longer than [`crate::Session::EDITS_MAX_BYTES`].
    TooManyEdits,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |answer: &u8| format!("{} ('{}')", name_of(*answer), answer.escape_ascii());
        match self {
            Self::Empty => f.write_str("the filter sent a packet of zero length"),
            Self::TooLong { bytes } => write!(f, "the filter sent a packet of {bytes} octets"),
            Self::Unsolicited => f.write_str("the filter sent an answer to nothing"),
            Self::Unknown { answer } => {
                write!(f, "the filter sent an unknown answer, '{}'", answer.escape_ascii())
            }
            Self::Misplaced { answer, stage } => {
                write!(f, "the filter sent {} as an answer to {stage}", named(answer))
            }
            Self::NotNegotiated { answer } => {
                write!(f, "the filter sent {} and did not negotiate it", named(answer))
            }
            Self::Malformed { answer, fault } => {
                write!(f, "the filter sent a malformed {}: {fault}", named(answer))
            }
            Self::Version(version) => write!(f, "the filter wants version {version} of the protocol"),
            Self::NotOffered { actions, steps } => {
                write!(f, "the filter wants what was not offered: actions {actions:?}, steps {steps:?}")
            }
            Self::TooManyEdits => f.write_str("the filter changes too much of one message"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// A command cannot be sent. Nothing was written, and the session is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The filter has yet to answer the command before.
    AnswerAwaited,
    /// The command cannot follow the one before, such as RCPT without MAIL.
    OutOfOrder(Stage),
    /// The command, with its macros, is longer than what the filter takes.
    TooLong(Stage),
    /// The session has ended: by quit, or because the filter broke the protocol.
    Closed,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AnswerAwaited => f.write_str("the filter has yet to answer the command before"),
            Self::OutOfOrder(stage) => write!(f, "{stage} cannot come now"),
            Self::TooLong(stage) => write!(f, "{stage} is longer than what the filter takes"),
            Self::Closed => f.write_str("the conversation with the filter has ended"),
        }
    }
}

impl std::error::Error for SendError {}
