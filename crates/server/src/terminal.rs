//! The delivery log of a daemon at a terminal: lines for people.

use console::timeline;
use report::{Event, Sink, UnixMicros};
use std::io::{self, Write as _};

/// Writes events to standard output in words.
pub(super) struct Terminal;

impl Sink for Terminal {
    fn write(&mut self, at: UnixMicros, event: &Event<'_>) {
        if let Some(line) = timeline::line(at, event) {
            // Who has closed the terminal does not want to see it.
            let _ = writeln!(io::stdout(), "{line}");
        }
    }
}
