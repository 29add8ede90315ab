//! Look-ups in DNS, each with an answer that is either sure or may change.
//!
//! The router asks for mail exchangers, checks of incoming mail for names, lists and policies of clients.

mod questions;
mod resolver;
mod source;

pub use questions::QuestionCount;
pub use resolver::{Dns, DnsSettings, Lookup};
