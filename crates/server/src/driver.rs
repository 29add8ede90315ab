//! Drives the message engine: hands it what happens, and performs what it asks for. One lock guards the engine; the
//! spool and the delivery log have their own.

use super::{clock::Clock, delivery_log::DeliveryLog, snapshot::ConfigSnapshot, workers};
use accept::{AcceptConfig, AcceptLog, Intake, UnstoredMessages};
use bytes::Bytes;
use delivery::{Progress, Step};
use engine::{
    Abandoned, Command, ConnectionId, Context, DestinationId, Effect, Engine, Event, Lease, LogEvent,
    RequestId, Routed, TaskId,
};
use mail::{
    Attempt, ChunkId, Destination, Enhanced, IdSource, Message, Outcome, Part, QueueId, SharedMessage,
    UnixMillis,
};
use queue::{CancelAs, CommandResult, Millis};
use spool::{CommitSeq, CommitWaiters, Refused, Spool, SpoolFailure};
use std::{
    cell::RefCell,
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// More effects than this at a time are not worth keeping the memory for.
const EFFECTS_KEPT: usize = 256;

thread_local! {
    /// Reused from event to event.
    static EFFECTS: RefCell<Vec<Effect>> = const { RefCell::new(Vec::new()) };
}

/// Resolves to what an operator is answered.
pub(crate) type Answer = oneshot::Receiver<Result<CommandResult, SpoolFailure>>;

/// Begins a connection as a task of its own.
pub(crate) type OpenConnection = fn(&Arc<Driver>, ConnectionId, Destination);

/// A lease of a connection, and its message once it was read.
#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) lease: Lease,
    pub(crate) message: Option<SharedMessage>,
}

/// An expansion of recipients of a queued message, as the engine ordered it.
#[derive(Debug)]
pub(crate) struct Expansion {
    pub(crate) connection: ConnectionId,
    pub(crate) lease: Lease,
    /// None: it is in the spool.
    pub(crate) message: Option<SharedMessage>,
}

/// Returns the connections that the queue counts, and that the delivery client has.
fn delivering_count(engine: &Engine) -> u32 {
    engine.queue().connection_count() - engine.expansion_count()
}

/// Everything behind the lock.
pub(crate) struct State {
    pub(crate) engine: Engine,
    /// Wakers of idle connections, by their numbers.
    wakers: Vec<Option<Arc<Notify>>>,
    /// Tells each open connection, by its number, that the engine gives it up.
    abandonments: Vec<Option<Arc<Abandonment>>>,
    /// What each open connection is doing, by its number.
    progress: Vec<Option<Arc<Progress>>>,
    /// Connections as the delivery client has them: ordered, and not ended. The queue counts them by itself.
    pub(super) client_connections: u32,
}

impl State {
    /// Returns the signal by which the engine gives a connection up.
    pub(crate) fn abandonment(&mut self, connection: ConnectionId) -> Arc<Abandonment> {
        let at = connection.0 as usize;
        if self.abandonments.len() <= at {
            self.abandonments.resize(at + 1, None);
        }
        self.abandonments[at].get_or_insert_default().clone()
    }

    /// Begins to keep what a connection is doing.
    pub(super) fn begin_progress(&mut self, connection: ConnectionId) -> Arc<Progress> {
        let at = connection.0 as usize;
        if self.progress.len() <= at {
            self.progress.resize(at + 1, None);
        }
        self.progress[at].insert(Arc::default()).clone()
    }

    /// Returns what a connection is doing; none if it has ended.
    pub(super) fn step(&self, connection: ConnectionId) -> Option<Step> {
        self.progress.get(connection.0 as usize)?.as_ref()?.step()
    }

    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            engine,
            wakers: Vec::new(),
            abandonments: Vec::new(),
            progress: Vec::new(),
            client_connections: 0,
        }
    }
}

/// Tells a connection that the engine gives it up.
#[derive(Debug, Default)]
pub(crate) struct Abandonment {
    why: OnceLock<Abandoned>,
    told: Notify,
}

