//! Connections out: leases jobs of a destination, delivers them by SMTP or LMTP, into Maildirs and files, or to programs, and returns outcomes.
//! `queue` decides which recipient is due when; `route` finds the hosts of a destination.
//!
//! Read first: [`WorkSource`] and [`Courier`].

mod active_lease;
mod buffered_stream;
mod connect;
mod courier;
mod exchanger_budget;
pub mod helper;
mod host_memory;
mod hosts;
mod local;
mod maildir;
mod mbox;
mod no_links;
mod pipe;
mod progress;
mod recipient_permits;
mod reply_rules;
mod session;
mod tls;
mod verify;
mod work_source;

pub use courier::{Courier, DeliverySettings, EightBit, RouteSettings};
pub use maildir::{can_have_maildir, mailbox_path};
pub use no_links::open_without_links;
pub use pipe::{can_run, command_line};
pub use progress::{Progress, Step};
pub use tls::TlsClient;
pub use verify::Existence;
pub use work_source::{LeasedMessage, WorkSource};
