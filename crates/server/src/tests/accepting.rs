//! A disk that does not answer.

mod checks;

use crate::{
    clock::Clock,
    connection,
    delivery_log::DeliveryLog,
    driver::{Answer, Driver, Leased},
    operator,
    snapshot::ConfigSnapshot,
    wiring,
};
use accept::{
    Acceptor, CHUNK_BYTES, CheckMemory, Intake, SessionContext,
    check::{Check, View},
    pipeline::Pipeline,
};
use bytes::Bytes;
use engine::{Command, ConnectionId, Effect, Engine, Event};
use inbound::{Answer as Later, Client, Draft, Service};
use mail::{
    Attempt, ChunkId, Content, ContentTraits, Edit, Enhanced, Envelope, Field, ForwardPath, IdSource,
    Message, Outcome, Part, QueueId, ReceivedContent, Recipient, Reply, ReversePath, SharedMessage,
    UnixMillis,
};
use policy::{Stage, Verdict as CheckVerdict};
use queue::{CancelAs, CommandResult};
use spool::{
    CommitSeq, Durable, Entry, Failed, LogSettings, LogSpool, NullSpool, Pressure, RecipientState, Recovered,
    RecoveryReport, Refused, Spool, SpoolFailure, Transaction,
};
use std::{
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// A spool whose syncs return when a test permits it.
#[derive(Default)]
struct Stuck {
    kept: NullSpool,
    answered: watch::Sender<bool>,
    /// Syncs return errors while it is set.
    fails: AtomicBool,
    /// The messages that were read: a copy each time, as from a disk.
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
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        self.line.lock().unwrap().take()?;
        self.kept.submit_or_keep(transaction)
    }
    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.line.lock().unwrap().take()?;
        self.kept.store(chunk)
    }
    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        self.kept.discard_chunks(chunk_ids);
    }
    fn durable(&self, _: CommitSeq) -> Durable {
        if self.fails.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(SpoolFailure::Io("EIO".to_owned()))));
        }
        let mut answered = self.answered.subscribe();
        Box::pin(async move {
            let answered = answered.wait_for(|answered| *answered).await;
            answered.map(drop).map_err(|e| SpoolFailure::Io(e.to_string()))
        })
    }
    fn poll_durable(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        if *self.answered.borrow() { self.kept.poll_durable(commit_seq) } else { None }
    }
    fn failed(&self) -> Failed {
        self.kept.failed()
    }
    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        let message = SharedMessage::new((*self.kept.read(id)?).clone());
        self.read.lock().unwrap().push(Arc::downgrade(&message));
        Ok(message)
    }
    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.kept.load(chunk_id)
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

impl Stuck {
    fn bytes(&self, part: &Part) -> Vec<u8> {
        match part {
            Part::Memory(bytes) => bytes.to_vec(),
            Part::Stored { chunk_id, .. } => self.kept.load(*chunk_id).unwrap().to_vec(),
        }
    }
}

