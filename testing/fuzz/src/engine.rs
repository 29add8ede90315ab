//! The message engine: bytes are decoded into events, as any driver might report them, in any order that the protocol
//! between engine and driver permits.

use engine::{
    Command, ConnectionId, Context, Effect, Engine, EngineSettings, Event, Lease, ReportRequest, RequestId,
    RetryAt, Routed, Routing, TaskId,
};
use mail::{
    Attempt, Content, Destination, Enhanced, Envelope, ForwardPath, IdSource, Message, Outcome, QueueId,
    Recipient, ReversePath, SharedMessage, TlsMode, UnixMillis,
};
use queue::{CancelAs, GroupId, Millis};
use spool::{RecipientState, Recovered, Refused, SpoolFailure, Transaction};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

const WALL: u64 = 1_800_000_000_000;
/// Events after which the rest of the queue must have been delivered.
const DRAIN_STEPS: usize = 2_000;
/// Wake-ups at one moment.
const TICKS_MAX: usize = 1_000;

/// Each of a few domains is a destination; after a reload some share one.
struct Routes {
    destination_count: u8,
}

impl Routing for Routes {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let destination = |recipient: &Recipient| {
            let domain = recipient.path.mailbox().map_or(0, |mailbox| mailbox.domain().key().len() as u8);
            Destination::mx(format!("d{}.test", domain % self.destination_count), TlsMode::May)
        };
        envelope.recipients.iter().map(|one| (destination(one), GroupId::default())).collect()
    }
}

#[derive(Default)]
struct Connection {
    is_idle: bool,
    leases: Vec<Lease>,
}

/// A driver whose decisions come from the input.
struct Driver<'a> {
    engine: Engine,
    routes: Arc<dyn Routing>,
    ids: Arc<IdSource>,
    input: &'a [u8],
    now: Millis,
    refused: Option<Refused>,
    messages: BTreeMap<QueueId, SharedMessage>,
    connections: BTreeMap<ConnectionId, Connection>,
    loads: Vec<(TaskId, QueueId)>,
    compositions: Vec<ReportRequest>,
    /// Submitted transactions that are not durable yet, in their order.
    commits: VecDeque<TaskId>,
    /// Commands that are not answered yet.
    requests: BTreeSet<RequestId>,
    request_count: u64,
    /// Recipients that were delivered, by message.
    delivered: BTreeSet<(QueueId, u32)>,
    /// Recipients that an operator deleted.
    deleted: BTreeSet<(QueueId, u32)>,
    wake_at: Option<Millis>,
    is_shut_down: bool,
}

/// A sequence of events. Counters and lists agree after each of them, no recipient is delivered twice, each
/// command is answered once, and what is left can be delivered in the end.
pub fn engine_events(bytes: &[u8]) {
    let mut driver = Driver::new(bytes);
    for _ in 0..driver.byte() % 4 {
        driver.recover();
    }
    driver.handle(Event::Started);
    while !driver.input.is_empty() {
        driver.step();
    }
    driver.drain();
}

fn settings(input: u8) -> EngineSettings {
    let queue =
        queue::QueueSettings { connections_max: 1 + u32::from(input % 8), ..queue::QueueSettings::default() };
    let retry_at = if input & 8 == 0 { RetryAt::Recorded } else { RetryAt::Now };
    let postmaster = mail::Mailbox::parse("postmaster@mx.test", false).expect("an address");
    let reports = engine::ReportSettings::new(postmaster);
    EngineSettings {
        queue,
        cache_bytes: u64::from(input >> 4) * 256,
        hostname: "mx.test".into(),
        retry_at,
        reports,
        soft_bounce: false,
    }
}

