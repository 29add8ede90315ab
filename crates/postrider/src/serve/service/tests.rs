//! A disk that does not answer.

use super::{CHUNK_BYTES, Desk, Service};
use crate::serve::{
    clock::Clock,
    conclude,
    engine::{Current, Engine, State, Waits},
    journal::Journal,
    operator, wiring,
};
use bytes::Bytes;
use inbound::Client;
use mail::{
    Attempt, Content, Enhanced, Envelope, Facts, ForwardPath, IdSource, Message, Outcome, Part, Place,
    QueueId, Recipient, ReversePath, SharedMessage, UnixMillis,
};
use queue::{Aged, Verdict};
use report::Ledger;
use spool::{
    Change, Durable, Entry, Failed, NullSpool, Pressure, RecipientState, Recovered, RecoveryReport, Refused,
    Spool, SpoolFailure, Ticket, Transaction,
};
use std::{
    sync::{Arc, Mutex, Weak},
    task::{Context, Waker},
    time::Duration,
};
use tokio::sync::watch;

/// Its syncs return when it is told so.
#[derive(Default)]
struct Stuck {
    kept: NullSpool,
    answered: watch::Sender<bool>,
    /// What was read: a copy each time, as from a disk.
    read: Mutex<Vec<Weak<Message>>>,
    line: Mutex<Line>,
}

/// Before its commit thread.
#[derive(Default)]
struct Line {
    /// So many more find room; none: all do.
    room: Option<usize>,
    /// Each that is refused makes room for two.
    moves: bool,
}

impl Line {
    fn take(&mut self) -> Result<(), Refused> {
        match &mut self.room {
            None => Ok(()),
            Some(0) => {
                self.room = Some(2 * usize::from(self.moves));
                Err(Refused::Busy)
            }
            Some(room) => {
                *room -= 1;
                Ok(())
            }
        }
    }
}

impl Spool for Stuck {
    fn submit(&self, transaction: Transaction) -> Result<Ticket, Refused> {
        self.line.lock().unwrap().take()?;
        self.kept.submit(transaction)
    }
    fn store(&self, chunk: Bytes) -> Result<Place, Refused> {
        self.line.lock().unwrap().take()?;
        self.kept.store(chunk)
    }
    fn abandon(&self, places: &[Place]) {
        self.kept.abandon(places);
    }
    fn durable(&self, _: Ticket) -> Durable {
        let mut answered = self.answered.subscribe();
        Box::pin(async move {
            let answered = answered.wait_for(|answered| *answered).await;
            answered.map(drop).map_err(|e| SpoolFailure::Io(e.to_string()))
        })
    }
    fn reached(&self, ticket: Ticket) -> Option<Result<(), SpoolFailure>> {
        if *self.answered.borrow() { self.kept.reached(ticket) } else { None }
    }
    fn failed(&self) -> Failed {
        self.kept.failed()
    }
    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        let message = SharedMessage::new((*self.kept.read(id)?).clone());
        self.read.lock().unwrap().push(Arc::downgrade(&message));
        Ok(message)
    }
    fn load(&self, place: Place) -> Result<Bytes, SpoolFailure> {
        self.kept.load(place)
    }
    fn recover(&mut self, found: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        self.kept.recover(found)
    }
    fn pressure(&self) -> Pressure {
        self.kept.pressure()
    }
    fn close(&self) {
        self.kept.close();
    }
}

fn message(id: u64) -> Message {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let content = Content::from_bytes("Subject: x\r\n\r\n");
    Message { id: QueueId(id), arrived: UnixMillis::now(), origin: "test".into(), envelope, content }
}

/// In the spool, and in the queue.
fn queued(engine: &Arc<Engine>, message: Message) -> SharedMessage {
    let message = SharedMessage::new(message);
    engine.spool.submit(vec![Entry::Accept(message.clone())]).unwrap();
    engine.enqueue(&message);
    message
}

fn desk(dir: &std::path::Path) -> (Desk, watch::Sender<bool>) {
    let spool = Arc::new(Stuck::default());
    (desk_with(dir, spool.clone()), spool.answered.clone())
}

