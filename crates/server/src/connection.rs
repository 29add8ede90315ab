//! The engine's side of one connection out.

pub mod generic;

use super::driver::{Abandonment, Driver, Leased};
use accept::unreadable;
use bytes::Bytes;
use delivery::{LeasedMessage, Progress, WorkSource};
use engine::{Abandoned, ConnectionId, Event};
use mail::{Attempt, ChunkId, Destination, Enhanced, ForwardPath, Outcome, SharedMessage};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};
use tokio::sync::Notify;

/// Runs one connection for a destination, as the engine ordered.
pub(crate) fn open(driver: &Arc<Driver>, connection: ConnectionId, destination: Destination) {
    let driver = driver.clone();
    tokio::spawn(async move {
        let (abandonment, progress) = {
            let mut state = driver.lock();
            (state.abandonment(connection), state.begin_progress(connection))
        };
        let work = DestinationWork {
            driver,
            abandonment,
            progress,
            connection,
            leaves_by_smtp: destination.next_hop.is_smtp(),
            leased: Mutex::default(),
            has_begun: AtomicBool::new(false),
        };
        let courier = work.driver.current().courier.clone();
        tokio::select! {
            () = courier.serve(&destination, &work) => {}
            () = work.stop_connecting() => {}
        }
        // Dropping `work` reports the end of the connection.
    });
}

/// What a connection to a destination has to deliver, taken from the engine.
struct DestinationWork {
    driver: Arc<Driver>,
    connection: ConnectionId,
    abandonment: Arc<Abandonment>,
    progress: Arc<Progress>,
    /// Addresses are changed by `addresses.generic`.
    leaves_by_smtp: bool,
    leased: Mutex<Vec<Leased>>,
    /// The connection has asked for a job, so it is connected.
    has_begun: AtomicBool,
}

impl DestinationWork {
    fn leased(&self) -> MutexGuard<'_, Vec<Leased>> {
        self.leased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(leased: &[Leased], leased_message: &LeasedMessage) -> Option<usize> {
        let first = leased_message.recipients.first();
        leased.iter().position(|one| {
            one.lease.id == leased_message.id && one.lease.recipients.as_slice().first() == first
        })
    }

    /// At shutdown, a connection that still looks for a host that answers has nothing to finish.
    async fn stop_connecting(&self) {
        let mut closing = self.driver.closing.subscribe();
        let told = closing.wait_for(|closing| *closing).await.is_ok();
        if !told || self.has_begun.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }

    fn take_leased(&self, leased_message: &LeasedMessage) -> Option<Leased> {
        let mut leased = self.leased();
        Self::find(&leased, leased_message).map(|at| leased.swap_remove(at))
    }
}

impl WorkSource for DestinationWork {
    fn next_lease(&self) -> Option<LeasedMessage> {
        self.has_begun.store(true, Ordering::Relaxed);
        let leased = self.driver.handle(Event::ConnectionReady(self.connection))?;
        let leased_message = LeasedMessage {
            id: leased.lease.id,
            recipients: leased.lease.recipients.as_slice().to_vec(),
            message: leased.message.clone(),
            queued_ms: leased.lease.queued_ms,
        };
        self.leased().push(leased);
        Some(leased_message)
    }

    async fn wait_for_work(&self) {
        let mut idle = Idle { work: self, is_woken: false };
        let woken = Arc::new(Notify::new());
        self.driver.idle(self.connection, woken.clone());
        woken.notified().await;
        idle.is_woken = true;
    }

    fn should_close(&self) -> bool {
        self.driver.lock().engine.should_close(self.connection)
    }

    async fn message(&self, leased_message: &LeasedMessage) -> Result<SharedMessage, Outcome> {
        let message = match &leased_message.message {
            Some(message) => message.clone(),
            None => self.driver.read(leased_message.id).await.map_err(|e| unreadable(&e))?,
        };
        {
            let mut leased = self.leased();
            if let Some(at) = Self::find(&leased, leased_message) {
                leased[at].message = Some(message.clone());
            }
        }
        if self.leaves_by_smtp {
            generic::changed(&self.driver.current(), message).await
        } else {
            Ok(message)
        }
    }

    async fn chunk(&self, chunk_id: ChunkId) -> Result<Bytes, Outcome> {
        self.driver.load(chunk_id).await.map_err(|e| unreadable(&e))
    }

    fn is_local_user(&self, recipient: &ForwardPath) -> bool {
        self.driver.current().policy.knows(recipient)
    }

    fn complete(&self, leased_message: LeasedMessage, results: Vec<(u32, Outcome)>, attempt: &Attempt) {
        let Some(Leased { lease, message }) = self.take_leased(&leased_message) else {
            debug_assert!(false, "settled twice: {}", leased_message.id);
            return;
        };
        self.driver.handle(Event::AttemptFinished {
            connection: self.connection,
            lease,
            message: message.or(leased_message.message),
            results,
            attempt: attempt.clone(),
        });
    }

    fn return_lease(&self, leased_message: LeasedMessage) {
        if let Some(Leased { lease, .. }) = self.take_leased(&leased_message) {
            self.driver.handle(Event::LeaseReturned { connection: self.connection, lease });
        }
    }

    async fn abandoned(&self) -> Option<Outcome> {
        match self.abandonment.wait().await {
            Abandoned::Unwanted => None,
            Abandoned::Crowded => Some(Outcome::deferred(
                Enhanced(4, 4, 1),
                "no answer so far, and other destinations wait for a connection (delivery.max_connections)",
            )),
        }
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn connected(&self, relay: &str, tls: &str) {
        self.driver.delivery_log.server_tls(relay, tls);
    }

    fn connected_to_exchanger(&self, exchangers: [Arc<str>; 2]) {
        self.driver.handle(Event::ConnectedToExchanger(self.connection, exchangers));
    }

    fn unreachable(&self, outcome: Outcome, attempt: &Attempt) {
        let (connection, attempt) = (self.connection, attempt.clone());
        self.driver.handle(Event::DestinationUnreachable { connection, outcome, attempt });
    }
}

impl Drop for DestinationWork {
    /// The connection is gone: its leases go back, and the engine may open another.
    fn drop(&mut self) {
        let leases = std::mem::take(&mut *self.leased()).into_iter().map(|leased| leased.lease).collect();
        self.driver.closed(self.connection, leases);
    }
}

/// Counts the connection as idle; dropping it unless it was woken says that it waits no longer.
struct Idle<'a> {
    work: &'a DestinationWork,
    is_woken: bool,
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        if !self.is_woken {
            self.work.driver.handle(Event::ConnectionNotIdle(self.work.connection));
        }
    }
}
