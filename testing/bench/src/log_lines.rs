//! The events of a message (accepted, delivered, completed) on their way from a session to the lines of the text log.

use mail::{Enhanced, QueueId};
use report::{
    Event, UnixMicros,
    event::{self, Accepted, Attempted, Status},
    log::Format,
};
use std::hint::black_box;

/// Encodes, decodes and formats the three events of so many messages.
pub fn run(count: u64) {
    let id = QueueId(1);
    let accepted = Event::Accepted(Accepted {
        id,
        from: "sender@example.com",
        recipient_count: 1,
        size_bytes: 1024,
        origin: "client=[127.0.0.1] helo=source.test proto=ESMTP",
        message_id: "",
        login: None,
        requires_tls: false,
        release: None,
        deliver_by: None,
        priority: None,
    });
    let attempt = Event::Attempt(Attempted {
        id,
        from: "sender@example.com",
        to: "recipient@example.net",
        status: Status::Sent,
        dsn: Enhanced(2, 0, 0),
        relay: "mx.sink.test[127.0.0.1]:25",
        tls: "",
        reply: "250 2.0.0 Ok: queued as 4c1XyZ0qWz",
        age_ms: 2,
        queued_ms: 1,
        setup_ms: 0,
        transfer_ms: 1,
        index: Some(0),
    });
    let (mut encoded, mut out) = (Vec::new(), Vec::new());
    for number in 0..count {
        out.clear();
        let at = UnixMicros(1_700_000_000_000_000 + number * 1000);
        for event in [&accepted, &attempt, &Event::Completed(id)] {
            encoded.clear();
            event::encode(black_box(event), &mut encoded);
            if let Some(event) = event::decode(&encoded) {
                Format::Json.append(at, &event, &mut out);
            }
        }
        black_box(&out);
    }
}
