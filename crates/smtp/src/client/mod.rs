//! The client side of SMTP and LMTP, without I/O.
//!
//! [`Connection`] is what a driver holds: the server's bytes go in, [`Event`]s and [`OutputPiece`]s to write
//! come out. Messages are [`Transaction`]s; the commands of the next one travel behind the content of
//! the last (RFC 2920 §3.1), so that a kept connection needs one write and one read a message.

pub mod capabilities;
pub mod connection;
mod output;
pub mod replies;
pub mod transaction;

pub use capabilities::Capabilities;
pub use connection::{ClientSettings, Connection, Event, ExpectedReply, LostTransaction, Phase, Protocol};
pub use output::OutputPiece;
pub use replies::{ProtocolViolation, ReplyReader};
pub use transaction::{RecipientResult, Transaction};
