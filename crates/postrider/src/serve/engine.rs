//! The state that sessions, deliveries, the timer and operators share, and the few things that may
//! be done to it. One lock guards the queue; the spool, the journal and the ledger have their own.

use super::{journal::Journal, residents::Residents};
use delivery::Courier;
use mail::{Destination, ForwardPath, IdSource, Message, Outcome, QueueId, SharedMessage, UnixMillis};
use queue::{Arrival, DestinationId, Millis, Order, Queue};
use report::Ledger;
use route::Table;
use spool::{Entry, Recovered, Refused, Spool, Transaction};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::{Notify, watch};

/// A transaction that the spool had no room for is offered again after this.
const OFFER_AGAIN: Duration = Duration::from_millis(100);

/// The last outcomes of a message's deferred recipients, for `why` and the listing.
pub(crate) type Notes = Vec<(u32, Arc<Outcome>, UnixMillis)>;

/// Everything behind the queue's lock.
pub(crate) struct State {
    pub(crate) queue: Queue,
    /// Messages whose content is still in memory.
    pub(crate) residents: Residents,
    /// Connections that rest, by destination.
    pub(crate) resting: HashMap<DestinationId, VecDeque<Arc<Notify>>>,
    pub(crate) notes: HashMap<QueueId, Notes>,
    /// The text deferred recipients share most often is kept once.
    last_note: Option<Arc<Outcome>>,
}

/// What a reload replaces as a whole.
pub(crate) struct Current {
    pub(crate) settings: config::Settings,
    pub(crate) table: Arc<Table>,
    pub(crate) courier: Arc<Courier>,
}

/// The daemon's heart.
pub(crate) struct Engine {
    pub(crate) spool: Arc<dyn Spool>,
    pub(crate) ids: IdSource,
    pub(crate) ledger: Ledger,
    pub(crate) journal: Journal,
    pub(crate) closing: watch::Sender<bool>,
    state: Mutex<State>,
    current: RwLock<Arc<Current>>,
    timer: Notify,
    /// When the timer wakes by itself.
    timer_at: AtomicI64,
    started: Instant,
    started_wall: UnixMillis,
}

impl Engine {
    pub(crate) fn new(spool: Arc<dyn Spool>, ids: IdSource, current: Current, journal: Journal, resident_bytes: u64) -> Self {
        let seed = UnixMillis::now().0;
        let queue = Queue::new(super::wiring::queue_settings(&current.settings), seed, 0);
        let state = State {
            queue,
            residents: Residents::new(resident_bytes),
            resting: HashMap::new(),
            notes: HashMap::new(),
            last_note: None,
        };
        Self {
            spool,
            ids,
            ledger: Ledger::default(),
            journal,
            closing: watch::Sender::new(false),
            state: Mutex::new(state),
            current: RwLock::new(Arc::new(current)),
            timer: Notify::new(),
            timer_at: AtomicI64::new(Millis::MAX),
            started: Instant::now(),
            started_wall: UnixMillis::now(),
        }
    }

    /// The queue's clock.
    pub(crate) fn now(&self) -> Millis {
        Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(Millis::MAX)
    }

    /// A wall-clock time on the queue's clock.
    pub(crate) fn on_queue_clock(&self, at: UnixMillis) -> Millis {
        at.0 as Millis - self.started_wall.0 as Millis
    }