fn message(id: u64) -> Message {
    let mut envelope = Envelope::new(ReversePath::parse("a@b.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("c@d.test", false).unwrap())];
    let content = Content::from_bytes("Subject: x\r\n\r\n");
    Message { id: QueueId(id), arrived: UnixMillis::now(), origin: "test".into(), envelope, content }
}

/// Returns the draft of [`message`], before it is accepted.
fn draft(id: u64) -> Draft {
    let Message { id, arrived, origin, envelope, .. } = message(id);
    let content = ReceivedContent::from_bytes("Subject: x\r\n\r\n", 0);
    Draft { id, arrived, origin, envelope, content }
}

/// Returns the session of a client that may relay.
fn connected(acceptor: &Acceptor<Driver>) -> SessionContext {
    let address = "127.0.0.1:1".parse().unwrap();
    now(acceptor.connected(&Client {
        peer: address,
        local: address,
        listener: mail::ListenerKind::Mx,
        tls: None,
        named: None,
    }))
    .unwrap()
}

/// Returns an answer that has to be there at once.
fn now<T>(answer: Later<'_, T>) -> T {
    match answer {
        Later::Ready(answer) => answer,
        Later::Pending(_) => panic!("the answer is not there"),
    }
}

/// Stores a message, and brings it into the queue.
fn queued(driver: &Arc<Driver>, message: Message) -> SharedMessage {
    let message = SharedMessage::new(message);
    driver.spool.submit(vec![Entry::Accept(message.clone())]).unwrap();
    driver.accepted(message.clone(), None, false);
    message
}

fn acceptor(dir: &std::path::Path) -> (Arc<Acceptor<Driver>>, watch::Sender<bool>) {
    let spool = Arc::new(Stuck::default());
    (acceptor_with(dir, spool.clone()), spool.answered.clone())
}

/// Nothing stays in memory there.
fn acceptor_with(dir: &std::path::Path, spool: Arc<Stuck>) -> Arc<Acceptor<Driver>> {
    acceptor_timed(dir, spool, Vec::new(), "20ms")
}

/// With these checks in its pipeline, and a disk that answers some time.
fn acceptor_checked(
    dir: &std::path::Path,
    spool: Arc<dyn Spool>,
    checks: Vec<Box<dyn Check>>,
) -> Arc<Acceptor<Driver>> {
    acceptor_timed(dir, spool, checks, "10m")
}

fn acceptor_timed(
    dir: &std::path::Path,
    spool: Arc<dyn Spool>,
    checks: Vec<Box<dyn Check>>,
    commit_timeout: &str,
) -> Arc<Acceptor<Driver>> {
    let path = dir.join("postrider.toml");
    // Nothing is delivered: no server listens on the port of the next hop.
    let text = format!(
        "hostname = \"host.test\"\ndata_dir = \"data\"\n[spool]\ncommit_timeout = \"{commit_timeout}\"\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"127.0.0.1:9\"\ntls = \"off\"\n\
         [log]\nfile = \"mail.log\"\n"
    );
    std::fs::write(&path, text).unwrap();
    let settings = config::load(Some(&path)).unwrap();
    let mut engine_settings = wiring::engine_settings(&settings).unwrap();
    engine_settings.cache_bytes = 0;
    let delivery_log =
        DeliveryLog::new(wiring::log(&settings, Vec::new()).unwrap(), settings.log.connections);
    let mut current = wiring::current(settings, None, None).unwrap();
    let accept = Arc::get_mut(&mut current.accept).unwrap();
    accept.pipeline = Pipeline::new(
        std::iter::once(Box::new(accept::Addresses) as Box<dyn Check>).chain(checks).collect(),
        None,
    );
    let current = Arc::new(current);
    let (clock, ids) = (Clock::start(), Arc::<IdSource>::default());
    let engine = Engine::new(engine_settings, current.clone(), ids.clone(), 1, clock.start_context());
    let driver = Driver::new(spool, engine, ids, current, delivery_log, clock, connection::open);
    let driver = Arc::new(driver);
    Arc::new(Acceptor::new(driver.clone(), driver.spool.clone(), driver.ids.clone()))
}

fn counters(driver: &Driver) -> report::RecipientCounters {
    driver.lock().engine.counters()
}

/// Time after which an expected event counts as missing, on the slowest machine.
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
async fn a_commit_on_a_stuck_disk_times_out_and_a_message_stored_late_is_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let (acceptor, answer) = acceptor(dir.path());
    let sender = |acceptor: &Acceptor<Driver>| {
        now(acceptor.sender(&mut connected(acceptor), &message(9).envelope)).to_string()
    };
    assert!(sender(&acceptor).starts_with("250"), "{}", sender(&acceptor));

    let reply = acceptor.commit(&mut connected(&acceptor), draft(1)).await.to_string();
    assert!(reply.starts_with("451 4.3.0 The disk does not answer"), "{reply}");
    assert!(sender(&acceptor).starts_with("451 4.3.1"), "{}", sender(&acceptor));
    assert!(acceptor.accept_local(0, draft(2)).await.is_err());
    let all = counters(acceptor.intake());
    assert_eq!((all.accepted, all.queued), (0, 0));

    answer.send_replace(true);
    until(|| sender(&acceptor).starts_with("250")).await;
    // The second was refused before it was handed over.
    let all = counters(acceptor.intake());
    assert_eq!((all.accepted, all.queued), (1, 1));
    assert_eq!(acceptor.intake().lock().engine.queue().ids(), [QueueId(1)]);
    assert!(acceptor.commit(&mut connected(&acceptor), draft(3)).await.to_string().starts_with("250"));
    assert_eq!(counters(acceptor.intake()).accepted, 2);
}

#[tokio::test]
async fn mail_of_this_machine_does_not_wait_for_a_stuck_disk_either() {
    let dir = tempfile::tempdir().unwrap();
    let (acceptor, answer) = acceptor(dir.path());
    let refusal = acceptor.accept_local(0, draft(1)).await.unwrap_err();
    assert!(!refusal.permanent && refusal.text.contains("does not answer"), "{}", refusal.text);
    answer.send_replace(true);
    until(|| counters(acceptor.intake()).accepted == 1).await;
    until(|| acceptor.late_count() == 0).await;
    assert!(acceptor.accept_local(0, draft(2)).await.is_ok());
}

/// A draft whose content is several times what the line takes.
fn large(id: u64) -> Draft {
    let body = (0..10 * CHUNK_BYTES + 1).map(|at| b'a' + (at / CHUNK_BYTES) as u8);
    let bytes: Vec<u8> = b"Subject: x\r\n\r\n".iter().copied().chain(body).collect();
    Draft { content: ReceivedContent::from_bytes(bytes, 0), ..draft(id) }
}

#[tokio::test]
async fn mail_of_this_machine_that_is_longer_than_the_line_goes_in_as_the_line_moves() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    *spool.line.lock().unwrap() = Line { room: Some(2), moves: true };
    let acceptor = acceptor_with(dir.path(), spool.clone());
    assert_eq!(acceptor.accept_local(0, large(1)).await.unwrap(), QueueId(1));
    let stored = spool.kept.read(QueueId(1)).unwrap();
    let bytes: Vec<u8> = stored.content.parts().iter().flat_map(|part| spool.bytes(part)).collect();
    assert!(
        bytes == large(1).content.into_content().in_memory().unwrap(),
        "each piece once, and in its order"
    );
}

