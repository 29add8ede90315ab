//! The SMTP language, without I/O: parsing, rendering, and the server and client sessions as state
//! machines (RFC 5321, and the extensions it names). Bytes, verdicts and time come in as arguments.
//!
//! Read first: `server::Connection` and `client::Connection`.

pub mod client;
pub mod command;
pub mod forwarded;
pub mod limits;
pub mod proxy;
pub mod server;
pub mod xtext;

pub use command::Command;
pub use limits::{Limits, LoosePaths};