impl Abandonment {
    fn tell(&self, why: Abandoned) {
        let _ = self.why.set(why);
        self.told.notify_waiters();
    }

    /// Waits until the connection is given up.
    pub(crate) async fn wait(&self) -> Abandoned {
        loop {
            let told = self.told.notified();
            if let Some(why) = self.why.get() {
                return *why;
            }
            told.await;
        }
    }
}

/// Drives the engine: brings it events, and performs its effects.
pub(crate) struct Driver {
    pub(crate) spool: Arc<dyn Spool>,
    /// Queued messages that are not in the spool.
    pub(crate) unstored: UnstoredMessages,
    pub(crate) ids: Arc<IdSource>,
    pub(crate) delivery_log: DeliveryLog,
    pub(crate) closing: watch::Sender<bool>,
    /// The spool can promise nothing any more, or the engine panicked: the process must end.
    pub(crate) failed: Notify,
    /// The first failure of the spool, or of the engine.
    failure: OnceLock<String>,
    has_panicked: AtomicBool,
    open_connection: OpenConnection,
    /// Expansions of recipients of queued messages, and their receiver until somebody makes them.
    expansions: mpsc::UnboundedSender<Expansion>,
    ordered_expansions: Mutex<Option<mpsc::UnboundedReceiver<Expansion>>>,
    state: Mutex<State>,
    conflicts: AtomicU64,
    /// Events after which client and queue counted different numbers of connections.
    connection_drift: AtomicU64,
    /// The time of the last warning that connections are short.
    short_warned_at: AtomicI64,
    current: RwLock<Arc<ConfigSnapshot>>,
    timer: Notify,
    /// Time in which the start read the spool.
    pub(crate) start_read_us: AtomicU64,
    /// When the engine has asked to be woken.
    timer_at: AtomicI64,
    pub(crate) clock: Clock,
    /// Sessions that wait for commits; sessions on no worker wait by themselves.
    pub(crate) commit_waiters: CommitWaiters,
    /// Operators who wait for an answer.
    requests: Mutex<HashMap<RequestId, oneshot::Sender<Result<CommandResult, SpoolFailure>>>>,
    last_request: AtomicU64,
}

impl Driver {
    /// `current` is the engine's routing.
    pub(crate) fn new(
        spool: Arc<dyn Spool>,
        engine: Engine,
        ids: Arc<IdSource>,
        current: Arc<ConfigSnapshot>,
        delivery_log: DeliveryLog,
        clock: Clock,
        open_connection: OpenConnection,
    ) -> Self {
        let (expansions, ordered_expansions) = mpsc::unbounded_channel();
        Self {
            spool,
            unstored: UnstoredMessages::default(),
            ids,
            delivery_log,
            closing: watch::Sender::new(false),
            failed: Notify::new(),
            failure: OnceLock::new(),
            has_panicked: AtomicBool::new(false),
            open_connection,
            expansions,
            ordered_expansions: Mutex::new(Some(ordered_expansions)),
            state: Mutex::new(State::new(engine)),
            conflicts: AtomicU64::new(0),
            connection_drift: AtomicU64::new(0),
            short_warned_at: AtomicI64::new(Millis::MIN),
            current: RwLock::new(current),
            timer: Notify::new(),
            start_read_us: AtomicU64::new(0),
            timer_at: AtomicI64::new(Millis::MAX),
            clock,
            commit_waiters: CommitWaiters::default(),
            requests: Mutex::default(),
            last_request: AtomicU64::new(0),
        }
    }

