//! The state that sessions, deliveries, the timer and operators share, and the few things that may
//! be done to it. One lock guards the queue; the spool, the journal and the ledger have their own.

#[cfg(test)]
mod tests;

use super::{
    clock::Clock, conclude::Turns, counter::Counters, journal::Journal, phases::Phase, residents::Residents,
    wiring, workers,
};
use crate::own_address;
use bytes::Bytes;
use delivery::Courier;
use mail::{
    Destination, Enhanced, Envelope, Fate, ForwardPath, IdSource, Message, Outcome, Place, QueueId, Reply,
    SharedMessage, Transport, UnixMillis,
};
use policy::Policy;
use queue::{Arrival, DestinationId, GroupId, Millis, Order, Queue};
use report::Ledger;
use route::Table;
use spool::{Change, Entry, Recovered, Refused, Spool, Ticket, Transaction};
use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::{Notify, watch};

/// A transaction that the spool had no room for is offered again after this.
const OFFER_AGAIN: Duration = Duration::from_millis(100);

/// What was in flight when the routes changed is looked at again after this.
const REROUTE_AGAIN: Duration = Duration::from_secs(1);

/// The last outcomes of a message's recipients, for `why` and the listing; those of finished ones are
/// without their text, as in the spool.
pub(crate) type Notes = Vec<(u32, Arc<Outcome>, UnixMillis)>;

/// When what was tried before is tried again after a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    /// When it would have been.
    AsBefore,
    /// At once.
    NoMore,
}

/// Connections of one destination that rest, each on the worker it began on.
#[derive(Default)]
pub(crate) struct Resting(VecDeque<(Option<usize>, Arc<Notify>)>);

impl Resting {
    pub(crate) fn push(&mut self, woken: Arc<Notify>) {
        self.0.push_back((workers::number(), woken));
    }

    /// One that rests on this worker, which is woken without a system call; else any. The one that
    /// worked last comes first, so that those which are too many grow idle and leave.
    fn pop(&mut self) -> Option<Arc<Notify>> {
        let number = workers::number();
        let near = self.0.iter().rposition(|(worker, _)| *worker == number);
        let at = near.or(self.0.len().checked_sub(1))?;
        self.0.remove(at).map(|(_, woken)| woken)
    }

