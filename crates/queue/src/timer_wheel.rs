//! The timer wheel: jobs in slots of 100 ms, with a bitmap of slots in use. A job that is due later than one turn is
//! looked at once a turn.

use crate::{
    Millis,
    list::List,
    message::{Job, JobId},
    slab::Slab,
};

const TICK_MS: Millis = 100;
/// One turn is 6,553 s: more than the longest usual retry, so an entry is touched once.
const SLOTS: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct TimerWheel {
    slots: Vec<List>,
    used: Vec<u64>,
    /// The first tick that was not passed yet; 100 ms each.
    tick: i64,
    count: usize,
}

fn slot_of(tick: i64) -> usize {
    tick.rem_euclid(SLOTS as i64) as usize
}

impl TimerWheel {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            slots: vec![List::default(); SLOTS],
            used: vec![0; SLOTS / 64],
            tick: now.div_euclid(TICK_MS),
            count: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Adds a job that waits for its `due` time.
    pub(crate) fn insert(&mut self, jobs: &mut Slab<Job>, at: JobId) {
        // Rounded up: a job is never early. A job that is due already comes with the next tick.
        let tick = (jobs[at].due + TICK_MS - 1).div_euclid(TICK_MS).max(self.tick);
        let slot = slot_of(tick);
        jobs[at].slot = slot as u16;
        self.slots[slot].push_back(jobs, at);
        self.used[slot / 64] |= 1 << (slot % 64);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, jobs: &mut Slab<Job>, at: JobId) {
        let slot = usize::from(jobs[at].slot);
        self.slots[slot].remove(jobs, at);
        self.clear_if_empty(slot);
        self.count -= 1;
    }

    fn clear_if_empty(&mut self, slot: usize) {
        if self.slots[slot].is_empty() {
            self.used[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Takes out everything due at `now`.
    pub(crate) fn advance(&mut self, jobs: &mut Slab<Job>, now: Millis, due: &mut Vec<JobId>) {
        let last = now.div_euclid(TICK_MS);
        while self.count > 0 {
            let Some(tick) = self.next_tick().filter(|t| *t <= last) else { break };
            self.tick = tick;
            self.empty_slot(jobs, slot_of(tick), now, due);
            self.tick = tick + 1;
        }
        self.tick = self.tick.max(last + 1);
    }

    fn empty_slot(&mut self, jobs: &mut Slab<Job>, slot: usize, now: Millis, due: &mut Vec<JobId>) {
        let mut list = std::mem::take(&mut self.slots[slot]);
        while let Some(at) = list.pop_front(jobs) {
            if jobs[at].due > now {
                self.slots[slot].push_back(jobs, at); // a later turn's
            } else {
                self.count -= 1;
                due.push(at);
            }
        }
        self.clear_if_empty(slot);
    }

    /// Returns the first tick from now on whose slot is in use, within one turn.
    fn next_tick(&self) -> Option<i64> {
        let start = slot_of(self.tick);
        let words = self.used.len();
        for i in 0..=words {
            let word = (start / 64 + i) % words;
            let mut bits = self.used[word];
            if i == 0 {
                bits &= !0 << (start % 64);
            } else if i == words {
                bits &= !(!0 << (start % 64));
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - start) % SLOTS;
                return Some(self.tick + ahead as i64);
            }
        }
        None
    }

    /// Returns when to call [`TimerWheel::advance`] next; early at most once a turn.
    pub(crate) fn next_due(&self) -> Option<Millis> {
        if self.count == 0 { None } else { self.next_tick().map(|tick| tick * TICK_MS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn everything_comes_when_due_and_never_early(
            waits in proptest::collection::vec(0i64..20_000_000, 1..200),
            steps in proptest::collection::vec(1i64..1_000_000, 1..60),
        ) {
            let mut jobs = Slab::default();
            let mut wheel = TimerWheel::new(0);
            for due in &waits {
                let at = jobs.insert(Job { due: *due, ..Job::for_test() });
                wheel.insert(&mut jobs, at);
            }
            let (mut now, mut got) = (0, Vec::new());
            for step in steps.into_iter().chain([25_000_000]) {
                now += step;
                let mut due = Vec::new();
                wheel.advance(&mut jobs, now, &mut due);
                for at in &due { prop_assert!(jobs[*at].due <= now); }
                got.extend(due);
                for (at, job) in jobs.iter() {
                    prop_assert!(job.due > now - TICK_MS || got.contains(&at), "{at} is late");
                }
                if let Some(next) = wheel.next_due() { prop_assert!(next > now - TICK_MS); }
            }
            prop_assert_eq!(got.len(), waits.len());
        }
    }
}
