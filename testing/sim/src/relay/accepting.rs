//! The front of the relay: the daemon's sessions and its acceptor on a runtime with one thread, whose clock is the simulator's.
//!
//! What the acceptor hands on is kept until the driver takes it, right behind the tasks that handed it on.

use super::{checks::SharedJudgments, front};
use crate::seed::Rng;
use accept::{AcceptConfig, AcceptLog, Acceptor, Intake, Mutant, UnstoredMessages};
use bytes::Bytes;
use inbound::{Client, MemorySessions};
use mail::{ChunkId, Destination, IdSource, QueueId, SharedMessage, UnixMillis};
use queue::Millis;
use report::EventStream;
use smtp::server::{Keyword, Profile};
use spool::{
    CommitSeq, Durable, Entry, Failed, LogSpool, Pressure, Recovered, RecoveryReport, Refused, Spool,
    SpoolFailure, Transaction,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{io::DuplexStream, runtime::Runtime};

/// Transactions and chunks that the spool does not take at first.
const BUSY_PERCENT: u64 = 10;
/// Content is handed to the spool in pieces of this.
const CHUNK_BYTES: usize = 2000;
/// What a stream holds in each direction.
const STREAM_BYTES: usize = 8 * 1024;
/// Rounds in which tasks may wake each other; what is not done in them is done in the next step.
const ROUNDS: usize = 4;

/// What the acceptor has submitted and is not durable yet.
pub(super) struct Submitted {
    pub(super) commit_seq: CommitSeq,
    pub(super) transaction: Transaction,
    /// The content of its messages, in their order.
    pub(super) contents: Vec<Vec<u8>>,
}

/// What the acceptor hands to the queue.
pub(super) struct Queued {
    pub(super) message: SharedMessage,
    pub(super) held: Option<Box<str>>,
    pub(super) is_late: bool,
}

/// What passed between the acceptor and the rest since it was looked at.
#[derive(Default)]
pub(super) struct Passed {
    pub(super) submitted: Vec<Submitted>,
    pub(super) queued: Vec<Queued>,
}

/// The spool as the acceptor sees it: busy at times, and watched.
struct WatchedSpool {
    log: Arc<LogSpool>,
    watch: Mutex<Watch>,
}

struct Watch {
    rng: Rng,
    is_well: bool,
    submitted: Vec<Submitted>,
    /// Chunks of messages that are not submitted yet.
    chunks: HashMap<ChunkId, Bytes>,
}

impl WatchedSpool {
    fn watch(&self) -> MutexGuard<'_, Watch> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_busy(&self) -> bool {
        let mut watch = self.watch();
        !watch.is_well && watch.rng.chance(BUSY_PERCENT)
    }
}

impl Watch {
    fn content_of(&mut self, message: &SharedMessage) -> Vec<u8> {
        let mut content = Vec::new();
        for part in message.content.parts() {
            match part {
                mail::Part::Memory(bytes) => content.extend_from_slice(bytes),
                mail::Part::Stored { chunk_id, .. } => {
                    content.extend_from_slice(&self.chunks.remove(chunk_id).unwrap_or_default());
                }
            }
        }
        content
    }
}

impl Spool for WatchedSpool {
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        if self.is_busy() {
            return Err(Refused::Busy);
        }
        let copy = transaction.clone();
        let commit_seq = self.log.submit_or_keep(transaction)?;
        let mut watch = self.watch();
        let contents = copy.iter().filter_map(accepted).map(|message| watch.content_of(message)).collect();
        watch.submitted.push(Submitted { commit_seq, transaction: copy, contents });
        Ok(commit_seq)
    }

    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        if self.is_busy() {
            return Err(Refused::Busy);
        }
        let chunk_id = self.log.store(chunk.clone())?;
        self.watch().chunks.insert(chunk_id, chunk);
        Ok(chunk_id)
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        let mut watch = self.watch();
        chunk_ids.iter().for_each(|chunk_id| _ = watch.chunks.remove(chunk_id));
        drop(watch);
        self.log.discard_chunks(chunk_ids);
    }

    fn durable(&self, commit_seq: CommitSeq) -> Durable {
        self.log.durable(commit_seq)
    }

    fn poll_durable(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        self.log.poll_durable(commit_seq)
    }

    fn failed(&self) -> Failed {
        self.log.failed()
    }

    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.log.read(id)
    }

    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.log.load(chunk_id)
    }

    fn recover(&mut self, _: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        unreachable!("it was recovered before")
    }

    fn pressure(&self) -> Pressure {
        self.log.pressure()
    }

    fn room_bytes(&self) -> u64 {
        self.log.room_bytes()
    }

    fn close(&self) {
        self.log.close();
    }
}

