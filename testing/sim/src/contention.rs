//! The real message engine between servers that take mail and many that do not: some never answer, some refuse, some greylist. Mail
//! for the others must not wait for them. Virtual time; one seed decides everything.

use crate::seed::Rng;
use engine::{
    ConnectionId, Context, Effect, Engine, EngineSettings, Event, Lease, ReportSettings, RetryAt, Routed,
    Routing,
};
use mail::{
    Attempt, Content, Destination, Enhanced, Envelope, ForwardPath, HostPort, IdSource, LmtpServer, Mailbox,
    Message, NextHop, Outcome, QueueId, Recipient, ReversePath, SharedMessage, TlsMode, UnixMillis,
};
use queue::{GroupId, Millis, QueueSettings};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, HashMap, HashSet},
    fmt,
    sync::Arc,
};

/// Mail for a mailbox, a route, or a domain that has taken mail begins to be delivered within this time.
const WAIT_MAX: Millis = 2_000;
/// A domain that was never tried before waits so long for each of the newcomers' connections that silent servers can take in turn.
const TURN: Millis = 10_000;
const REPLY_TIMEOUT: Millis = 300_000;
const IDLE_TIMEOUT: Millis = 5_000;
const GREYLIST: Millis = 60_000;
/// Good mail arrives for this long.
const RUN: Millis = 120_000;
/// The strangers' mail comes within this time.
const BURST: Millis = 14_000;
const GOOD_DOMAINS: u64 = 20;

/// How long mail waited for its first attempt, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LongestWaits {
    /// Mail for mailboxes of this machine.
    pub local: Millis,
    /// Mail for an LMTP server of a route.
    pub route: Millis,
    /// Mail for domains that had taken mail before.
    pub known: Millis,
    /// Mail for good domains that had not taken any.
    pub new: Millis,
    /// Good messages that arrived.
    pub good_count: u64,
    /// Connections that were given up for others.
    pub abandoned_count: u64,
}

impl fmt::Display for LongestWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} good messages waited at most: local {} ms, route {} ms, known domains {} ms, new ones {} ms",
            self.good_count, self.local, self.route, self.known, self.new
        )
    }
}

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Local,
    Route,
    Good,
    Silent,
    Refusing,
    Greylisting,
}

impl Manner {
    /// Reads the manner from the name of the domain.
    fn of(domain: &str) -> Self {
        match domain.trim_end_matches(|c: char| !c.is_ascii_alphabetic()) {
            "local" => Self::Local,
            "route" => Self::Route,
            name if name.starts_with("good") => Self::Good,
            name if name.starts_with("silent") => Self::Silent,
            name if name.starts_with("refusing") => Self::Refusing,
            _ => Self::Greylisting,
        }
    }

    fn is_good(self) -> bool {
        matches!(self, Self::Local | Self::Route | Self::Good)
    }
}

struct ByDomain;

fn domain_of(envelope: &Envelope) -> Arc<str> {
    let mailbox = envelope.recipients[0].path.mailbox().expect("recipients have domains");
    mailbox.domain().key().trim_end_matches(".test").into()
}

impl Routing for ByDomain {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let domain = domain_of(envelope);
        let next_hop = match Manner::of(&domain) {
            Manner::Local => NextHop::Maildir("/mail/{local}".into()),
            Manner::Route => {
                let server = HostPort { host: "dovecot.test".to_owned(), port: 24 };
                NextHop::Lmtp(Arc::new(LmtpServer::Tcp(server)))
            }
            _ => NextHop::Mx(domain),
        };
        vec![(Destination::new(next_hop, TlsMode::May), GroupId::default())]
    }
}

/// Something that happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Tick,
    Mail(u64, Arc<str>),
    Greeted(u64),
    Answered(u64),
    NoAnswer(u64),
    IdleTooLong(u64),
}

/// A connection, with a number that no other one ever has.
struct Connection {
    id: ConnectionId,
    manner: Manner,
    is_greeted: bool,
    is_idle: bool,
    lease: Option<(Lease, SharedMessage)>,
}