/// Nothing stays in memory there.
fn desk_with(dir: &std::path::Path, spool: Arc<Stuck>) -> Desk {
    let path = dir.join("postrider.toml");
    // Nothing is delivered: the next hop is a port that nobody listens on.
    let text = "hostname = \"host.test\"\ndata_dir = \"data\"\n[spool]\ncommit_timeout = \"20ms\"\n\
                [[route]]\ndomains = [\"*\"]\nsmarthost = \"127.0.0.1:9\"\ntls = \"off\"\n\
                [log]\nfile = \"mail.log\"\n";
    std::fs::write(&path, text).unwrap();
    let settings = config::load(Some(&path)).unwrap();
    let state = State::new(wiring::queue_settings(&settings), 0);
    let journal = Journal::new(wiring::log(&settings).unwrap());
    let current = wiring::current(settings.clone()).unwrap();
    let clock = Clock::start();
    let (ids, ledger) = (IdSource::default(), Ledger::default());
    let engine = Arc::new(Engine::new(spool, state, ids, ledger, current, journal, clock));
    Desk::new(engine)
}

/// What has not happened by then never happens, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Until the runtime has come to it.
async fn until(is: impl Fn() -> bool) {
    let looking = async {
        while !is() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.expect("it does not happen");
}

#[tokio::test]
async fn who_waits_for_a_stuck_disk_is_told_and_what_is_stored_after_all_is_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let (desk, answer) = desk(dir.path());
    let address = "127.0.0.1:1".parse().unwrap();
    let client = Client { peer: address, local: address, tls: None };
    let sender = |desk: &Desk| desk.sender(&client, &message(9).envelope).to_string();
    assert!(sender(&desk).starts_with("250"), "{}", sender(&desk));

    let reply = desk.commit(&client, message(1)).await.to_string();
    assert!(reply.starts_with("451 4.3.0 The disk does not answer"), "{reply}");
    assert!(sender(&desk).starts_with("451 4.3.1"), "{}", sender(&desk));
    assert!(desk.accept_local(message(2)).await.is_err());
    let all = desk.engine.ledger.snapshot();
    assert_eq!((all.accepted, all.queued), (0, 0));

    answer.send_replace(true);
    until(|| sender(&desk).starts_with("250")).await;
    // The second was refused before it was handed over.
    let all = desk.engine.ledger.snapshot();
    assert_eq!((all.accepted, all.queued), (1, 1));
    assert_eq!(desk.engine.lock().queue.ids(), [QueueId(1)]);
    assert!(desk.commit(&client, message(3)).await.to_string().starts_with("250"));
    assert_eq!(desk.engine.ledger.snapshot().accepted, 2);
}

#[tokio::test]
async fn mail_of_this_machine_does_not_wait_for_a_stuck_disk_either() {
    let dir = tempfile::tempdir().unwrap();
    let (desk, answer) = desk(dir.path());
    let refusal = desk.accept_local(message(1)).await.unwrap_err();
    assert!(!refusal.permanent && refusal.text.contains("does not answer"), "{}", refusal.text);
    answer.send_replace(true);
    until(|| desk.engine.ledger.snapshot().accepted == 1).await;
    until(|| desk.late.count() == 0).await;
    assert!(desk.accept_local(message(2)).await.is_ok());
}

/// ShardedSpool times what its line takes.
fn large(id: u64) -> Message {
    let bytes: Vec<u8> = (0..10 * CHUNK_BYTES + 1).map(|at| (at / CHUNK_BYTES) as u8).collect();
    Message { content: Content::from_bytes(bytes), ..message(id) }
}

#[tokio::test]
async fn mail_of_this_machine_that_is_longer_than_the_line_goes_in_as_the_line_moves() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    *spool.line.lock().unwrap() = Line { room: Some(2), moves: true };
    let desk = desk_with(dir.path(), spool.clone());
    assert_eq!(desk.accept_local(large(1)).await.unwrap(), QueueId(1));
    let stored = spool.kept.read(QueueId(1)).unwrap();
    let places = stored.content.parts().iter().filter_map(Part::place);
    let bytes: Vec<u8> = places.flat_map(|place| spool.kept.load(place).unwrap()).collect();
    assert!(bytes == large(1).content.in_memory().unwrap(), "each piece once, and in its order");
}

