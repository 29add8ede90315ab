//! The line before an engine's commit thread. Who submits never waits; the thread takes all that
//! waits at once, so that commits clock themselves.

use crate::{Refused, Ticket};
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
    /// The last ticket that was urgent from the beginning.
    urgent_up_to: AtomicU64,
    /// Above, [`Refused::Busy`].
    bytes_max: u64,
    /// How long outcomes may wait for a commit they can ride with.
    outcome_delay: Duration,
}

pub(crate) struct Line<W> {
    works: VecDeque<W>,
    pub(crate) bytes: u64,
    next_ticket: u64,
    /// Something waits that somebody waits for.
    urgent: bool,
    /// The commit thread sleeps until it is woken, or until outcomes have waited long enough.
    asleep: Sleep,
    closing: bool,
    poisoned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleep {
    Awake,
    Sound,
    Light,
}

impl<W> Line<W> {
    fn take(&mut self) -> (Vec<W>, Ticket) {
        self.urgent = false;
        self.bytes = 0;
        (self.works.drain(..).collect(), Ticket(self.next_ticket))
    }
}

impl<W> Inbox<W> {
    pub(crate) fn new(bytes_max: u64, outcome_delay: Duration) -> Self {
        let line = Line {
            works: VecDeque::new(),
            bytes: 0,
            next_ticket: 0,
            urgent: false,
            asleep: Sleep::Awake,
            closing: false,
            poisoned: false,
        };
        let (line, bell, urgent_up_to) = (Mutex::new(line), Condvar::new(), AtomicU64::new(0));
        Self { line, bell, urgent_up_to, bytes_max, outcome_delay }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Line<W>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place in the line for so many bytes. What frees room, `internal`, may wait in a longer line
    /// than what takes it.
    pub(crate) fn admit(&self, bytes: u64, internal: bool) -> Result<MutexGuard<'_, Line<W>>, Refused> {
        let line = self.lock();
        if line.poisoned || line.closing {
            return Err(Refused::Poisoned);
        }
        let max = self.bytes_max * if internal { 2 } else { 1 };
        if line.bytes + bytes > max && line.bytes > 0 { Err(Refused::Busy) } else { Ok(line) }
    }

    pub(crate) fn push(
        &self,
        mut line: MutexGuard<'_, Line<W>>,
        work: W,
        bytes: u64,
        urgent: bool,
    ) -> Ticket {
        line.next_ticket += 1;
        let ticket = Ticket(line.next_ticket);
        line.works.push_back(work);
        line.bytes += bytes;
        let first = urgent && !line.urgent;
        line.urgent |= urgent;
        if urgent {
            self.urgent_up_to.store(ticket.0, Ordering::Relaxed);
        }
        // Outcomes wake a sound sleeper once, so that it looks at the clock.
        let wake = match line.asleep {
            Sleep::Awake => false,
            Sleep::Light => first,
            Sleep::Sound => true,
        };
        drop(line);
        if wake {
            self.bell.notify_one();
        }
        ticket
    }

    /// For the commit thread: everything that waits and the last ticket in it. Sleeps while there
    /// is nothing urgent; outcomes alone wait a little for company. `None`: closed.
    pub(crate) fn next(&self) -> Option<(Vec<W>, Ticket)> {
        let mut line = self.lock();
        loop {
            if line.urgent || (line.closing && !line.works.is_empty()) {
                break;
            }
            if line.closing {
                return None;
            }
            if line.works.is_empty() {
                line.asleep = Sleep::Sound;
                line = self.bell.wait(line).unwrap_or_else(PoisonError::into_inner);
            } else {
                line.asleep = Sleep::Light;
                let slept = self.bell.wait_timeout(line, self.outcome_delay);
                let (woken, waited) = slept.unwrap_or_else(PoisonError::into_inner);
                line = woken;
                if waited.timed_out() {
                    break;
                }
            }
            line.asleep = Sleep::Awake;
        }
        line.asleep = Sleep::Awake;
        Some(line.take())
    }

    /// The same for an engine without a thread: never sleeps. `None`: nothing waits.
    pub(crate) fn take_all(&self) -> Option<(Vec<W>, Ticket)> {
        let mut line = self.lock();
        if line.works.is_empty() { None } else { Some(line.take()) }
    }

    /// Somebody waits for this ticket: if only outcomes are before it, they wait no longer.
    pub(crate) fn hurry(&self, ticket: Ticket) {
        if self.urgent_up_to.load(Ordering::Relaxed) >= ticket.0 {
            return;
        }
        let mut line = self.lock();
        if !line.works.is_empty() && !line.urgent {
            line.urgent = true;
            drop(line);
            self.bell.notify_one();
        }
    }

    /// Nothing more is taken; what waits is committed.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.bell.notify_all();
    }

    /// Nothing more is taken, and what waits is forgotten.
    pub(crate) fn poison(&self) {
        let mut line = self.lock();
        line.poisoned = true;
        line.works.clear();
    }
}
