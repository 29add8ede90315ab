//! What became of the mail, told to everybody: delivery status notifications to senders, the
//! delivery log to operators, and the ledger's counters.
//!
//! Read first: [`dsn`], [`Log`] and [`Ledger`].

pub mod dsn;
mod ledger;
pub mod line;
mod log;

pub use ledger::{Ledger, Snapshot};
pub use log::{Format, Log, LogSettings};
