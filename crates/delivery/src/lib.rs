//! Connections out: takes jobs for a destination, delivers them by SMTP, LMTP or into Maildirs, and
//! yields outcomes. Which recipient is due when is `queue`'s business; where a destination's hosts
//! are is `route`'s.
//!
//! Read first: [`Jobs`].

pub mod jobs;

pub use jobs::{Job, Jobs};
