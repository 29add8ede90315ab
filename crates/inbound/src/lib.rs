//! Connections in: listeners, budgets and TLS, and the driver of server sessions.
//!
//! The protocol is `smtp`'s; whether a sender or recipient is welcome and what durable means is told
//! by the [`Service`] the daemon brings. Memory: a session that waits for a command holds its
//! protocol state and no read buffer; content over [`Settings::chunk_bytes`] goes to the spool while
//! it arrives.
//!
//! Read first: [`Service`] and [`Inbound`].

mod budget;
mod content;
mod listener;
mod service;
mod session;
mod stream;
mod trace;
mod worker_pool;

pub use budget::{Budget, SessionPermit};
pub use listener::{Inbound, ListenTls, Listener};
pub use service::{Answer, AuthAnswer, Client, Draft, Service, Settings, StoreError};
pub use worker_pool::WorkerPool;
