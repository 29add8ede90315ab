//! The line before an engine's commit thread. Who submits never waits; the thread takes all that
//! waits at once, so that commits clock themselves. It is woken when somebody begins to wait, not when
//! something is submitted: what one thread submits before it waits shares a commit and a wake-up.

use crate::{Entry, Refused, Ticket};
use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// What waits for the commit thread.
pub(crate) struct Inbox<W> {
    line: Mutex<Line<W>>,
    bell: Condvar,
    /// The last ticket the commit thread has taken.
    taken: AtomicU64,
    /// Above, [`Refused::Busy`].
    bytes_max: u64,
}

pub(crate) struct Line<W> {
    works: VecDeque<W>,
    pub(crate) bytes: u64,
    next_ticket: u64,
    /// Something waits that somebody waits for.
    urgent: bool,
    /// Works that somebody will wait for.
    awaited_count: usize,
    /// How many of them shared the last commits: as many may come again.
    company: usize,
    /// For so many more commits no more are hoped for than came last time.
    modest_commits: u32,
    /// The commit thread sleeps until it is woken, or until outcomes have waited long enough.
    asleep: Sleep,
    closing: bool,
    poisoned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    /// Until it is woken.
    Sound,
    /// Until it is woken, or outcomes have waited for long enough.
    Light,
    /// For a moment, or until as many are there as shared the last commit.
    Gathering,
}

/// How soon a work is to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Haste {
    /// It may wait a while for a commit it can ride with.
    Rides,
    /// Whoever submitted it waits for it next, and that begins the commit.
    Awaited,
    /// At once.
    Now,
}

/// Does all of it free room, and how soon is it to be committed?
pub(crate) fn nature(transaction: &[Entry]) -> (bool, Haste) {
    let of = |entry: &Entry| match entry {
        // Reports on what leaves may use the reserve; null senders from elsewhere may not.
        Entry::Accept(message) => (message.is_report(), Haste::Awaited),
        Entry::Adopt(_) => (false, Haste::Awaited),
        Entry::Outcome { .. } => (!entry.is_in_vain(), Haste::Rides),
        Entry::Amend { .. } => (true, Haste::Now),
    };
    let natures = transaction.iter().map(of);
    natures.fold((true, Haste::Rides), |all, one| (all.0 && one.0, all.1.max(one.1)))
}

/// The longest that works which somebody waits for are held up for more of their kind.
const GATHER_MAX: Duration = Duration::from_millis(4);
/// With no more of the processors' time unused, they are what everybody waits for.
const SCARCE_PERCENT: u32 = 15;
/// With so much there is no use in sparing it.
const PLENTY_PERCENT: u32 = 40;

/// How long to wait for so many: four syncs for each, up to a limit that falls with the time that the
/// processors have to spare; but for two syncs in any case.
fn patience(last_sync: Duration, company: usize, unused_percent: u32) -> Duration {
    const RANGE: u32 = PLENTY_PERCENT - SCARCE_PERCENT;
    let scarcity = PLENTY_PERCENT.saturating_sub(unused_percent).min(RANGE);
    let each = (4 * last_sync).saturating_mul(u32::try_from(company).unwrap_or(u32::MAX));
    each.min(GATHER_MAX * scarcity / RANGE).max((2 * last_sync).min(GATHER_MAX))
}

/// After more company was hoped for in vain, so many commits go by before it is again.
const MODEST_COMMITS: u32 = 32;

impl<W> Line<W> {
    /// Fewer wait than are hoped for, and more may come.
    fn is_short_of_company(&self) -> bool {
        self.awaited_count < self.hoped() && !self.closing
    }

    /// As many as shared the last commit; and some more, unless that was hoped for in vain lately.
    fn hoped(&self) -> usize {
        self.company + if self.modest_commits == 0 { 1 + self.company / 8 } else { 0 }
    }

    fn take(&mut self) -> (Vec<W>, Ticket) {
        self.urgent = false;
        self.bytes = 0;
        if self.modest_commits > 0 {
            self.modest_commits -= 1;
        } else if self.awaited_count < self.hoped() {
            self.modest_commits = MODEST_COMMITS;
        }
        // One commit with few is a pause; several are fewer senders.
        let faded = self.company - self.company.div_ceil(4);
        self.company = std::mem::take(&mut self.awaited_count).max(faded);
        (self.works.drain(..).collect(), Ticket(self.next_ticket))
    }
}

