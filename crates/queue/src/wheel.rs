//! The timer wheel: units sorted into slots of 100 ms, with a bitmap of slots in use.
//! What is due later than one turn is looked at once a turn.

use crate::{
    Millis,
    list::List,
    message::{Unit, UnitId},
    slab::Slab,
};

const TICK_MS: Millis = 100;
/// One turn is 6,553 s: more than the longest usual retry, so an entry is touched once.
const SLOTS: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Wheel {
    slots: Vec<List>,
    used: Vec<u64>,
    /// The next tick to look at.
    tick: i64,
    count: usize,
}

fn slot_of(tick: i64) -> usize {
    tick.rem_euclid(SLOTS as i64) as usize
}

impl Wheel {
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

    /// Waits for `units[at].due`.
    pub(crate) fn insert(&mut self, units: &mut Slab<Unit>, at: UnitId) {
        // Rounded up: never early. What is due already comes with the next tick.
        let tick = (units[at].due + TICK_MS - 1).div_euclid(TICK_MS).max(self.tick);
        let slot = slot_of(tick);
        units[at].slot = slot as u16;
        self.slots[slot].push_back(units, at);
        self.used[slot / 64] |= 1 << (slot % 64);
        self.count += 1;
    }

    pub(crate) fn remove(&mut self, units: &mut Slab<Unit>, at: UnitId) {
        let slot = usize::from(units[at].slot);
        self.slots[slot].remove(units, at);
        self.clear_if_empty(slot);
        self.count -= 1;
    }

    fn clear_if_empty(&mut self, slot: usize) {
        if self.slots[slot].is_empty() {
            self.used[slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// Takes out everything due at `now`.
    pub(crate) fn advance(&mut self, units: &mut Slab<Unit>, now: Millis, due: &mut Vec<UnitId>) {
        let last = now.div_euclid(TICK_MS);
        while self.count > 0 {
            let Some(tick) = self.next_tick().filter(|t| *t <= last) else { break };
            self.tick = tick;
            self.empty_slot(units, slot_of(tick), now, due);
            self.tick = tick + 1;
        }
        self.tick = self.tick.max(last + 1);
    }

    fn empty_slot(&mut self, units: &mut Slab<Unit>, slot: usize, now: Millis, due: &mut Vec<UnitId>) {
        let mut list = std::mem::take(&mut self.slots[slot]);
        while let Some(at) = list.pop_front(units) {
            if units[at].due > now {
                self.slots[slot].push_back(units, at); // a later turn's
            } else {
                self.count -= 1;
                due.push(at);
            }
        }
        self.clear_if_empty(slot);
    }

    /// The first tick from now on whose slot is in use, within one turn.
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

    /// When to call [`Wheel::advance`] next; early at most once a turn.
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
            let mut units = Slab::default();
            let mut wheel = Wheel::new(0);
            for due in &waits {
                let at = units.insert(Unit { due: *due, ..Unit::for_test() });
                wheel.insert(&mut units, at);
            }
            let (mut now, mut got) = (0, Vec::new());
            for step in steps.into_iter().chain([25_000_000]) {
                now += step;
                let mut due = Vec::new();
                wheel.advance(&mut units, now, &mut due);
                for at in &due { prop_assert!(units[*at].due <= now); }
                got.extend(due);
                for (at, unit) in units.iter() {
                    prop_assert!(unit.due > now - TICK_MS || got.contains(&at), "{at} is late");
                }
                if let Some(next) = wheel.next_due() { prop_assert!(next > now - TICK_MS); }
            }
            prop_assert_eq!(got.len(), waits.len());
        }
    }
}
