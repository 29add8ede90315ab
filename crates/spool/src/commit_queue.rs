//! The queue in front of a commit thread (group commit). A submit never blocks. The commit thread takes everything that
//! is queued at once, so the duration of one commit decides how many transactions share the next one. The thread is
//! woken when a submitter begins to wait, not at the submit: all that a submitter queues before it waits shares one
//! commit and one wake-up.

use crate::{CommitSeq, CommitStats, Entry, Refused};
use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Transactions, and other work, that a commit thread has not taken yet.
pub(crate) struct CommitQueue<W> {
    pending: Mutex<Pending<W>>,
    wakeup: Condvar,
    /// The last commit sequence number that the commit thread has taken.
    taken: AtomicU64,
    /// A submit that would exceed this is answered with [`Refused::Busy`].
    bytes_max: u64,
    /// A window that the queue does not choose itself, for the laboratory.
    window: Option<Duration>,
}

/// What submitters and the commit thread share.
pub(crate) struct Pending<W> {
    works: VecDeque<W>,
    pub(crate) bytes: u64,
    next_ticket: u64,
    /// A submitter waits for something in the queue.
    urgent: bool,
    /// Entries that a submitter will wait for.
    awaited_count: usize,
    /// Number of awaited entries that shared the last commits, decayed: as many are expected again.
    batch_target: usize,
    /// Commits until the target is raised again to probe for more submitters.
    probe_backoff: u32,
    /// How the commit thread sleeps, and so what wakes it.
    asleep: Sleep,
    closing: bool,
    poisoned: bool,
    stats: CommitStats,
    /// The time at which each awaited entry came that is held back now.
    held_since: Vec<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Until it is woken.
    Idle,
    /// Until it is woken, or outcomes have waited for long enough.
    Timed,
    /// For at most [`max_batch_delay`], or until the target is reached.
    Batching,
}

/// How soon an entry has to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// The entry may wait a while for a commit that it can share.
    Lazy,
    /// The submitter waits for it next, and that wait begins the commit.
    OnWait,
    /// Its submitter waits already: the commit begins without delay.
    Immediate,
}

/// Returns whether all of a transaction frees room, and how soon the transaction is to be committed.
pub(crate) fn classify(transaction: &[Entry]) -> (bool, Urgency) {
    let of = |entry: &Entry| match entry {
        // Reports on what leaves may use the reserve; null senders from elsewhere may not.
        Entry::Accept(message) => (message.is_report(), Urgency::OnWait),
        Entry::Import(_) => (false, Urgency::OnWait),
        Entry::Outcome { .. } => (!entry.is_deferral(), Urgency::Lazy),
        Entry::Control { .. } => (true, Urgency::Immediate),
        Entry::Count(_) => (true, Urgency::Lazy),
    };
    let classes = transaction.iter().map(of);
    classes.fold((true, Urgency::Lazy), |all, one| (all.0 && one.0, all.1.max(one.1)))
}

/// The longest time that awaited entries are held back so that more can share their commit.
const GATHER_MAX: Duration = Duration::from_millis(4);
/// With no more unused processor time than this, the processors are the bottleneck.
const SCARCE_PERCENT: u32 = 15;
/// With this much unused processor time, saving syncs gains nothing.
const PLENTY_PERCENT: u32 = 40;

/// Returns how long to wait for more entries to share a commit: four sync times for each entry of the target, up to a
/// limit that falls as unused processor time grows; at least two sync times. Every commit is decided by it, with the time
/// of the sync before.
pub fn max_batch_delay(last_sync: Duration, batch_target: usize, unused_percent: u32) -> Duration {
    const RANGE: u32 = PLENTY_PERCENT - SCARCE_PERCENT;
    let scarcity = PLENTY_PERCENT.saturating_sub(unused_percent).min(RANGE);
    let each = (4 * last_sync).saturating_mul(u32::try_from(batch_target).unwrap_or(u32::MAX));
    each.min(GATHER_MAX * scarcity / RANGE).max((2 * last_sync).min(GATHER_MAX))
}

