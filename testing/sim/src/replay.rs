//! Replays a recording of a real server: the real message engine and the real log on a simulated disk, with a simulated clock.
//! Messages arrive as they did, and each attempt ends as it did.

use crate::disk::SimDisk;
use bytes::Bytes;
use engine::{
    Command, ConnectionId, Context, Effect, Engine, EngineSettings, Event, Lease, RequestId, RetryAt, Routed,
    Routing,
};
use mail::{
    Attempt, Content, Destination, Enhanced, Envelope, ForwardPath, IdSource, Mailbox, Message, Origin,
    Outcome, Part, QueueId, Recipient, ReversePath, SharedMessage, TlsMode, UnixMillis,
};
use queue::{CancelAs, GroupId, Millis};
use recording::{Counts, End, RecordedRecipient, Recording};
use spool::{Entry, LogSettings, LogSpool, Spool as _, SpoolFailure, Transaction, WorkStep};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

/// Unix milliseconds at which each replay begins.
const WALL_MS: u64 = 1_700_000_000_000;
/// Longer content is cut: a simulated disk is memory.
const CONTENT_BYTES_MAX: u64 = 64 * 1024;
/// Content that is stored in chunks of this size.
const CHUNK_BYTES: usize = 16 * 1024;
/// A recipient that waits for longer than this after the last message never comes to its recorded end.
const HORIZON_MS: Millis = 40 * 86_400_000;
/// No message expires by its age: the recording says when one ends.
const EXPIRE: Duration = Duration::from_secs(365 * 86_400);
/// Events between two checks of all invariants.
const CHECK_EVERY: u64 = 64;

/// What a replay has done, to be compared with the recording.
#[derive(Debug, Clone, Default)]
pub struct ReplayReport {
    /// Messages that were accepted.
    pub messages: u64,
    /// Recipients of these messages.
    pub recipients: u64,
    /// Destinations that mail was delivered to or waits for.
    pub destinations: u64,
    /// How the recipients ended in the recording.
    pub recorded: Counts,
    /// How they ended in the replay.
    pub replayed: Counts,
    /// Messages at one time in the queue, at most.
    pub queue_max: u64,
    /// Time since the begin at which the queue had that many.
    pub queue_max_at_ms: Millis,
    /// Simulated time.
    pub took_ms: Millis,
    /// Connections that were opened.
    pub connections: u64,
    /// Messages whose content was cut.
    pub cut_contents: u64,
}

impl ReplayReport {
    /// Has every recipient come to the end that was recorded? The number of deferrals may differ: the schedule of the
    /// server that was recorded may have been another one.
    pub fn is_same(&self) -> bool {
        let ends = |counts: &Counts| (counts.delivered, counts.bounced, counts.deleted, counts.queued);
        ends(&self.recorded) == ends(&self.replayed)
    }
}

impl fmt::Display for ReplayReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: Millis| ms / 1000;
        writeln!(
            f,
            "replayed   {} messages, {} recipients, {} destinations, {} connections, {} s",
            self.messages,
            self.recipients,
            self.destinations,
            self.connections,
            seconds(self.took_ms)
        )?;
        for (name, counts) in [("recorded", &self.recorded), ("result", &self.replayed)] {
            let Counts { delivered, bounced, deleted, queued, deferrals } = counts;
            writeln!(
                f,
                "{name:<10} delivered {delivered}, bounced {bounced}, deleted {deleted}, queued {queued}; {deferrals} deferred \
                 attempts"
            )?;
        }
        writeln!(
            f,
            "queue      {} messages at most, after {} s",
            self.queue_max,
            seconds(self.queue_max_at_ms)
        )?;
        if self.cut_contents > 0 {
            writeln!(f, "content    {} messages were cut to {CONTENT_BYTES_MAX} bytes", self.cut_contents)?;
        }
        write!(f, "{}", if self.is_same() { "the same ends as recorded" } else { "OTHER ENDS THAN RECORDED" })
    }
}

/// Replays a recording.
///
/// # Errors
/// The engine or the spool refuses something, or recipients do not come to their end, in words.
pub fn replay(recording: &Recording, seed: u64) -> Result<ReplayReport, String> {
    let mut world = World::new(recording, seed)?;
    for (number, message) in recording.messages.iter().enumerate() {
        world.plan(message.at_ms as Millis, Due::Arrival(number));
    }
    world.run()?;
    world.delete()?;
    world.report()
}

/// Something that happens at a time.
enum Due {
    Arrival(usize),
    Ready(ConnectionId),
    Finished(Box<Finished>),
}