impl<W> Inbox<W> {
    pub(crate) fn new(bytes_max: u64) -> Self {
        let line = Line {
            works: VecDeque::new(),
            bytes: 0,
            next_ticket: 0,
            urgent: false,
            awaited_count: 0,
            company: 0,
            modest_commits: 0,
            asleep: Sleep::Awake,
            closing: false,
            poisoned: false,
        };
        let (line, bell, taken) = (Mutex::new(line), Condvar::new(), AtomicU64::new(0));
        Self { line, bell, taken, bytes_max }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Line<W>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the line for so many bytes. What frees room, `internal`, may wait in a longer line
    /// than what takes it.
    pub(crate) fn admit(&self, bytes: u64, internal: bool) -> Result<MutexGuard<'_, Line<W>>, Refused> {
        self.admit_within(u64::MAX, bytes, internal)
    }

    /// The same in a line that is to be no longer than `most_bytes`.
    pub(crate) fn admit_within(
        &self,
        most_bytes: u64,
        bytes: u64,
        internal: bool,
    ) -> Result<MutexGuard<'_, Line<W>>, Refused> {
        let line = self.lock();
        if line.poisoned || line.closing {
            return Err(Refused::Poisoned);
        }
        let max = most_bytes.min(self.bytes_max * if internal { 2 } else { 1 });
        // What takes nothing is never too much: nobody would say it again.
        if bytes > 0 && line.bytes > 0 && line.bytes + bytes > max { Err(Refused::Busy) } else { Ok(line) }
    }

    pub(crate) fn push(
        &self,
        mut line: MutexGuard<'_, Line<W>>,
        work: W,
        bytes: u64,
        haste: Haste,
    ) -> Ticket {
        line.next_ticket += 1;
        let ticket = Ticket(line.next_ticket);
        line.works.push_back(work);
        line.bytes += bytes;
        line.awaited_count += usize::from(haste == Haste::Awaited);
        let is_first = haste == Haste::Now && !line.urgent;
        line.urgent |= haste == Haste::Now;
        let wake = match line.asleep {
            Sleep::Awake => false,
            Sleep::Gathering => haste == Haste::Awaited && line.awaited_count == line.hoped(),
            Sleep::Light => is_first,
            // What rides wakes a sound sleeper once, so that it looks at the clock.
            Sleep::Sound => haste != Haste::Awaited,
        };
        drop(line);
        if wake {
            self.bell.notify_one();
        }
        ticket
    }

    /// For the commit thread: everything that waits and the last ticket in it. Sleeps while there
    /// is nothing urgent; outcomes alone wait for `outcome_delay` for a commit they can ride with. So do messages that follow a commit
    /// which several shared, until as many are there again, or for as long as [`patience`] says. Where many
    /// send at once most syncs are saved; whoever sends alone never waits. `None`: closed or poisoned.
    pub(crate) fn next(
        &self,
        outcome_delay: Duration,
        last_sync: Duration,
        unused_percent: u32,
    ) -> Option<(Vec<W>, Ticket)> {
        let mut line = self.lock();
        if line.company > 1 && line.is_short_of_company() {
            line.asleep = Sleep::Gathering;
            let most = patience(last_sync, line.company, unused_percent);
            let gathered = |line: &mut Line<W>| line.is_short_of_company();
            let slept = self.bell.wait_timeout_while(line, most, gathered);
            line = slept.unwrap_or_else(PoisonError::into_inner).0;
            line.asleep = Sleep::Awake;
        }
        // What rides mostly follows a commit: a sleeper that looks at the clock anyway needs no waking.
        let mut is_quiet = false;
        loop {
            // What waited is forgotten: whoever took nothing with its ticket would call it durable.
            if line.poisoned {
                return None;
            }
            if line.urgent || (line.closing && !line.works.is_empty()) {
                break;
            }
            if line.closing {
                return None;
            }
            if is_quiet && line.awaited_count == line.works.len() {
                line.asleep = Sleep::Sound;
                line = self.bell.wait(line).unwrap_or_else(PoisonError::into_inner);
                is_quiet = false;
            } else {
                line.asleep = Sleep::Light;
                let slept = self.bell.wait_timeout(line, outcome_delay);
                let (woken, waited) = slept.unwrap_or_else(PoisonError::into_inner);
                line = woken;
                is_quiet = waited.timed_out();
                if is_quiet && line.awaited_count < line.works.len() {
                    break;
                }
            }
            line.asleep = Sleep::Awake;
        }
        line.asleep = Sleep::Awake;
        Some(self.take(&mut line))
    }

    fn take(&self, line: &mut Line<W>) -> (Vec<W>, Ticket) {
        let (works, ticket) = line.take();
        self.taken.store(ticket.0, Ordering::Relaxed);
        (works, ticket)
    }

    /// The same for an engine without a thread: never sleeps. `None`: nothing waits.
    pub(crate) fn take_all(&self) -> Option<(Vec<W>, Ticket)> {
        let mut line = self.lock();
        if line.works.is_empty() || line.poisoned { None } else { Some(self.take(&mut line)) }
    }

    /// Somebody waits for this ticket: unless its commit is under way, the next begins.
    pub(crate) fn hurry(&self, ticket: Ticket) {
        if self.taken.load(Ordering::Relaxed) >= ticket.0 {
            return;
        }
        let mut line = self.lock();
        if line.works.is_empty() || std::mem::replace(&mut line.urgent, true) {
            return;
        }
        let sleeps = matches!(line.asleep, Sleep::Sound | Sleep::Light);
        drop(line);
        if sleeps {
            self.bell.notify_one();
        }
    }

    /// Nothing more is taken; what waits is committed.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.bell.notify_all();
    }

    /// Closed, and nothing waits any more?
    pub(crate) fn is_drained(&self) -> bool {
        let line = self.lock();
        line.closing && line.works.is_empty()
    }

    /// Nothing more is taken, and what waits is forgotten. The commit thread ends.
    pub(crate) fn poison(&self) {
        let mut line = self.lock();
        line.poisoned = true;
        line.works.clear();
        drop(line);
        self.bell.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn company_is_waited_for_the_longer_the_less_of_the_processors_is_unused() {
        let waits = |unused_percent| patience(Duration::from_micros(200), 10, unused_percent).as_micros();
        assert_eq!([0, 15, 20, 30, 35].map(waits), [4000, 4000, 3200, 1600, 800]);
        assert_eq!([40, 90].map(waits), [400, 400], "two syncs at least");
    }

    #[test]
    fn what_waited_when_the_inbox_was_poisoned_is_never_taken() {
        let inbox = Inbox::new(1000);
        inbox.push(inbox.lock(), (), 1, Haste::Now);
        inbox.poison();
        assert!(inbox.next(Duration::ZERO, Duration::ZERO, 0).is_none());
        assert!(inbox.take_all().is_none());
    }

    #[test]
    fn a_long_line_takes_what_takes_nothing() {
        let inbox = Inbox::new(10);
        inbox.push(inbox.admit(1000, true).unwrap(), (), 1000, Haste::Now);
        assert_eq!([0, 1].map(|bytes| inbox.admit(bytes, true).is_ok()), [true, false]);
    }

    #[test]
    fn company_that_does_not_come_again_is_hoped_for_less_and_less() {
        let inbox = Inbox::new(1000);
        let company_after = |came: usize| {
            for _ in 0..came {
                inbox.push(inbox.lock(), (), 1, Haste::Awaited);
            }
            inbox.take_all();
            inbox.lock().company
        };
        assert_eq!([8, 1, 1, 1, 1, 1].map(company_after), [8, 6, 4, 3, 2, 1]);
        assert_eq!([5, 7].map(company_after), [5, 7]);
    }

    #[test]
    fn few_are_waited_for_no_longer_than_four_syncs_each_and_a_slow_disk_adds_nothing() {
        let busy = |sync_us, company| patience(Duration::from_micros(sync_us), company, 0).as_micros();
        assert_eq!(busy(100, 2), 800);
        assert_eq!(busy(100, 50), 4000);
        assert_eq!(busy(30_000, 2), 4000);
    }
}