/// After a probe for more submitters has failed, this many commits pass before the next probe.
const PROBE_BACKOFF_COMMITS: u32 = 32;

impl<W> Pending<W> {
    /// Are fewer entries awaited than the target, and can more come?
    fn is_below_target(&self) -> bool {
        self.awaited_count < self.target_with_probe() && !self.closing
    }

    /// The target, raised by an eighth and one to probe for more submitters, unless a probe has failed lately.
    fn target_with_probe(&self) -> usize {
        self.batch_target + if self.probe_backoff == 0 { 1 + self.batch_target / 8 } else { 0 }
    }

    /// The commit thread is free and holds entries back: their added wait begins.
    fn begin_to_hold(&mut self) {
        self.held_since.clear();
        self.held_since.resize(self.awaited_count, Instant::now());
        self.asleep = Sleep::Batching;
    }

    fn take(&mut self, held: &[Duration]) -> (Vec<W>, CommitSeq) {
        if self.awaited_count > 0 {
            self.stats.note(self.awaited_count, held.iter().copied());
        }
        self.urgent = false;
        self.bytes = 0;
        if self.probe_backoff > 0 {
            self.probe_backoff -= 1;
        } else if self.awaited_count < self.target_with_probe() {
            self.probe_backoff = PROBE_BACKOFF_COMMITS;
        }
        // One small commit is a pause; several mean fewer senders.
        let decayed = self.batch_target - self.batch_target.div_ceil(4);
        self.batch_target = std::mem::take(&mut self.awaited_count).max(decayed);
        (self.works.drain(..).collect(), CommitSeq(self.next_ticket))
    }
}

impl<W> CommitQueue<W> {
    pub(crate) fn new(bytes_max: u64, window: Option<Duration>) -> Self {
        let pending = Pending {
            works: VecDeque::new(),
            bytes: 0,
            next_ticket: 0,
            urgent: false,
            awaited_count: 0,
            batch_target: 0,
            probe_backoff: 0,
            asleep: Sleep::Awake,
            closing: false,
            poisoned: false,
            stats: CommitStats::default(),
            held_since: Vec::new(),
        };
        let (pending, wakeup, taken) = (Mutex::new(pending), Condvar::new(), AtomicU64::new(0));
        Self { pending, wakeup, taken, bytes_max, window }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pending<W>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the queue for an entry of `bytes`, unless the queue is full, closed or poisoned. Twice as much may be queued
    /// of entries that free room (`internal`).
    pub(crate) fn admit(&self, bytes: u64, internal: bool) -> Result<MutexGuard<'_, Pending<W>>, Refused> {
        self.admit_within(u64::MAX, bytes, internal)
    }

