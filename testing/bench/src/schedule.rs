//! The message engine: from a durable message to the outcome that is submitted.

use crate::commit;
use engine::{ConnectionId, Context, Effect, Engine, EngineSettings, Event, Lease, RetryAt, Routed, Routing};
use mail::{
    Attempt, Content, Destination, Enhanced, Envelope, ForwardPath, IdSource, Message, Outcome, QueueId,
    Recipient, SharedMessage, TlsMode, UnixMillis,
};
use queue::{GroupId, Millis};
use spool::Transaction;
use std::sync::Arc;

/// Destinations the messages go to in turn.
const DESTINATIONS: u64 = 100;

/// Routes each domain to a destination of its own.
struct ByDomain;

impl Routing for ByDomain {
    fn route(&self, envelope: &Envelope) -> Vec<(Destination, GroupId)> {
        let destination = |recipient: &Recipient| {
            let mailbox = recipient.path.mailbox().expect("a mailbox");
            Destination::mx(mailbox.domain().key().as_ref(), TlsMode::May)
        };
        envelope.recipients.iter().map(|one| (destination(one), GroupId::default())).collect()
    }
}

/// The engine, and a driver that performs its effects in memory.
pub struct Driver {
    engine: Engine,
    routing: Arc<dyn Routing>,
    effects: Vec<Effect>,
    /// Connections that were opened or woken.
    ready: Vec<ConnectionId>,
    leased: Option<(ConnectionId, Lease, Option<SharedMessage>)>,
    /// Transactions that the engine has submitted.
    submitted: Vec<Transaction>,
}

fn context(now: Millis) -> Context {
    Context { now, wall: UnixMillis(1_800_000_000_000 + now as u64), worker: None }
}

impl Default for Driver {
    fn default() -> Self {
        let settings = EngineSettings {
            queue: queue::QueueSettings::default(),
            cache_bytes: 1 << 20,
            hostname: "mx.test".into(),
            retry_at: RetryAt::Recorded,
            soft_bounce: false,
            reports: engine::ReportSettings::new(
                mail::Mailbox::parse("postmaster@mx.test", false).expect("an address"),
            ),
        };
        let routing: Arc<dyn Routing> = Arc::new(ByDomain);
        let engine = Engine::new(settings, routing.clone(), Arc::<IdSource>::default(), 1, context(0));
        let (effects, ready, submitted) = (Vec::new(), Vec::new(), Vec::new());
        let mut driver = Self { engine, routing, effects, ready, leased: None, submitted };
        driver.handle(Event::Started, 0);
        driver
    }
}

impl Driver {
    fn handle(&mut self, event: Event<'_>, now: Millis) {
        self.engine.handle(event, context(now), &mut self.effects);
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Submit { transaction, .. } => self.submitted.push(transaction),
                Effect::OpenConnection { connection, .. } | Effect::WakeConnection(connection) => {
                    self.ready.push(connection);
                }
                Effect::Deliver { connection, lease, message } => {
                    self.leased = Some((connection, lease, message));
                }
                Effect::Log(_) | Effect::WakeAt(_) => {}
                other => panic!("{other:?} is not expected"),
            }
        }
    }

    /// Brings the engine a message that is durable.
    pub fn accept(&mut self, message: SharedMessage, now: Millis) {
        let routed = Routed::new(self.routing.clone(), &message.envelope);
        self.handle(Event::Accepted { message, routed, held: None, is_late: false }, now);
    }

    /// The next lease of a connection that was opened or woken. A connection without one becomes idle.
    pub fn lease(&mut self, now: Millis) -> Option<(ConnectionId, Lease, Option<SharedMessage>)> {
        while let Some(connection) = self.ready.pop() {
            self.handle(Event::ConnectionReady(connection), now);
            if self.leased.is_some() {
                self.ready.push(connection);
                return self.leased.take();
            }
            self.handle(Event::ConnectionIdle(connection), now);
        }
        None
    }

    /// Brings the engine the result of a lease with one recipient.
    pub fn finish(
        &mut self,
        (connection, lease): (ConnectionId, Lease),
        message: SharedMessage,
        outcome: Outcome,
        now: Millis,
    ) {
        let attempt = Attempt { relay: "sink.test[192.0.2.1]:25".into(), ..Attempt::default() };
        let (results, message) = (vec![(0, outcome)], Some(message));
        self.handle(Event::AttemptFinished { connection, lease, message, results, attempt }, now);
    }

    /// Transactions that are to be submitted since the last call.
    pub fn submitted(&mut self) -> std::vec::Drain<'_, Transaction> {
        self.submitted.drain(..)
    }
}

/// A message of 1 KiB with one recipient, at one of the destinations.
fn message(number: u64, content: &Content) -> SharedMessage {
    let mut message: Message = (*commit::message(QueueId(number), content)).clone();
    let to = format!("recipient@d{}.test", number % DESTINATIONS);
    message.envelope.recipients[0].path = ForwardPath::parse(&to, false).expect("a path");
    SharedMessage::new(message)
}

/// The reply of a next hop that accepts a message.
pub fn delivered() -> Outcome {
    Outcome::delivered(Enhanced(2, 0, 0), "250 2.0.0 Ok")
}

/// So many messages that are delivered at once.
pub fn deliver(count: u64) {
    let (mut driver, content) = (Driver::default(), Content::from_bytes(crate::session::content()));
    for number in 1..=count {
        let now = number as Millis / 10;
        driver.accept(message(number, &content), now);
        let (connection, lease, message) = driver.lease(now).expect("there is work");
        driver.finish((connection, lease), message.expect("it is cached"), delivered(), now);
        assert!(driver.lease(now).is_none());
        assert_eq!(driver.submitted().count(), 1);
    }
    assert!(driver.engine.queue().is_empty());
}

/// So many messages that are deferred once.
pub fn defer(count: u64) {
    let (mut driver, content) = (Driver::default(), Content::from_bytes(crate::session::content()));
    for number in 1..=count {
        let now = number as Millis / 10;
        let deferred = Outcome::deferred(Enhanced(4, 2, 2), "452 4.2.2 mailbox full");
        driver.accept(message(number, &content), now);
        let (connection, lease, message) = driver.lease(now).expect("there is work");
        driver.finish((connection, lease), message.expect("it is cached"), deferred, now);
        assert!(driver.lease(now).is_none());
    }
    // An hour later all of them are due again.
    let later = count as Millis / 10 + 3_600_000;
    driver.handle(Event::Tick, later);
    while let Some((connection, lease, _)) = driver.lease(later) {
        let message = message(lease.id.0, &content);
        driver.finish((connection, lease), message, delivered(), later);
    }
    assert!(driver.engine.queue().is_empty(), "all were due");
    assert_eq!(driver.submitted().count() as u64, 2 * count);
}