#[tokio::test]
async fn pieces_of_mail_that_is_given_up_are_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let stands_still = |room| *spool.line.lock().unwrap() = Line { room: Some(room), moves: false };
    stands_still(3);
    let refusal = acceptor.accept_local(0, large(1)).await.unwrap_err();
    assert!(!refusal.permanent && refusal.text.starts_with("451 4.3.1"), "{}", refusal.text);
    assert!((1..=3).all(|chunk_id| spool.load(ChunkId(chunk_id)).is_err()));

    stands_still(1);
    let chunk_id = acceptor.store(&connected(&acceptor), &message(2).envelope, "piece".into()).unwrap();
    let parts = vec![Part::Memory("Subject: x\r\n\r\n".into()), Part::Stored { chunk_id, length_bytes: 5 }];
    let content = ReceivedContent::new(ContentTraits::default(), 0, 14, parts);
    let reply = acceptor.commit(&mut connected(&acceptor), Draft { content, ..draft(2) }).await.to_string();
    assert!(reply.starts_with("451 4.3.1") && spool.load(chunk_id).is_err(), "{reply}");
}

#[tokio::test]
async fn what_a_failed_spool_refuses_ends_the_daemon_whoever_hands_it_in() {
    let dir = tempfile::tempdir().unwrap();
    let (acceptor, _answer) = acceptor(dir.path());
    let ends = || tokio::time::timeout(LIMIT, acceptor.intake().failed.notified());
    acceptor.intake().spool.close();
    // An outcome, that no session waits for.
    let found = finished();
    acceptor.intake().begin(recovered(acceptor.intake(), &found));
    ends().await.expect("the daemon ends");
    assert!(acceptor.accept_local(0, draft(1)).await.is_err());
    ends().await.expect("the daemon ends");
    assert!(acceptor.commit(&mut connected(&acceptor), draft(2)).await.to_string().starts_with("451 4.3.0"));
    ends().await.expect("the daemon ends");
}

#[tokio::test]
async fn a_panic_of_the_engine_ends_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let (acceptor, _answer) = acceptor(dir.path());
    let driver = acceptor.intake().clone();
    // A connection that is not open: the engine refuses to go on.
    let event = || driver.handle(Event::ConnectionReady(ConnectionId(7)));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(event)).is_err());
    assert_eq!(acceptor.intake().connection_count(), 0);
    tokio::time::timeout(LIMIT, acceptor.intake().failed.notified()).await.expect("the daemon ends");
    assert!(acceptor.intake().has_panicked());
    assert_eq!(operator::gauges(&acceptor).failure.as_deref(), Some("the message engine panicked"));
}

