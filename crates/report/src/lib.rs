//! Reports on mail: delivery status notifications to senders; events, the text log and the recipient counters to
//! operators.
//!
//! Read first: [`dsn`] and [`EventStream`].

mod apart;
mod counters;
pub mod dsn;
pub mod event;
mod json;
pub mod log;
mod stream;
pub mod texts;

pub use apart::{Apart, STANDARD_ERROR};
pub use counters::RecipientCounters;
pub use event::{Event, UnixMicros};
pub use json::write_json;
pub use stream::{EventStream, Sink};