/// Returns the message that the entry adds; `None` for other entries.
pub(super) fn accepted(entry: &Entry) -> Option<&SharedMessage> {
    match entry {
        Entry::Accept(message) => Some(message),
        Entry::Import(found) => Some(&found.message),
        _ => None,
    }
}

/// Stands for the daemon around the acceptor.
struct FrontIntake {
    config: Mutex<Arc<AcceptConfig>>,
    wall: AtomicU64,
    spool: Arc<WatchedSpool>,
    unstored: UnstoredMessages,
    queued: Mutex<Vec<Queued>>,
}

/// Events go nowhere.
static LOG: LazyLock<AcceptLog> =
    LazyLock::new(|| AcceptLog::new(EventStream::start(Vec::new()).expect("a thread"), false));

impl Intake for FrontIntake {
    fn config(&self) -> Arc<AcceptConfig> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.wall.load(Ordering::Relaxed))
    }

    fn log(&self) -> &AcceptLog {
        &LOG
    }

    async fn durable(&self, commit_seq: CommitSeq) -> Result<(), SpoolFailure> {
        self.spool.durable(commit_seq).await
    }

    async fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.spool.load(chunk_id)
    }

    fn accepted(self: &Arc<Self>, message: SharedMessage, held: Option<Box<str>>, is_late: bool) {
        let queued = Queued { message, held, is_late };
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).push(queued);
    }

    // The simulator looks at the spool itself.
    fn spool_failed(&self, _: Option<&SpoolFailure>) {}

    fn unstored(&self) -> &UnstoredMessages {
        &self.unstored
    }

    fn forgo(self: &Arc<Self>, id: QueueId, _: &str) {
        unreachable!("{id} is not offered before it is stored")
    }

    async fn start_queue(self: &Arc<Self>, _: impl Fn(&Destination) -> bool + Send) -> Option<u64> {
        None
    }
}

/// Sessions, acceptor and configuration of a run of the relay. Dropped, they are gone as in a crash.
pub(super) struct Front {
    // Dropped first: its tasks have the others.
    runtime: Runtime,
    sessions: MemorySessions<Acceptor<FrontIntake>>,
    intake: Arc<FrontIntake>,
    judgments: SharedJudgments,
    mutant: Mutant,
    now: Millis,
}

impl Front {
    /// Begins at a time. `is_well`: the spool is never busy.
    pub(super) fn new(
        log: Arc<LogSpool>,
        ids: Arc<IdSource>,
        judgments: SharedJudgments,
        mutant: Mutant,
        rng: Rng,
        is_well: bool,
        now: Millis,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let watch = Watch { rng, is_well, submitted: Vec::new(), chunks: HashMap::new() };
        let spool = Arc::new(WatchedSpool { log, watch: Mutex::new(watch) });
        let generation = judgments.with(super::checks::Judgments::next_generation);
        let config = Arc::new(front::configure(generation, &judgments, mutant, None));
        let profile = Profile::new("mx.test").with(Keyword::MtPriority).with(Keyword::Vrfy);
        let settings = inbound::Settings {
            limits: Arc::new(config.settings.limits.clone()),
            profile: Arc::new(profile),
            auth: Arc::default(),
            end_points: inbound::EndPoints::default(),
            certificates: None,
            chunk_bytes: CHUNK_BYTES,
            memory_bytes: usize::MAX,
            lookup_timeout: accept::check::LOOKUP_TIMEOUT,
            sessions_max: usize::MAX,
            sessions_per_client: usize::MAX,
        };
        let intake = Arc::new(FrontIntake {
            config: Mutex::new(config),
            wall: AtomicU64::new(0),
            spool: spool.clone(),
            unstored: UnstoredMessages::default(),
            queued: Mutex::default(),
        });
        let mut acceptor = Acceptor::new(intake.clone(), spool as Arc<dyn Spool>, ids);
        acceptor.set_mutant(mutant);
        let sessions = MemorySessions::new(Arc::new(acceptor), settings, runtime.handle().clone());
        Self { runtime, sessions, intake, judgments, mutant, now }
    }

