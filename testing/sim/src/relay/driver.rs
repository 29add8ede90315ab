//! Drives the real message engine, as the daemon's driver does, but by hand: reads, reports and commits take as long
//! as the seed wants. Decides nothing about messages.

use super::{
    accepting::{self, Front, Queued, Submitted},
    checks::SharedJudgments,
    connection::Connection,
    front::postmaster,
    oracle::{self, Oracle},
    routing::{Routes, groups},
};
use crate::{expected_totals::counted, seed::Rng};
use engine::{
    Command, ConnectionId, Context, Effect, Engine, EngineSettings, Event, Lease, LogEvent, ReportRequest,
    RequestId, RetryAt, Routed, TaskId,
};
use inbound::Client;
use mail::{
    Attempt, Destination, Disposition, Enhanced, IdSource, NextHop, Outcome, Part, QueueId, SharedMessage,
    UnixMillis,
};
use queue::{CancelAs, CommandResult, GroupId, JobStatus, Millis};
use spool::{CommitSeq, Entry, LogSpool, Recovered, Refused, Spool, SpoolFailure, Totals};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};
use tokio::io::DuplexStream;

/// Delivery time expired (RFC 3463 §3.5), as the log and the reports show it.
const EXPIRED: Enhanced = Enhanced(5, 4, 7);

/// Transactions that the spool does not take at first.
const BUSY_PERCENT: u64 = 10;

/// A transaction that is not durable yet, and what follows once it is.
struct Commit {
    commit_seq: CommitSeq,
    task: Option<TaskId>,
    /// Recipients whose outcome is then durable.
    settled: Vec<(QueueId, u32)>,
    /// Numbers that the transaction adds to the totals.
    counted: Totals,
}

/// What a seed has chosen for the relay.
pub(super) struct Plan {
    pub(super) mutant: engine::Mutant,
    pub(super) accept_mutant: accept::Mutant,
    pub(super) cache_bytes: u64,
    pub(super) connections_max: u32,
    pub(super) routes: u8,
    pub(super) seed: u64,
}

pub(super) struct Driver {
    front: Front,
    pub(super) spool: Arc<LogSpool>,
    pub(super) engine: Engine,
    pub(super) connections: Vec<Connection>,
    /// Idle connections that were woken and have not noticed yet.
    woken: BTreeSet<ConnectionId>,
    /// Connections that are given up and have not noticed yet.
    abandoned: BTreeSet<ConnectionId>,
    commits: Vec<Commit>,
    loads: Vec<(TaskId, QueueId)>,
    compositions: Vec<ReportRequest>,
    /// Reports that are composed and not queued yet.
    reports: BTreeSet<QueueId>,
    routes: Arc<Routes>,
    context: Context,
    wake_at: Option<Millis>,
    settings: EngineSettings,
    last_request: u64,
    /// Requests that wait for an answer.
    requests: BTreeMap<RequestId, Command>,
    /// Recipients that operators ended: no new attempt begins for them.
    cancelled: BTreeSet<(QueueId, u32)>,
    /// Messages that operators return as a whole: their senders get one report.
    returned: BTreeMap<QueueId, u32>,
    removed: BTreeSet<QueueId>,
    has_read_error: bool,
    was_reloaded: bool,
    is_closing: bool,
    is_well: bool,
}

fn settings(plan: &Plan) -> EngineSettings {
    EngineSettings {
        queue: queue::QueueSettings {
            expire: Duration::from_secs(86_400),
            connections_max: plan.connections_max,
            groups: groups(),
            ..queue::QueueSettings::default()
        },
        cache_bytes: plan.cache_bytes,
        hostname: "mx.test".into(),
        retry_at: RetryAt::Recorded,
        soft_bounce: false,
        reports: engine::ReportSettings::new(postmaster()),
    }
}

impl Driver {
    pub(super) fn new(
        spool: LogSpool,
        judgments: SharedJudgments,
        plan: &Plan,
        context: Context,
        is_well: bool,
    ) -> Self {
        let spool = Arc::new(spool);
        let (ids, routes) = (Arc::<IdSource>::default(), Arc::new(Routes(plan.routes)));
        let settings = settings(plan);
        let mut engine = Engine::new(settings.clone(), routes.clone(), ids.clone(), plan.seed, context);
        engine.set_mutant(plan.mutant);
        let front = Front::new(
            spool.clone(),
            ids,
            judgments,
            plan.accept_mutant,
            Rng::new(plan.seed),
            is_well,
            context.now,
        );
        Self {
            front,
            spool,
            engine,
            connections: Vec::new(),
            woken: BTreeSet::new(),
            abandoned: BTreeSet::new(),
            commits: Vec::new(),
            loads: Vec::new(),
            compositions: Vec::new(),
            reports: BTreeSet::new(),
            routes,
            context,
            wake_at: None,
            settings,
            last_request: 0,
            requests: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            returned: BTreeMap::new(),
            removed: BTreeSet::new(),
            has_read_error: false,
            was_reloaded: false,
            is_closing: false,
            is_well,
        }
    }

