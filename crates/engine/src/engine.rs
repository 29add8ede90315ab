//! One event after the other.

use crate::{
    ConnectionId, Effect, EngineSettings, Event, LogEvent, Routed, Routing,
    abandon::SilentConnections,
    attempt_result::AttemptResult,
    cache::MessageCache,
    connections::Connections,
    double_bounces::DoubleBounces,
    event::Context,
    last_outcomes::{LastAttempt, LastOutcome, LastOutcomes},
    permits::Permits,
    refused::RefusedTransactions,
    reroute::Reroute,
    routing::is_same,
    schedule::schedule_of,
    task::{TaskId, Tasks},
};
use foldhash::HashMap;
use mail::{Destination, IdSource, QueueId, SharedMessage, UnixMillis};
use queue::{Arrival, ArrivingRecipient, DestinationId, GroupId, Millis, Queue, Recipients, ScannedJob};
use report::RecipientCounters;
use spool::{Entry, Refused, SpoolFailure, Transaction};
use std::sync::Arc;

/// Results whose messages may be read at a time.
const READS_MAX: usize = 16;
/// Results whose reports may be composed or stored at a time: enough to share a commit. The content of each is a
/// megabyte at most.
const REPORTS_MAX: usize = 32;
/// Delay warnings that are composed or stored at a time.
const WARNINGS_MAX: usize = 16;

/// A job that waits for a suspended destination.
#[derive(Debug)]
pub struct WaitingJob {
    /// Queue id of the message that the job belongs to.
    pub id: QueueId,
    /// Those that wait there, by position in the envelope.
    pub recipients: Recipients,
    /// `None` if it is not cached: the caller reads it from the spool.
    pub message: Option<SharedMessage>,
}

/// A job, and of each of its recipients the last outcome; `None` for a recipient that was not tried.
pub type JobOutcomes = (ScannedJob, Vec<Option<Arc<LastAttempt>>>);

/// Everything between "durable" and "done". One writer; the time comes in with each event.
pub struct Engine {
    pub(crate) queue: Queue,
    pub(crate) cache: MessageCache,
    pub(crate) last_outcomes: LastOutcomes,
    pub(crate) counters: RecipientCounters,
    pub(crate) connections: Connections,
    pub(crate) silent: SilentConnections,
    /// Connections that stand for expansions.
    pub(crate) expansion_count: u32,
    pub(crate) tasks: Tasks,
    pub(crate) read_permits: Permits<AttemptResult>,
    pub(crate) report_permits: Permits<AttemptResult>,
    pub(crate) warning_permits: Permits<(QueueId, Vec<u32>)>,
    pub(crate) double_bounces: DoubleBounces,
    /// The reasons of operators for the end of recipients, which may be in flight.
    pub(crate) cancel_reasons: HashMap<QueueId, Box<str>>,
    /// Why messages are held, of each held one.
    pub(crate) hold_reasons: HashMap<QueueId, Box<str>>,
    pub(crate) refused: RefusedTransactions,
    pub(crate) reroute: Reroute,
    pub(crate) settings: EngineSettings,
    pub(crate) routing: Arc<dyn Routing>,
    /// Shared with sessions, which name messages without asking the engine.
    pub(crate) ids: Arc<IdSource>,
    /// Both clocks when the engine was made.
    pub(crate) start: Context,
    /// Connections may be opened.
    is_started: bool,
    /// The engine is shutting down: nothing new is started.
    pub(crate) is_closed: bool,
    /// [`Effect::WakeAt`] is repeated only for an earlier time.
    wake_at: Millis,
    #[cfg(debug_assertions)]
    unchecked_count: usize,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: crate::Mutant,
    #[cfg(feature = "mutants")]
    kept_numbers: std::collections::HashMap<Destination, DestinationId>,
}

