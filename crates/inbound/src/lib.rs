//! Connections in: listeners, budgets and TLS, and the driver of server sessions.
//!
//! `smtp` implements the protocol. The [`Service`] of the daemon judges senders and recipients, and makes messages
//! durable. Memory: a session that waits for a command holds its
//! protocol state and no read buffer; content over [`Settings::chunk_bytes`] goes to the spool while
//! it arrives.
//!
//! Read first: [`Service`] and [`Inbound`].

mod budget;
mod content;
mod listener;
#[cfg(feature = "memory")]
mod memory;
mod proxy;
mod service;
mod session;
mod stream;
mod trace;
mod worker_pool;

pub use budget::{Budget, SessionPermit};
pub use listener::{ClientCertificates, Inbound, ListenSocket, ListenTls, Listener, ListenerOptions, Taken};
pub use mail::Answer;
#[cfg(feature = "memory")]
pub use memory::MemorySessions;
pub use service::{
    AuthAnswer, Break, CertificateTls, Client, ClientTls, ConnectionEvent, Draft, EndPoints, Identity,
    NamedClient, Service, Settings, StoreError, UNIX_CLIENT,
};
pub use worker_pool::WorkerPool;