#[tokio::test]
async fn pieces_of_mail_that_is_given_up_are_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let desk = desk_with(dir.path(), spool.clone());
    let stands_still = |room| *spool.line.lock().unwrap() = Line { room: Some(room), moves: false };
    stands_still(3);
    let refusal = desk.accept_local(large(1)).await.unwrap_err();
    assert!(!refusal.permanent && refusal.text.starts_with("451 4.3.1"), "{}", refusal.text);
    assert!((1..=3).all(|place| spool.load(Place(place)).is_err()));

    stands_still(1);
    let place = desk.store(&message(2).envelope, "piece".into()).unwrap();
    let content = Content::new(Facts::default(), [Part::Stored { place, length_bytes: 5 }]);
    let address = "127.0.0.1:1".parse().unwrap();
    let client = Client { peer: address, local: address, tls: None };
    let reply = desk.commit(&client, Message { content, ..message(2) }).await.to_string();
    assert!(reply.starts_with("451 4.3.1") && spool.load(place).is_err(), "{reply}");
}

#[tokio::test]
async fn what_a_failed_spool_refuses_ends_the_daemon_whoever_hands_it_in() {
    let dir = tempfile::tempdir().unwrap();
    let (desk, _answer) = desk(dir.path());
    let address = "127.0.0.1:1".parse().unwrap();
    let client = Client { peer: address, local: address, tls: None };
    let ends = || tokio::time::timeout(LIMIT, desk.engine.failed.notified());
    desk.engine.spool.close();
    // An outcome, that no session waits for.
    let ended = Entry::Outcome { id: QueueId(1), results: vec![], last: true };
    assert!(desk.engine.persist(vec![ended]).await.is_err());
    ends().await.expect("the daemon ends");
    assert!(desk.commit(&client, message(2)).await.to_string().starts_with("451 4.3.0"));
    ends().await.expect("the daemon ends");
}

#[tokio::test]
async fn status_names_the_failure_of_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let (desk, _answer) = desk(dir.path());
    assert_eq!(operator::gauges(&desk.engine).failure, None);
    desk.engine.spool_failed(&SpoolFailure::Io("sync the log: EIO".to_owned()));
    assert_eq!(operator::gauges(&desk.engine).failure.as_deref(), Some("sync the log: EIO"));
}

#[tokio::test]
async fn what_an_operator_wants_last_is_what_queue_and_spool_have_last() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    queued(engine, message(1));
    let is_held = || engine.lock().queue.message(QueueId(1)).unwrap().units[0].status == queue::Status::Held;
    for change in [Change::Hold, Change::Release, Change::Hold] {
        let engine = engine.clone();
        tokio::spawn(async move { engine.amend(QueueId(1), change).await });
        // The disk has not answered yet.
        until(|| is_held() == (change == Change::Hold)).await;
    }
    let (gone, changes) = (QueueId(2), spool.kept.pressure().transaction_count);
    assert!(!engine.amend(gone, Change::Hold).await.unwrap());
    assert_eq!(spool.kept.pressure().transaction_count, changes, "the spool heard nothing of it");
}

/// Mail for these domains goes there.
fn routed(dir: &std::path::Path, domains: &str, target: &str) -> Current {
    let path = dir.join("postrider.toml");
    let text = format!(
        "hostname = \"host.test\"\ndata_dir = \"data\"\n[[route]]\ndomains = [\"{domains}\"]\n{target}\n\
         [log]\nfile = \"mail.log\"\n"
    );
    std::fs::write(&path, text).unwrap();
    wiring::current(config::load(Some(&path)).unwrap()).unwrap()
}

#[tokio::test]
async fn of_two_reloads_the_routes_of_the_last_hold_whichever_looks_at_a_message_last() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    queued(engine, message(1));
    engine.lock().queue.hold(QueueId(1));
    let destination = || engine.lock().queue.message(QueueId(1)).unwrap().units[0].destination.to_string();
    engine.replace(routed(dir.path(), "*", "discard = true"));
    engine.clone().reroute().await;
    let discarded = destination();
    engine.replace(routed(dir.path(), "*", "lmtp = \"unix:/none\""));
    let mut slow = Box::pin(engine.clone().reroute());
    {
        let _slow_disk = spool.read.lock().unwrap();
        assert!(slow.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        engine.replace(routed(dir.path(), "*", "discard = true"));
    }
    slow.await;
    assert_eq!(destination(), discarded);
}

