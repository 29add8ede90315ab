//! Where mail goes: from a recipient's domain to a [`Destination`](mail::Destination) by the
//! [`Table`], and from a destination to the hosts that take its mail by the [`Router`].
//!
//! Which recipients there are is `policy`'s business, when they are tried `queue`'s, and how
//! `delivery`'s. A look-up that fails for now defers; only a sure answer makes mail fail.

mod dns;
mod router;
mod table;

pub use dns::{Dns, DnsSettings, Lookup};
pub use router::{Host, Router, RouterSettings, is_this_machines};
pub use table::{DomainMatcher, Rule, Table};