    /// False when it was popped before.
    pub(crate) fn remove(&mut self, woken: &Arc<Notify>) -> bool {
        let at = self.0.iter().position(|(_, resting)| Arc::ptr_eq(resting, woken));
        at.and_then(|at| self.0.remove(at)).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Everything behind the queue's lock.
pub(crate) struct State {
    pub(crate) queue: Queue,
    /// Messages whose content is still in memory.
    pub(crate) residents: Residents,
    /// Connections that rest, by destination.
    pub(crate) resting: HashMap<DestinationId, Resting>,
    pub(crate) notes: HashMap<QueueId, Notes>,
    /// The text deferred recipients share most often is kept once.
    last_note: Option<Arc<Outcome>>,
}

/// What a reload replaces as a whole.
pub(crate) struct Current {
    pub(crate) settings: config::Settings,
    pub(crate) table: Arc<Table>,
    pub(crate) courier: Arc<Courier>,
    pub(crate) policy: Policy,
}

impl Current {
    /// Postmaster is a person, too (RFC 5321 §4.5.1), and an address of ours is our name. `connected_to` is the
    /// address at which the client reached us.
    pub(crate) fn name_postmaster(&self, envelope: &mut Envelope, connected_to: IpAddr) {
        self.rename(envelope, Some(connected_to), |path| self.policy.is_for_postmaster(path));
    }

    /// The same for what begins on this machine, whose programs write to root as well.
    pub(crate) fn name_postmaster_and_root(&self, envelope: &mut Envelope) {
        let is_meant =
            |path: &ForwardPath| self.policy.is_for_postmaster(path) || self.policy.is_for_absent_root(path);
        self.rename(envelope, None, is_meant);
    }

    fn rename(
        &self,
        envelope: &mut Envelope,
        connected_to: Option<IpAddr>,
        is_meant: impl Fn(&ForwardPath) -> bool,
    ) {
        for recipient in &mut envelope.recipients {
            if let Some(path) = own_address::resolve(&recipient.path, &self.settings, connected_to) {
                recipient.path = path;
            }
            if is_meant(&recipient.path) {
                recipient.path = ForwardPath::Mailbox(self.settings.postmaster.clone());
            }
        }
    }

    /// Returns whether a Maildir can be named after the recipient, where its mail goes into one.
    ///
    /// # Errors
    /// The reply that refuses it. Mail for it would be returned later.
    pub(crate) fn is_deliverable(&self, path: &ForwardPath) -> Result<(), Reply> {
        let Some(mailbox) = path.mailbox().filter(|mailbox| !delivery::can_have_maildir(mailbox)) else {
            return Ok(());
        };
        if self.table.destination(&mailbox.domain().key()).transport != Transport::Maildir {
            return Ok(());
        }
        let text = format!("<{mailbox}>: no mailbox here can have this name");
        Err(Reply::new(550, Enhanced(5, 1, 1), text))
    }

    /// Where each recipient goes, and in which queue group.
    pub(crate) fn ways(&self, message: &Message) -> impl Iterator<Item = (Destination, GroupId)> {
        let envelope = &message.envelope;
        let sender = if self.settings.queue_groups.is_empty() { None } else { wiring::sender_key(envelope) };
        envelope.recipients.iter().map(move |recipient| {
            let key = wiring::domain_key(&recipient.path);
            let group = self.settings.queue_group(&key, sender.as_deref());
            (self.table.destination(&key), GroupId(u8::try_from(group).unwrap_or(0)))
        })
    }
}

/// The daemon's heart.
pub(crate) struct Engine {
    pub(crate) spool: Arc<dyn Spool>,
    pub(crate) ids: IdSource,
    pub(crate) ledger: Ledger,
    pub(crate) journal: Journal,
    pub(crate) closing: watch::Sender<bool>,
    /// The spool can promise nothing any more: the process must end.
    pub(crate) failed: Notify,
    /// The first failure of the spool.
    failure: OnceLock<String>,
    state: Mutex<State>,
    conflicts: AtomicU64,
    /// From handing a message to the spool until it is durable.
    pub(crate) queue_create: Phase,
    current: RwLock<Arc<Current>>,
    timer: Notify,
    /// When the timer wakes by itself.
    timer_at: AtomicI64,
    pub(crate) clock: Clock,
    /// Where sessions wait for the spool; those on no worker wait for themselves.
    pub(crate) counters: Counters,
    /// Where messages wait to be concluded.
    pub(crate) turns: Turns,
}

impl State {
    /// An empty queue.
    pub(crate) fn new(settings: queue::Settings, resident_bytes: u64) -> Self {
        Self {
            queue: Queue::new(settings, UnixMillis::now().0, 0),
            residents: Residents::new(resident_bytes),
            resting: HashMap::new(),
            notes: HashMap::new(),
            last_note: None,
        }
    }

    /// Puts back what recovery found; how many recipients are still to be served.
    pub(crate) fn restore(
        &mut self,
        found: &Recovered,
        current: &Current,
        settings: &queue::Settings,
        clock: &Clock,
        waits: Waits,
    ) -> u64 {
        let (now, message) = (clock.now(), &found.message);
        let arrived = clock.of_wall(message.arrived).min(now);
        let (mut rows, mut notes) = (Vec::new(), Notes::new());
        for (index, ((name, group), past)) in (0..).zip(current.ways(message).zip(&found.recipients)) {
            if past.settled {
                notes
                    .extend(past.last.as_ref().map(|(at, end)| (index, self.share(&without_text(end)), *at)));
                continue;
            }
            let site = self.queue.destination_in(&name, group);
            let due = past.last.as_ref().and_then(|(at, outcome)| {
                notes.push((index, self.share(outcome), *at));
                // A clock that was wrong for a while may have said a year to come.
                let tried = clock.of_wall(*at).min(now);
                // Spread by id: what was deferred together is not tried together.
                let spread = (message.id.0 % 1000) as f64 / 1000.0;
                let wait = settings.retry_after(group, tried - arrived, spread);
                (waits == Waits::AsBefore).then(|| tried + wait)
            });
            rows.push((index, site, u16::try_from(past.attempt_count).unwrap_or(u16::MAX), due));
        }
        if rows.is_empty() {
            // In the queue nothing would ever end it.
            return 0;
        }
        let size_bytes = message.content.size_bytes();
        self.queue.insert(
            &Arrival { id: message.id, arrived, size_bytes, held: found.held, recipients: &rows },
            now,
        );
        if !notes.is_empty() {
            self.notes.insert(message.id, notes);
        }
        rows.len() as u64
    }

    /// Notes why each of these waits, or how it ended; of a message that is gone nothing.
    pub(crate) fn remember(&mut self, id: QueueId, results: &[(u32, Outcome)], last: bool) {
        if last {
            self.notes.remove(&id);
        } else {
            results.iter().for_each(|(index, outcome)| self.note(id, *index, outcome));
        }
    }

    /// Notes why a recipient waits, or how it ended.
    pub(crate) fn note(&mut self, id: QueueId, index: u32, outcome: &Outcome) {
        let shared = match outcome.fate {
            Fate::Deferred => self.share(outcome),
            Fate::Delivered | Fate::Failed => self.share(&without_text(outcome)),
        };
        let notes = self.notes.entry(id).or_default();
        notes.retain(|note| note.0 != index);
        notes.push((index, shared, UnixMillis::now()));
    }

    /// The same outcome is kept once as long as it repeats.
    fn share(&mut self, outcome: &Outcome) -> Arc<Outcome> {
        match &self.last_note {
            Some(last) if **last == *outcome => last.clone(),
            _ => self.last_note.insert(Arc::new(outcome.clone())).clone(),
        }
    }
}

/// What the spool keeps of an end. Most are the same, and kept once.
fn without_text(end: &Outcome) -> Outcome {
    Outcome { text: "".into(), from_remote: false, ..end.clone() }
}

impl Engine {
    pub(crate) fn new(
        spool: Arc<dyn Spool>,
        state: State,
        ids: IdSource,
        ledger: Ledger,
        current: Current,
        journal: Journal,
        clock: Clock,
    ) -> Self {
        Self {
            spool,
            ids,
            ledger,
            journal,
            closing: watch::Sender::new(false),
            failed: Notify::new(),
            failure: OnceLock::new(),
            state: Mutex::new(state),
            conflicts: AtomicU64::new(0),
            queue_create: Phase::default(),
            current: RwLock::new(Arc::new(current)),
            timer: Notify::new(),
            timer_at: AtomicI64::new(Millis::MAX),
            clock,
            counters: Counters::default(),
            turns: Turns::default(),
        }
    }

    /// The queue's time now.
    pub(crate) fn now(&self) -> Millis {
        self.clock.now()
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// New settings, routes and couriers for what begins from now on.
    pub(crate) fn replace(self: &Arc<Self>, current: Current) {
        let settings = wiring::queue_settings(&current.settings);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(current);
        let now = self.now();
        let mut state = self.lock();
        state.queue.set_settings(settings);
        // More connections may be allowed, and messages may grow old sooner.
        self.follow_orders(state, now);
        self.timer.notify_one();
    }

    /// Sends what waits already where the routes lead now; what is in flight, once its attempt has ended.
    /// Reads the envelope of each message: in a large queue that takes a while, and nothing waits for it.
    pub(crate) async fn reroute(self: Arc<Self>) {
        let mut closing = self.closing.subscribe();
        let mut left = self.lock().queue.ids();
        loop {
            left = self.reroute_each(left).await;
            if left.is_empty() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(REROUTE_AGAIN) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
        }
    }

    /// Gives those that could not be moved yet.
    async fn reroute_each(self: &Arc<Self>, ids: Vec<QueueId>) -> Vec<QueueId> {
        let (mut count, mut left) = (0, Vec::new());
        for id in ids {
            // Gone meanwhile, or unreadable, which its next attempt will report.
            let Ok(message) = self.read(id).await else { continue };
            let now = self.now();
            let mut state = self.lock();
            // Behind the lock: another reload may have begun since, and its routes must not be undone.
            let ways: Vec<_> = self.current().ways(&message).collect();
            let sites: Vec<_> =
                ways.iter().map(|(name, group)| state.queue.destination_in(name, *group)).collect();
            let rerouted = state.queue.reroute(id, |index| sites[index as usize], now);
            self.follow_orders(state, now);
            count += u64::from(rerouted.has_moved);
            left.extend(rerouted.is_left.then_some(id));
        }
        if count > 0 {
            tracing::info!("{count} messages follow new routes");
        }
        left
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
                self.state.lock().unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    /// Waits until it would survive a power cut.
    pub(crate) async fn durable(&self, ticket: Ticket) -> Result<(), spool::SpoolFailure> {
        self.counters.durable(&self.spool, ticket).await
    }

    /// Times somebody had to wait for the queue's lock.
    pub(crate) fn conflict_count(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// A commit failed: what was written before is safe, but nothing more can be promised until the
    /// spool was recovered.
    pub(crate) fn spool_failed(&self, failure: &spool::SpoolFailure) {
        if self.failure.set(failure.to_string()).is_ok() {
            tracing::error!("the spool failed, and the daemon ends: {failure}");
        }
        self.failed.notify_one();
    }

    /// Why the spool failed, if it did.
    pub(crate) fn spool_failure(&self) -> Option<String> {
        let is_poisoned = || self.spool.pressure().poisoned;
        let unnoticed = || is_poisoned().then(|| spool::Refused::Poisoned.to_string());
        self.failure.get().cloned().or_else(unnoticed)
    }

    /// Begins nothing new; what is under way may end.
    pub(crate) fn close(&self) {
        self.lock().queue.close();
        self.closing.send_replace(true);
    }

    /// Connections out.
    pub(crate) fn connection_count(&self) -> u32 {
        self.lock().queue.connection_count()
    }

    // ---- in ----

    /// Queues a message that is durable.
    pub(crate) fn enqueue(self: &Arc<Self>, message: &SharedMessage) {
        let current = self.current();
        let mut ways: Vec<_> = current.ways(message).collect();
        self.ledger.accepted(ways.len() as u64);
        let now = self.now();
        let mut state = self.lock();
        // A reload that came between looks at what is in the queue, and would miss this.
        let newest = self.current();
        if !Arc::ptr_eq(&current, &newest) {
            ways = newest.ways(message).collect();
        }
        let mut rows = Vec::with_capacity(ways.len());
        for (index, (name, group)) in (0..).zip(&ways) {
            rows.push((index, state.queue.destination_in(name, *group), 0, None));
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

    // ---- out ----

    /// Does what the queue orders, and lets go of its lock.
    pub(crate) fn follow_orders(self: &Arc<Self>, mut state: MutexGuard<'_, State>, now: Millis) {
        let mut open = Vec::new();
        while let Some(order) = state.queue.next_order(now) {
            match order {
                Order::Open(site) => open.push((site, state.queue.destination_name(site).clone())),
                Order::Wake(site) => {
                    let woken = state.resting.get_mut(&site).and_then(Resting::pop);
                    debug_assert!(woken.is_some(), "the queue counts who rests");
                    if let Some(woken) = woken {
                        woken.notify_one();
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

    /// Writes a transaction that must not be lost, as soon as the spool takes it. When it cannot, the
    /// daemon ends: perhaps no session waits for anything that would tell.
    pub(crate) async fn persist(&self, transaction: Transaction) -> Result<(), spool::SpoolFailure> {
        self.offer(|| self.spool.submit(transaction.clone()).map(Some)).await.map(drop)
    }

    /// The same for what is to be looked at again each time. False when there is nothing to write.
    async fn offer(
        &self,
        submit: impl Fn() -> Result<Option<Ticket>, Refused>,
    ) -> Result<bool, spool::SpoolFailure> {
        let submitted = self.submit_when_possible(submit).await;
        let stored = match submitted {
            Ok(Some(ticket)) => self.spool.durable(ticket).await.map(|()| true),
            Ok(None) => Ok(false),
            Err(failure) => Err(failure),
        };
        stored.inspect_err(|failure| self.spool_failed(failure))
    }

    /// Calls `submit` again while the spool has no room. Returns the ticket without waiting for the commit.
    pub(crate) async fn submit_when_possible(
        &self,
        submit: impl Fn() -> Result<Option<Ticket>, Refused>,
    ) -> Result<Option<Ticket>, spool::SpoolFailure> {
        loop {
            match submit() {
                Ok(ticket) => return Ok(ticket),
                Err(Refused::Poisoned) => {
                    return Err(spool::SpoolFailure::Io(Refused::Poisoned.to_string()));
                }
                Err(Refused::Busy | Refused::Full) => tokio::time::sleep(OFFER_AGAIN).await,
            }
        }
    }

    /// An operator holds a message or lets it go. Queue and spool learn of it together: of two such wishes the
    /// same one is the last for both, and the spool hears nothing of a message that has ended. False when
    /// there is none.
    pub(crate) async fn amend(
        self: &Arc<Self>,
        id: QueueId,
        change: Change,
    ) -> Result<bool, spool::SpoolFailure> {
        let submit = || {
            let now = self.now();
            let mut state = self.lock();
            if state.queue.message(id).is_none() {
                return Ok(None);
            }
            let ticket = self.spool.submit(vec![Entry::Amend { id, change }])?;
            if change == Change::Hold {
                state.queue.hold(id)
            } else {
                state.queue.release(id, now)
            };
            self.follow_orders(state, now);
            Ok(Some(ticket))
        };
        self.offer(submit).await
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
        if let Some(message) = self.spool.read_cached(id) {
            return Ok(message);
        }
        self.wait_for_disk(move |spool| spool.read(id)).await
    }

    /// A chunk of a message's content.
    pub(crate) async fn load(&self, place: Place) -> Result<Bytes, spool::SpoolFailure> {
        if let Some(bytes) = self.spool.load_cached(place) {
            return Ok(bytes);
        }
        self.wait_for_disk(move |spool| spool.load(place)).await
    }

    /// Reads in a thread that may wait.
    async fn wait_for_disk<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Spool) -> Result<T, spool::SpoolFailure> + Send + 'static,
    ) -> Result<T, spool::SpoolFailure> {
        let spool = self.spool.clone();
        let done = tokio::task::spawn_blocking(move || read(&*spool)).await;
        done.unwrap_or(Err(spool::SpoolFailure::Missing))
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
}