struct World {
    engine: Engine,
    routing: Arc<dyn Routing>,
    rng: Rng,
    now: Millis,
    happenings: BinaryHeap<Reverse<(Millis, u64, Happening)>>,
    happening_count: u64,
    /// When the engine asked to be woken; ticks at other times are out of date.
    wake_at: Option<Millis>,
    connections: BTreeMap<u64, Connection>,
    numbers: HashMap<ConnectionId, u64>,
    connection_count: u64,
    /// Good messages that were not tried yet: since when, and whether their domain had taken mail.
    waiting: BTreeMap<QueueId, (Millis, Manner, bool)>,
    has_delivered: HashSet<Arc<str>>,
    first_attempts: HashMap<QueueId, Millis>,
    /// Mail for a new good domain has to be tried within this time.
    new_wait_max: Millis,
    waits: LongestWaits,
    violation: Option<String>,
}

/// Runs one seed.
///
/// # Errors
/// Mail that waited too long, in words.
pub fn run(seed: u64, mutant: engine::Mutant) -> Result<LongestWaits, String> {
    let mut rng = Rng::new(seed);
    let connections_max = [100, 300, 1000][rng.index(3)];
    let settings = EngineSettings {
        queue: QueueSettings { connections_max, ..QueueSettings::default() },
        cache_bytes: 1 << 30,
        hostname: "mx.test".into(),
        retry_at: RetryAt::Recorded,
        soft_bounce: false,
        reports: ReportSettings::new(Mailbox::parse("postmaster@mx.test", false).expect("an address")),
    };
    let routing: Arc<dyn Routing> = Arc::new(ByDomain);
    let context = Context { now: 0, wall: UnixMillis(1_800_000_000_000), worker: None };
    let mut engine = Engine::new(settings, routing.clone(), Arc::<IdSource>::default(), seed, context);
    engine.set_mutant(mutant);
    let strangers = rng.below(2 * u64::from(connections_max)) + 10;
    let newcomers_max = u64::from(connections_max) / 2;
    let turns = Millis::try_from(strangers.div_ceil(newcomers_max)).expect("few") + 1;
    let mut world = World {
        engine,
        routing,
        now: 0,
        happenings: BinaryHeap::new(),
        happening_count: 0,
        wake_at: None,
        connections: BTreeMap::new(),
        numbers: HashMap::new(),
        connection_count: 0,
        waiting: BTreeMap::new(),
        has_delivered: HashSet::new(),
        first_attempts: HashMap::new(),
        new_wait_max: turns * TURN + WAIT_MAX,
        waits: LongestWaits::default(),
        violation: None,
        rng,
    };
    world.plan(strangers);
    world.handle(Event::Started);
    world.go()
}

impl World {
    /// Plans all mail: of the good domains some have taken mail before the strangers' comes.
    fn plan(&mut self, strangers: u64) {
        let mut id = 0;
        let mut mail = |world: &mut Self, at, domain: String| {
            id += 1;
            world.at(at, Happening::Mail(id, domain.into()));
        };
        let begin = 5_000;
        for place in 0..GOOD_DOMAINS + 2 {
            let domain = match place {
                0 => "local.".to_owned(),
                1 => "route.".to_owned(),
                n => format!("good{n}"),
            };
            // Some are new while the strangers' mail comes, and some get so little that no connection is kept.
            let is_new = place >= 2 && self.rng.chance(20);
            let first = self.rng.below(if is_new { 4 * BURST as u64 } else { 1000 }) as Millis;
            let interval = [1_000, 8_000][self.rng.index(2)];
            let times = (0..).map(|k| first + k * interval).take_while(|at| *at < RUN);
            times.for_each(|at| mail(self, at, domain.clone()));
        }
        for kind in ["silent", "refusing", "greylisting"] {
            for n in 0..strangers {
                for _ in 0..self.rng.below(8) {
                    let at = begin + self.rng.below(BURST as u64) as Millis;
                    mail(self, at, format!("{kind}{n}"));
                }
            }
        }
    }