impl Engine {
    /// An engine with an empty queue. `seed` makes the jitter of waits repeatable.
    pub fn new(
        settings: EngineSettings,
        routing: Arc<dyn Routing>,
        ids: Arc<IdSource>,
        seed: u64,
        start: Context,
    ) -> Self {
        Self {
            queue: Queue::new(settings.queue.clone(), seed, start.now),
            cache: MessageCache::new(settings.cache_bytes),
            last_outcomes: LastOutcomes::default(),
            counters: RecipientCounters::default(),
            connections: Connections::default(),
            silent: SilentConnections::default(),
            expansion_count: 0,
            tasks: Tasks::default(),
            read_permits: Permits::new(READS_MAX),
            report_permits: Permits::new(REPORTS_MAX),
            warning_permits: Permits::new(WARNINGS_MAX),
            double_bounces: DoubleBounces::default(),
            cancel_reasons: HashMap::default(),
            hold_reasons: HashMap::default(),
            refused: RefusedTransactions::default(),
            reroute: Reroute::default(),
            settings,
            routing,
            ids,
            start,
            is_started: false,
            is_closed: false,
            wake_at: Millis::MAX,
            #[cfg(debug_assertions)]
            unchecked_count: 0,
            #[cfg(feature = "mutants")]
            mutant: crate::Mutant::None,
            #[cfg(feature = "mutants")]
            kept_numbers: std::collections::HashMap::new(),
        }
    }

    /// Breaks a rule on purpose.
    #[cfg(feature = "mutants")]
    pub fn set_mutant(&mut self, mutant: crate::Mutant) {
        self.mutant = mutant;
        if mutant == crate::Mutant::ShareConnections {
            self.queue.share_all_connections();
        }
    }

    // ---- what the driver may look at ----

    /// Returns the queue, for status and lists.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Returns the number of recipients in each state, since the spool was made.
    pub fn counters(&self) -> RecipientCounters {
        self.counters
    }

    /// The last outcomes of a message's recipients, of each that was tried.
    pub fn last_outcomes(&self, id: QueueId) -> &[LastOutcome] {
        self.last_outcomes.of(id)
    }

    /// Returns who or what holds a message, and why; none if it is not held. Empty where that is not known.
    pub fn hold_reason(&self, id: QueueId) -> Option<&str> {
        self.hold_reasons.get(&id).map(|reason| &**reason)
    }

    /// Returns a message if it is cached; never reads the spool.
    pub fn cached(&self, id: QueueId) -> Option<SharedMessage> {
        self.cache.get(id)
    }

    /// Returns the number of connections that stand for expansions: the queue counts them, and the driver has none.
    pub fn expansion_count(&self) -> u32 {
        self.expansion_count
    }

    /// Returns whether a connection should end its work and close, because the engine is shutting down or another
    /// destination wants the connection.
    pub fn should_close(&self, connection: ConnectionId) -> bool {
        let connection = self.connections.get(connection);
        self.is_closed || connection.is_abandoned || self.queue.is_contended(connection.destination)
    }

    /// Decisions that a restart would forget: results that wait for a read, a report or a commit, and refused
    /// transactions. A driver that stops waits until there are none.
    pub fn unstored_count(&self) -> usize {
        let waiting = self.read_permits.waiting().len() + self.report_permits.waiting().len();
        self.tasks.decided_count() + waiting + self.refused.len()
    }

    /// Returns the task that was added last, for [`Engine::is_storing_reports`].
    pub fn newest_task(&self) -> TaskId {
        self.tasks.newest()
    }

    /// Returns whether reports that a task up to this one stores are not queued yet, while the recipients that they are about have
    /// left the queue.
    pub fn is_storing_reports(&self, up_to: TaskId) -> bool {
        self.tasks.is_storing_reports(up_to)
    }

    /// Are queued messages still being routed again after a reload?
    pub fn is_rerouting(&self) -> bool {
        self.reroute.is_reading() || self.reroute.again_at().is_some()
    }

    /// The number of tasks that the engine waits for: reads, reports and commits.
    pub fn task_count(&self) -> usize {
        self.tasks.all().count()
    }

