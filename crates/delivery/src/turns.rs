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
pub(crate) struct TurnLimits {
    pub(crate) max: usize,
    pub(crate) patience: Duration,
}

impl TurnLimits {
    /// Files: those of one mailbox wait for its lock one behind the other, and take milliseconds each.
    pub(crate) const FILES: Self = Self { max: 4, patience: Duration::from_secs(2) };
    /// Programs, which may take a while.
    pub(crate) const PROGRAMS: Self = Self { max: 8, patience: Duration::from_secs(15) };
}

/// The recipients that have deliveries.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Box<str>, Recipient>>);

#[derive(Debug)]
struct Recipient {
    /// The deliveries that are under way.
    count: usize,
    /// Those that wait.
    waiting: usize,
    /// When one of them began where there was none, or ended.
    last_progress: Instant,
    ended: Arc<Notify>,
}

/// A delivery, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    recipient: &'a str,
}

/// One that waits for its turn.
struct Wait<'a>(&'a Turns, &'a str);

impl Turns {
    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Recipient>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of a delivery.
    ///
    /// # Errors
    /// The recipient has as many deliveries as it may, and none of them has ended for so long.
    pub(crate) async fn begin<'a>(
        &'a self,
        recipient: &'a str,
        limits: TurnLimits,
    ) -> Result<Turn<'a>, Duration> {
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
                    return Ok(Turn { turns: self, recipient });
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.change(self.recipient, |one| {
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

    const LIMITS: TurnLimits = TurnLimits { max: 2, patience: Duration::from_millis(50) };

    #[tokio::test]
    async fn a_recipient_whose_deliveries_do_not_end_gets_no_more_and_others_do() {
        let turns = Turns::default();
        let own = [turns.begin("joe", LIMITS).await.unwrap(), turns.begin("joe", LIMITS).await.unwrap()];
        let ann = turns.begin("ann", LIMITS).await.unwrap();
        assert!(turns.begin("joe", LIMITS).await.unwrap_err() >= LIMITS.patience);
        // It is known by now.
        assert!(turns.begin("joe", LIMITS).await.is_err());
        drop(own);
        drop(turns.begin("joe", LIMITS).await.unwrap());
        drop(ann);
        assert!(turns.lock().is_empty());
    }

    #[tokio::test]
    async fn deliveries_that_end_are_waited_for() {
        let turns = Turns::default();
        let limits = TurnLimits { patience: Duration::from_secs(3600), ..LIMITS };
        let mut own =
            vec![turns.begin("joe", limits).await.unwrap(), turns.begin("joe", limits).await.unwrap()];
        for _ in 0..10 {
            let (next, ()) = tokio::join!(turns.begin("joe", limits), async { drop(own.pop()) });
            own.push(next.unwrap());
        }
        assert_eq!(turns.lock()["joe"].count, 2);
        drop(own);
        assert!(turns.lock().is_empty());
    }
}
