//! Durations, and the state of a message at each time of its life.

use super::{
    json,
    past::{Past, State},
    span,
};
use ::history::{Addresses, MemoryFolder, Reader, Settings, Store, StoredEvent};
use mail::{Enhanced, QueueId, UnixMillis};
use report::{
    Event, Sink as _, UnixMicros,
    event::{Accepted, Attempted, Notification, Status, Waiting},
};
use std::{collections::BTreeSet, time::Duration};

/// 2026-11-21 06:25:54 UTC.
const BEGIN: u64 = 1_795_242_354_000_000;
const MINUTE: u64 = 60_000_000;

#[test]
fn spans_have_at_most_two_units() {
    for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m1s"), (3660, "1h1m"), (90_000, "1d1h")] {
        assert_eq!(span(seconds * 1000), text);
    }
}

fn id() -> QueueId {
    mail::IdSource::default().next(BEGIN / 1000)
}

/// Returns the events of a message with two recipients, one in each minute.
fn life() -> Vec<StoredEvent> {
    let id = id();
    let attempt = |to, status, reply| {
        Event::Attempt(Attempted {
            id,
            from: "ann@a.test",
            to,
            status,
            dsn: Enhanced(4, 0, 0),
            relay: "mx.b.test[192.0.2.1]:25",
            tls: "",
            reply,
            age_ms: 0,
            queued_ms: 0,
            setup_ms: 0,
            transfer_ms: 0,
            index: None,
        })
    };
    let accepted = Accepted {
        id,
        from: "ann@a.test",
        recipient_count: 3,
        size_bytes: 400,
        origin: "client=[192.0.2.7] helo=x.test proto=ESMTP",
        message_id: "<1@a.test>",
        login: None,
        requires_tls: false,
        release: None,
        deliver_by: None,
        priority: None,
    };
    let waiting = Waiting {
        id,
        from: "ann@a.test",
        to: "joe@b.test",
        dsn: Enhanced(4, 4, 1),
        destination: "mx:b.test",
        reason: "Connection refused",
        age_ms: 0,
        until: Some(UnixMillis(BEGIN / 1000 + 600_000)),
        index: None,
    };
    let events = [
        Event::Held { id, reason: "a rule" },
        Event::Accepted(accepted),
        attempt("joe@b.test", Status::Deferred, "451 later"),
        Event::Waiting(waiting),
        attempt("kim@b.test", Status::Sent, "250 Ok"),
        Event::Notified { id, notification: QueueId(1), kind: Notification::Delay },
        attempt("joe@b.test", Status::Bounced, "550 no"),
        Event::Completed(id),
    ];
    let folder = MemoryFolder::default();
    let own = Settings { keep: Duration::from_secs(86_400), max_bytes: 1 << 30, addresses: Addresses::Full };
    let clock = || UnixMicros(BEGIN);
    let mut store = Store::open(folder.clone(), own, Box::new(clock), Box::new(|| [1; 32])).unwrap();
    for (minute, event) in (0..).zip(&events) {
        store.write(UnixMicros(BEGIN + minute * MINUTE), event);
    }
    drop(store);
    Reader::open(&folder).unwrap().timeline(id, &mut BTreeSet::new())
}

#[test]
fn a_message_at_a_time_is_the_events_up_to_it() {
    use State::{Bounced, Delivered, Held, Suspended, Waiting};
    let all = life();
    let states = [
        (1, vec![Held, Held], 0),
        (2, vec![Waiting, Held], 1),
        (3, vec![Suspended, Held], 1),
        (4, vec![Suspended, Delivered], 1),
        (6, vec![Bounced, Delivered], 2),
        (7, vec![Bounced, Delivered], 2),
    ];
    for (minute, states, attempts) in states {
        let (known, later) = all.split_at(minute + 1);
        let past = Past::new(known, later);
        let found: Vec<State> = past.recipients.iter().map(|recipient| recipient.state).collect();
        assert_eq!(found, states, "minute {minute}");
        let joe = &past.recipients[0];
        assert_eq!((joe.address.as_str(), joe.attempt_count), ("joe@b.test", attempts), "minute {minute}");
        assert_eq!(joe.next.is_some(), states[0] == Suspended, "minute {minute}");
        assert_eq!(joe.destination.is_some(), minute >= 3);
        assert_eq!((past.is_finished, past.warned.is_some()), (minute == 7, minute >= 5));
        assert_eq!((past.events.len(), past.unnamed_count()), (minute + 1, 1));
    }
    let mut unknown = Past::new(&all[..4], &[]);
    unknown.finish();
    assert_eq!((unknown.recipients[0].state, unknown.recipients[0].next), (State::Unknown, None));
}

#[test]
fn the_object_of_a_message_at_a_time_has_the_documented_fields() {
    let all = life();
    let (known, later) = all.split_at(4);
    let mut out = Vec::new();
    json::print_past(id(), UnixMicros(BEGIN + 3 * MINUTE), &Past::new(known, later), &mut out).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let joe = serde_json::json!({
        "address": "joe@b.test",
        "destination": "mx:b.test",
        "status": "suspended",
        "attempts": 1,
        "last": "Connection refused",
        "last_at": "2026-11-21T06:28:54.000Z",
        "next_at": "2026-11-21T06:35:54.000Z",
    });
    assert_eq!(object["recipients"][0], joe);
    for (key, value) in [
        ("v", serde_json::json!(1)),
        ("at", "2026-11-21T06:28:54.000Z".into()),
        ("accepted_at", "2026-11-21T06:26:54.000Z".into()),
        ("source", "history".into()),
        ("sender", "ann@a.test".into()),
        ("size", 400.into()),
        ("finished", false.into()),
        ("unnamed_recipients", 1.into()),
    ] {
        assert_eq!(object[key], value, "{key}");
    }
    assert_eq!(object["events"].as_array().map(Vec::len), Some(4));
    assert_eq!(object["events"][3]["event"], "waiting");
}
