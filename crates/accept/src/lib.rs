//! Who may send what to whom: everything between a connected client and a message in the queue.
//!
//! Mail from clients, from local programs and from the server itself (its notifications) goes through one pipeline of checks: rules,
//! addresses, logins, filters, authentication, signatures. Each [`Check`](check::Check) returns a
//! [`Verdict`](policy::Verdict); [`decisions`] says what the verdicts mean for the message. For clients, [`Acceptor`] is the
//! service that `inbound` calls. A message that is accepted is durable before its client gets 250, and is handed to the program around
//! it by its [`Intake`].
//!
//! The protocol is `smtp`'s, sockets are `inbound`'s, and what happens to a durable message is `engine`'s. Read [`Acceptor`] and
//! [`Pipeline`](pipeline::Pipeline) first.

mod accept_config;
mod acceptor;
mod active;
pub mod check;
mod checks;
pub mod decisions;
pub mod expansion;
mod findings;
mod forward;
mod http_peer;
mod intake;
mod latency;
mod log;
pub mod logins;
mod mailboxes;
mod memory;
#[cfg(feature = "mutants")]
mod mutant;
mod observer;
pub mod own_address;
pub mod pipeline;
mod postmaster;
pub mod routes;
mod sources;
mod unstored;
mod verifier;
pub mod verp;

pub use accept_config::{AcceptConfig, Surroundings, maps, policy};
pub use acceptor::{Acceptor, CHUNK_BYTES, KEPT_SHARE, NotReplaced, Replacement, SessionContext, unreadable};
pub use checks::{Addresses, ask_dns, reach_hook};
pub use forward::ForwardFiles;
pub use intake::Intake;
pub use latency::LatencyCounter;
pub use log::AcceptLog;
pub use mailboxes::{Mailboxes, Refused};
pub use memory::{CheckMemories, CheckMemory};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use observer::{Observer, duration};
pub use postmaster::unread_postmaster;
pub use sources::{GreylistTable, RuleSources};
pub use unstored::{Settled, UnstoredMessages};