    /// Returns a time of the monotonic clock on the wall clock as it was at the start.
    pub fn on_wall(&self, at: Millis) -> UnixMillis {
        let at = (self.start.wall.0 as Millis).saturating_add(at - self.start.now);
        UnixMillis(at.max(0) as u64)
    }

    // ---- one way in ----

    /// Handles one event and appends the effects that the driver has to perform.
    pub fn handle(&mut self, event: Event<'_>, context: Context, effects: &mut Vec<Effect>) {
        match event {
            Event::ConnectionReady(connection) => self.on_ready(context, connection, effects),
            Event::ConnectedToExchanger(connection, exchangers) => {
                self.queue.connected_to(self.connections.get(connection).destination, exchangers);
            }
            Event::ConnectionIdle(connection) => self.on_idle(context, connection, effects),
            Event::ConnectionNotIdle(connection) => self.leave_idle(connection),
            Event::ConnectionClosed { connection, leases } => {
                self.on_closed(context, connection, leases, effects);
            }
            Event::Accepted { message, routed, held, is_late } => {
                if is_late {
                    effects.push(Effect::Log(crate::LogEvent::StoredLate(message.id)));
                }
                #[cfg(feature = "mutants")]
                if is_late && self.mutant == crate::Mutant::ForgetLate {
                    return;
                }
                self.on_accepted(context, message, routed, held, effects);
            }
            Event::AttemptFinished { connection, lease, message, mut results, attempt } => {
                self.take_lease(context, connection, lease.job);
                if self.settings.soft_bounce {
                    results.iter_mut().for_each(|(_, outcome)| outcome.soften());
                }
                self.on_attempt(context, lease, message, results, attempt, effects);
                if self.is_expansion(connection) {
                    self.expand_next(context, connection, effects);
                }
            }
            Event::LeaseReturned { connection, lease } => {
                self.take_lease(context, connection, lease.job);
                let cancelled = self.queue.return_lease(lease.job, context.now);
                self.on_cancelled(cancelled, effects);
            }
            Event::DestinationUnreachable { connection, mut outcome, attempt } => {
                if self.settings.soft_bounce {
                    outcome.soften();
                }
                self.on_unreachable(context, connection, outcome, &attempt, effects);
            }
            Event::Loaded { task, result } => self.on_loaded(context, task, result, effects),
            Event::Composed { task, reports } => self.on_composed(context, task, reports, effects),
            Event::Stored { task, result } => self.on_stored(context, task, result, effects),
            Event::Refused { task, transaction, refused } => {
                self.on_refused(context, task, transaction, refused, effects);
            }
            Event::Operator { request, command } => self.on_command(context, request, command, effects),
            Event::Reconfigured { settings, routing, is_rerouted } => {
                self.on_reconfigured(settings, routing, is_rerouted, context, effects);
            }
            Event::Recovered(found) => self.on_recovered(context, found, effects),
            Event::SecondCopy(copy) => self.on_second_copy(context, copy, effects),
            Event::Totals(totals) => self.on_totals(totals),
            Event::Started => {
                self.is_started = true;
                self.wake_now(context, effects);
            }
            Event::Tick => self.on_tick(context, effects),
            Event::Shutdown => self.on_shutdown(effects),
        }
        if self.is_started {
            self.request_connections(context, effects);
        }
        self.summarize_not_mailed(context, effects);
        self.schedule(effects);
        #[cfg(debug_assertions)]
        self.check_now_and_then();
    }

    /// Checks the invariants in debug builds, as often as it costs no more than the events themselves.
    #[cfg(debug_assertions)]
    fn check_now_and_then(&mut self) {
        self.unchecked_count += 1;
        if self.unchecked_count > 64 + self.queue.len() {
            self.unchecked_count = 0;
            self.check_invariants();
        }
    }

    // ---- messages in ----