    /// As [`CommitQueue::admit`], for a queue of at most `most_bytes`.
    pub(crate) fn admit_within(
        &self,
        most_bytes: u64,
        bytes: u64,
        internal: bool,
    ) -> Result<MutexGuard<'_, Pending<W>>, Refused> {
        let pending = self.lock();
        if pending.poisoned || pending.closing {
            return Err(Refused::Poisoned);
        }
        let max = most_bytes.min(self.bytes_max * if internal { 2 } else { 1 });
        // An entry of zero bytes always fits. `discard_chunks` submits such entries and does not retry: if one were
        // refused, the chunk's file would stay until the next start.
        if bytes > 0 && pending.bytes > 0 && pending.bytes + bytes > max {
            Err(Refused::Busy)
        } else {
            Ok(pending)
        }
    }

    pub(crate) fn push(
        &self,
        mut pending: MutexGuard<'_, Pending<W>>,
        work: W,
        bytes: u64,
        urgency: Urgency,
    ) -> CommitSeq {
        pending.next_ticket += 1;
        let commit_seq = CommitSeq(pending.next_ticket);
        pending.works.push_back(work);
        pending.bytes += bytes;
        pending.awaited_count += usize::from(urgency == Urgency::OnWait);
        if pending.asleep == Sleep::Batching && urgency == Urgency::OnWait {
            pending.held_since.push(Instant::now());
        }
        let is_first = urgency == Urgency::Immediate && !pending.urgent;
        pending.urgent |= urgency == Urgency::Immediate;
        let wake = match pending.asleep {
            Sleep::Awake => false,
            Sleep::Batching => {
                urgency == Urgency::OnWait && pending.awaited_count == pending.target_with_probe()
            }
            Sleep::Timed => is_first,
            // A lazy entry wakes an idle thread once, so that the thread begins to measure the delay.
            Sleep::Idle => urgency != Urgency::OnWait,
        };
        drop(pending);
        if wake {
            self.wakeup.notify_one();
        }
        commit_seq
    }

    /// Takes everything that is queued, with its last commit sequence number; for the commit thread. Sleeps while
    /// nothing is urgent.
    /// Lazy entries alone wait for `outcome_delay`, so that they can share a commit. After a commit that several entries
    /// shared, awaited entries wait until as many are queued again, or for [`max_batch_delay`]. So concurrent senders save
    /// most syncs, and a single sender never waits. Returns `None` when the queue is closed or poisoned.
    pub(crate) fn next(
        &self,
        outcome_delay: Duration,
        last_sync: Duration,
        unused_percent: u32,
    ) -> Option<(Vec<W>, CommitSeq)> {
        let mut pending = self.lock();
        let mut held = Vec::new();
        if self.window.is_none() && pending.batch_target > 1 && pending.is_below_target() {
            pending.begin_to_hold();
            let most = max_batch_delay(last_sync, pending.batch_target, unused_percent);
            let gathered = |pending: &mut Pending<W>| pending.is_below_target();
            let slept = self.wakeup.wait_timeout_while(pending, most, gathered);
            pending = slept.unwrap_or_else(PoisonError::into_inner).0;
            pending.asleep = Sleep::Awake;
            let ended = Instant::now();
            held = pending.held_since.drain(..).map(|since| ended.duration_since(since)).collect();
        }
        // Lazy entries mostly follow a commit: a thread that sleeps with a timeout needs no wake-up for them.
        let mut is_quiet = false;
        loop {
            // The entries are gone: a commit of nothing with their last commit sequence number would call them durable.
            if pending.poisoned {
                return None;
            }
            if pending.urgent || (pending.closing && !pending.works.is_empty()) {
                break;
            }
            if pending.closing {
                return None;
            }
            if is_quiet && pending.awaited_count == pending.works.len() {
                pending.asleep = Sleep::Idle;
                pending = self.wakeup.wait(pending).unwrap_or_else(PoisonError::into_inner);
                is_quiet = false;
            } else {
                pending.asleep = Sleep::Timed;
                let slept = self.wakeup.wait_timeout(pending, outcome_delay);
                let (woken, waited) = slept.unwrap_or_else(PoisonError::into_inner);
                pending = woken;
                is_quiet = waited.timed_out();
                if is_quiet && pending.awaited_count < pending.works.len() {
                    break;
                }
            }
            pending.asleep = Sleep::Awake;
        }
        pending.asleep = Sleep::Awake;
        if let Some(window) = self.window {
            let is_open = |pending: &mut Pending<W>| !pending.closing && !pending.poisoned;
            let slept = self.wakeup.wait_timeout_while(pending, window, is_open);
            pending = slept.unwrap_or_else(PoisonError::into_inner).0;
            if pending.poisoned {
                return None;
            }
        }
        Some(self.take(&mut pending, &held))
    }

    fn take(&self, pending: &mut Pending<W>, held: &[Duration]) -> (Vec<W>, CommitSeq) {
        let (works, commit_seq) = pending.take(held);
        self.taken.store(commit_seq.0, Ordering::Relaxed);
        (works, commit_seq)
    }

    /// Takes everything that is queued and never sleeps; for a spool without threads. Returns `None` when nothing is
    /// queued.
    pub(crate) fn take_all(&self) -> Option<(Vec<W>, CommitSeq)> {
        let mut pending = self.lock();
        if pending.works.is_empty() || pending.poisoned { None } else { Some(self.take(&mut pending, &[])) }
    }

    /// Begins the next commit because a submitter waits for this commit sequence number, unless the number was taken
    /// already.
    pub(crate) fn request_commit(&self, commit_seq: CommitSeq) {
        if self.taken.load(Ordering::Relaxed) >= commit_seq.0 {
            return;
        }
        let mut pending = self.lock();
        if pending.works.is_empty() || std::mem::replace(&mut pending.urgent, true) {
            return;
        }
        let sleeps = matches!(pending.asleep, Sleep::Idle | Sleep::Timed);
        drop(pending);
        if sleeps {
            self.wakeup.notify_one();
        }
    }

    /// Returns the numbers of the commits that were taken.
    pub(crate) fn stats(&self) -> CommitStats {
        self.lock().stats.clone()
    }

    /// Refuses new entries. The queued ones are still committed.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.wakeup.notify_all();
    }

    /// Is the queue closed, and is nothing queued any more?
    pub(crate) fn is_drained(&self) -> bool {
        let pending = self.lock();
        pending.closing && pending.works.is_empty()
    }

    /// Refuses new entries and drops the queued ones. The commit thread ends.
    pub(crate) fn poison(&self) {
        let mut pending = self.lock();
        pending.poisoned = true;
        pending.works.clear();
        drop(pending);
        self.wakeup.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_longer_when_less_cpu_time_is_unused() {
        let waits =
            |unused_percent| max_batch_delay(Duration::from_micros(200), 10, unused_percent).as_micros();
        assert_eq!([0, 15, 20, 30, 35].map(waits), [4000, 4000, 3200, 1600, 800]);
        assert_eq!([40, 90].map(waits), [400, 400], "two syncs at least");
    }

    #[test]
    fn what_waited_when_the_queue_was_poisoned_is_never_taken() {
        let commit_queue = CommitQueue::new(1000, None);
        commit_queue.push(commit_queue.lock(), (), 1, Urgency::Immediate);
        commit_queue.poison();
        assert!(commit_queue.next(Duration::ZERO, Duration::ZERO, 0).is_none());
        assert!(commit_queue.take_all().is_none());
    }

    #[test]
    fn what_comes_within_a_fixed_window_shares_the_commit() {
        let commit_queue = CommitQueue::new(1000, Some(Duration::from_secs(3600)));
        commit_queue.push(commit_queue.lock(), 1, 1, Urgency::Immediate);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| commit_queue.next(Duration::ZERO, Duration::ZERO, 0));
            commit_queue.push(commit_queue.lock(), 2, 1, Urgency::Immediate);
            // The end of the spool ends the window, too.
            commit_queue.close();
            assert_eq!(taken.join().unwrap().unwrap().0, [1, 2]);
        });
    }

    #[test]
    fn a_long_line_takes_what_takes_nothing() {
        let commit_queue = CommitQueue::new(10, None);
        commit_queue.push(commit_queue.admit(1000, true).unwrap(), (), 1000, Urgency::Immediate);
        assert_eq!([0, 1].map(|bytes| commit_queue.admit(bytes, true).is_ok()), [true, false]);
    }

    #[test]
    fn the_target_falls_when_fewer_transactions_come() {
        let commit_queue = CommitQueue::new(1000, None);
        let target_after = |came: usize| {
            for _ in 0..came {
                commit_queue.push(commit_queue.lock(), (), 1, Urgency::OnWait);
            }
            commit_queue.take_all();
            commit_queue.lock().batch_target
        };
        assert_eq!([8, 1, 1, 1, 1, 1].map(target_after), [8, 6, 4, 3, 2, 1]);
        assert_eq!([5, 7].map(target_after), [5, 7]);
    }

    #[test]
    fn few_are_waited_for_no_longer_than_four_syncs_each_and_a_slow_disk_adds_nothing() {
        let busy = |sync_us, batch_target| {
            max_batch_delay(Duration::from_micros(sync_us), batch_target, 0).as_micros()
        };
        assert_eq!(busy(100, 2), 800);
        assert_eq!(busy(100, 50), 4000);
        assert_eq!(busy(30_000, 2), 4000);
    }
}
