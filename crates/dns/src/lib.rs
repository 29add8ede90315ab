//! Look-ups in DNS, each with an answer that is either sure or may change.
//!
//! `route` asks for mail exchangers, the daemon's rules for names of clients.

mod questions;
mod resolver;
mod source;

pub use questions::QuestionCount;
pub use resolver::{Dns, DnsSettings, Lookup};
