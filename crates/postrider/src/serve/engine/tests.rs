//! What a start makes of the past.

use super::*;
use mail::{Content, Enhanced, Envelope, ForwardPath, Recipient, ReversePath};
use queue::Status;
use spool::RecipientState;

/// Deferred once, at a time of the wall clock.
fn deferred(arrived: UnixMillis, tried: UnixMillis) -> Recovered {
    let mut envelope = Envelope::new(ReversePath::Null);
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let content = Content::from_bytes("Subject: x\r\n\r\n");
    let message = Message { id: QueueId(1), arrived, origin: "test".into(), envelope, content };
    let last = Some((tried, Outcome::deferred(Enhanced(4, 4, 1), "nobody answers")));
    let recipients = vec![RecipientState { settled: false, attempt_count: 1, last }];
    Recovered { message: SharedMessage::new(message), recipients, held: false }
}

/// How long it waits after a start, in milliseconds.
fn wait_of(found: &Recovered) -> Millis {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("postrider.toml");
    std::fs::write(&path, "hostname = \"host.test\"\ndata_dir = \"data\"\n").unwrap();
    let settings = config::load(Some(&path)).unwrap();
    let (queue, clock) = (wiring::queue_settings(&settings), Clock::start());
    let mut state = State::new(queue.clone(), 0);
    let current = wiring::current(settings).unwrap();
    assert_eq!(state.restore(found, &current, &queue, &clock, Waits::AsBefore), 1);
    match state.queue.message(QueueId(1)).unwrap().units[0].status {
        Status::Waiting(due) => due - clock.now(),
        ref other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_wrong_clock_deferred_in_years_to_come_waits_no_longer_than_the_first_wait() {
    let (now, years_ms) = (UnixMillis::now(), 10 * 365 * 24 * 3600 * 1000);
    let later = UnixMillis(now.0 + years_ms);
    let least = wait_of(&deferred(now, now));
    assert!((1..3_600_000).contains(&least), "{least}");
    for arrived in [now, later] {
        let wait = wait_of(&deferred(arrived, later));
        assert!((least - 60_000..=least + 60_000).contains(&wait), "{wait} instead of {least}");
    }
}
