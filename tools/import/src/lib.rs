//! Reads the configuration and the queue of Postfix, Sendmail and Exim.
//!
//! All readers are pure: they take bytes and return values. [`Files`] gives a reader of a configuration the files that
//! it names. The command `postrider import` finds the files, checks that the other server is stopped, and hands messages
//! to the spool. Nothing here changes a file.
//!
//! Read first: [`QueuedMessage`] for queues, [`Draft`] and [`Report`] for configurations.

mod decision;
mod draft;
pub mod exim;
mod files;
mod forward;
#[cfg(test)]
mod memory_files;
mod milter;
mod package;
mod places;
pub mod postfix;
mod queued;
mod report;
mod seen;
pub mod sendmail;
mod settings;
mod time;
mod wire;

pub use draft::{Draft, ExtraFile};
pub use files::{Capabilities, Files, NoFiles};
pub use package::fit as fit_to_package;
pub use queued::{Damage, LastAttempt, QueuedMessage, QueuedRecipient};
pub use report::{Effect, Entry, Report, Verdict};
pub use seen::{LogOf, SeenEnvelope, SeenEnvelopes};
