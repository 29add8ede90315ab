//! The queue's side of one connection out.

use super::{conclude, engine::Engine};
use bytes::Bytes;
use delivery::{Job, Jobs};
use mail::{Attempt, Destination, Enhanced, Fate, ForwardPath, Outcome, Place, SharedMessage};
use queue::{DestinationId, Taken};
use spool::SpoolFailure;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// Runs one connection for a destination, as the queue ordered.
pub(crate) fn open(engine: &Arc<Engine>, site: DestinationId, name: Destination) {
    let engine = engine.clone();
    tokio::spawn(async move {
        let jobs = SiteJobs {
            engine,
            site,
            in_hand: Mutex::default(),
            has_begun: AtomicBool::new(false),
            has_taken: AtomicBool::new(false),
        };
        let courier = jobs.engine.current().courier.clone();
        tokio::select! {
            () = courier.serve(&name, &jobs) => {}
            () = jobs.stop_connecting() => {}
        }
        // Dropping `jobs` tells the queue.
    });
}

/// A unit this connection has taken, and its message once it was read.
struct Hand {
    taken: Taken,
    message: Option<SharedMessage>,
}

/// One connection's view of the queue.
pub(crate) struct SiteJobs {
    engine: Arc<Engine>,
    site: DestinationId,
    in_hand: Mutex<Vec<Hand>>,
    /// It has asked for a job: it is connected.
    has_begun: AtomicBool,
    /// It has taken a unit, or found no host: see [`queue::Queue::connection_closed`].
    has_taken: AtomicBool,
}

impl SiteJobs {
    fn hands(&self) -> std::sync::MutexGuard<'_, Vec<Hand>> {
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(hands: &[Hand], job: &Job) -> Option<usize> {
        hands.iter().position(|h| {
            h.taken.id == job.id && h.taken.recipients.as_slice().first() == job.recipients.first()
        })
    }

    /// At shutdown, one that still looks for a host that answers has nothing to finish.
    async fn stop_connecting(&self) {
        let mut closing = self.engine.closing.subscribe();
        let told = closing.wait_for(|closing| *closing).await.is_ok();
        if !told || self.has_begun.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    fn let_go(&self, job: &Job) -> Option<Hand> {
        let mut hands = self.hands();
        Self::find(&hands, job).map(|at| hands.swap_remove(at))
    }
}

impl Jobs for SiteJobs {
    fn take(&self) -> Option<Job> {
        self.has_begun.store(true, Ordering::Relaxed);
        if *self.engine.closing.borrow() {
            return None;
        }
        let now = self.engine.now();
        let mut state = self.engine.lock();
        let taken = state.queue.take(self.site, now)?;
        self.has_taken.store(true, Ordering::Relaxed);
        let message = state.residents.get(taken.id);
        drop(state);
        let job = Job {
            id: taken.id,
            recipients: taken.recipients.as_slice().to_vec(),
            message: message.clone(),
            queued_ms: taken.queued_ms,
        };
        self.hands().push(Hand { taken, message });
        Some(job)
    }

    async fn ready(&self) {
        let mut closing = self.engine.closing.subscribe();
        let Some(rest) = Rest::begin(&self.engine, self.site) else { return };
        tokio::select! {
            () = rest.woken.notified() => {}
            _ = closing.wait_for(|closing| *closing) => {}
        }
    }

    fn is_closing(&self) -> bool {
        *self.engine.closing.borrow() || self.engine.lock().queue.is_contended(self.site)
    }

    async fn message(&self, job: &Job) -> Result<SharedMessage, Outcome> {
        let message = match &job.message {
            Some(message) => message.clone(),
            None => self.engine.read(job.id).await.map_err(|e| unreadable(&e))?,
        };
        let mut hands = self.hands();
        if let Some(at) = Self::find(&hands, job) {
            hands[at].message = Some(message.clone());
        }
        drop(hands);
        Ok(message)
    }

    async fn chunk(&self, place: Place) -> Result<Bytes, Outcome> {
        self.engine.load(place).await.map_err(|e| unreadable(&e))
    }

    fn knows(&self, recipient: &ForwardPath) -> bool {
        self.engine.current().policy.knows(recipient)
    }

    fn settle(&self, job: Job, results: Vec<(u32, Outcome)>, attempt: &Attempt) {
        let Some(hand) = self.let_go(&job) else {
            debug_assert!(false, "settled twice: {}", job.id);
            return;
        };
        let message = hand.message.or(job.message);
        conclude::tried(&self.engine, hand.taken, message, results, attempt.clone());
    }

    fn put_back(&self, job: Job) {
        if let Some(hand) = self.let_go(&job) {
            let now = self.engine.now();
            let mut state = self.engine.lock();
            let seized = state.queue.put_back(hand.taken.unit, now);
            self.engine.follow_orders(state, now);
            drop(conclude::condemned(&self.engine, seized));
        }
    }

    fn unreachable(&self, outcome: Outcome, attempt: &Attempt) {
        self.has_taken.store(true, Ordering::Relaxed);
        if outcome.fate == Fate::Failed {
            conclude::all_failed(&self.engine, self.site, &outcome, attempt);
            return;
        }
        let now = self.engine.now();
        let mut state = self.engine.lock();
        let until = state.queue.unreachable(self.site, outcome.clone(), now);
        let name = state.queue.destination_name(self.site).clone();
        self.engine.follow_orders(state, now);
        let until = until.map(|at| self.engine.clock.on_wall(at));
        self.engine.journal.suspended(&name, &outcome, until);
    }
}

impl Drop for SiteJobs {
    /// The connection is gone: what it still had goes back, and the queue may open another.
    fn drop(&mut self) {
        let hands = std::mem::take(&mut *self.hands());
        let now = self.engine.now();
        let mut state = self.engine.lock();
        let seized = hands.into_iter().flat_map(|hand| state.queue.put_back(hand.taken.unit, now)).collect();
        state.queue.connection_closed(self.site, self.has_taken.load(Ordering::Relaxed), now);
        self.engine.follow_orders(state, now);
        drop(conclude::condemned(&self.engine, seized));
    }
}

/// A spool that cannot give a message back now may be able to after a restart or repair.
fn unreadable(failure: &SpoolFailure) -> Outcome {
    Outcome::deferred(Enhanced(4, 3, 0), format!("read the message from the spool: {failure}"))
}

/// A place among the resting connections of a destination.
struct Rest {
    engine: Arc<Engine>,
    site: DestinationId,
    woken: Arc<Notify>,
}

impl Rest {
    /// `None`: there is work.
    fn begin(engine: &Arc<Engine>, site: DestinationId) -> Option<Self> {
        let woken = Arc::new(Notify::new());
        let mut state = engine.lock();
        if !state.queue.rest(site) {
            return None;
        }
        state.resting.entry(site).or_default().push(woken.clone());
        drop(state);
        Some(Self { engine: engine.clone(), site, woken })
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let mut state = self.engine.lock();
        let Some(resting) = state.resting.get_mut(&self.site) else { return };
        let was_there = resting.remove(&self.woken);
        if resting.is_empty() {
            state.resting.remove(&self.site);
        }
        if was_there {
            // Not woken: the queue still counts it.
            state.queue.stir(self.site);
        }
    }
}
