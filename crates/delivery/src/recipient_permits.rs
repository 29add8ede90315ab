//! Deliveries of one recipient on this machine at a time. All mailboxes, or all recipients of a program, share one destination and its
//! connections: what hangs for one of them must not keep the others waiting.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

/// How many deliveries one recipient has at a time, and how long the next one waits while none of them ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PermitLimits {
    pub(crate) max: usize,
    pub(crate) patience: Duration,
}

impl PermitLimits {
    /// Files: those of one mailbox wait for its lock one behind the other, and take milliseconds each.
    pub(crate) const FILES: Self = Self { max: 4, patience: Duration::from_secs(2) };
    /// Programs, which may take a while.
    pub(crate) const PROGRAMS: Self = Self { max: 8, patience: Duration::from_secs(15) };
}

/// Deliveries per recipient: under way or waiting for a permit.
#[derive(Debug, Default)]
pub(crate) struct RecipientPermits(Mutex<HashMap<Box<str>, Recipient>>);

#[derive(Debug)]
struct Recipient {
    /// Permits that are held.
    count: usize,
    waiting: usize,
    /// When one of them began where there was none, or ended.
    last_progress: Instant,
    ended: Arc<Notify>,
}

/// Permits one delivery, until it is dropped.
#[derive(Debug)]
pub(crate) struct Permit<'a> {
    permits: &'a RecipientPermits,
    recipient: &'a str,
}

/// Counts as waiting until it is dropped.
struct Wait<'a>(&'a RecipientPermits, &'a str);

impl RecipientPermits {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Recipient>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a delivery may begin.
    ///
    /// # Errors
    /// The recipient has as many deliveries as it may, and none of them has ended for so long.
    pub(crate) async fn acquire<'a>(
        &'a self,
        recipient: &'a str,
        limits: PermitLimits,
    ) -> Result<Permit<'a>, Duration> {
        let mut wait = None;
        loop {
            let (ended, until) = {
                let (mut all, now) = (self.lock(), Instant::now());
                let new = || Recipient { count: 0, waiting: 0, last_progress: now, ended: Arc::default() };
                let one = all.entry(recipient.into()).or_insert_with(new);
                if one.count < limits.max {
                    if one.count == 0 {
                        one.last_progress = now;
                    }
                    one.count += 1;
                    return Ok(Permit { permits: self, recipient });
                }
                let silence = now - one.last_progress;
                if silence >= limits.patience {
                    return Err(silence);
                }
                one.waiting += usize::from(wait.is_none());
                (one.ended.clone().notified_owned(), one.last_progress + limits.patience)
            };
            wait.get_or_insert_with(|| Wait(self, recipient));
            // It was made under the lock: no end since then is missed.
            let _ = timeout_at(until, ended).await;
        }
    }

    fn change(&self, recipient: &str, change: impl FnOnce(&mut Recipient)) {
        let mut all = self.lock();
        let Some(one) = all.get_mut(recipient) else { return };
        change(one);
        if one.count + one.waiting == 0 {
            all.remove(recipient);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.permits.change(self.recipient, |one| {
            one.count -= 1;
            one.last_progress = Instant::now();
            one.ended.notify_waiters();
        });
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.change(self.1, |one| one.waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PermitLimits = PermitLimits { max: 2, patience: Duration::from_millis(50) };

    #[tokio::test]
    async fn a_recipient_whose_deliveries_do_not_end_gets_no_more_and_others_do() {
        let permits = RecipientPermits::default();
        let own =
            [permits.acquire("joe", LIMITS).await.unwrap(), permits.acquire("joe", LIMITS).await.unwrap()];
        let ann = permits.acquire("ann", LIMITS).await.unwrap();
        assert!(permits.acquire("joe", LIMITS).await.unwrap_err() >= LIMITS.patience);
        // It is known by now.
        assert!(permits.acquire("joe", LIMITS).await.is_err());
        drop(own);
        drop(permits.acquire("joe", LIMITS).await.unwrap());
        drop(ann);
        assert!(permits.lock().is_empty());
    }

    #[tokio::test]
    async fn deliveries_that_end_are_waited_for() {
        let permits = RecipientPermits::default();
        let limits = PermitLimits { patience: Duration::from_secs(3600), ..LIMITS };
        let mut own = vec![
            permits.acquire("joe", limits).await.unwrap(),
            permits.acquire("joe", limits).await.unwrap(),
        ];
        for _ in 0..10 {
            let (next, ()) = tokio::join!(permits.acquire("joe", limits), async { drop(own.pop()) });
            own.push(next.unwrap());
        }
        assert_eq!(permits.lock()["joe"].count, 2);
        drop(own);
        assert!(permits.lock().is_empty());
    }
}