    fn on_accepted(
        &mut self,
        context: Context,
        message: SharedMessage,
        routed: Routed,
        held: Option<Box<str>>,
        effects: &mut Vec<Effect>,
    ) {
        #[cfg(feature = "mutants")]
        let held = held.filter(|_| self.mutant != crate::Mutant::DeliverHeld);
        let destinations = if is_same(&routed.by, &self.routing) {
            routed.destinations
        } else {
            self.routing.route(&message.envelope)
        };
        self.enqueue(context, message, &destinations, held, effects);
    }

    /// Queues a message that is durable.
    pub(crate) fn enqueue(
        &mut self,
        context: Context,
        message: SharedMessage,
        destinations: &[(Destination, GroupId)],
        held: Option<Box<str>>,
        effects: &mut Vec<Effect>,
    ) {
        let mut rows = Vec::with_capacity(destinations.len());
        for (index, (name, group)) in (0..).zip(destinations) {
            rows.push(ArrivingRecipient::new(index, self.destination(name, *group)));
        }
        let schedule = schedule_of(&message.envelope, context);
        let is_released = schedule.as_ref().and_then(|one| one.release).is_none_or(|at| at <= context.now);
        // A suspended destination would only evict messages that are about to leave.
        let is_held = held.is_some();
        let is_cached =
            !is_held && is_released && !rows.iter().all(|row| self.queue.is_suspended(row.destination));
        let arrival = Arrival {
            id: message.id,
            arrived: context.now,
            size_bytes: message.content.size_bytes(),
            held: is_held,
            recipients: &rows,
            schedule: schedule.as_ref(),
        };
        if self.queue.insert(&arrival, context.now) {
            self.counters.accept(rows.len() as u64);
            self.hold_reasons.extend(held.map(|reason| (message.id, reason)));
            if !is_held && is_released {
                self.log_waiting(&message, &rows, effects);
            }
            if is_cached {
                self.cache.insert(message);
            }
        }
    }

    /// Logs the recipients that wait because their destination is suspended.
    fn log_waiting(&self, message: &SharedMessage, rows: &[ArrivingRecipient], effects: &mut Vec<Effect>) {
        for ArrivingRecipient { index: recipient, destination, .. } in rows {
            let Some((until, reason)) = self.queue.suspension(*destination) else { continue };
            effects.push(Effect::Log(LogEvent::Waiting {
                message: message.clone(),
                recipient: *recipient,
                destination: self.queue.destination_name(*destination).clone(),
                outcome: reason.clone(),
                until: self.on_wall(until),
            }));
        }
    }

    /// Returns messages that wait for a suspended destination, from a place in the queue on, and the next place; no place at the
    /// end, or when the destination is not suspended any more. Looks at a bounded number of jobs.
    pub fn waiting_for(&self, destination: DestinationId, from: u32) -> (Vec<WaitingJob>, Option<u32>) {
        if !self.queue.is_suspended(destination) {
            return (Vec::new(), None);
        }
        let (jobs, next) = self.queue.scan_ready(destination, from);
        let with_message = |(id, recipients)| WaitingJob { id, recipients, message: self.cache.get(id) };
        (jobs.into_iter().map(with_message).collect(), next)
    }

    /// Returns jobs from a place in the queue on, each with the last outcomes of its recipients, and the next place; no place at
    /// the end. Looks at a bounded number of jobs.
    pub fn scan_jobs(&self, from: u32) -> (Vec<JobOutcomes>, Option<u32>) {
        let (jobs, next) = self.queue.scan_jobs(from);
        let with_outcomes = |job: ScannedJob| {
            let outcome = |index: &u32| self.last_outcomes.of_recipient(job.id, *index).cloned();
            let outcomes = job.recipients.as_slice().iter().map(outcome).collect();
            (job, outcomes)
        };
        (jobs.into_iter().map(with_outcomes).collect(), next)
    }