/// What an attempt brings when its time is over.
struct Finished {
    connection: ConnectionId,
    lease: Lease,
    message: SharedMessage,
    results: Vec<(u32, Outcome)>,
}

/// All mail goes to the mail exchangers of its domain.
struct Routes;

impl Routing for Routes {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let domain = |path: &ForwardPath| path.mailbox().map(|mailbox| mailbox.domain().key().into_owned());
        let paths = envelope.recipients.iter().map(|recipient| domain(&recipient.path).unwrap_or_default());
        paths.map(|domain| (Destination::mx(domain.as_str(), TlsMode::May), GroupId(0))).collect()
    }
}

struct World<'r> {
    recording: &'r Recording,
    engine: Engine,
    spool: LogSpool,
    ids: Arc<IdSource>,
    now: Millis,
    wake_at: Option<Millis>,
    due: BTreeMap<(Millis, u64), Due>,
    planned: u64,
    /// Answers to effects, in order.
    answers: VecDeque<Event<'static>>,
    connections: BTreeSet<ConnectionId>,
    /// The number of a message by its id; a report of the engine has none.
    numbers: HashMap<QueueId, usize>,
    /// Attempts so far, by message and recipient.
    attempts: HashMap<(usize, u32), usize>,
    destinations: BTreeSet<u32>,
    /// Recipients that are not where the recording ends.
    open: u64,
    report: ReplayReport,
}

impl<'r> World<'r> {
    fn new(recording: &'r Recording, seed: u64) -> Result<Self, String> {
        let settings = LogSettings {
            segment_bytes: 4 * 1024 * 1024,
            min_free_bytes: 0,
            outcome_delay: Duration::ZERO,
            read_threads: 1,
            ..LogSettings::default()
        };
        let disk = Arc::new(SimDisk::new(seed, u64::MAX));
        let mut spool = LogSpool::single_stepped(disk, settings).map_err(|e| e.to_string())?;
        spool.recover(&mut |_| {}).map_err(|e| e.to_string())?;
        let postmaster = Mailbox::parse("postmaster@mx.test", false).map_err(|e| format!("{e:?}"))?;
        let settings = EngineSettings {
            queue: queue::QueueSettings {
                expire: EXPIRE,
                delay_warning: EXPIRE,
                ..queue::QueueSettings::default()
            },
            cache_bytes: 1 << 20,
            hostname: "mx.test".into(),
            retry_at: RetryAt::Recorded,
            soft_bounce: false,
            reports: engine::ReportSettings {
                double_bounces: false,
                ..engine::ReportSettings::new(postmaster)
            },
        };
        let ids = Arc::<IdSource>::default();
        let engine = Engine::new(settings, Arc::new(Routes), ids.clone(), seed, context(0));
        let open = recording.messages.iter().flat_map(|message| {
            message.recipients.iter().filter(|recipient| is_open(message.is_held, recipient, 0))
        });
        let open = open.count() as u64;
        let mut world = Self {
            recording,
            engine,
            spool,
            ids,
            now: 0,
            wake_at: None,
            due: BTreeMap::new(),
            planned: 0,
            answers: VecDeque::new(),
            connections: BTreeSet::new(),
            numbers: HashMap::new(),
            attempts: HashMap::new(),
            destinations: BTreeSet::new(),
            open,
            report: ReplayReport { recorded: recording.counts(), ..ReplayReport::default() },
        };
        world.handle(Event::Started)?;
        Ok(world)
    }

    fn plan(&mut self, at: Millis, due: Due) {
        self.planned += 1;
        self.due.insert((at.max(self.now), self.planned), due);
    }

    /// Runs until every message has arrived, and every recipient is where the recording ends.
    fn run(&mut self) -> Result<(), String> {
        let last = self.recording.messages.last().map_or(0, |message| message.at_ms as Millis);
        let mut steps = 0u64;
        while self.open > 0 || self.report.messages < self.recording.messages.len() as u64 {
            let next = self.due.first_key_value().map(|(key, _)| *key);
            let at = [next.map(|key| key.0), self.wake_at].into_iter().flatten().min();
            let at = at.ok_or_else(|| format!("{} recipients wait for ever", self.open))?;
            self.now = self.now.max(at);
            if self.now > last + HORIZON_MS {
                return Err(format!("{} recipients do not come to their recorded end", self.open));
            }
            if self.wake_at.is_some_and(|wake| wake <= self.now) {
                self.wake_at = None;
                self.handle(Event::Tick)?;
            } else if let Some(due) = next.and_then(|key| self.due.remove(&key)) {
                self.happens(due)?;
            }
            steps += 1;
            if steps.is_multiple_of(CHECK_EVERY) {
                self.engine.check_invariants();
            }
            let queued = self.engine.queue().len() as u64;
            if queued > self.report.queue_max {
                (self.report.queue_max, self.report.queue_max_at_ms) = (queued, self.now);
            }
        }
        self.engine.check_invariants();
        Ok(())
    }

