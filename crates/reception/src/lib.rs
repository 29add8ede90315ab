//! Connections in: listeners, budgets and TLS, and the driver of server sessions.
//!
//! The protocol is `smtp`'s; whether a sender or recipient is welcome and what durable means is told
//! by the [`Service`] the daemon brings. Memory: a session that waits for a command holds its
//! protocol state and no read buffer; content over [`Settings::chunk_bytes`] goes to the spool while
//! it arrives.
//!
//! Read first: [`Service`] and [`Reception`].

mod body;
mod budget;
mod crew;
mod driver;
mod listener;
mod service;
mod stream;
mod trace;

pub use budget::{Budget, Guard};
pub use crew::Crew;
pub use listener::{Listener, Reception, TlsMode};
pub use service::{Client, Service, Settings, Unstored};