impl<'a> Driver<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let (first, input) = bytes.split_first().map_or((0, bytes), |(first, rest)| (*first, rest));
        let routes: Arc<dyn Routing> = Arc::new(Routes { destination_count: 4 });
        let ids = Arc::<IdSource>::default();
        let start = Context { now: 0, wall: UnixMillis(WALL), worker: None };
        Self {
            engine: Engine::new(settings(first), routes.clone(), ids.clone(), 1, start),
            routes,
            ids,
            input,
            now: 0,
            refused: None,
            messages: BTreeMap::new(),
            connections: BTreeMap::new(),
            loads: Vec::new(),
            compositions: Vec::new(),
            commits: VecDeque::new(),
            requests: BTreeSet::new(),
            request_count: 0,
            delivered: BTreeSet::new(),
            deleted: BTreeSet::new(),
            wake_at: None,
            is_shut_down: false,
        }
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.input.split_first() else { return 0 };
        self.input = rest;
        *first
    }

    fn context(&self) -> Context {
        let wall = UnixMillis(WALL.saturating_add_signed(self.now));
        Context { now: self.now, wall, worker: None }
    }

    // ---- between engine and driver ----

    fn handle(&mut self, event: Event<'_>) {
        let context = self.context();
        let mut effects = Vec::new();
        self.engine.handle(event, context, &mut effects);
        self.engine.check_invariants();
        // A refusal is reported before anything else.
        let mut at = 0;
        while at < effects.len() {
            if let Effect::Submit { task, transaction } = &effects[at] {
                let (task, transaction) = (*task, transaction.clone());
                self.submit(task, transaction, &mut effects);
            }
            at += 1;
        }
        effects.into_iter().for_each(|effect| self.perform(effect));
    }

    fn submit(&mut self, task: Option<TaskId>, transaction: Transaction, effects: &mut Vec<Effect>) {
        let context = self.context();
        if let Some(refused) = self.refused {
            self.engine.handle(Event::Refused { task, transaction, refused }, context, effects);
            self.engine.check_invariants();
        } else {
            self.commits.extend(task);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Submit { .. } | Effect::Log(_) => {}
            Effect::Load { task, id } => self.loads.push((task, id)),
            Effect::Compose(request) => self.compositions.push(*request),
            Effect::OpenConnection { connection, .. } => {
                let before = self.connections.insert(connection, Connection::default());
                assert!(before.is_none(), "{connection:?} is open already");
            }
            Effect::WakeConnection(connection) => {
                let woken = self.connections.get_mut(&connection).expect("an open connection is woken");
                assert!(std::mem::take(&mut woken.is_idle), "{connection:?} is not idle");
            }
            Effect::AbandonConnection { connection, .. } => {
                assert!(
                    self.connections.contains_key(&connection),
                    "{connection:?} is given up and not open"
                );
            }
            Effect::Deliver { connection, lease, message } => {
                assert!(message.is_none_or(|message| message.id == lease.id));
                for index in lease.recipients.as_slice() {
                    let recipient = (lease.id, *index);
                    assert!(!self.delivered.contains(&recipient), "{recipient:?} was delivered before");
                    assert!(!self.deleted.contains(&recipient), "{recipient:?} was deleted before");
                }
                let connection = self.connections.get_mut(&connection).expect("an open connection");
                connection.leases.push(lease);
            }
            Effect::Expand { .. } => unreachable!("no alias is expanded late here"),
            Effect::WakeAt(at) => self.wake_at = Some(at),
            Effect::Answer { request, .. } => {
                assert!(self.requests.remove(&request), "{request:?} is answered twice");
            }
            Effect::Fail(failure) => panic!("{failure}"),
        }
    }

    // ---- events ----

    fn step(&mut self) {
        let kind = self.byte();
        match kind % 16 {
            0 | 1 => self.accept(),
            2 | 3 => {
                if let Some(id) = self.connection(|connection| !connection.is_idle) {
                    self.handle(Event::ConnectionReady(id));
                }
            }
            4 | 5 => self.finish_attempt(),
            6 => {
                if let Some((id, lease)) = self.take_lease() {
                    self.handle(Event::LeaseReturned { connection: id, lease });
                }
            }
            7 => self.unreachable(),
            8 => {
                if let Some(id) = self.connection(|_| true) {
                    self.close(id);
                }
            }
            9 => {
                if let Some(id) =
                    self.connection(|connection| !connection.is_idle && connection.leases.is_empty())
                {
                    self.set_idle(id);
                }
            }
            10 => {
                let kind = self.byte();
                self.answer_task(kind);
            }
            11 => self.command(),
            12 => {
                let exponent = u32::from(self.byte() % 30);
                self.advance(1 << exponent);
            }
            13 => {
                self.refused = [None, Some(Refused::Busy), Some(Refused::Full)][usize::from(self.byte() % 3)];
            }
            14 => self.reload(),
            _ => {
                // Rarely: nothing new begins afterwards.
                if self.byte() > 250 && !std::mem::replace(&mut self.is_shut_down, true) {
                    self.handle(Event::Shutdown);
                }
            }
        }
    }

    /// Chooses one of the connections that fit; `None` if none does.
    fn connection(&mut self, fits: impl Fn(&Connection) -> bool) -> Option<ConnectionId> {
        let choice = usize::from(self.byte());
        let fitting: Vec<_> =
            self.connections.iter().filter(|(_, one)| fits(one)).map(|(id, _)| *id).collect();
        (!fitting.is_empty()).then(|| fitting[choice % fitting.len()])
    }

    fn take_lease(&mut self) -> Option<(ConnectionId, Lease)> {
        let id = self.connection(|connection| !connection.leases.is_empty())?;
        let leases = &mut self.connections.get_mut(&id)?.leases;
        Some((id, leases.remove(0)))
    }

    fn message(&mut self) -> SharedMessage {
        let kind = self.byte();
        let from = if kind & 1 == 0 { "a@sender.test" } else { "" };
        let mut envelope = Envelope::new(ReversePath::parse(from, false).expect("a path"));
        let to = |k: u8| {
            // The length of the domain chooses the destination.
            let domain = "d".repeat(1 + usize::from(k % 5));
            Recipient::new(ForwardPath::parse(&format!("c{k}@{domain}.test"), false).expect("a path"))
        };
        envelope.recipients = (0..=kind >> 5).map(|k| to(k.wrapping_add(kind >> 1))).collect();
        let content = Content::from_bytes(vec![b'x'; usize::from(kind & 7) * 100]);
        let id = self.ids.next(WALL);
        let message = Message { id, arrived: self.context().wall, origin: "fuzz".into(), envelope, content };
        let message = SharedMessage::new(message);
        self.messages.insert(id, message.clone());
        message
    }

    fn recover(&mut self) {
        let message = self.message();
        let kind = self.byte();
        let last = (kind & 4 != 0).then(|| (UnixMillis(WALL - 1000), deferred()));
        let state = |k: usize| RecipientState {
            settled: k % 3 == usize::from(kind & 3),
            attempt_count: u32::from(last.is_some()),
            last: last.clone(),
        };
        let recipients = (0..message.envelope.recipients.len()).map(state).collect();
        self.handle(Event::Recovered(&Recovered { message, recipients, held: held(kind & 8 != 0) }));
    }

    fn accept(&mut self) {
        let (message, kind) = (self.message(), self.byte());
        let (held, is_late) = (held(kind > 240), kind % 16 == 1);
        let routed = Routed::new(self.routes.clone(), &message.envelope);
        self.handle(Event::Accepted { message, routed, held, is_late });
    }

    fn finish_attempt(&mut self) {
        let Some((connection, lease)) = self.take_lease() else { return };
        let kind = self.byte();
        let mut results = Vec::new();
        for (at, index) in lease.recipients.as_slice().iter().enumerate() {
            let outcome = match kind.rotate_left(at as u32) % 4 {
                0 | 1 => Outcome::delivered(Enhanced(2, 0, 0), "250 ok"),
                2 => deferred(),
                _ => Outcome::failed(Enhanced(5, 1, 1), "550 no such user"),
            };
            results.push((*index, outcome));
        }
        self.attempted(connection, lease, results, kind & 16 == 0);
    }

    fn attempted(
        &mut self,
        connection: ConnectionId,
        lease: Lease,
        results: Vec<(u32, Outcome)>,
        has_message: bool,
    ) {
        for (index, outcome) in &results {
            if outcome.disposition == mail::Disposition::Delivered {
                self.delivered.insert((lease.id, *index));
            }
        }
        let message = self.messages.get(&lease.id).cloned().filter(|_| has_message);
        let attempt = Attempt { relay: "mx.test[192.0.2.1]:25".into(), ..Attempt::default() };
        self.handle(Event::AttemptFinished { connection, lease, message, results, attempt });
    }

    fn unreachable(&mut self) {
        let fits = |connection: &Connection| connection.leases.is_empty() && !connection.is_idle;
        let Some(connection) = self.connection(fits) else { return };
        let outcome = match self.byte() % 4 {
            0 => Outcome::failed(Enhanced(5, 1, 10), "null MX"),
            _ => Outcome::deferred(Enhanced(4, 4, 1), "no host answers"),
        };
        self.handle(Event::DestinationUnreachable { connection, outcome, attempt: Attempt::default() });
        self.close(connection);
    }

    fn close(&mut self, connection: ConnectionId) {
        let closed = self.connections.remove(&connection).expect("an open connection");
        self.handle(Event::ConnectionClosed { connection, leases: closed.leases });
    }

    fn set_idle(&mut self, id: ConnectionId) {
        self.connections.get_mut(&id).expect("an open connection").is_idle = true;
        self.handle(Event::ConnectionIdle(id));
        if self.byte().is_multiple_of(4) && self.connections[&id].is_idle {
            self.connections.get_mut(&id).expect("an open connection").is_idle = false;
            self.handle(Event::ConnectionNotIdle(id));
        }
    }

    fn answer_task(&mut self, kind: u8) {
        match kind % 3 {
            0 if !self.loads.is_empty() => {
                let (task, id) = self.loads.remove(usize::from(kind) % self.loads.len());
                let failure = || SpoolFailure::Corrupt(format!("{id}: damaged"));
                let found = self.messages.get(&id).cloned().filter(|_| kind < 240);
                self.handle(Event::Loaded { task, result: found.ok_or_else(failure) });
            }
            1 if !self.compositions.is_empty() => {
                let request = self.compositions.remove(usize::from(kind) % self.compositions.len());
                let reports = request.compose(b"Subject: x\r\n\r\n", self.context().wall);
                let reports: Vec<SharedMessage> = reports.into_iter().map(SharedMessage::new).collect();
                self.messages.extend(reports.iter().map(|report| (report.id, report.clone())));
                self.handle(Event::Composed { task: request.task(), reports });
            }
            _ => {
                if let Some(task) = self.commits.pop_front() {
                    self.handle(Event::Stored { task, result: Ok(()) });
                }
            }
        }
    }

    fn command(&mut self) {
        let kind = self.byte();
        let ids: Vec<QueueId> = self.messages.keys().copied().collect();
        let id = ids.get(usize::from(kind >> 3) % ids.len().max(1)).copied().unwrap_or(QueueId(1));
        let command = match kind % 8 {
            0 => Command::Retry(id),
            1 => Command::Flush,
            2 => Command::Hold { id, reason: "by root".into() },
            3 => Command::Release(id),
            4 => Command::Cancel { id, recipients: None, cancel_as: CancelAs::Bounce, reason: None },
            5 => Command::Cancel { id, recipients: None, cancel_as: CancelAs::Delete, reason: None },
            6 => Command::Cancel { id, recipients: Some(vec![0]), cancel_as: CancelAs::Bounce, reason: None },
            _ => Command::Cancel {
                id,
                recipients: Some(vec![1, 2]),
                cancel_as: CancelAs::Delete,
                reason: None,
            },
        };
        self.order(command);
    }

    fn order(&mut self, command: Command) {
        if let Command::Cancel { id, recipients, cancel_as: CancelAs::Delete, .. } = &command {
            let queued = self.engine.queue().recipients(*id);
            let is_meant = |index: &u32| recipients.as_ref().is_none_or(|meant| meant.contains(index));
            self.deleted.extend(queued.into_iter().filter(is_meant).map(|index| (*id, index)));
        }
        self.request_count += 1;
        let request = RequestId(self.request_count);
        self.requests.insert(request);
        self.handle(Event::Operator { request, command });
    }

    fn reload(&mut self) {
        let kind = self.byte();
        let is_rerouted = kind & 1 == 1;
        if is_rerouted {
            self.routes = Arc::new(Routes { destination_count: 1 + (kind >> 1) % 4 });
        }
        let (settings, routing) = (settings(kind), self.routes.clone());
        self.handle(Event::Reconfigured { settings, routing, is_rerouted });
    }

    fn advance(&mut self, by: Millis) {
        self.now += by;
        let mut tick_count = 0;
        while self.wake_at.is_some_and(|at| at <= self.now) {
            tick_count += 1;
            assert!(
                tick_count < TICKS_MAX,
                "the engine wants to be woken at {:?} and is, at {}",
                self.wake_at,
                self.now
            );
            self.wake_at = None;
            self.handle(Event::Tick);
        }
    }

    // ---- the end ----

    /// Everything that waits is answered, and everything that is queued delivered.
    fn drain(&mut self) {
        self.refused = None;
        let held: Vec<QueueId> = self.messages.keys().copied().collect();
        for id in held {
            self.order(Command::Release(id));
        }
        for _ in 0..DRAIN_STEPS {
            self.drain_tasks();
            let ids: Vec<ConnectionId> = self.connections.keys().copied().collect();
            for id in ids {
                self.drain_connection(id);
            }
            let is_done = self.is_shut_down || self.engine.counters().queued == 0;
            if is_done && self.engine.task_count() == 0 && self.engine.unstored_count() == 0 {
                break;
            }
            let next = self.wake_at.unwrap_or(self.now + 1000);
            self.advance((next - self.now).max(1));
        }
        let all = self.engine.counters();
        assert_eq!(self.engine.unstored_count(), 0, "something decided is never stored");
        assert!(self.requests.is_empty(), "no answer: {:?}", self.requests);
        assert!(self.is_shut_down || all.queued == 0, "stuck in the queue: {all:?}");
    }

    fn drain_tasks(&mut self) {
        while !self.loads.is_empty() || !self.compositions.is_empty() || !self.commits.is_empty() {
            for (kind, count) in
                [(0, self.loads.len()), (1, self.compositions.len()), (2, self.commits.len())]
            {
                (0..count).for_each(|_| self.answer_task(kind));
            }
        }
    }

    fn drain_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if std::mem::take(&mut connection.is_idle) {
            self.handle(Event::ConnectionNotIdle(id));
        }
        self.handle(Event::ConnectionReady(id));
        while let Some(lease) = self.connections.get_mut(&id).and_then(|one| one.leases.pop()) {
            let ok = || Outcome::delivered(Enhanced(2, 0, 0), "250 ok");
            let results = lease.recipients.as_slice().iter().map(|index| (*index, ok())).collect();
            self.attempted(id, lease, results, true);
            self.handle(Event::ConnectionReady(id));
        }
        self.close(id);
    }
}

fn deferred() -> Outcome {
    Outcome::deferred(Enhanced(4, 2, 2), "452 mailbox full")
}

/// Returns the reason of a hold, if there is one.
fn held(is_held: bool) -> Option<Box<str>> {
    is_held.then(|| "by a rule".into())
}
