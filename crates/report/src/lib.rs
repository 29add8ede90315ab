//! Reports on mail: delivery status notifications to senders; the delivery log and the recipient counters to
//! operators.
//!
//! Read first: [`dsn`] and [`Log`].

mod counters;
pub mod dsn;
pub mod line;
mod log;
pub mod texts;

pub use counters::RecipientCounters;
pub use log::{Format, Log, LogSettings};
