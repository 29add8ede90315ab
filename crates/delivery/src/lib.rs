//! Connections out: leases jobs of a destination, delivers them by SMTP, LMTP or into Maildirs, and returns outcomes.
//! `queue` decides which recipient is due when; `route` finds the hosts of a destination.
//!
//! Read first: [`WorkSource`] and [`Courier`].

mod active_lease;
mod buffered_stream;
mod connect;
mod courier;
mod hosts;
mod maildir;
mod reply_rules;
mod session;
mod tls;
mod verify;
mod work_source;

pub use courier::{Courier, DeliverySettings, EightBit, RouteSettings};
pub use maildir::can_have_maildir;
pub use tls::TlsClient;
pub use verify::Existence;
pub use work_source::{LeasedMessage, WorkSource};