    fn happens(&mut self, due: Due) -> Result<(), String> {
        match due {
            Due::Arrival(number) => self.arrive(number),
            Due::Ready(connection) => self.ready(connection),
            Due::Finished(finished) => {
                let Finished { connection, lease, message, results } = *finished;
                self.count(&lease, &results);
                let (message, attempt) = (Some(message), Attempt::default());
                self.handle(Event::AttemptFinished { connection, lease, message, results, attempt })?;
                self.ready(connection)
            }
        }
    }

    /// Stores and queues the message with this index in the recording.
    fn arrive(&mut self, number: usize) -> Result<(), String> {
        let recorded = &self.recording.messages[number];
        let mut envelope = Envelope::new(ReversePath::Null);
        for (index, recipient) in recorded.recipients.iter().enumerate() {
            let address = format!("r{index}@d{}.test", recipient.destination);
            let path = ForwardPath::parse(&address, false).map_err(|e| format!("{address}: {e:?}"))?;
            envelope.recipients.push(Recipient::new(path));
            self.destinations.insert(recipient.destination);
        }
        let content = self.content(recorded.size_bytes)?;
        let wall = context(self.now).wall;
        let (id, origin) = (self.ids.next(wall.0), Origin::from("replay"));
        let message = SharedMessage::new(Message { id, arrived: wall, origin, envelope, content });
        let held: Option<Box<str>> = recorded.is_held.then(|| "by an operator".into());
        self.store(vec![Entry::of(message.clone(), held.clone())])?;
        self.numbers.insert(id, number);
        self.report.messages += 1;
        self.report.recipients += recorded.recipients.len() as u64;
        let routed = Routed::new(Arc::new(Routes), &message.envelope);
        let event = Event::Accepted { message, routed, held, is_late: false };
        self.handle(event).map(drop)
    }

    fn content(&mut self, size_bytes: u64) -> Result<Content, String> {
        self.report.cut_contents += u64::from(size_bytes > CONTENT_BYTES_MAX);
        let mut bytes = b"Subject: replay\r\n\r\n".to_vec();
        bytes.resize((size_bytes.min(CONTENT_BYTES_MAX) as usize).max(bytes.len()), b'x');
        let bytes = Bytes::from(bytes);
        if bytes.len() <= CHUNK_BYTES {
            return Ok(Content::from_bytes(bytes));
        }
        let traits = Content::from_bytes(bytes.clone()).traits;
        let mut parts = Vec::new();
        for at in (0..bytes.len()).step_by(CHUNK_BYTES) {
            let chunk = bytes.slice(at..bytes.len().min(at + CHUNK_BYTES));
            let length_bytes = chunk.len() as u32;
            let chunk_id = self.spool.store(chunk).map_err(|refused| refused.to_string())?;
            parts.push(Part::Stored { chunk_id, length_bytes });
        }
        Ok(Content::new(traits, parts))
    }

    /// A connection takes the next work, or closes.
    fn ready(&mut self, connection: ConnectionId) -> Result<(), String> {
        if !self.connections.contains(&connection) {
            return Ok(());
        }
        let Some((lease, message)) = self.handle(Event::ConnectionReady(connection))? else {
            self.connections.remove(&connection);
            return self.handle(Event::ConnectionClosed { connection, leases: Vec::new() }).map(drop);
        };
        let message = message.map_or_else(|| self.spool.read(lease.id), Ok).map_err(|e| e.to_string())?;
        for part in message.content.parts() {
            if let Some(chunk_id) = part.chunk_id() {
                self.spool.load(chunk_id).map_err(|e| e.to_string())?;
            }
        }
        let (mut results, mut latency_ms) = (Vec::new(), 0);
        for index in lease.recipients.as_slice() {
            let (outcome, took_ms) = self.outcome(lease.id, *index);
            latency_ms = latency_ms.max(took_ms);
            results.push((*index, outcome));
        }
        let finished = Finished { connection, lease, message, results };
        self.plan(self.now + latency_ms as Millis, Due::Finished(Box::new(finished)));
        Ok(())
    }