    /// A time of the queue's clock on the wall.
    pub(crate) fn on_wall_clock(&self, at: Millis) -> UnixMillis {
        UnixMillis((self.started_wall.0 as Millis + at).max(0) as u64)
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// New settings, routes and couriers for what begins from now on.
    pub(crate) fn replace(&self, current: Current) {
        let settings = super::wiring::queue_settings(&current.settings);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        self.lock().queue.set_settings(settings);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- in ----

    /// Queues a message that is durable.
    pub(crate) fn enqueue(self: &Arc<Self>, message: &SharedMessage) {
        let current = self.current();
        let names: Vec<Destination> =
            message.envelope.recipients.iter().map(|r| destination(&current.table, &r.path)).collect();
        self.ledger.accepted(names.len() as u64);
        let now = self.now();
        let mut state = self.lock();
        let mut rows = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            rows.push((index as u32, state.queue.destination(name), 0, None));
        }
        let size_bytes = message.content.size_bytes();
        // What a dead destination collects would only push out what is about to leave.
        if !rows.iter().all(|row| state.queue.is_suspended(row.1)) {
            state.residents.insert(message.clone());
        }
        let arrival = Arrival { id: message.id, arrived: now, size_bytes, held: false, recipients: &rows };
        state.queue.insert(&arrival, now);
        self.follow_orders(state, now);
    }

    /// Puts what recovery found back into the queue.
    pub(crate) fn restore(self: &Arc<Self>, found: &Recovered) {
        let current = self.current();
        let (now, message) = (self.now(), &found.message);
        self.ids.never_before(message.id);
        let mut state = self.lock();
        let (mut rows, mut notes) = (Vec::new(), Notes::new());
        let settings = super::wiring::queue_settings(&current.settings);
        for (index, (recipient, past)) in message.envelope.recipients.iter().zip(&found.recipients).enumerate() {
            if past.settled {
                continue;
            }
            let site = state.queue.destination(&destination(&current.table, &recipient.path));
            let due = past.last.as_ref().map(|(at, outcome)| {
                notes.push((index as u32, Arc::new(outcome.clone()), *at));
                let age = at.since(message.arrived).as_millis() as Millis;
                self.on_queue_clock(*at) + settings.retry_after(age, 0.5)
            });
            let attempts = u16::try_from(past.attempt_count).unwrap_or(u16::MAX);
            rows.push((index as u32, site, attempts, due));
        }
        let arrived = self.on_queue_clock(message.arrived).min(now);
        let size_bytes = message.content.size_bytes();
        self.ledger.restored(rows.len() as u64);
        state.queue.insert(&Arrival { id: message.id, arrived, size_bytes, held: found.held, recipients: &rows }, now);
        if !notes.is_empty() {
            state.notes.insert(message.id, notes);
        }
    }

    // ---- out ----

    /// Does what the queue orders, and lets go of its lock.
    pub(crate) fn follow_orders(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: Millis) {
        let mut open = Vec::new();
        while let Some(order) = state.queue.next_order(now) {
            match order {
                Order::Open(site) => open.push((site, state.queue.destination_name(site).clone())),
                Order::Wake(site) => {
                    let woken = state.resting.get_mut(&site).and_then(VecDeque::pop_front);
                    debug_assert!(woken.is_some(), "the queue counts who rests");
                    if let Some(resting) = woken {
                        resting.notify_one();
                    }
                }
            }
        }
        let hint = state.queue.wake_hint();
        drop(state);
        if hint.is_some_and(|at| at < self.timer_at.load(Ordering::Relaxed)) {
            self.timer.notify_one();
        }
        for (site, name) in open {
            super::jobs::open(self, site, name);
        }
    }

    /// Writes a transaction that must not be lost, as soon as the spool takes it.
    pub(crate) async fn persist(&self, transaction: Transaction) -> Result<(), spool::SpoolFailure> {
        loop {
            match self.spool.submit(transaction.clone()) {
                Ok(ticket) => return self.spool.durable(ticket).await,
                Err(Refused::Poisoned) => return Err(spool::SpoolFailure::Io(Refused::Poisoned.to_string())),
                Err(Refused::Busy | Refused::Full) => tokio::time::sleep(OFFER_AGAIN).await,
            }
        }
    }

    /// Makes a message of our own durable and queues it.
    pub(crate) async fn accept_own(self: &Arc<Self>, message: Message) -> Result<(), spool::SpoolFailure> {
        let message = SharedMessage::new(message);
        self.persist(vec![Entry::Accept(message.clone())]).await?;
        self.journal.accepted(&message);
        self.enqueue(&message);
        Ok(())
    }

    /// The message, from memory or read back.
    pub(crate) async fn read(&self, id: QueueId) -> Result<SharedMessage, spool::SpoolFailure> {
        if let Some(message) = self.lock().residents.get(id) {
            return Ok(message);
        }
        let spool = self.spool.clone();
        tokio::task::spawn_blocking(move || spool.read(id)).await.unwrap_or(Err(spool::SpoolFailure::Missing))
    }

    // ---- time ----

    /// Wakes the queue when something is due; ends at shutdown.
    pub(crate) async fn run_timer(self: Arc<Self>) {
        let mut closing = self.closing.subscribe();
        loop {
            let wake = self.tick();
            let wait = wake.map(|at| Duration::from_millis((at - self.now()).max(1) as u64));
            let sleep = async {
                match wait {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => {}
                () = self.timer.notified() => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    /// Everything that is due now; when to come again.
    fn tick(self: &Arc<Self>) -> Option<Millis> {
        let now = self.now();
        let mut state = self.lock();
        state.queue.advance(now);
        let aged: Vec<_> = std::iter::from_fn(|| state.queue.next_aged(now)).collect();
        let wake = state.queue.next_wake();
        self.timer_at.store(wake.unwrap_or(Millis::MAX), Ordering::Relaxed);
        self.follow_orders(state, now);
        for aged in aged {
            super::conclude::aged(self, aged);
        }
        wake
    }

    /// Notes why a recipient waits; the same text is kept once.
    pub(crate) fn note(state: &mut State, id: QueueId, index: u32, outcome: &Outcome) {
        let shared = match &state.last_note {
            Some(last) if **last == *outcome => last.clone(),
            _ => Arc::new(outcome.clone()),
        };
        state.last_note = Some(shared.clone());
        let notes = state.notes.entry(id).or_default();
        notes.retain(|note| note.0 != index);
        notes.push((index, shared, UnixMillis::now()));
    }
}

/// Where a recipient goes. Postmaster without a domain was given one at acceptance.
fn destination(table: &Table, path: &ForwardPath) -> Destination {
    match path.mailbox() {
        Some(mailbox) => table.destination(&mailbox.domain().key()),
        None => table.destination("localhost"),
    }
}