#[tokio::test]
async fn status_names_the_failure_of_the_spool() {
    let dir = tempfile::tempdir().unwrap();
    let (acceptor, _answer) = acceptor(dir.path());
    assert_eq!(operator::gauges(&acceptor).failure, None);
    acceptor.intake().spool_failed(&SpoolFailure::Io("sync the log: EIO".to_owned()));
    assert_eq!(operator::gauges(&acceptor).failure.as_deref(), Some("sync the log: EIO"));
}

#[tokio::test]
async fn what_an_operator_wants_last_is_what_queue_and_spool_have_last() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let driver = acceptor.intake();
    let id = QueueId(1);
    queued(driver, message(1));
    let is_held =
        || driver.lock().engine.queue().message(id).unwrap().jobs[0].status == queue::JobStatus::Held;
    for command in [
        Command::Hold { id, reason: "by root".into() },
        Command::Release(id),
        Command::Hold { id, reason: "by root".into() },
    ] {
        // The disk has not answered yet.
        drop(driver.request(command.clone()));
        assert_eq!(is_held(), command == Command::Hold { id, reason: "by root".into() });
    }
    let changes = spool.kept.pressure().transaction_count;
    let missing =
        driver.request(Command::Hold { id: QueueId(2), reason: "by root".into() }).await.unwrap().unwrap();
    assert_eq!(missing, CommandResult::Missing, "there is no such message");
    assert_eq!(spool.kept.pressure().transaction_count, changes, "the spool heard nothing of it");
}

/// Mail for these domains goes there.
fn routed(dir: &std::path::Path, domains: &str, target: &str) -> ConfigSnapshot {
    let path = dir.join("postrider.toml");
    let text = format!(
        "hostname = \"host.test\"\ndata_dir = \"data\"\n[[route]]\ndomains = [\"{domains}\"]\n{target}\n\
         [log]\nfile = \"mail.log\"\n"
    );
    std::fs::write(&path, text).unwrap();
    wiring::current(config::load(Some(&path)).unwrap(), None, None).unwrap()
}

#[tokio::test]
async fn of_two_reloads_the_routes_of_the_last_hold_whichever_looks_at_a_message_last() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let driver = acceptor.intake();
    queued(driver, message(1));
    drop(driver.request(Command::Hold { id: QueueId(1), reason: "by root".into() }));
    let destination =
        || driver.lock().engine.queue().message(QueueId(1)).unwrap().jobs[0].destination.to_string();
    driver.replace(routed(dir.path(), "*", "discard = true"), true);
    until(|| destination().starts_with("discard")).await;
    driver.replace(routed(dir.path(), "*", "lmtp = \"unix:/none\""), true);
    // The message is not read yet.
    driver.replace(routed(dir.path(), "*", "discard = true"), false);
    until(|| spool.read.lock().unwrap().len() == 2).await;
    until(|| driver.lock().engine.task_count() == 1).await;
    assert!(destination().starts_with("discard"), "{}", destination());
}

#[tokio::test]
async fn of_messages_that_fail_together_few_are_in_memory_together() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let driver = acceptor.intake();
    for id in 1..=300 {
        queued(driver, message(id));
    }
    (1..=299).for_each(|id| drop(cancel(driver, id, CancelAs::Bounce)));
    until(|| spool.read.lock().unwrap().len() >= 299).await;
    // No report is stored yet, and results without a permit hold no message.
    until(|| spool.read.lock().unwrap().iter().filter(|read| read.strong_count() > 0).count() <= 32).await;
    assert!(counters(driver).bounced <= 32);
    // A result that needs no report does not wait for those that do.
    drop(cancel(driver, 300, CancelAs::Delete));
    until(|| counters(driver).deleted == 1).await;
    spool.answered.send_replace(true);
    until(|| counters(driver).bounced == 299).await;
    until(|| counters(driver).accepted == 300 + 299).await;
    driver.lock().engine.check_invariants();
}

/// Cancels all recipients of a message.
fn cancel(driver: &Arc<Driver>, id: u64, cancel_as: CancelAs) -> Answer {
    driver.request(Command::Cancel { id: QueueId(id), recipients: None, cancel_as, reason: None })
}