    /// Returns the outcome that was recorded for the next attempt, and how long it took.
    fn outcome(&self, id: QueueId, index: u32) -> (Outcome, u64) {
        let delivered = Outcome::delivered(Enhanced(2, 0, 0), "replayed");
        let Some(number) = self.numbers.get(&id) else { return (delivered, 0) };
        let recipient = &self.recording.messages[*number].recipients[index as usize];
        let attempt = self.attempts.get(&(*number, index)).copied().unwrap_or_default();
        let took_ms = recipient.attempts.get(attempt).map_or(0, |attempt| attempt.latency_ms);
        let outcome = match recipient.end {
            End::Delivered if attempt >= recipient.deferrals() => delivered,
            End::Bounced if attempt >= recipient.deferrals() => {
                Outcome::failed(Enhanced(5, 0, 0), "replayed")
            }
            _ => Outcome::deferred(Enhanced(4, 0, 0), "replayed"),
        };
        (outcome, took_ms)
    }

    fn count(&mut self, lease: &Lease, results: &[(u32, Outcome)]) {
        let Some(number) = self.numbers.get(&lease.id).copied() else { return };
        let message = &self.recording.messages[number];
        for (index, outcome) in results {
            match outcome.disposition {
                mail::Disposition::Delivered => self.report.replayed.delivered += 1,
                mail::Disposition::Failed => self.report.replayed.bounced += 1,
                mail::Disposition::Deferred => self.report.replayed.deferrals += 1,
            }
            let recipient = &message.recipients[*index as usize];
            let attempts = self.attempts.entry((number, *index)).or_default();
            let was_open = is_open(message.is_held, recipient, *attempts);
            *attempts += 1;
            if was_open && !is_open(message.is_held, recipient, *attempts) {
                self.open -= 1;
            }
        }
    }

    /// Deletes the recipients that an operator has deleted.
    fn delete(&mut self) -> Result<(), String> {
        let ids: Vec<(QueueId, usize)> = self.numbers.iter().map(|(id, number)| (*id, *number)).collect();
        for (request, (id, number)) in ids.into_iter().enumerate() {
            let recipients = self.recording.messages[number].recipients.iter().enumerate();
            let deleted = recipients.filter(|(_, one)| one.end == End::Deleted);
            let deleted: Vec<u32> = deleted.map(|(index, _)| index as u32).collect();
            if deleted.is_empty() {
                continue;
            }
            let cancel_as = CancelAs::Delete;
            let command = Command::Cancel { id, recipients: Some(deleted), cancel_as, reason: None };
            self.handle(Event::Operator { request: RequestId(request as u64), command })?;
        }
        // Recipients in flight end when their attempt does.
        while let Some((key, due)) = self.due.pop_first() {
            self.now = self.now.max(key.0);
            if matches!(due, Due::Finished(_)) {
                self.happens(due)?;
            }
        }
        Ok(())
    }

    fn report(mut self) -> Result<ReplayReport, String> {
        self.engine.check_invariants();
        let counters = self.engine.counters();
        if !counters.is_consistent() {
            return Err(format!("the counters do not add up: {counters:?}"));
        }
        self.report.replayed.deleted = counters.deleted;
        let queue = self.engine.queue();
        self.report.replayed.queued = self.numbers.keys().map(|id| queue.recipients(*id).len() as u64).sum();
        self.report.destinations = self.destinations.len() as u64;
        self.report.took_ms = self.now;
        Ok(self.report)
    }

    // ---- the engine and the spool ----

    /// Hands an event to the engine, and performs what follows. Returns the lease for a connection that was ready.
    fn handle(&mut self, event: Event<'_>) -> Result<Option<(Lease, Option<SharedMessage>)>, String> {
        let mut effects = Vec::new();
        self.engine.handle(event, context(self.now), &mut effects);
        let leased = self.perform(effects)?;
        while let Some(answer) = self.answers.pop_front() {
            let mut effects = Vec::new();
            self.engine.handle(answer, context(self.now), &mut effects);
            if self.perform(effects)?.is_some() {
                return Err("an answer has leased a job".to_owned());
            }
        }
        Ok(leased)
    }

