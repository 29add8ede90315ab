//! Deliveries that the helper has at a time. A program that hangs, and a mailbox whose owner keeps it locked, keep a delivery for
//! minutes: one recipient has some of them only, and mailboxes never wait for programs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Limits deliveries of one kind, all together and for each recipient.
#[derive(Debug)]
pub(super) struct Budget {
    all: Arc<Semaphore>,
    max: usize,
    of_recipient_max: usize,
    /// Those of each recipient that has a delivery or waits for one.
    by_recipient: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A delivery that is counted until this is dropped.
#[derive(Debug)]
pub(super) struct Counted {
    _of_recipient: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Budget {
    pub(super) fn new(max: usize, of_recipient_max: usize) -> Self {
        let all = Arc::new(Semaphore::new(max));
        Self { all, max, of_recipient_max, by_recipient: Mutex::default() }
    }

    /// Waits for the turn of a delivery: first among those of its recipient, which take no place of others, and then among all.
    pub(super) async fn begin(&self, recipient: &str) -> Result<Counted, AcquireError> {
        let own = self.of_recipient(recipient);
        let of_recipient = own.acquire_owned().await?;
        let of_all = self.all.clone().acquire_owned().await?;
        Ok(Counted { _of_recipient: of_recipient, _of_all: of_all })
    }

    fn of_recipient(&self, recipient: &str) -> Arc<Semaphore> {
        let mut all = self.by_recipient.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get(recipient).and_then(Weak::upgrade) {
            return own;
        }
        all.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.of_recipient_max));
        all.insert(recipient.to_owned(), Arc::downgrade(&own));
        own
    }

    /// Returns the number of deliveries now, and the most.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.max - self.all.available_permits(), self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::Future, pin::pin, task::Poll};

    fn now<F: Future>(future: F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match pin!(future).poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_recipient_has_some_of_the_deliveries_only() {
        let budget = Budget::new(5, 2);
        let mut hanging: Vec<Counted> =
            (0..2).map(|_| now(budget.begin("joe@a.test")).unwrap().unwrap()).collect();
        assert!(now(budget.begin("joe@a.test")).is_none());
        assert_eq!(budget.count(), (2, 5), "what waits for its recipient takes no place");
        let jane = now(budget.begin("jane@a.test")).unwrap().unwrap();
        hanging.pop();
        assert!(now(budget.begin("joe@a.test")).is_some());
        drop((jane, hanging));
        assert_eq!(budget.count(), (0, 5));
        now(budget.begin("jim@a.test"));
        assert_eq!(budget.by_recipient.lock().unwrap().len(), 1, "the others are forgotten");
    }
}
