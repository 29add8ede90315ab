//! Group commit, as both backends do it: the queue in front of the commit thread, how far commits have come, and the
//! end after a failure.

use crate::{
    CommitSeq, Durable, Failed, Pressure, SpoolFailure, closing::Closing, commit_progress::CommitProgress,
    commit_queue::CommitQueue,
};
use machine::cpu::Processors;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// The state that submitters, waiters and the commit thread share. `W` is what is committed.
pub(crate) struct GroupCommit<W> {
    pub(crate) queue: CommitQueue<W>,
    pub(crate) progress: Arc<CommitProgress>,
    /// Ends the waits of other threads of the spool.
    pub(crate) closing: Closing,
    commit_count: AtomicU64,
    transaction_count: AtomicU64,
    last_sync_us: AtomicU64,
    is_poisoned: AtomicBool,
}

impl<W> GroupCommit<W> {
    /// Makes an empty queue for at most `queued_bytes_max`; with a window that is fixed, if there is one.
    pub(crate) fn new(queued_bytes_max: u64, window: Option<Duration>) -> Self {
        Self {
            queue: CommitQueue::new(queued_bytes_max, window),
            progress: Arc::default(),
            closing: Closing::default(),
            commit_count: AtomicU64::new(0),
            transaction_count: AtomicU64::new(0),
            last_sync_us: AtomicU64::new(0),
            is_poisoned: AtomicBool::new(false),
        }
    }

    /// Commits what is queued, round by round; for the commit thread. Returns when the spool is closed, or when `commit`
    /// returns `false` because it failed.
    pub(crate) fn run(
        &self,
        outcome_delay: impl Fn() -> Duration,
        mut commit: impl FnMut(Vec<W>, CommitSeq) -> bool,
    ) {
        let mut processors = Processors::new();
        while let Some((works, commit_seq)) =
            self.queue.next(outcome_delay(), self.last_sync(), processors.unused_percent())
        {
            if !commit(works, commit_seq) {
                return;
            }
        }
        self.end();
    }

    /// Resolves once everything up to `commit_seq` is durable, and begins the commit that makes it so.
    pub(crate) fn durable(&self, commit_seq: CommitSeq) -> Durable {
        self.queue.request_commit(commit_seq);
        self.progress.wait(commit_seq)
    }

    /// Resolves to the failure after which nothing is committed.
    pub(crate) fn failed(&self) -> Failed {
        self.progress.wait_for_failure()
    }

    /// Counts a transaction that was submitted.
    pub(crate) fn note_transaction(&self) {
        self.transaction_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a commit, for [`crate::Pressure`].
    pub(crate) fn note_commit(&self) {
        self.commit_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how long the last sync took.
    pub(crate) fn note_sync(&self, took_us: u64) {
        self.last_sync_us.store(took_us, Ordering::Relaxed);
    }

    /// Returns how long the last sync took; zero before the first.
    pub(crate) fn last_sync(&self) -> Duration {
        Duration::from_micros(self.last_sync_us.load(Ordering::Relaxed))
    }

    /// Has a write or sync failed?
    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Relaxed)
    }

    /// Has anything been committed?
    pub(crate) fn has_committed(&self) -> bool {
        self.commit_count.load(Ordering::Relaxed) > 0
    }

    /// Ends the spool after a failure. Only the first failure is reported. `stop` ends what the commit thread may wait for.
    pub(crate) fn poison(&self, failure: SpoolFailure, stop: impl FnOnce()) {
        if self.is_poisoned.swap(true, Ordering::Relaxed) {
            return;
        }
        self.queue.poison();
        stop();
        tracing::error!("the spool has failed and accepts nothing more: {failure}");
        self.progress.fail(failure);
    }

    /// The commit thread has ended. After a failure, the failure was reported already.
    fn end(&self) {
        self.queue.poison();
        if !self.is_poisoned() {
            self.progress.fail(SpoolFailure::Io("the spool is closed".to_owned()));
        }
    }

    /// Returns the counters; the backend adds room and messages.
    pub(crate) fn pressure(&self) -> Pressure {
        Pressure {
            queued_bytes: self.queue.lock().bytes,
            commit_count: self.commit_count.load(Ordering::Relaxed),
            transaction_count: self.transaction_count.load(Ordering::Relaxed),
            last_sync_us: self.last_sync_us.load(Ordering::Relaxed),
            poisoned: self.is_poisoned(),
            ..Pressure::default()
        }
    }
}