    fn perform(&mut self, effects: Vec<Effect>) -> Result<Option<(Lease, Option<SharedMessage>)>, String> {
        let mut leased = None;
        for effect in effects {
            match effect {
                Effect::Submit { task, transaction } => {
                    self.store(transaction)?;
                    self.answers.extend(task.map(|task| Event::Stored { task, result: Ok(()) }));
                }
                Effect::Load { task, id } => {
                    let result = self.engine.cached(id).map_or_else(|| self.spool.read(id), Ok);
                    self.answers.push_back(Event::Loaded { task, result });
                }
                Effect::Compose(request) => {
                    let reports = request.compose(b"", context(self.now).wall);
                    let reports = reports.into_iter().map(SharedMessage::new).collect();
                    self.answers.push_back(Event::Composed { task: request.task(), reports });
                }
                Effect::OpenConnection { connection, .. } => {
                    self.connections.insert(connection);
                    self.report.connections += 1;
                    self.plan(self.now, Due::Ready(connection));
                }
                Effect::WakeConnection(connection) => self.plan(self.now, Due::Ready(connection)),
                Effect::Deliver { lease, message, .. } => leased = Some((lease, message)),
                Effect::WakeAt(at) => self.wake_at = Some(at),
                Effect::Fail(failure) => return Err(failure.to_string()),
                Effect::Expand { lease, .. } => {
                    return Err(format!("{}: a recording has no aliases", lease.id));
                }
                // Next hops of a recording answer at once: there is nothing to give up.
                Effect::AbandonConnection { .. } | Effect::Log(_) | Effect::Answer { .. } => {}
            }
        }
        Ok(leased)
    }

    /// Submits a transaction, and lets the spool work until it is durable.
    fn store(&mut self, transaction: Transaction) -> Result<(), String> {
        let commit_seq = self.spool.submit(transaction).map_err(|refused| refused.to_string())?;
        loop {
            for step in [WorkStep::Prepare, WorkStep::Compact, WorkStep::Commit] {
                self.spool.step(step);
            }
            match self.spool.poll_durable(commit_seq) {
                Some(stored) => return stored.map_err(|failure: SpoolFailure| failure.to_string()),
                None if self.spool.pressure().poisoned => return Err("the spool has failed".to_owned()),
                None => {}
            }
        }
    }
}

fn context(now: Millis) -> Context {
    Context { now, wall: UnixMillis(WALL_MS.saturating_add_signed(now)), worker: None }
}

/// Returns whether a recipient has attempts to come, after so many.
fn is_open(is_held: bool, recipient: &RecordedRecipient, attempts: usize) -> bool {
    let wanted = match recipient.end {
        End::Delivered | End::Bounced => recipient.deferrals() + 1,
        // An operator may have put the message on hold after its attempts.
        End::Deleted | End::Queued if is_held => 0,
        End::Deleted | End::Queued => recipient.deferrals(),
    };
    attempts < wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use recording::{FORMAT, Head, RecordedAttempt, RecordedMessage};

    fn recipient(destination: u32, attempts: u64, end: End) -> RecordedRecipient {
        let attempt = |number: u64| RecordedAttempt { age_ms: number * 1000, latency_ms: 20 + number };
        RecordedRecipient { destination, attempts: (0..attempts).map(attempt).collect(), end }
    }

    fn recording(count: u64) -> Recording {
        let message = |number: u64| RecordedMessage {
            at_ms: number * 50,
            size_bytes: [300, 20_000, 200_000][number as usize % 3],
            is_notification: false,
            is_held: number % 10 == 9,
            recipients: if number % 10 == 9 {
                vec![recipient(0, 1, End::Queued)]
            } else {
                vec![
                    recipient(number as u32 % 5, 1 + number % 3, End::Delivered),
                    recipient(1, 1, End::Bounced),
                    recipient(4, number % 2, [End::Queued, End::Deleted][number as usize % 2]),
                ]
            },
        };
        let head = Head { format: FORMAT, messages: count, destinations: 5, unknown_recipients: 0 };
        Recording { head, messages: (0..count).map(message).collect() }
    }

    #[test]
    fn every_recipient_comes_to_its_recorded_end() {
        let recording = recording(200);
        let report = replay(&recording, 1).unwrap();
        assert!(report.is_same(), "{report}");
        assert_eq!((report.messages, report.recipients, report.destinations), (200, 560, 5));
        assert!(report.queue_max > 20 && report.connections > 0, "{report}");
        assert!(report.replayed.deferrals >= report.recorded.deferrals - 20, "{report}");
    }

    #[test]
    fn a_seed_replays_the_same() {
        let text = |seed| replay(&recording(50), seed).unwrap().to_string();
        assert_eq!(text(7), text(7));
        assert!(replay(&recording(0), 1).unwrap().is_same());
    }
}