    /// Begins a session, and returns the client's end of its connection.
    pub(super) fn connect(&self, client: Client) -> DuplexStream {
        let (own, server) = tokio::io::duplex(STREAM_BYTES);
        self.runtime.spawn(self.sessions.serve(client, server));
        own
    }

    /// Reads the configuration again.
    pub(super) fn reload(&self) {
        let generation = self.judgments.with(super::checks::Judgments::next_generation);
        let old = self.intake.config();
        let new = front::configure(generation, &self.judgments, self.mutant, Some(&old));
        *self.intake.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
    }

    /// Runs what can run until this time, and returns what it handed on.
    pub(super) fn run(&mut self, now: Millis, wall: UnixMillis) -> Passed {
        self.intake.wall.store(wall.0, Ordering::Relaxed);
        let passed_ms = u64::try_from(now - self.now).expect("time goes on");
        self.now = now;
        self.runtime.block_on(async {
            if passed_ms > 0 {
                tokio::time::advance(Duration::from_millis(passed_ms)).await;
            }
            for _ in 0..ROUNDS {
                tokio::task::yield_now().await;
            }
        });
        let queued = std::mem::take(&mut *self.intake.queued.lock().unwrap_or_else(PoisonError::into_inner));
        Passed { submitted: std::mem::take(&mut self.intake.spool.watch().submitted), queued }
    }

    /// Takes no new transaction.
    pub(super) fn close(&self) {
        self.sessions.close();
    }

    /// Returns the number of chunks that were neither submitted with a message nor given back.
    pub(super) fn open_chunk_count(&self) -> usize {
        self.intake.spool.watch().chunks.len()
    }

    /// Has each session ended, and each task behind it?
    pub(super) fn is_idle(&self) -> bool {
        self.runtime.metrics().num_alive_tasks() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::SimDisk;
    use mail::ListenerKind;
    use spool::LogSettings;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Says something, lets the sessions run, and returns what has come.
    fn say(front: &mut Front, client: &mut DuplexStream, line: &str) -> String {
        let mut room = [0; 4096];
        front.runtime.block_on(client.write_all(line.as_bytes())).unwrap();
        let passed = front.run(front.now + 1, UnixMillis(1));
        assert!(passed.submitted.is_empty() && passed.queued.is_empty());
        let count = front.runtime.block_on(client.read(&mut room)).unwrap();
        String::from_utf8(room[..count].to_vec()).unwrap()
    }

    #[test]
    fn vrfy_between_mail_and_rcpt_leaves_the_transaction_its_configuration() {
        let disk: Arc<dyn spool::disk::Disk> = Arc::new(SimDisk::new(1, u64::MAX));
        let mut log = LogSpool::single_stepped(disk, LogSettings::default()).unwrap();
        log.recover(&mut |_| unreachable!("it is empty")).unwrap();
        let judgments = SharedJudgments::new(Rng::new(1));
        let (log, rng) = (Arc::new(log), Rng::new(1));
        let mut front = Front::new(log, Arc::default(), judgments.clone(), Mutant::None, rng, true, 0);
        judgments.with(|judgments| judgments.begin(0, 1));
        let (peer, local) = ("192.0.2.1:1025".parse().unwrap(), "192.0.2.25:25".parse().unwrap());
        let mut client =
            front.connect(Client { peer, local, listener: ListenerKind::Mx, tls: None, named: None });
        let replies =
            ["EHLO a0.source.test\r\n", "MAIL FROM:<s0@src.test>\r\n", "VRFY postmaster\r\n"].map(|line| {
                let reply = say(&mut front, &mut client, line);
                front.reload();
                reply
            });
        assert!(replies[1].contains("250 2.1.0") && replies[2].contains("250 2.1.5"), "{replies:?}");
        let reply = say(&mut front, &mut client, "RCPT TO:<m0r0@d0.test>\r\n");
        assert!(reply.starts_with("250 2.1.5"), "{reply}");
        assert_eq!(judgments.with(|judgments| judgments.violations.clone()), Vec::<String>::new());
    }
}