    // ---- events and effects ----

    /// Hands an event to the engine and performs what follows. Gives the lease for a connection that was ready.
    pub(super) fn handle(
        &mut self,
        event: Event<'_>,
        oracle: &mut Oracle,
        rng: &mut Rng,
    ) -> Option<(Lease, Option<SharedMessage>)> {
        let mut effects = Vec::new();
        self.engine.handle(event, self.context, &mut effects);
        self.perform(effects, oracle, rng)
    }

    fn perform(
        &mut self,
        mut effects: Vec<Effect>,
        oracle: &mut Oracle,
        rng: &mut Rng,
    ) -> Option<(Lease, Option<SharedMessage>)> {
        let mut at = 0;
        // What follows below hands in further events: these come before them.
        while at < effects.len() {
            match &effects[at] {
                Effect::Submit { task, transaction } => {
                    let (task, transaction) = (*task, transaction.clone());
                    // The spool may be busy at any time.
                    let is_busy = rng.chance(BUSY_PERCENT) && !self.is_well;
                    let submit = || self.spool.submit(transaction.clone());
                    match if is_busy { Err(Refused::Busy) } else { submit() } {
                        Ok(commit_seq) => {
                            let settled = transaction.iter().flat_map(settled).collect();
                            let counted = counted(&transaction);
                            oracle.expected.submitted(&counted);
                            self.commits.push(Commit { commit_seq, task, settled, counted });
                        }
                        Err(refused) => {
                            let event = Event::Refused { task, transaction, refused };
                            self.engine.handle(event, self.context, &mut effects);
                        }
                    }
                }
                Effect::WakeAt(at) => self.wake_at = Some(*at),
                _ => {}
            }
            at += 1;
        }
        let mut leased = None;
        for effect in effects {
            match effect {
                Effect::Submit { .. } | Effect::WakeAt(_) | Effect::Fail(_) => {}
                Effect::Load { task, id } => self.loads.push((task, id)),
                Effect::Compose(request) => self.compositions.push(*request),
                Effect::OpenConnection { connection, destination } => {
                    self.open(connection, &destination, oracle, rng);
                }
                Effect::AbandonConnection { connection, .. } => {
                    self.abandoned.insert(connection);
                }
                Effect::WakeConnection(connection) => {
                    if !self.woken.insert(connection) {
                        oracle.violations.push(format!("{connection:?} was woken twice"));
                    }
                }
                Effect::Deliver { lease, message, .. } => {
                    self.check_lease(&lease, oracle);
                    leased = Some((lease, message));
                }
                Effect::Expand { .. } => unreachable!("no alias is expanded late here"),
                Effect::Log(event) => self.log(&event, oracle),
                Effect::Answer { request, result } => self.answer(request, result.ok(), oracle),
            }
        }
        leased
    }

    fn check_lease(&self, lease: &Lease, oracle: &mut Oracle) {
        oracle.check_may_be_tried(lease.id);
        for index in lease.recipients.as_slice() {
            if self.cancelled.contains(&(lease.id, *index)) {
                oracle
                    .violations
                    .push(format!("{}: recipient {index} was cancelled, and is tried again", lease.id));
            }
        }
    }

