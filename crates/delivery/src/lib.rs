//! Connections out: takes leases for a destination, delivers them by SMTP, LMTP or into Maildirs, and
//! yields outcomes. Which recipient is due when is `queue`'s business; where a destination's hosts
//! are is `route`'s.
//!
//! Read first: [`WorkSource`] and [`Courier`].

mod buffered_stream;
mod connect;
mod courier;
mod maildir;
mod session;
mod tls;
mod work_source;

pub use courier::{Courier, DeliverySettings, EightBit};
pub use maildir::can_have_maildir;
pub use tls::TlsClient;
pub use work_source::{LeasedMessage, WorkSource};
