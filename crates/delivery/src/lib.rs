//! Connections out: takes jobs for a destination, delivers them by SMTP, LMTP or into Maildirs, and
//! yields outcomes. Which recipient is due when is `queue`'s business; where a destination's hosts
//! are is `route`'s.
//!
//! Read first: [`Jobs`] and [`Courier`].

mod connect;
mod courier;
mod jobs;
mod link;
mod maildir;
mod session;
mod tls;

pub use courier::{Courier, EightBit, Settings};
pub use jobs::{Job, Jobs};
pub use maildir::can_have_maildir;
pub use tls::TlsClient;