#[tokio::test]
async fn the_sender_hears_of_all_recipients_that_end_together_in_one_report() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    engine.replace(routed(dir.path(), "b.test", "smarthost = \"127.0.0.1:9\"\ntls = \"off\""));
    for (count, is_expired) in [(1, false), (2, true)] {
        let mut message = message(count);
        let to = |n: u64| Recipient::new(ForwardPath::parse(&format!("c@d{n}.test"), false).unwrap());
        message.envelope.recipients = (0..20).map(to).collect();
        let message = queued(engine, message);
        let (id, verdict) = (message.id, Verdict::Returned);
        let taken = engine.lock().queue.seize(id, |_| true, verdict, engine.now()).unwrap();
        assert_eq!(taken.len(), 20, "each is a destination of its own");
        if is_expired {
            conclude::aged(engine, Aged::Expired(taken));
        } else {
            let _ = conclude::condemned(engine, taken.into_iter().map(|taken| (taken, verdict)).collect());
        }
        until(|| engine.ledger.snapshot().accepted >= count * 21).await;
        let all = engine.ledger.snapshot();
        assert_eq!((all.bounced, all.expired), (20, if is_expired { 20 } else { 0 }));
        assert_eq!((all.accepted, all.queued), (count * 21, count));
        assert!(engine.lock().queue.message(id).is_none() && spool.kept.read(id).is_err());
    }
}

#[tokio::test]
async fn in_the_last_attempt_of_an_old_message_some_fail_and_the_others_expire() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    let ten_days_ms = 10 * 86_400_000;
    let mut old = Message { arrived: UnixMillis(UnixMillis::now().0 - ten_days_ms), ..message(1) };
    old.envelope.recipients = vec![old.envelope.recipients[0].clone(); 2];
    let message = SharedMessage::new(old);
    engine.spool.submit(vec![Entry::Accept(message.clone())]).unwrap();
    let recipients = vec![RecipientState::default(); 2];
    let found = Recovered { message: message.clone(), recipients, held: false };
    let taken = {
        let (current, mut state) = (engine.current(), engine.lock());
        let settings = wiring::queue_settings(&current.settings);
        engine.ledger.accepted(state.restore(&found, &current, &settings, &engine.clock, Waits::AsBefore));
        let (name, group) = current.ways(&message).next().unwrap();
        let site = state.queue.destination_in(&name, group);
        state.queue.take(site, engine.now()).unwrap()
    };
    let unknown = Outcome { from_remote: true, ..Outcome::failed(Enhanced(5, 1, 1), "550 no such user") };
    let results = vec![(0, unknown), (1, Outcome::deferred(Enhanced(4, 2, 2), "452 mailbox full"))];
    let attempt = Attempt { relay: "mx.d.test[192.0.2.1]:25".into(), ..Attempt::default() };
    conclude::tried(engine, taken, Some(message), results, attempt);
    until(|| engine.ledger.snapshot().accepted == 3).await;
    let all = engine.ledger.snapshot();
    assert_eq!((all.bounced, all.expired, all.queued), (1, 1, 1));
}

#[tokio::test]
async fn of_messages_that_fail_together_few_are_in_memory_together() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    for id in 1..=300 {
        queued(engine, message(id));
    }
    let fail = |id: u64, verdict: Verdict| {
        let taken = engine.lock().queue.seize(QueueId(id), |_| true, verdict, engine.now());
        let _ =
            conclude::condemned(engine, taken.unwrap().into_iter().map(|taken| (taken, verdict)).collect());
    };
    (1..=299).for_each(|id| fail(id, Verdict::Returned));
    until(|| spool.read.lock().unwrap().len() >= 299).await;
    // No report is stored yet, and those whose turn has not come hold nothing.
    until(|| spool.read.lock().unwrap().iter().filter(|read| read.strong_count() > 0).count() <= 32).await;
    assert!(engine.ledger.snapshot().bounced <= 32);
    // What needs no report does not wait for those that do.
    fail(300, Verdict::Deleted);
    until(|| engine.ledger.snapshot().deleted == 1).await;
    spool.answered.send_replace(true);
    until(|| engine.ledger.snapshot().bounced == 299).await;
    until(|| engine.ledger.snapshot().accepted == 300 + 299).await;
}

/// A unit of a queued message, as a connection takes it.
fn take_one(engine: &Arc<Engine>, message: &Message) -> queue::Taken {
    let (name, group) = engine.current().ways(message).next().unwrap();
    let mut state = engine.lock();
    let site = state.queue.destination_in(&name, group);
    state.queue.take(site, engine.now()).unwrap()
}