    fn log(&mut self, event: &LogEvent, oracle: &mut Oracle) {
        match event {
            LogEvent::Accepted(report) => {
                self.reports.remove(&report.id);
            }
            LogEvent::Attempt { message, results, .. } => {
                if self.removed.contains(&message.id) {
                    oracle.violations.push(format!("{}: an attempt after the end", message.id));
                }
                let is_expired =
                    |(_, o): &(u32, Outcome)| o.status == EXPIRED && o.disposition == Disposition::Failed;
                if results.iter().any(is_expired) {
                    let expire = self.settings.queue.expire.as_millis() as Millis;
                    oracle.expired(message.id, self.context.now, expire);
                }
                if results.iter().any(|(_, outcome)| outcome.disposition == Disposition::Failed) {
                    oracle.report_lost(message.id);
                }
            }
            LogEvent::Deleted { message, results } => {
                oracle
                    .deleted
                    .extend(results.iter().filter_map(|(index, _)| oracle::who_of(message, *index)));
                oracle.report_lost(message.id);
            }
            LogEvent::Completed(id) => {
                if !self.removed.insert(*id) {
                    oracle.violations.push(format!("{id} was removed twice"));
                }
            }
            LogEvent::Unreadable(id, _) => {
                // What is to be returned is tried again; what is to be deleted is.
                self.returned.remove(id);
                let all = oracle.ids.get(id);
                let queued = self.engine.queue().recipients(*id);
                let gone = self.cancelled.iter().filter(|(other, k)| other == id && !queued.contains(k));
                oracle.deleted.extend(gone.filter_map(|(_, k)| all?.get(*k as usize).copied()));
                oracle.report_lost(*id);
                self.cancelled.retain(|(other, _)| other != id);
            }
            LogEvent::StoredLate(_) => oracle.late_count += 1,
            LogEvent::Held { .. }
            | LogEvent::Suspended { .. }
            | LogEvent::Resumed(_)
            | LogEvent::Waiting { .. }
            | LogEvent::Notified { .. }
            | LogEvent::NotMailed { .. }
            | LogEvent::Rerouted(_) => {}
        }
    }

    fn answer(&mut self, request: RequestId, result: Option<CommandResult>, oracle: &mut Oracle) {
        if self.requests.remove(&request).is_none() {
            oracle.violations.push(format!("{request:?} was answered twice"));
        }
        if result.is_some_and(|result| result != CommandResult::Missing) {
            oracle.change_answered(request.0);
        }
    }

    /// Some of what the engine waits for happens: reads, reports, commits, the time.
    pub(super) fn work(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        self.run_front(oracle, rng);
        while self.wake_at.is_some_and(|at| at <= self.context.now) {
            self.wake_at = None;
            self.handle(Event::Tick, oracle, rng);
        }
        for (task, id) in std::mem::take(&mut self.loads) {
            if rng.chance(30) && !self.is_well {
                self.loads.push((task, id));
                continue;
            }
            let result = self.read(id);
            self.has_read_error |= result.is_err();
            self.handle(Event::Loaded { task, result }, oracle, rng);
        }
        for request in std::mem::take(&mut self.compositions) {
            if rng.chance(30) && !self.is_well {
                self.compositions.push(request);
            } else {
                self.compose(&request, oracle, rng);
            }
        }
        self.poll_commits(oracle, rng);
    }

