//! Reports on mail: delivery status notifications to senders, and the delivery log to operators.
//!
//! Read first: [`dsn`] and [`Log`].

pub mod dsn;
pub mod line;
mod log;

pub use log::{Format, Log, LogSettings};
