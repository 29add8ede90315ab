//! The routes of mail: from a recipient's domain to a [`Destination`](mail::Destination) by the
//! [`Table`], and from a destination to the hosts that take its mail by the [`Router`].
//!
//! `policy` decides which recipients exist, `queue` when they are tried, and `delivery` how. A look-up that fails for
//! now defers; only a sure answer makes mail fail.

pub mod dns;
mod router;
mod table;

pub use router::{Host, Router, RouterSettings, is_this_machines};
pub use table::{DomainMatcher, Rule, Table};
