//! The progress of commits, and the tasks that wait for them.

use crate::{CommitSeq, Durable, Failed, SpoolFailure};
use std::{
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// Shared by the commit thread and all that wait.
#[derive(Debug, Default)]
pub(crate) struct CommitProgress {
    durable: AtomicU64,
    failure: OnceLock<SpoolFailure>,
    waiting: Mutex<Waiting>,
}

/// One waker for each future that is polled and not dropped, however often it is polled.
#[derive(Debug, Default)]
struct Waiting {
    /// Numbers given so far; they tell waits for the same commit sequence number apart.
    number_count: u64,
    wakers: BTreeMap<(CommitSeq, u64), Waker>,
}

impl CommitProgress {
    /// Everything up to `commit_seq` is durable.
    pub(crate) fn publish(&self, commit_seq: CommitSeq) {
        self.durable.store(commit_seq.0, Ordering::Release);
        let mut waiting = self.waiting();
        let later = waiting.wakers.split_off(&(commit_seq, u64::MAX));
        let due = std::mem::replace(&mut waiting.wakers, later);
        drop(waiting);
        due.into_values().for_each(Waker::wake);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more will become durable.
    pub(crate) fn fail(&self, failure: SpoolFailure) {
        let _ = self.failure.set(failure);
        let wakers = std::mem::take(&mut self.waiting().wakers);
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns the result of a wait for `commit_seq` if the wait would end at once.
    pub(crate) fn look(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        if self.durable.load(Ordering::Acquire) >= commit_seq.0 {
            return Some(Ok(()));
        }
        self.failure.get().map(|failure| Err(failure.clone()))
    }

    /// For threads of our own.
    pub(crate) fn wait_blocking(self: &Arc<Self>, commit_seq: CommitSeq) -> Result<(), SpoolFailure> {
        block_on(self.wait(commit_seq))
    }

    pub(crate) fn wait(self: &Arc<Self>, commit_seq: CommitSeq) -> Durable {
        Box::pin(Wait { progress: self.clone(), commit_seq, number: None })
    }

    /// Resolves to the failure, once there is one.
    pub(crate) fn wait_for_failure(self: &Arc<Self>) -> Failed {
        // No commit has this commit sequence number, so only a failure ends the wait.
        let wait = self.wait(CommitSeq(u64::MAX));
        Box::pin(async move {
            match wait.await {
                Err(failure) => failure,
                Ok(()) => std::future::pending().await,
            }
        })
    }
}

/// Blocks the thread until the future is ready.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Wait {
    progress: Arc<CommitProgress>,
    commit_seq: CommitSeq,
    /// The number among the waiting callers, once the caller waits.
    number: Option<u64>,
}

impl Future for Wait {
    type Output = Result<(), SpoolFailure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { progress, commit_seq, number } = self.get_mut();
        if let Some(result) = progress.look(*commit_seq) {
            return Poll::Ready(result);
        }
        let mut waiting = progress.waiting();
        // Published between the look and the lock?
        if let Some(result) = progress.look(*commit_seq) {
            return Poll::Ready(result);
        }
        let number = *number.get_or_insert_with(|| {
            waiting.number_count += 1;
            waiting.number_count
        });
        let waker = waiting.wakers.entry((*commit_seq, number)).or_insert_with(|| cx.waker().clone());
        waker.clone_from(cx.waker());
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.progress.waiting().wakers.remove(&(self.commit_seq, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_has_one_waker_however_often_it_is_polled_and_none_once_it_is_dropped() {
        let progress = Arc::new(CommitProgress::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = [7, 7, 9].map(|commit_seq| progress.wait(CommitSeq(commit_seq)));
        for _ in 0..1000 {
            for wait in &mut waits {
                assert!(wait.as_mut().poll(&mut context).is_pending());
            }
        }
        assert_eq!(progress.waiting().wakers.len(), 3);
        progress.publish(CommitSeq(7));
        assert_eq!(progress.waiting().wakers.len(), 1);
        let [first, second, third] = &mut waits;
        assert!(
            first.as_mut().poll(&mut context).is_ready() && second.as_mut().poll(&mut context).is_ready()
        );
        assert!(third.as_mut().poll(&mut context).is_pending());
        drop(waits);
        assert_eq!(progress.waiting().wakers.len(), 0);
    }

    #[test]
    fn the_waker_of_the_last_poll_is_woken() {
        struct Counted(AtomicU64);
        impl std::task::Wake for Counted {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let progress = Arc::new(CommitProgress::default());
        let counters = [0, 0].map(|count| Arc::new(Counted(AtomicU64::new(count))));
        let mut wait = progress.wait(CommitSeq(1));
        for counter in &counters {
            let waker = Waker::from(counter.clone());
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        progress.publish(CommitSeq(1));
        assert_eq!(counters.map(|counter| counter.0.load(Ordering::Relaxed)), [0, 1]);
    }
}
