//! The lines of the delivery log about a message: accepted, delivered, completed.

use crate::commit::message;
use mail::{Attempt, Content, Enhanced, Outcome, QueueId, UnixMillis};
use report::line::{self, Event};
use std::hint::black_box;

/// Formats the three lines of so many messages.
pub fn run(count: u64) {
    let message = message(QueueId(1), &Content::from_bytes(b"Subject: x\r\n\r\n".to_vec()));
    let outcome = Outcome::delivered(Enhanced(2, 0, 0), "250 2.0.0 Ok: queued as 4c1XyZ0qWz");
    let attempt = Attempt { relay: "mx.sink.test[127.0.0.1]:25".into(), queued_ms: 1, ..Attempt::default() };
    let mut out = Vec::new();
    for number in 0..count {
        out.clear();
        let now = UnixMillis(1_700_000_000_000 + number);
        line::json(&Event::Accepted(&message), now, &mut out);
        line::json(
            &Event::Attempt { message: &message, recipient: 0, outcome: &outcome, attempt: &attempt },
            now,
            &mut out,
        );
        line::json(&Event::Completed(message.id), now, &mut out);
        black_box(&out);
    }
}