    pub(crate) fn current(&self) -> Arc<ConfigSnapshot> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => self.panicked(poisoned),
            Err(TryLockError::WouldBlock) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                self.state.lock().unwrap_or_else(|poisoned| self.panicked(poisoned))
            }
        }
    }

    /// The engine panicked in the middle of a step: what it says from now on may be wrong. Everything that was decided
    /// is in the spool, so the process ends, and a restart recovers.
    fn panicked<'a>(&self, poisoned: PoisonError<MutexGuard<'a, State>>) -> MutexGuard<'a, State> {
        let text = "the message engine panicked".to_owned();
        if self.failure.set(text).is_ok() {
            tracing::error!("the message engine panicked, and the daemon ends");
        }
        self.has_panicked.store(true, Ordering::Relaxed);
        self.failed.notify_one();
        poisoned.into_inner()
    }

    /// Did the engine panic?
    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::Relaxed)
    }

    /// Times somebody had to wait for the engine's lock.
    pub(crate) fn conflict_count(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    // ---- events and effects ----

    /// Hands an event to the engine and performs what follows. Returns the lease that a ready connection is to
    /// deliver.
    pub(crate) fn handle(self: &Arc<Self>, event: Event<'_>) -> Option<Leased> {
        self.handle_with(event, |_| {})
    }

    /// A connection becomes idle; `woken` wakes it.
    pub(crate) fn idle(self: &Arc<Self>, connection: ConnectionId, woken: Arc<Notify>) {
        let at = connection.0 as usize;
        self.handle_with(Event::ConnectionIdle(connection), |state| {
            if state.wakers.len() <= at {
                state.wakers.resize(at + 1, None);
            }
            state.wakers[at] = Some(woken);
        });
    }

    /// A connection of the delivery client has ended, with leases that it gives back.
    pub(crate) fn closed(self: &Arc<Self>, connection: ConnectionId, leases: Vec<Lease>) {
        self.handle_with(Event::ConnectionClosed { connection, leases }, |state| {
            assert!(state.client_connections > 0, "a connection ends once");
            state.client_connections -= 1;
            if let Some(slot) = state.abandonments.get_mut(connection.0 as usize) {
                *slot = None;
            }
            if let Some(slot) = state.progress.get_mut(connection.0 as usize) {
                *slot = None;
            }
        });
    }

    /// Compares the connections of the client with those that the queue counts: stale counters once made a scheduler
    /// believe in connections that did not exist. An alarm and no end: the queue opens too few or too many, and loses
    /// nothing.
    fn check_connections(&self, state: &State) {
        if state.engine.queue().are_shares_short() {
            self.warn_of_short_connections(state);
        }
        let (client, queue) = (state.client_connections, delivering_count(&state.engine));
        if client == queue {
            return;
        }
        if self.connection_drift.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "the delivery client has {client} connections and the queue counts {queue}: please report it"
            );
        }
        debug_assert_eq!(
            client, queue,
            "connections of the delivery client, and those that the queue counts"
        );
    }

    /// Warns once a minute that destinations wait, because the connections they may use are in use.
    fn warn_of_short_connections(&self, state: &State) {
        let (now, at) = (self.clock.now(), self.short_warned_at.load(Ordering::Relaxed));
        if now < at.saturating_add(60_000) {
            return;
        }
        self.short_warned_at.store(now, Ordering::Relaxed);
        for view in state.engine.queue().shares().iter().filter(|view| view.waiting > 0) {
            let (share, waiting) = (view.share.as_str(), view.waiting);
            tracing::warn!(
                "connections are short: {} of the share `{share}` waiting, {} of {} connections in use \
                 (`delivery.max_connections`, docs/operating/connections.md)",
                mail::counted(waiting as u64, "destination"),
                view.used,
                view.max
            );
        }
        if let Some(one) = state.engine.queue().busiest_exchanger() {
            let waiting = mail::counted(one.waiting as u64, "domain");
            tracing::warn!(
                "most connections to one mail exchanger: {} to {}; waiting for it: {waiting}",
                one.used,
                one.name
            );
        }
    }

    /// Returns the connections of the client, those that the queue counts, and the number of events after which the two
    /// differed.
    pub(crate) fn connection_counts(&self) -> (u32, u32, u64) {
        let state = self.lock();
        let drift = self.connection_drift.load(Ordering::Relaxed);
        (state.client_connections, delivering_count(&state.engine), drift)
    }

    fn handle_with(self: &Arc<Self>, event: Event<'_>, prepare: impl FnOnce(&mut State)) -> Option<Leased> {
        let mut effects = EFFECTS.take();
        let context = self.clock.context();
        let mut state = self.lock();
        prepare(&mut state);
        state.engine.handle(event, context, &mut effects);
        let stored = self.perform_locked(&mut state, context, &mut effects);
        drop(state);
        let leased = self.perform(&mut effects, stored);
        if effects.capacity() <= EFFECTS_KEPT {
            EFFECTS.set(effects);
        }
        leased
    }

    /// Performs what recovery made the engine ask for.
    pub(crate) fn begin(self: &Arc<Self>, mut effects: Vec<Effect>) {
        let context = self.clock.context();
        let mut state = self.lock();
        let stored = self.perform_locked(&mut state, context, &mut effects);
        drop(state);
        self.perform(&mut effects, stored);
    }

    /// The effects that belong to the step that decided them, before another thread takes the next one: the spool
    /// sees transactions in the order of the decisions, the timer has the newest time, and the log has a message's
    /// acceptance before its delivery. Returns who waits for which commit sequence number.
    fn perform_locked(
        &self,
        state: &mut State,
        context: Context,
        effects: &mut Vec<Effect>,
    ) -> Vec<(TaskId, CommitSeq)> {
        let (mut stored, mut at) = (Vec::new(), 0);
        while at < effects.len() {
            match &mut effects[at] {
                Effect::Submit { task, transaction } => {
                    let task = *task;
                    match self.unstored.submit(&*self.spool, transaction) {
                        Ok(commit_seq) => stored.extend(task.map(|task| (task, commit_seq))),
                        Err(refused) => {
                            let transaction = std::mem::take(transaction);
                            let refused = Event::Refused { task, transaction, refused };
                            state.engine.handle(refused, context, effects);
                        }
                    }
                }
                Effect::WakeAt(when) => {
                    self.timer_at.store(*when, Ordering::Relaxed);
                    self.timer.notify_one();
                }
                Effect::WakeConnection(connection) => {
                    let woken = state.wakers.get_mut(connection.0 as usize).and_then(Option::take);
                    debug_assert!(woken.is_some(), "an idle connection can be woken");
                    if let Some(woken) = woken {
                        woken.notify_one();
                    }
                }
                Effect::AbandonConnection { connection, why } => state.abandonment(*connection).tell(*why),
                Effect::OpenConnection { .. } => state.client_connections += 1,
                Effect::Log(LogEvent::Accepted(message)) => self.delivery_log.accepted(message),
                Effect::Log(LogEvent::Held { id, reason }) => self.delivery_log.held(*id, reason),
                _ => {}
            }
            at += 1;
        }
        self.check_connections(state);
        stored
    }

    /// Performs the effects that need no lock. The others are done.
    fn perform(
        self: &Arc<Self>,
        effects: &mut Vec<Effect>,
        stored: Vec<(TaskId, CommitSeq)>,
    ) -> Option<Leased> {
        let mut leased = None;
        for effect in effects.drain(..) {
            match effect {
                Effect::Submit { .. } | Effect::WakeAt(_) => {} // done
                Effect::WakeConnection(_) | Effect::AbandonConnection { .. } => {} // done
                Effect::Deliver { lease, message, .. } => leased = Some(Leased { lease, message }),
                Effect::OpenConnection { connection, destination } => {
                    (self.open_connection)(self, connection, destination);
                }
                Effect::Expand { connection, lease, message } => {
                    // Without a receiver the process is about to end, and the recipients stay queued.
                    let _ = self.expansions.send(Expansion { connection, lease, message });
                }
                Effect::Log(event) => self.log(&event),
                Effect::Load { task, id } => self.spawn_load(task, id),
                Effect::Compose(request) => {
                    let own = self.clone();
                    tokio::spawn(async move {
                        let max_bytes = engine::ReportRequest::CONTENT_MAX_BYTES;
                        let content = match request.message() {
                            Some(message) => own.content_up_to(message, max_bytes).await,
                            None => Vec::new(),
                        };
                        let (current, mut reports) = (own.current(), Vec::new());
                        for report in request.compose(&content, UnixMillis::now()) {
                            let judged = current.pipeline.judge_report(current.rules(), report);
                            reports.extend(judged.await.map(SharedMessage::new));
                        }
                        own.handle(Event::Composed { task: request.task(), reports });
                    });
                }
                Effect::Answer { request, result } => self.answer(request, result),
                Effect::Fail(failure) => self.spool_failed(&failure),
            }
        }
        for (task, commit_seq) in stored {
            let own = self.clone();
            tokio::spawn(async move {
                let result = own.spool.durable(commit_seq).await;
                own.handle(Event::Stored { task, result });
            });
        }
        leased
    }

    fn spawn_load(self: &Arc<Self>, task: TaskId, id: QueueId) {
        let own = self.clone();
        tokio::spawn(async move {
            let result = own.read(id).await;
            own.handle(Event::Loaded { task, result });
        });
    }

    fn log(self: &Arc<Self>, event: &LogEvent) {
        match event {
            LogEvent::Accepted(_) | LogEvent::Held { .. } => {} // done
            LogEvent::Attempt { message, results, attempt } => {
                self.delivery_log.attempt(message, results, attempt);
            }
            LogEvent::Deleted { message, results } => self.delivery_log.deleted(message, results),
            LogEvent::Completed(id) => self.delivery_log.completed(*id),
            LogEvent::Suspended { newly, destination, outcome, until, since } => {
                self.delivery_log.suspended(destination, outcome, *until, *since);
                if let Some(id) = newly {
                    self.log_waiting(*id, destination.to_string(), outcome.clone(), *until);
                }
            }
            LogEvent::Resumed(destination) => self.delivery_log.resumed(destination),
            LogEvent::Waiting { message, recipient, destination, outcome, until } => {
                let destination = destination.to_string();
                self.delivery_log.waiting(message, *recipient, &destination, outcome, Some(*until));
                self.store_waiting(message.id);
            }
            LogEvent::Notified { id, notification, kind } => {
                self.delivery_log.notified(*id, *notification, *kind);
            }
            LogEvent::NotMailed { message, failures, why } => {
                self.delivery_log.not_mailed(message, failures, *why);
            }
            LogEvent::StoredLate(id) => {
                tracing::warn!("{id}: stored after its sender was told to try again");
            }
            LogEvent::Unreadable(id, failure) => tracing::error!("read {id} from the spool: {failure}"),
            LogEvent::Rerouted(count) => {
                tracing::info!("new routes for {}", mail::counted(*count, "message"));
            }
        }
    }

    /// Logs the recipients that wait for a destination that was just suspended, in the background: there may be many, and not all of
    /// their messages are in memory.
    fn log_waiting(
        self: &Arc<Self>,
        destination: DestinationId,
        name: String,
        outcome: Outcome,
        until: Option<UnixMillis>,
    ) {
        let own = self.clone();
        tokio::spawn(async move {
            let mut from = Some(0);
            while let Some(place) = from {
                let (jobs, next) = own.lock().engine.waiting_for(destination, place);
                from = next.filter(|_| !*own.closing.borrow());
                for job in jobs {
                    let message = match job.message {
                        Some(message) => message,
                        None => match own.read(job.id).await {
                            Ok(message) => message,
                            // The message has left the queue, or its next attempt reports the failure.
                            Err(_) => continue,
                        },
                    };
                    for recipient in job.recipients.as_slice() {
                        own.delivery_log.waiting(&message, *recipient, &name, &outcome, until);
                    }
                    own.store_waiting(job.id);
                }
                tokio::task::yield_now().await;
            }
        });
    }

    /// Stores a message whose next hop is not tried for a while. One that the spool has no room for is stored later.
    fn store_waiting(&self, id: QueueId) {
        let _ = self.unstored.store(&*self.spool, id);
    }

    // ---- configuration, shutdown, failure ----

    /// New settings, routes and couriers for what begins from now on. With `is_rerouted` queued messages are routed
    /// again.
    pub(crate) fn replace(self: &Arc<Self>, current: ConfigSnapshot, is_rerouted: bool) {
        let current = Arc::new(current);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = current.clone();
        let settings = current.engine.clone();
        self.handle(Event::Reconfigured { settings, routing: current, is_rerouted });
    }

    /// A commit failed: what was written before is safe, but nothing more can be promised until the
    /// spool was recovered.
    pub(crate) fn spool_failed(&self, failure: &SpoolFailure) {
        if self.failure.set(failure.to_string()).is_ok() {
            tracing::error!("the spool failed, and the daemon ends: {failure}");
        }
        self.failed.notify_one();
    }

    /// Returns the reason why the spool failed, if it did.
    pub(crate) fn spool_failure(&self) -> Option<String> {
        let is_poisoned = || self.spool.pressure().poisoned;
        let unnoticed = || is_poisoned().then(|| Refused::Poisoned.to_string());
        self.failure.get().cloned().or_else(unnoticed)
    }

    /// Begins nothing new; what is under way may end.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closing.send_replace(true);
        self.handle(Event::Shutdown);
    }

    /// Decisions that are not stored yet, see [`Engine::unstored_count`].
    pub(crate) fn unstored_count(&self) -> usize {
        self.lock().engine.unstored_count()
    }

    /// Failed notifications that no summary tells yet, see [`Engine::unsummarized_count`].
    pub(crate) fn unsummarized_count(&self) -> u64 {
        self.lock().engine.unsummarized_count()
    }

    /// Returns the connections to next hops that are open or being opened.
    pub(crate) fn connection_count(&self) -> u32 {
        self.lock().engine.queue().connection_count()
    }

    // ---- operators ----

    /// Hands an operator's command to the engine. The answer comes once what was decided is durable; the work goes on
    /// if it is dropped.
    pub(crate) fn request(self: &Arc<Self>, command: Command) -> Answer {
        let request = RequestId(self.last_request.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).insert(request, sender);
        self.handle(Event::Operator { request, command });
        answer
    }

    fn answer(&self, request: RequestId, result: Result<CommandResult, SpoolFailure>) {
        let waiting = self.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&request);
        if let Some(waiting) = waiting {
            // An operator who has gone away needs no answer.
            let _ = waiting.send(result);
        }
    }

    // ---- reading ----

    /// Returns a message from memory, or reads it from the spool.
    pub(crate) async fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        if let Some(message) = self.lock().engine.cached(id) {
            return Ok(message);
        }
        let unstored = || self.unstored.get(id);
        if let Some(message) = self.spool.read_cached(id).or_else(unstored) {
            return Ok(message);
        }
        self.wait_for_disk(move |spool| spool.read(id)).await
    }

    /// Leaves the expansions that the engine orders to the daemon.
    pub(crate) fn defer_expansions(self: &Arc<Self>) {
        let (driver, ordered) = (self.clone(), self.take_expansions());
        tokio::spawn(async move {
            let Some(mut ordered) = ordered else { return };
            while let Some(Expansion { connection, lease, message }) = ordered.recv().await {
                let outcome = Outcome::deferred(Enhanced(4, 3, 0), "the daemon looks the aliases up");
                let recipients = lease.recipients.as_slice().iter();
                let results = recipients.map(|index| (*index, outcome.clone())).collect();
                let attempt = Attempt { relay: "aliases".into(), ..Attempt::default() };
                driver.handle(Event::AttemptFinished { connection, lease, message, results, attempt });
            }
        });
    }

    /// Takes the expansions that the engine orders, from its start on. Only once.
    pub(crate) fn take_expansions(&self) -> Option<mpsc::UnboundedReceiver<Expansion>> {
        self.ordered_expansions.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns a chunk of content. Waits for the disk on a thread that may block.
    pub(crate) async fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        if let Some(bytes) = self.spool.load_cached(chunk_id) {
            return Ok(bytes);
        }
        self.wait_for_disk(move |spool| spool.load(chunk_id)).await
    }

    /// The beginning of a message's content, in whole parts.
    pub(crate) async fn content_up_to(&self, message: &Message, max_bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for part in message.content.parts() {
            if out.len() >= max_bytes {
                break;
            }
            match part {
                Part::Memory(bytes) => out.extend_from_slice(bytes),
                Part::Stored { chunk_id, .. } => {
                    let Ok(bytes) = self.load(*chunk_id).await else { break };
                    out.extend_from_slice(&bytes);
                }
            }
        }
        out
    }

    /// Reads in a thread that may wait.
    async fn wait_for_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Spool) -> Result<T, SpoolFailure> + Send + 'static,
    ) -> Result<T, SpoolFailure> {
        let spool = self.spool.clone();
        let done = tokio::task::spawn_blocking(move || read(&*spool)).await;
        done.unwrap_or(Err(SpoolFailure::Missing))
    }

    // ---- time ----

    /// Reports ticks when the engine wants them. Does not end at shutdown: what a busy spool refused is submitted
    /// again until the process ends.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        loop {
            let at = self.timer_at.load(Ordering::Relaxed);
            let sleep = async {
                if at == Millis::MAX {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis((at - self.clock.now()).max(1) as u64)).await;
            };
            tokio::select! {
                () = sleep => {
                    // A time that is set from here on comes with the tick, or after it.
                    let set = Ordering::Relaxed;
                    let _ = self.timer_at.compare_exchange(at, Millis::MAX, set, set);
                    self.handle(Event::Tick);
                }
                () = self.timer.notified() => {}
            }
        }
    }
}

