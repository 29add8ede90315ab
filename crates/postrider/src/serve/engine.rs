//! The state that sessions, deliveries, the timer and operators share, and the few things that may
//! be done to it. One lock guards the queue; the spool, the log and the ledger have their own.

use super::residents::Residents;
use mail::{Attempt, Destination, Fate, ForwardPath, IdSource, Message, Outcome, QueueId, SharedMessage, UnixMillis};
use queue::{Arrival, DestinationId, Millis, Order, Queue, Taken};
use report::{Journal, Ledger};
use route::Table;
use spool::{Entry, Recovered, Refused, Spool, Transaction};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::{Notify, watch};

/// What became of a deferred recipient last, for `why` and the queue's listing.
pub(crate) type LastOutcomes = HashMap<QueueId, Vec<(u32, Arc<Outcome>, UnixMillis)>>;

/// Everything behind the queue's lock.
pub(crate) struct State {
    pub(crate) queue: Queue,
    /// Messages whose content is still in memory.
    pub(crate) residents: Residents,
    /// Connections that rest, by destination.
    pub(crate) resting: HashMap<DestinationId, VecDeque<Arc<Notify>>>,
    pub(crate) last: LastOutcomes,
}

/// The daemon's heart.
pub(crate) struct Engine {
    pub(crate) spool: Arc<dyn Spool>,
    pub(crate) state: Mutex<State>,
    pub(crate) table: RwLock<Arc<Table>>,
    pub(crate) ids: IdSource,
    pub(crate) ledger: Ledger,
    pub(crate) journal: Journal,
    pub(crate) settings: RwLock<Arc<config::Settings>>,
    /// Wakes the timer when something is due earlier than it thought.
    pub(crate) timer: Notify,
    pub(crate) closing: watch::Sender<bool>,
    /// The spool failed: stop accepting and exit.
    pub(crate) failed: AtomicBool,
    started: Instant,
    started_wall: UnixMillis,
}
