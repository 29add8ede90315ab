//! HTTP/1.1 for small listeners and for questions to other servers: the metrics, the answers to challenges of ACME, ACME itself,
//! and the introspection of tokens.
//!
//! [`answer_all`] is the server loop: it bounds connections, those of one client, and the time of each, and never refuses a new
//! one. [`exchange`] asks one question over a connection, [`Https`] makes that connection. What is answered and asked is the
//! caller's.

mod client;
mod connections;
mod server;

pub use client::{Https, exchange};
pub use connections::OpenConnections;
pub use server::{Accept, Limits, accept_all, answer_all, text};
