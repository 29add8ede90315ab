//! The runtimes that run sessions.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::runtime::Handle;

/// Runtimes, one a core. A session stays on the one it began on, so that its data stays in that core's
/// cache and hardly anybody has to be woken; sessions are packed onto as few workers as keep up.
pub struct WorkerPool {
    workers: Vec<Worker>,
    should_share: Box<dyn Fn() -> bool + Send + Sync>,
}

struct Worker {
    runtime: Handle,
    session_count: Arc<AtomicUsize>,
}

/// Counts one session of a worker until it is dropped.
struct CountedSession(Arc<AtomicUsize>);

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WorkerPool {
    /// Connections are accepted on the first worker. `should_share` is called on a worker's own thread: is the
    /// worker nearly saturated, and is there a processor for another?
    ///
    /// # Panics
    /// Without any runtime.
    pub fn new(
        runtimes: impl IntoIterator<Item = Handle>,
        should_share: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Arc<Self> {
        let worker = |runtime| Worker { runtime, session_count: Arc::default() };
        let workers: Vec<Worker> = runtimes.into_iter().map(worker).collect();
        assert!(!workers.is_empty(), "sessions need a runtime");
        Arc::new(Self { workers, should_share: Box::new(should_share) })
    }

    /// The worker on which a new session begins; connections are accepted on the first.
    pub(crate) fn pick_first(&self) -> usize {
        self.pick_less_loaded(0, 1).unwrap_or(0)
    }

    /// Returns a worker with fewer sessions than the one that asks, which has `more` sessions than are counted.
    pub(crate) fn pick_less_loaded(&self, worker: usize, more: usize) -> Option<usize> {
        if self.workers.len() == 1 || !(self.should_share)() {
            return None;
        }
        let count = |worker: usize| self.workers[worker].session_count.load(Ordering::Relaxed);
        let least = (0..self.workers.len()).min_by_key(|worker| count(*worker))?;
        // Equal is good enough: with one more there than here, the next would come back.
        (count(least) + 1 < count(worker) + more).then_some(least)
    }

    /// Runs a session on the worker with this index, until it ends or moves.
    pub(crate) fn run(&self, worker: usize, session: impl Future<Output = ()> + Send + 'static) {
        let chosen = &self.workers[worker];
        chosen.session_count.fetch_add(1, Ordering::Relaxed);
        let counted = CountedSession(chosen.session_count.clone());
        chosen.runtime.spawn(async move {
            let _counted = counted;
            session.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn sessions_stay_together_until_their_thread_has_no_time_left() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let is_full = Arc::new(AtomicBool::new(false));
        let told = is_full.clone();
        let workers =
            WorkerPool::new(vec![runtime.handle().clone(); 3], move || told.load(Ordering::Relaxed));
        for _ in 0..6 {
            assert_eq!(workers.pick_first(), 0);
            workers.run(0, std::future::pending());
        }
        is_full.store(true, Ordering::Relaxed);
        assert_eq!((workers.pick_first(), workers.pick_less_loaded(0, 0)), (1, Some(1)));
        for worker in [1, 1, 2, 2, 2, 2, 2] {
            workers.run(worker, std::future::pending());
        }
        assert_eq!(
            (workers.pick_less_loaded(0, 0), workers.pick_less_loaded(2, 0), workers.pick_less_loaded(1, 0)),
            (Some(1), Some(1), None)
        );
    }

    #[test]
    fn sessions_that_ended_count_no_more() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let workers = WorkerPool::new(vec![runtime.handle().clone(); 2], || true);
        workers.run(0, std::future::ready(()));
        workers.run(0, std::future::ready(()));
        assert_eq!(workers.pick_less_loaded(0, 0), Some(1));
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(workers.pick_less_loaded(0, 0), None);
    }
}