    fn at(&mut self, at: Millis, happening: Happening) {
        self.happening_count += 1;
        self.happenings.push(Reverse((at, self.happening_count, happening)));
    }

    fn soon(&mut self, most: u64, happening: Happening) {
        let at = self.now + 1 + self.rng.below(most) as Millis;
        self.at(at, happening);
    }

    fn context(&self) -> Context {
        Context { now: self.now, wall: UnixMillis(1_800_000_000_000 + self.now as u64), worker: None }
    }

    fn go(mut self) -> Result<LongestWaits, String> {
        while let Some(Reverse((at, _, happening))) = self.happenings.pop() {
            if at > RUN + self.new_wait_max {
                break;
            }
            self.now = at;
            self.happen(happening);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
        }
        self.engine.check_invariants();
        match self.waiting.first_key_value() {
            Some((id, (since, manner, _))) => Err(format!("{id} ({manner:?}) of {since} ms was never tried")),
            None => Ok(self.waits),
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            // Another time has replaced it, or it is this one.
            Happening::Tick if self.wake_at != Some(self.now) => {}
            Happening::Tick => {
                self.wake_at = None;
                self.handle(Event::Tick);
            }
            Happening::Mail(id, domain) => self.accept(QueueId(id), &domain),
            Happening::Greeted(number) => {
                let Some(connection) = self.connections.get_mut(&number) else { return };
                connection.is_greeted = true;
                self.look_for_work(number);
            }
            Happening::Answered(number) => self.finish(number),
            Happening::NoAnswer(number) => self.give_up(number, "no answer"),
            Happening::IdleTooLong(number) => {
                let Some(connection) = self.connections.get(&number) else { return };
                if connection.is_idle {
                    let id = connection.id;
                    self.handle(Event::ConnectionNotIdle(id));
                    self.close(number);
                }
            }
        }
    }

    fn accept(&mut self, id: QueueId, domain: &Arc<str>) {
        let mut envelope = Envelope::new(ReversePath::parse("a@sender.test", false).expect("a path"));
        let path = format!("c@{}.test", domain.trim_end_matches('.'));
        envelope.recipients = vec![Recipient::new(ForwardPath::parse(&path, false).expect("a path"))];
        let (arrived, origin) = (self.context().wall, "test".into());
        let content = Content::from_bytes("Subject: x\r\n\r\n");
        let message = SharedMessage::new(Message { id, arrived, origin, envelope, content });
        let manner = Manner::of(domain);
        if manner.is_good() {
            let is_known = self.has_delivered.contains(domain);
            self.waiting.insert(id, (self.now, manner, is_known));
            self.waits.good_count += 1;
        }
        let routed = Routed::new(self.routing.clone(), &message.envelope);
        self.handle(Event::Accepted { message, routed, held: None, is_late: false });
    }