/// A job of the only queued message, leased to a connection that is never opened.
fn lease(driver: &Arc<Driver>) -> (ConnectionId, Leased) {
    let (context, mut effects) = (driver.clock.context(), Vec::new());
    driver.lock().engine.handle(Event::Started, context, &mut effects);
    let opened = effects.iter().find_map(|effect| match effect {
        Effect::OpenConnection { connection, .. } => Some(*connection),
        _ => None,
    });
    let connection = opened.unwrap();
    // The test is the client.
    driver.lock().client_connections += 1;
    effects.retain(|effect| !matches!(effect, Effect::OpenConnection { .. }));
    driver.begin(effects);
    (connection, driver.handle(Event::ConnectionReady(connection)).unwrap())
}

#[tokio::test]
async fn an_outcome_that_a_busy_spool_refused_is_stored_when_it_has_room() {
    let delivered = || Outcome::delivered(Enhanced(2, 0, 0), "250 ok");
    let failed = || Outcome::failed(Enhanced(5, 1, 1), "550 no such user");
    for (outcome, reports) in [(delivered(), 0), (failed(), 1)] {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        spool.answered.send_replace(true);
        let acceptor = acceptor_with(dir.path(), spool.clone());
        let driver = acceptor.intake();
        tokio::spawn(driver.clone().run_timer());
        let message = queued(driver, message(1));
        let (connection, Leased { lease, .. }) = lease(driver);
        *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
        let (results, attempt) = (vec![(0, outcome)], Attempt::default());
        let message = Some(message);
        driver.handle(Event::AttemptFinished { connection, lease, message, results, attempt });
        until(|| counters(driver).queued == 0).await;
        assert!(driver.unstored_count() > 0, "the daemon would end without it");
        assert!(spool.kept.read(QueueId(1)).is_ok(), "the spool was busy");
        *spool.line.lock().unwrap() = Line::default();
        until(|| spool.kept.read(QueueId(1)).is_err()).await;
        until(|| driver.unstored_count() == 0).await;
        let all = counters(driver);
        assert_eq!((all.accepted, all.queued), (1 + reports, reports));
        assert_eq!(spool.kept.pressure().message_count, reports);
    }
}

#[tokio::test]
async fn the_end_of_a_deleted_message_that_cannot_be_read_is_stored_when_a_busy_spool_has_room() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let driver = acceptor.intake();
    tokio::spawn(driver.clone().run_timer());
    // In the queue, and nowhere else.
    driver.accepted(SharedMessage::new(message(1)), None, false);
    *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
    drop(cancel(driver, 1, CancelAs::Delete));
    until(|| counters(driver).deleted == 1).await;
    assert_eq!(spool.kept.pressure().transaction_count, 0);
    *spool.line.lock().unwrap() = Line::default();
    until(|| spool.kept.pressure().transaction_count == 1).await;
}

#[tokio::test]
async fn a_daemon_that_stops_stores_an_outcome_that_a_busy_spool_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let driver = acceptor.intake();
    tokio::spawn(driver.clone().run_timer());
    queued(driver, message(1));
    *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
    drop(cancel(driver, 1, CancelAs::Delete));
    until(|| counters(driver).deleted == 1).await;
    driver.close();
    tokio::task::yield_now().await;
    assert!(driver.unstored_count() > 0);
    *spool.line.lock().unwrap() = Line::default();
    until(|| driver.unstored_count() == 0).await;
    assert!(spool.kept.read(QueueId(1)).is_err());
}

/// A recovered message of which every recipient is finished.
fn finished() -> Recovered {
    let delivered = Outcome::delivered(Enhanced(2, 0, 0), "");
    let last = Some((UnixMillis::now(), delivered));
    let recipients = vec![RecipientState { settled: true, attempt_count: 1, last }];
    Recovered { message: SharedMessage::new(message(1)), recipients, held: None }
}

fn recovered(driver: &Driver, found: &Recovered) -> Vec<Effect> {
    let mut effects = Vec::new();
    driver.lock().engine.handle(Event::Recovered(found), driver.clock.context(), &mut effects);
    effects
}

#[tokio::test]
async fn the_end_of_a_finished_message_is_stored_when_a_busy_spool_has_room() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let driver = acceptor.intake();
    tokio::spawn(driver.clone().run_timer());
    spool.submit(vec![Entry::Accept(SharedMessage::new(message(1)))]).unwrap();
    *spool.line.lock().unwrap() = Line { room: Some(0), moves: false };
    driver.begin(recovered(driver, &finished()));
    assert!(spool.kept.read(QueueId(1)).is_ok());
    *spool.line.lock().unwrap() = Line::default();
    until(|| spool.kept.read(QueueId(1)).is_err()).await;
}