    /// Returns the number of a destination, a new one if it has none in this group.
    pub(crate) fn destination(&mut self, name: &Destination, group: GroupId) -> DestinationId {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::KeepNumbers {
            let queue = &mut self.queue;
            let number = |name: &Destination| queue.destination_in(name, group);
            return *self.kept_numbers.entry(name.clone()).or_insert_with_key(number);
        }
        self.queue.destination_in(name, group)
    }

    // ---- refusals ----

    fn on_refused(
        &mut self,
        context: Context,
        task: Option<TaskId>,
        transaction: Transaction,
        refused: Refused,
        effects: &mut Vec<Effect>,
    ) {
        match refused {
            // An outcome that frees no room would wait for room in memory.
            Refused::Full if task.is_none() && transaction.iter().all(Entry::is_deferral) => {}
            #[cfg(feature = "mutants")]
            _ if self.mutant == crate::Mutant::ForgetRefused => {}
            Refused::Busy | Refused::Full | Refused::TooLarge => {
                self.refused.push_refused(task, transaction, context.now);
            }
            Refused::Poisoned => {
                let failure = SpoolFailure::Io(refused.to_string());
                effects.push(Effect::Fail(failure.clone()));
                if let Some(task) = task {
                    self.on_stored(context, task, Err(failure), effects);
                }
            }
        }
    }

    // ---- time and configuration ----

    fn on_tick(&mut self, context: Context, effects: &mut Vec<Effect>) {
        if !self.is_closed {
            self.queue.advance(context.now);
            while let Some(overdue) = self.queue.next_overdue(context.now) {
                self.on_overdue(overdue, effects);
            }
            self.reroute_left(context, effects);
        }
        for (task, transaction) in self.refused.take_due(context.now) {
            effects.push(Effect::Submit { task, transaction });
        }
        self.wake_at = Millis::MAX;
        if let Some(at) = self.queue.next_wake().filter(|_| !self.is_closed) {
            self.wake_by(at, effects);
        }
    }

    fn on_reconfigured(
        &mut self,
        settings: EngineSettings,
        routing: Arc<dyn Routing>,
        is_rerouted: bool,
        context: Context,
        effects: &mut Vec<Effect>,
    ) {
        self.queue.set_settings(settings.queue.clone());
        let EngineSettings { cache_bytes, retry_at, .. } = self.settings;
        self.settings = EngineSettings { cache_bytes, retry_at, ..settings };
        self.routing = routing;
        #[cfg(feature = "mutants")]
        let is_rerouted = is_rerouted && self.mutant != crate::Mutant::SkipReroute;
        if is_rerouted {
            self.reroute_all(effects);
        }
        // Messages may expire sooner.
        self.wake_now(context, effects);
    }

    fn on_shutdown(&mut self, effects: &mut Vec<Effect>) {
        self.queue.close();
        self.is_closed = true;
        for id in self.connections.take_all_idle() {
            self.queue.leave_idle(self.connections.get(id).destination);
            effects.push(Effect::WakeConnection(id));
        }
    }

    fn wake_now(&mut self, context: Context, effects: &mut Vec<Effect>) {
        self.wake_by(context.now, effects);
    }

    pub(crate) fn wake_by(&mut self, at: Millis, effects: &mut Vec<Effect>) {
        if at < self.wake_at {
            self.wake_at = at;
            effects.push(Effect::WakeAt(at));
        }
    }

    /// Asks for a tick at the earliest time that was set during this event.
    fn schedule(&mut self, effects: &mut Vec<Effect>) {
        if let Some(at) = self.refused.retry_at() {
            self.wake_by(at, effects);
        }
        if self.is_closed {
            return;
        }
        if let Some(at) = self.queue.wake_hint() {
            self.wake_by(at, effects);
        }
        if let Some(at) = self.reroute.again_at() {
            self.wake_by(at, effects);
        }
        if let Some(at) = self.double_bounces.due() {
            self.wake_by(at, effects);
        }
    }
}