    /// Returns a message from the cache, or reads it from the spool.
    pub(super) fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.engine.cached(id).map_or_else(|| self.spool.read(id), Ok)
    }

    fn compose(&mut self, request: &ReportRequest, oracle: &mut Oracle, rng: &mut Rng) {
        let mut content = Vec::new();
        for part in request.message().into_iter().flat_map(|message| message.content.parts()) {
            match part {
                Part::Memory(bytes) => content.extend_from_slice(bytes),
                Part::Stored { chunk_id, .. } => match self.spool.load(*chunk_id) {
                    Ok(bytes) => content.extend_from_slice(&bytes),
                    Err(_) => break,
                },
            }
        }
        let reports = request.compose(&content, self.context.wall);
        let reports: Vec<_> = reports.into_iter().map(SharedMessage::new).collect();
        for report in &reports {
            self.name(report.id, oracle);
            self.reports.insert(report.id);
            oracle.accepted.insert(report.id, self.context.now);
            let text = report.content.in_memory().unwrap_or_default();
            let failed = oracle::reported(&String::from_utf8_lossy(&text), "failed");
            if let Some(message) = request.message().filter(|_| !failed.is_empty()) {
                self.count_report(message.id, oracle);
            }
            oracle.reports.insert(report.id, failed);
        }
        self.handle(Event::Composed { task: request.task(), reports }, oracle, rng);
    }

    /// The recipients of a message that an operator returns as a whole are in one report.
    fn count_report(&mut self, id: QueueId, oracle: &mut Oracle) {
        if let Some(count) = self.returned.get_mut(&id) {
            *count += 1;
            if *count > 1 {
                oracle.violations.push(format!("{id}: recipients that end together are reported apart"));
            }
        }
    }

    /// Everything that has become durable.
    fn poll_commits(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        for commit in std::mem::take(&mut self.commits) {
            let durable = self.spool.durable(commit.commit_seq);
            let mut waker = std::task::Context::from_waker(Waker::noop());
            let result = match std::pin::pin!(durable).poll(&mut waker) {
                Poll::Pending => {
                    self.commits.push(commit);
                    continue;
                }
                Poll::Ready(result) => result,
            };
            if result.is_ok() {
                oracle.concluded.extend(commit.settled);
                oracle.expected.durable(&commit.counted);
            }
            if let Some(task) = commit.task {
                self.handle(Event::Stored { task, result }, oracle, rng);
            }
        }
    }

    // ---- in ----

    /// Begins a client's session, and returns the client's end of its connection.
    pub(super) fn connect(&self, client: Client) -> DuplexStream {
        self.front.connect(client)
    }

    /// Sessions and checks go on; what they hand on is the spool's and the engine's.
    pub(super) fn run_front(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        let passed = self.front.run(self.context.now, self.context.wall);
        for submitted in passed.submitted {
            self.note_submitted(submitted, oracle);
        }
        for Queued { message, held, is_late } in passed.queued {
            oracle.queued(&message, is_late);
            let routed = Routed::new(self.routes.clone(), &message.envelope);
            self.handle(Event::Accepted { message, routed, held, is_late }, oracle, rng);
        }
    }

    /// A message of a client, and reports on its acceptance, are on their way to the disk.
    fn note_submitted(&mut self, submitted: Submitted, oracle: &mut Oracle) {
        let Submitted { commit_seq, transaction, contents } = submitted;
        let counted = counted(&transaction);
        oracle.expected.submitted(&counted);
        let added = transaction.iter().filter_map(|entry| Some((entry, accepting::accepted(entry)?)));
        for ((entry, message), content) in added.zip(contents) {
            self.name(message.id, oracle);
            oracle.accepted.insert(message.id, self.context.now);
            if message.envelope.reverse_path.is_null() {
                self.reports.insert(message.id);
                let failed = oracle::reported(&String::from_utf8_lossy(&content), "failed");
                oracle.reports.insert(message.id, failed);
                continue;
            }
            let is_held = matches!(entry, Entry::Import(found) if found.held.is_some());
            oracle.submitted(message, is_held, &content);
            if is_held {
                oracle.hold_from_start(message.id);
            }
        }
        self.commits.push(Commit { commit_seq, task: None, settled: Vec::new(), counted });
    }

    /// When all is stored, the counters of the engine are the totals of the spool.
    pub(super) fn check_counters(&self, totals: &Totals) -> Result<(), String> {
        let own = self.engine.counters();
        let counted = Totals {
            accepted: own.accepted,
            delivered: own.delivered,
            bounced: own.bounced,
            expired: own.expired,
            deleted: own.deleted,
            moved: own.moved,
        };
        if counted == *totals {
            Ok(())
        } else {
            Err(format!("the engine counted {own:?}, and stored {totals:?}"))
        }
    }

    /// Content of messages that were refused, or whose clients went away, was given back.
    pub(super) fn check_chunks(&self) -> Result<(), String> {
        match self.front.open_chunk_count() {
            0 => Ok(()),
            count => Err(format!("{count} chunks are left of messages that were not accepted")),
        }
    }

    /// Hands what recovery found to the engine, before anything else.
    pub(super) fn recover(
        &mut self,
        found: &[Recovered],
        totals: &Totals,
        oracle: &mut Oracle,
        rng: &mut Rng,
    ) {
        let mut effects = Vec::new();
        self.engine.handle(Event::Totals(totals), self.context, &mut effects);
        for recovered in found {
            self.engine.handle(Event::Recovered(recovered), self.context, &mut effects);
        }
        self.perform(effects, oracle, rng);
        self.handle(Event::Started, oracle, rng);
    }

    /// An id is given to a message: no other that is left has it. One that has ended may have had it, before a restart
    /// with a clock that goes back.
    fn name(&self, id: QueueId, oracle: &mut Oracle) {
        if self.engine.queue().contains(id) {
            oracle.violations.push(format!("{id} is given to two messages"));
        }
        oracle.forget(id);
    }

    // ---- connections ----

    fn open(&mut self, id: ConnectionId, destination: &Destination, oracle: &mut Oracle, rng: &mut Rng) {
        self.woken.remove(&id);
        self.abandoned.remove(&id);
        if rng.chance(5) && !self.is_well {
            let outcome = if rng.chance(20) {
                Outcome::failed(Enhanced(5, 1, 10), "the domain takes no mail")
            } else {
                Outcome::deferred(Enhanced(4, 4, 1), "connection refused")
            };
            let attempt = Attempt::default();
            self.handle(Event::DestinationUnreachable { connection: id, outcome, attempt }, oracle, rng);
            self.handle(Event::ConnectionClosed { connection: id, leases: Vec::new() }, oracle, rng);
            return;
        }
        let host = match &destination.next_hop {
            NextHop::Mx(domain) => (&**domain).into(),
            NextHop::Smarthost(to) => (&*to.host).into(),
            other => unreachable!("the routes have no {other}"),
        };
        self.connections.push(Connection::new(id, host, self.is_well, self.context.now, rng));
    }

    /// Between two steps the client has as many connections as the queue counts.
    pub(super) fn check_connections(&self, oracle: &mut Oracle) {
        let (client, queue) = (self.connections.len(), self.engine.queue().connection_count());
        if client != queue as usize {
            let text = format!("the client has {client} connections, and the queue counts {queue}");
            oracle.violations.push(text);
        }
    }

    /// Returns once whether the engine has given the connection up.
    pub(super) fn is_abandoned(&mut self, id: ConnectionId) -> bool {
        self.abandoned.remove(&id)
    }

    /// Returns whether the connection was woken, and forgets it.
    pub(super) fn is_woken(&mut self, id: ConnectionId) -> bool {
        self.woken.remove(&id)
    }

    // ---- time and operators ----

    pub(super) fn set_time(&mut self, now: Millis, wall: u64) {
        self.context = Context { now, wall: UnixMillis(wall), worker: None };
    }

    pub(super) fn now(&self) -> Millis {
        self.context.now
    }

    fn request(&mut self, command: Command, oracle: &mut Oracle, rng: &mut Rng) {
        self.last_request += 1;
        let request = RequestId(self.last_request);
        self.requests.insert(request, command.clone());
        match command {
            Command::Hold { id, .. } => oracle.change_wanted(id, request.0, true),
            Command::Release(id) => oracle.change_wanted(id, request.0, false),
            _ => {}
        }
        self.handle(Event::Operator { request, command }, oracle, rng);
    }

    /// Something that operators do.
    pub(super) fn operate(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        let ids = self.engine.queue().ids();
        let Some(id) = (!ids.is_empty()).then(|| ids[rng.index(ids.len())]) else { return };
        match rng.below(8) {
            0 => {
                self.request(Command::Hold { id, reason: "by root".into() }, oracle, rng);
                if rng.chance(50) {
                    self.request(Command::Release(id), oracle, rng);
                }
            }
            1 | 2 => self.request(Command::Release(id), oracle, rng),
            3 => self.request(Command::Flush, oracle, rng),
            4 => self.request(Command::Retry(id), oracle, rng),
            5 => self.reload(oracle, rng),
            6 if rng.chance(10) => ids.into_iter().for_each(|id| self.cancel(id, oracle, rng)),
            _ => self.cancel(id, oracle, rng),
        }
    }

    fn cancel(&mut self, id: QueueId, oracle: &mut Oracle, rng: &mut Rng) {
        let cancel_as = if rng.chance(30) { CancelAs::Bounce } else { CancelAs::Delete };
        let queued = self.engine.queue().recipients(id);
        // All of its recipients, or every second.
        let recipients: Option<Vec<u32>> = if rng.chance(50) {
            None
        } else {
            let first = rng.below(2) as u32;
            Some((first..queued.last().map_or(0, |last| last + 1)).step_by(2).collect())
        };
        let is_meant = |index: &&u32| recipients.as_ref().is_none_or(|some| some.contains(index));
        self.cancelled.extend(queued.iter().filter(is_meant).map(|index| (id, *index)));
        let view = self.engine.queue().message(id);
        let is_idle = view.is_some_and(|view| view.jobs.iter().all(|job| job.status != JobStatus::InFlight));
        if is_idle && cancel_as == CancelAs::Bounce && recipients.is_none() {
            self.returned.insert(id, 0);
        }
        self.request(Command::Cancel { id, recipients, cancel_as, reason: None }, oracle, rng);
    }

    /// The configuration is read again: other routes, groups and limits.
    fn reload(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        self.was_reloaded = true;
        oracle.reload_count += 1;
        self.front.reload();
        let routes = Arc::new(Routes(rng.below(Routes::COUNT) as u8));
        self.routes = routes.clone();
        self.settings.queue.connections_max = [3, 1000][rng.index(2)];
        let (settings, routing) = (self.settings.clone(), routes);
        self.handle(Event::Reconfigured { settings, routing, is_rerouted: true }, oracle, rng);
    }

    /// No message is held, and everything is tried now.
    pub(super) fn release_all(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        for id in self.engine.queue().ids() {
            self.request(Command::Release(id), oracle, rng);
        }
    }

    pub(super) fn flush(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        self.request(Command::Flush, oracle, rng);
    }

    // ---- what is there ----

    /// Nothing waits longer than the longest wait, whatever the wall clock shows or has shown; and what is not in
    /// flight goes where the routes lead.
    pub(super) fn check_messages(&self) -> Result<(), String> {
        let queue = &self.settings.queue;
        let longest = queue.group(GroupId::default()).retry_max.as_secs_f64() * 1000.0;
        let latest = self.context.now + (longest * (1.0 + queue.jitter)) as Millis;
        for message in self.engine.queue().ids().into_iter().filter_map(|id| self.engine.queue().message(id))
        {
            for job in &message.jobs {
                if let JobStatus::Waiting(until) | JobStatus::Suspended(Some(until), _) = job.status
                    && until > latest
                {
                    return Err(format!("{} waits for another {} ms", message.id, until - self.context.now));
                }
            }
            let is_settled = self.was_reloaded && !self.is_closing && !self.engine.is_rerouting();
            if !is_settled || self.has_read_error {
                continue;
            }
            let Ok(stored) = self.read(message.id) else { continue };
            for job in message.jobs.iter().filter(|job| job.status != JobStatus::InFlight) {
                for index in &job.recipients {
                    let path = &stored.envelope.recipients[*index as usize].path;
                    if self.routes.destination(path) != job.destination {
                        return Err(format!(
                            "{}: recipient {index} waits for {}",
                            message.id, job.destination
                        ));
                    }
                }
            }
        }
        Ok(())
    }

    /// Everybody for whom something is left to do: a delivery, or a report to the sender.
    pub(super) fn queued(&self, oracle: &Oracle) -> BTreeSet<oracle::Who> {
        let mut everybody = BTreeSet::new();
        for id in self.engine.queue().ids() {
            let all = oracle.ids.get(&id);
            let left = self.engine.queue().recipients(id).into_iter();
            everybody.extend(left.filter_map(|k| all?.get(k as usize).copied()));
            everybody.extend(oracle.reports.get(&id).into_iter().flatten());
        }
        for report in &self.reports {
            everybody.extend(oracle.reports.get(report).into_iter().flatten());
        }
        everybody
    }

    /// Is every decision stored, and nothing under way?
    pub(super) fn is_quiet(&self) -> bool {
        self.connections.is_empty()
            && self.commits.is_empty()
            && self.loads.is_empty()
            && self.compositions.is_empty()
            && self.engine.unstored_count() == 0
            && self.front.is_idle()
    }

    /// Begins to end: nothing new begins.
    pub(super) fn shut_down(&mut self, oracle: &mut Oracle, rng: &mut Rng) {
        self.is_closing = true;
        self.front.close();
        self.handle(Event::Shutdown, oracle, rng);
    }

    /// Describes the work that is left.
    pub(super) fn left(&self) -> String {
        format!(
            "{} messages queued, {} decisions not stored, {} reports, {} commits, {} reads, {} compositions, tick at {:?} of {}",
            self.engine.queue().len(),
            self.engine.unstored_count(),
            self.reports.len(),
            self.commits.len(),
            self.loads.len(),
            self.compositions.len(),
            self.wake_at,
            self.context.now,
        )
    }

    pub(super) fn is_done(&self) -> bool {
        self.engine.queue().is_empty()
            && self.commits.is_empty()
            && self.reports.is_empty()
            && self.engine.unstored_count() == 0
    }
}

/// Recipients that a transaction ends.
fn settled(entry: &Entry) -> Vec<(QueueId, u32)> {
    match entry {
        Entry::Outcome { id, results, .. } => {
            let ended = results.iter().filter(|(_, outcome)| outcome.disposition != Disposition::Deferred);
            ended.map(|(index, _)| (*id, *index)).collect()
        }
        _ => Vec::new(),
    }
}