impl Intake for Driver {
    fn config(&self) -> Arc<AcceptConfig> {
        self.current().accept.clone()
    }

    fn now(&self) -> UnixMillis {
        UnixMillis::now()
    }

    fn log(&self) -> &AcceptLog {
        self.delivery_log.of_accept()
    }

    async fn durable(&self, commit_seq: CommitSeq) -> Result<(), SpoolFailure> {
        self.commit_waiters.durable(workers::number(), &*self.spool, commit_seq).await
    }

    async fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        Self::load(self, chunk_id).await
    }

    fn accepted(self: &Arc<Self>, message: SharedMessage, held: Option<Box<str>>, is_late: bool) {
        self.delivery_log.accepted(&message);
        if let Some(reason) = &held {
            self.delivery_log.held(message.id, reason);
        }
        let routed = Routed::new(self.current(), &message.envelope);
        self.handle(Event::Accepted { message, routed, held, is_late });
    }

    fn spool_failed(&self, failure: Option<&SpoolFailure>) {
        match failure {
            Some(failure) => Self::spool_failed(self, failure),
            None => self.failed.notify_one(),
        }
    }

    fn unstored(&self) -> &UnstoredMessages {
        &self.unstored
    }

    fn forgo(self: &Arc<Self>, id: QueueId, reason: &str) {
        let (recipients, cancel_as, reason) = (None, CancelAs::Delete, Some(reason.into()));
        // Nobody waits for the answer.
        drop(self.request(Command::Cancel { id, recipients, cancel_as, reason }));
    }

    async fn start_queue(self: &Arc<Self>, is_meant: impl Fn(&Destination) -> bool + Send) -> Option<u64> {
        let queued = self.lock().engine.queue().queued_for(is_meant);
        let count = queued.iter().map(|(_, count)| count).sum();
        if count > 0 {
            let destinations = queued.into_iter().map(|(destination, _)| destination).collect();
            self.request(Command::FlushDestinations(destinations)).await.ok()?.ok()?;
        }
        Some(count)
    }
}
