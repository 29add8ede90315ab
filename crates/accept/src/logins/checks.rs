//! Passwords whose check takes a while: how many are checked at the same time, and who waits for that.

use super::lock;
use auth::{FailedLogins, KnownClients};
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Checks for strangers at the same time.
const STRANGERS_AT_ONCE: usize = 2;
/// Checks at the same time; one more than for strangers, so that a known client never waits for all of theirs.
const AT_ONCE: usize = STRANGERS_AT_ONCE + 1;
/// Checks of clients that failed a short time ago, under way or waiting; the next one is told to try again.
const SUSPECTS_MAX: usize = 32;
/// Checks of these and of all other strangers.
pub const STRANGER_CHECKS_MAX: usize = 64;
/// Checks of all clients together that are under way at a time.
pub const CHECKS_MAX: usize = 96;

/// What the checks know about clients, and those under way.
pub(super) struct Checks {
    known: Mutex<KnownClients>,
    failed: Mutex<FailedLogins>,
    waiting: Arc<Mutex<Waiting>>,
    at_once: Arc<Semaphore>,
    strangers_at_once: Arc<Semaphore>,
}

/// The checks that are under way or wait for it.
#[derive(Default)]
struct Waiting {
    count: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A check that is counted until it is dropped.
pub(super) struct Admitted {
    waiting: Arc<Mutex<Waiting>>,
    client: IpAddr,
    is_known: bool,
}

/// The permits of a check that is under way. They outlive a client who is gone: the hash takes its memory until it is done.
pub(super) struct Running {
    _any: OwnedSemaphorePermit,
    _stranger: Option<OwnedSemaphorePermit>,
}

impl Checks {
    pub(super) fn new() -> Self {
        Self {
            known: Mutex::default(),
            failed: Mutex::default(),
            waiting: Arc::default(),
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            strangers_at_once: Arc::new(Semaphore::new(STRANGERS_AT_ONCE)),
        }
    }

    pub(super) fn count(&self) -> usize {
        lock(&self.waiting).count
    }

    pub(super) fn known(&self) -> &Mutex<KnownClients> {
        &self.known
    }

    pub(super) fn failed(&self) -> &Mutex<FailedLogins> {
        &self.failed
    }

    /// Counts a check of a client. `None` if too many are under way or wait: fewer for a client from which nobody has logged in, fewest
    /// for one that failed a short time ago. A single client has at most half of what all of its kind may have.
    pub(super) fn admit(&self, client: IpAddr) -> Option<Admitted> {
        let now = Instant::now();
        let is_known = lock(&self.known).knows(client, now);
        let max = match is_known {
            true => CHECKS_MAX,
            false if lock(&self.failed).of_client(client, now) > 0 => SUSPECTS_MAX,
            false => STRANGER_CHECKS_MAX,
        };
        let client = limits::network(client);
        let mut waiting = lock(&self.waiting);
        if waiting.count >= max || waiting.by_client.get(&client).is_some_and(|own| *own >= max / 2) {
            return None;
        }
        waiting.count += 1;
        *waiting.by_client.entry(client).or_default() += 1;
        Some(Admitted { waiting: self.waiting.clone(), client, is_known })
    }

    /// Waits until the check can begin.
    pub(super) async fn begin(&self, admitted: &Admitted) -> Running {
        let acquire = async |semaphore: &Arc<Semaphore>| {
            semaphore.clone().acquire_owned().await.expect("the semaphore is never closed")
        };
        let stranger = match admitted.is_known {
            true => None,
            false => Some(acquire(&self.strangers_at_once).await),
        };
        Running { _any: acquire(&self.at_once).await, _stranger: stranger }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.count -= 1;
        if let Some(own) = waiting.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                waiting.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
impl Checks {
    /// Checks that have begun.
    pub(super) fn running_count(&self) -> usize {
        AT_ONCE - self.at_once.available_permits()
    }

    /// Begins as many checks of a stranger as there may be.
    pub(super) async fn begin_all(&self, client: IpAddr) -> Vec<Running> {
        let mut all = Vec::new();
        for _ in 0..STRANGERS_AT_ONCE {
            all.push(self.begin(&self.admit(client).unwrap()).await);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, u8::try_from(number).unwrap()])
    }

    /// Lets each client begin one check.
    fn admit_many(checks: &Checks, clients: std::ops::Range<usize>) -> Vec<Admitted> {
        clients.filter_map(|client| checks.admit(ip(client))).collect()
    }

    #[test]
    fn those_who_guess_leave_room_for_new_clients_and_these_for_known_ones() {
        let checks = Checks::new();
        for client in 0..100 {
            lock(&checks.failed).count(ip(client), None, 1, Instant::now());
        }
        let suspects = admit_many(&checks, 0..100);
        assert_eq!(suspects.len(), SUSPECTS_MAX);
        let strangers = admit_many(&checks, 100..200);
        assert_eq!(suspects.len() + strangers.len(), STRANGER_CHECKS_MAX);
        lock(&checks.known).remember(ip(0), Instant::now());
        lock(&checks.known).remember(ip(250), Instant::now());
        assert!(checks.admit(ip(249)).is_none());
        let known: Vec<_> = [0, 250].into_iter().map(|client| checks.admit(ip(client)).unwrap()).collect();
        assert_eq!(checks.count(), STRANGER_CHECKS_MAX + 2);
        drop((suspects, strangers, known));
        assert_eq!(checks.count(), 0);
        assert!(lock(&checks.waiting).by_client.is_empty());
    }

    #[test]
    fn one_client_does_not_take_all_of_its_kind() {
        let checks = Checks::new();
        let own: Vec<_> = (0..100).filter_map(|_| checks.admit(ip(1))).collect();
        assert_eq!(own.len(), STRANGER_CHECKS_MAX / 2);
        assert!(checks.admit(ip(2)).is_some());
    }

    #[tokio::test]
    async fn a_known_client_does_not_wait_for_the_passwords_of_strangers() {
        let checks = Checks::new();
        lock(&checks.known).remember(ip(1), Instant::now());
        let strangers: Vec<_> = (2..6).map(|client| checks.admit(ip(client)).unwrap()).collect();
        let mut running = Vec::new();
        for stranger in &strangers[..STRANGERS_AT_ONCE] {
            running.push(checks.begin(stranger).await);
        }
        let mut third = std::pin::pin!(checks.begin(&strangers[STRANGERS_AT_ONCE]));
        let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(third.as_mut().poll(cx).is_pending()));
        assert!(waits.await, "strangers leave a place");
        let known = checks.admit(ip(1)).unwrap();
        drop(checks.begin(&known).await);
        running.pop();
        drop(third.await);
    }
}