#[tokio::test]
async fn an_outcome_that_a_busy_spool_refused_is_stored_when_it_has_room() {
    let delivered = || Outcome::delivered(Enhanced(2, 0, 0), "250 ok");
    let failed = || Outcome::failed(Enhanced(5, 1, 1), "550 no such user");
    for (outcome, reports) in [(delivered(), 0), (failed(), 1)] {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        spool.answered.send_replace(true);
        let engine = &desk_with(dir.path(), spool.clone()).engine;
        let message = queued(engine, message(1));
        let taken = take_one(engine, &message);
        *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
        conclude::tried(engine, taken, Some(message), vec![(0, outcome)], Attempt::default());
        until(|| engine.ledger.snapshot().queued == 0).await;
        assert!(engine.turns.open_count() > 0, "the daemon would end without it");
        assert!(spool.kept.read(QueueId(1)).is_ok(), "the spool was busy");
        *spool.line.lock().unwrap() = Line::default();
        until(|| spool.kept.read(QueueId(1)).is_err()).await;
        until(|| engine.turns.open_count() == 0).await;
        let all = engine.ledger.snapshot();
        assert_eq!((all.accepted, all.queued), (1 + reports, reports));
        assert_eq!(spool.kept.pressure().message_count, reports);
    }
}

#[tokio::test]
async fn the_end_of_a_deleted_message_that_cannot_be_read_is_stored_when_a_busy_spool_has_room() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    // In the queue, and nowhere else.
    engine.enqueue(&SharedMessage::new(message(1)));
    *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
    let taken = engine.lock().queue.seize(QueueId(1), |_| true, Verdict::Deleted, engine.now());
    let seized = taken.unwrap().into_iter().map(|taken| (taken, Verdict::Deleted)).collect();
    let _ = conclude::condemned(engine, seized);
    until(|| engine.ledger.snapshot().deleted == 1).await;
    assert_eq!(spool.kept.pressure().transaction_count, 0);
    *spool.line.lock().unwrap() = Line::default();
    until(|| spool.kept.pressure().transaction_count == 1).await;
}

#[tokio::test]
async fn the_end_of_a_finished_message_is_stored_when_a_busy_spool_has_room() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let engine = &desk_with(dir.path(), spool.clone()).engine;
    spool.submit(vec![Entry::Accept(SharedMessage::new(message(1)))]).unwrap();
    *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
    let ended = Entry::Outcome { id: QueueId(1), results: vec![], last: true };
    conclude::store_recovered(engine, vec![ended]);
    assert!(spool.kept.read(QueueId(1)).is_ok());
    *spool.line.lock().unwrap() = Line::default();
    until(|| spool.kept.read(QueueId(1)).is_err()).await;
}

#[tokio::test]
async fn a_decision_of_an_operator_is_answered_when_it_is_durable_and_not_before() {
    for (verdict, is_readable) in
        [(Verdict::Deleted, true), (Verdict::Deleted, false), (Verdict::Returned, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        let engine = &desk_with(dir.path(), spool.clone()).engine;
        if is_readable {
            queued(engine, message(1));
        } else {
            engine.enqueue(&SharedMessage::new(message(1)));
        }
        let before = spool.kept.pressure().transaction_count;
        let taken = engine.lock().queue.seize(QueueId(1), |_| true, verdict, engine.now());
        let seized = taken.unwrap().into_iter().map(|taken| (taken, verdict)).collect();
        let mut decided = conclude::condemned(engine, seized);
        assert_eq!(decided.len(), 1);
        until(|| spool.kept.pressure().transaction_count > before).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(decided[0].try_recv().is_err(), "{verdict:?}: the disk has not answered yet");
        spool.answered.send_replace(true);
        assert!(decided.remove(0).await.unwrap().is_ok());
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_not_said_to_be_returned() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let engine = &desk_with(dir.path(), spool).engine;
    engine.enqueue(&SharedMessage::new(message(1)));
    let taken = engine.lock().queue.seize(QueueId(1), |_| true, Verdict::Returned, engine.now());
    let seized = taken.unwrap().into_iter().map(|taken| (taken, Verdict::Returned)).collect();
    let decided = conclude::condemned(engine, seized).remove(0).await.unwrap();
    assert!(matches!(decided, Err(SpoolFailure::Missing)), "{decided:?}");
}
