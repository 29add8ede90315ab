//! The state of many keys.

use crate::Rate;
use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, RandomState},
};

/// The result of spending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// Within the rate.
    Within,
    /// Nothing was spent: it would exceed the rate. In how many milliseconds it would not.
    Over(u64),
    /// Nothing was spent: every entry of the table is in use.
    Full,
}

/// The times at which keys are within their rates again. An entry is 16 bytes: the hash of its key, and a time.
/// Two keys with the same hash of 64 bits share an entry; the hash has a secret seed.
#[derive(Debug)]
pub struct Table {
    seed: RandomState,
    /// Nanoseconds of the theoretical arrival time.
    entries: HashMap<u64, u64, NoHash>,
    max: usize,
}

/// The keys are hashes already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoHash;

#[derive(Debug, Default)]
pub(crate) struct Same(u64);

impl BuildHasher for NoHash {
    type Hasher = Same;

    fn build_hasher(&self) -> Same {
        Same::default()
    }
}

impl std::hash::Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

impl Table {
    /// A table with at most `max` entries.
    pub fn new(max: usize) -> Self {
        Self { seed: RandomState::new(), entries: HashMap::default(), max }
    }

    /// Spends `amount` of a key's rate at a time, in nanoseconds of a clock that never goes back. An amount above the whole count
    /// is within the rate if nothing of that is used, and the key has nothing until all of it is paid: refused now, it would
    /// be refused for ever.
    pub fn spend(&mut self, key: &impl Hash, rate: Rate, amount: u64, now: u64) -> Spent {
        let period = u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX);
        let hash = self.seed.hash_one(key);
        let until = self.entries.get(&hash).copied().unwrap_or(0).max(now);
        // In 128 bits: a period of a year times a count of bytes is longer than 64.
        let cost = u128::from(period) * u128::from(amount) / u128::from(rate.count());
        let next = u128::from(until) + cost;
        let latest = u128::from(now) + u128::from(period);
        if next > latest && until > now {
            return Spent::Over(u64::try_from((next - latest).div_ceil(1_000_000)).unwrap_or(u64::MAX));
        }
        if !self.entries.contains_key(&hash) && self.entries.len() >= self.max {
            self.forget_idle(now);
            if self.entries.len() >= self.max {
                return Spent::Full;
            }
        }
        self.entries.insert(hash, u64::try_from(next).unwrap_or(u64::MAX));
        Spent::Within
    }

    /// Returns whether `amount` more would exceed a key's rate; nothing is spent.
    pub fn is_over(&self, key: &impl Hash, rate: Rate, amount: u64, now: u64) -> bool {
        let Some(until) = self.entries.get(&self.seed.hash_one(key)).filter(|until| **until > now) else {
            return false;
        };
        let cost = rate.period().as_nanos() * u128::from(amount) / u128::from(rate.count());
        u128::from(*until) + cost > u128::from(now) + rate.period().as_nanos()
    }

    /// Removes the entries whose keys have their whole rate again.
    pub fn forget_idle(&mut self, now: u64) {
        self.entries.retain(|_, until| *until > now);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// No entries?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(text: &str) -> Rate {
        Rate::parse(text).unwrap()
    }

    #[test]
    fn the_whole_count_may_come_at_once_and_fills_up_evenly() {
        let mut table = Table::new(10);
        for _ in 0..3 {
            assert_eq!(table.spend(&"a", rate("3/min"), 1, SECOND), Spent::Within);
        }
        assert_eq!(table.spend(&"a", rate("3/min"), 1, SECOND), Spent::Over(20_000));
        assert!(table.is_over(&"a", rate("3/min"), 1, SECOND));
        assert_eq!(table.spend(&"b", rate("3/min"), 1, SECOND), Spent::Within);
        assert_eq!(table.spend(&"a", rate("3/min"), 1, 21 * SECOND), Spent::Within);
        assert_eq!(table.spend(&"a", rate("3/min"), 1, 22 * SECOND), Spent::Over(19_000));
    }

    #[test]
    fn what_is_more_than_the_whole_count_passes_while_nothing_is_used() {
        let mut table = Table::new(10);
        assert!(!table.is_over(&"a", rate("3/min"), 6, SECOND));
        assert_eq!(table.spend(&"a", rate("3/min"), 6, SECOND), Spent::Within);
        assert_eq!(table.spend(&"a", rate("3/min"), 1, 80 * SECOND), Spent::Over(1_000));
        assert_eq!(table.spend(&"a", rate("3/min"), 1, 81 * SECOND), Spent::Within);
        assert_eq!(table.spend(&"a", rate("3/min"), 6, 120 * SECOND), Spent::Over(81_000));
        assert!(table.is_over(&"a", rate("3/min"), 6, 120 * SECOND));
    }

    #[test]
    fn a_full_table_forgets_idle_keys_first() {
        let mut table = Table::new(2);
        table.spend(&1, rate("1/s"), 1, 0);
        table.spend(&2, rate("1/min"), 1, 0);
        assert_eq!(table.spend(&3, rate("1/min"), 1, 1), Spent::Full);
        assert_eq!(table.spend(&3, rate("1/min"), 1, 2 * SECOND), Spent::Within);
        assert_eq!(table.len(), 2);
    }

    proptest! {
        /// In any window no more passes than the count that was saved, or one amount, and what fills up meanwhile.
        #[test]
        fn a_rate_is_never_exceeded(count in 1u64..50, steps in proptest::collection::vec((0u64..5_000_000_000, 1u64..5), 1..200)) {
            let rate = rate(&format!("{count}/min"));
            let (mut table, mut now, mut passed) = (Table::new(1), 0, Vec::new());
            for (wait, amount) in steps {
                now += wait;
                if table.spend(&"k", rate, amount, now) == Spent::Within {
                    passed.push((now, amount));
                }
            }
            for (index, (from, _)) in passed.iter().enumerate() {
                let window: u64 = passed[index..].iter().filter(|(at, _)| *at <= from + 60 * SECOND).map(|(_, n)| n).sum();
                prop_assert!(window <= count + count.max(4) + 1, "{window} in a minute");
            }
        }
    }
}