#[tokio::test]
async fn a_decision_of_an_operator_is_answered_when_it_is_durable_and_not_before() {
    for (verdict, is_readable) in
        [(CancelAs::Delete, true), (CancelAs::Delete, false), (CancelAs::Bounce, true)]
    {
        let dir = tempfile::tempdir().unwrap();
        let spool = Arc::new(Stuck::default());
        let acceptor = acceptor_with(dir.path(), spool.clone());
        let driver = acceptor.intake();
        if is_readable {
            queued(driver, message(1));
        } else {
            driver.accepted(SharedMessage::new(message(1)), None, false);
        }
        let before = spool.kept.pressure().transaction_count;
        let mut answer = cancel(driver, 1, verdict);
        until(|| spool.kept.pressure().transaction_count > before).await;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(answer.try_recv().is_err(), "{verdict:?}: the disk has not answered yet");
        spool.answered.send_replace(true);
        assert_eq!(answer.await.unwrap().unwrap(), CommandResult::Changed);
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_not_said_to_be_returned() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    let acceptor = acceptor_with(dir.path(), spool);
    let driver = acceptor.intake();
    driver.accepted(SharedMessage::new(message(1)), None, false);
    let answer = cancel(driver, 1, CancelAs::Bounce).await.unwrap();
    assert!(matches!(answer, Err(SpoolFailure::Missing)), "{answer:?}");
}

#[tokio::test]
#[cfg(debug_assertions)]
#[should_panic = "connections of the delivery client"]
async fn a_connection_that_only_the_queue_counts_is_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let acceptor = acceptor_with(dir.path(), Arc::new(Stuck::default()));
    let driver = acceptor.intake();
    queued(driver, message(1));
    let _leased = lease(driver);
    driver.lock().client_connections = 0;
    driver.handle(Event::Tick);
}

#[tokio::test]
async fn an_idle_connection_is_woken_by_a_message_and_by_shutdown() {
    let dir = tempfile::tempdir().unwrap();
    let acceptor = acceptor_with(dir.path(), Arc::new(Stuck::default()));
    let driver = acceptor.intake();
    queued(driver, message(1));
    let (connection, leased) = lease(driver);
    let idle = || {
        let woken = Arc::new(Notify::new());
        driver.idle(connection, woken.clone());
        woken
    };
    let results = vec![(0, Outcome::delivered(Enhanced(2, 0, 0), "250 ok"))];
    let (lease, attempt) = (leased.lease, Attempt::default());
    let message_1 = Some(SharedMessage::new(message(1)));
    driver.handle(Event::AttemptFinished { connection, lease, message: message_1, results, attempt });
    let woken = idle();
    queued(driver, message(2));
    tokio::time::timeout(LIMIT, woken.notified()).await.expect("there is work");
    let leased = driver.handle(Event::ConnectionReady(connection)).unwrap();
    assert!(driver.handle(Event::ConnectionReady(connection)).is_none());
    let woken = idle();
    driver.close();
    tokio::time::timeout(LIMIT, woken.notified()).await.expect("the daemon ends");
    assert!(driver.lock().engine.should_close(connection));
    driver.closed(connection, vec![leased.lease]);
    assert_eq!(driver.connection_count(), 0);
    driver.lock().engine.check_invariants();
}

#[tokio::test]
async fn a_program_of_this_machine_has_the_content_limits_of_clients() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Arc::new(Stuck::default());
    spool.answered.send_replace(true);
    let acceptor = acceptor_with(dir.path(), spool.clone());
    let limits = acceptor.intake().current().settings.limits.clone();
    let of = |content: String| Draft { content: ReceivedContent::from_bytes(content, 0), ..draft(1) };
    let received = "Received: from a by b\r\n".repeat(limits.hops as usize + 1);
    let refused = [
        (of(format!("{received}\r\nloop\r\n")), "5.4.6"),
        (of(format!("X: {}\r\n\r\n", "x".repeat(limits.header_bytes))), "5.3.4"),
        (of("Subject: x\r\n\r\n\0\r\n".to_owned()), "5.6.0"),
    ];
    for (draft, status) in refused {
        let refusal = acceptor.accept_local(0, draft).await.unwrap_err();
        assert!(refusal.text.contains(status), "{}", refusal.text);
    }
    assert!(acceptor.accept_local(0, draft(1)).await.is_ok());
}
