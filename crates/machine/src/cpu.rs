//! The load of the machine: the unused time of its processors, and the time that a thread uses.
//!
//! Looked at a few times a second, by whoever has a decision to make that depends on it.

mod processors;
mod thread;

pub use processors::Processors;
pub use thread::ThreadTime;

use std::time::Duration;

/// Looked at so often; the kernel counts in hundredths of a second.
const INTERVAL: Duration = Duration::from_millis(100);