    fn handle(&mut self, event: Event<'_>) {
        let (mut effects, context) = (Vec::new(), self.context());
        self.engine.handle(event, context, &mut effects);
        let mut at = 0;
        while at < effects.len() {
            if let Effect::Submit { task: Some(task), .. } = effects[at] {
                // The disk is fast here.
                self.engine.handle(Event::Stored { task, result: Ok(()) }, context, &mut effects);
            }
            at += 1;
        }
        for effect in effects {
            match effect {
                Effect::OpenConnection { connection, destination } => self.open(connection, &destination),
                Effect::WakeConnection(id) => {
                    let number = self.numbers[&id];
                    self.connections.get_mut(&number).expect("it is open").is_idle = false;
                    self.soon(2, Happening::Greeted(number));
                }
                Effect::AbandonConnection { connection, .. } => {
                    self.waits.abandoned_count += 1;
                    let number = self.numbers[&connection];
                    self.soon(2, Happening::NoAnswer(number));
                }
                Effect::Deliver { connection, lease, message } => {
                    let message = message.expect("all messages are cached");
                    self.tried(lease.id);
                    let number = self.numbers[&connection];
                    self.connections.get_mut(&number).expect("it is open").lease = Some((lease, message));
                    self.soon(100, Happening::Answered(number));
                }
                Effect::WakeAt(at) => {
                    let at = at.max(self.now + 1);
                    self.wake_at = Some(at);
                    self.at(at, Happening::Tick);
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, id: ConnectionId, destination: &Destination) {
        let manner = match &destination.next_hop {
            NextHop::Mx(domain) => Manner::of(domain),
            NextHop::Lmtp(_) => Manner::Route,
            _ => Manner::Local,
        };
        self.connection_count += 1;
        let number = self.connection_count;
        self.numbers.insert(id, number);
        let connection = Connection { id, manner, is_greeted: false, is_idle: false, lease: None };
        self.connections.insert(number, connection);
        match manner {
            Manner::Silent => self.at(self.now + REPLY_TIMEOUT, Happening::NoAnswer(number)),
            Manner::Refusing => self.soon(50, Happening::NoAnswer(number)),
            _ => self.soon(50, Happening::Greeted(number)),
        }
    }

    fn look_for_work(&mut self, number: u64) {
        let connection = &self.connections[&number];
        if connection.lease.is_some() {
            return;
        }
        let id = connection.id;
        self.handle(Event::ConnectionReady(id));
        if self.connections.get(&number).is_none_or(|connection| connection.lease.is_some()) {
            return;
        }
        if self.engine.should_close(id) {
            return self.close(number);
        }
        self.connections.get_mut(&number).expect("it is open").is_idle = true;
        self.at(self.now + IDLE_TIMEOUT, Happening::IdleTooLong(number));
        self.handle(Event::ConnectionIdle(id));
    }

    fn finish(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let Some((lease, message)) = connection.lease.take() else { return };
        let (id, manner) = (connection.id, connection.manner);
        let first = *self.first_attempts.entry(lease.id).or_insert(self.now);
        let is_taken = manner != Manner::Greylisting || self.now >= first + GREYLIST;
        let outcome = if is_taken {
            self.has_delivered.insert(domain_of(&message.envelope));
            Outcome::delivered(Enhanced(2, 0, 0), "250 ok")
        } else {
            Outcome::deferred(Enhanced(4, 7, 1), "451 greylisted")
        };
        let results = lease.recipients.as_slice().iter().map(|index| (*index, outcome.clone())).collect();
        let attempt = Attempt { relay: "[192.0.2.1]:25".into(), ..Attempt::default() };
        let message = Some(message);
        self.handle(Event::AttemptFinished { connection: id, lease, message, results, attempt });
        self.look_for_work(number);
    }

    /// The time limit is over, or the connection was given up.
    fn give_up(&mut self, number: u64, why: &'static str) {
        let Some(connection) = self.connections.get(&number) else { return };
        let id = connection.id;
        if connection.is_greeted {
            return;
        }
        let (outcome, attempt) = (Outcome::deferred(Enhanced(4, 4, 1), why), Attempt::default());
        self.handle(Event::DestinationUnreachable { connection: id, outcome, attempt });
        self.close(number);
    }

    fn close(&mut self, number: u64) {
        let connection = self.connections.remove(&number).expect("a connection closes once");
        self.numbers.remove(&connection.id);
        let leases = connection.lease.into_iter().map(|(lease, _)| lease).collect();
        self.handle(Event::ConnectionClosed { connection: connection.id, leases });
    }

    /// The first attempt of a good message begins: it must not have waited too long.
    fn tried(&mut self, id: QueueId) {
        let Some((since, manner, is_known)) = self.waiting.remove(&id) else { return };
        let wait = self.now - since;
        let (longest, most) = match (manner, is_known) {
            (Manner::Local, _) => (&mut self.waits.local, WAIT_MAX),
            (Manner::Route, _) => (&mut self.waits.route, WAIT_MAX),
            (_, true) => (&mut self.waits.known, WAIT_MAX),
            (_, false) => (&mut self.waits.new, self.new_wait_max),
        };
        *longest = (*longest).max(wait);
        if wait > most {
            let what = if is_known { "known" } else { "new" };
            self.violation = Some(format!("{id} ({manner:?}, {what}) waited {wait} ms at {} ms", self.now));
        }
    }
}
