//! The state of many keys.

use crate::{
    Rate,
    keyed::{Keyed, NoHash, SEED_BYTES, number},
};
use std::{collections::HashMap, hash::Hash};

/// The begin of the bytes of [`Table::to_bytes`].
const MAGIC: &[u8; 8] = b"PRLIMIT1";

/// Whether the rate permitted the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// The rate permits it, and it was spent.
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
    keyed: Keyed,
    /// Nanoseconds of the theoretical arrival time.
    entries: HashMap<u64, u64, NoHash>,
    max: usize,
    is_changed: bool,
}

impl Table {
    /// A table with at most `max` entries. Nobody else knows the seed.
    pub fn new(seed: [u8; SEED_BYTES], max: usize) -> Self {
        Self { keyed: Keyed::new(seed), entries: HashMap::default(), max, is_changed: false }
    }

    /// Spends `amount` of a key's rate at a time, in nanoseconds of a clock that never goes back. An amount above the whole count
    /// is within the rate if nothing of that is used, and the key has nothing until all of it is paid: refused now, it would
    /// be refused for ever.
    pub fn spend(&mut self, key: &impl Hash, rate: Rate, amount: u64, now: u64) -> Spent {
        let period = u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX);
        let hash = self.keyed.hash(key);
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
        self.is_changed = true;
        Spent::Within
    }

    /// Returns whether `amount` more would exceed a key's rate; nothing is spent.
    pub fn is_over(&self, key: &impl Hash, rate: Rate, amount: u64, now: u64) -> bool {
        let Some(until) = self.entries.get(&self.keyed.hash(key)).filter(|until| **until > now) else {
            return false;
        };
        let cost = rate.period().as_nanos() * u128::from(amount) / u128::from(rate.count());
        u128::from(*until) + cost > u128::from(now) + rate.period().as_nanos()
    }

    /// Removes the entries whose keys have their whole rate again.
    pub fn forget_idle(&mut self, now: u64) {
        self.entries.retain(|_, until| *until > now);
    }

    /// Returns all that is still in use at a time, for [`Table::from_bytes`]; `None` if nothing has changed since the last call.
    pub fn changed_bytes(&mut self, now: u64) -> Option<Vec<u8>> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        self.forget_idle(now);
        let mut bytes = Vec::with_capacity(self.entries.len() * 16 + 64);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.keyed.seed());
        bytes.extend_from_slice(&now.to_le_bytes());
        for number in self.entries.iter().flat_map(|(hash, until)| [hash, until]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        Some(bytes)
    }

    /// The bytes could not be kept: they are to be returned once more.
    pub fn note_change(&mut self) {
        self.is_changed = true;
    }

    /// Reads the bytes of [`Table::changed_bytes`] at a time; `None` if they are others, or if the clock was set back since.
    pub fn from_bytes(bytes: &[u8], max: usize, now: u64) -> Option<Self> {
        let (seed, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
        let (written, entries) = rest.split_first_chunk()?;
        if entries.len() % 16 != 0 || u64::from_le_bytes(*written) > now {
            return None;
        }
        let mut table = Self::new(*seed, max);
        table
            .entries
            .extend(entries.chunks_exact(16).take(max).map(|pair| (number(pair, 0), number(pair, 1))));
        table.forget_idle(now);
        Some(table)
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no key is kept.
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
        let mut table = Table::new([0; 16], 10);
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
        let mut table = Table::new([0; 16], 10);
        assert!(!table.is_over(&"a", rate("3/min"), 6, SECOND));
        assert_eq!(table.spend(&"a", rate("3/min"), 6, SECOND), Spent::Within);
        assert_eq!(table.spend(&"a", rate("3/min"), 1, 80 * SECOND), Spent::Over(1_000));
        assert_eq!(table.spend(&"a", rate("3/min"), 1, 81 * SECOND), Spent::Within);
        assert_eq!(table.spend(&"a", rate("3/min"), 6, 120 * SECOND), Spent::Over(81_000));
        assert!(table.is_over(&"a", rate("3/min"), 6, 120 * SECOND));
    }

    #[test]
    fn a_full_table_forgets_idle_keys_first() {
        let mut table = Table::new([0; 16], 2);
        table.spend(&1, rate("1/s"), 1, 0);
        table.spend(&2, rate("1/min"), 1, 0);
        assert_eq!(table.spend(&3, rate("1/min"), 1, 1), Spent::Full);
        assert_eq!(table.spend(&3, rate("1/min"), 1, 2 * SECOND), Spent::Within);
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn bytes_keep_what_is_used_until_it_is_free_again() {
        let mut table = Table::new([7; 16], 10);
        assert!(table.changed_bytes(SECOND).is_none());
        table.spend(&"a", rate("1/min"), 1, SECOND);
        table.spend(&"b", rate("1/h"), 1, SECOND);
        let bytes = table.changed_bytes(2 * SECOND).unwrap();
        assert!(table.changed_bytes(2 * SECOND).is_none());
        let mut read = Table::from_bytes(&bytes, 10, 30 * SECOND).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read.spend(&"a", rate("1/min"), 1, 30 * SECOND), Spent::Over(31_000));
        assert_eq!(Table::from_bytes(&bytes, 10, 100 * SECOND).unwrap().len(), 1);
        assert!(Table::from_bytes(&bytes, 10, SECOND).is_none(), "the clock was set back");
        for wrong in [&b""[..], b"PRLIMIT2", &bytes[..bytes.len() - 1]] {
            assert!(Table::from_bytes(wrong, 10, 30 * SECOND).is_none());
        }
    }

    proptest! {
        /// In any window no more passes than the count that was saved, or one amount, and what fills up meanwhile.
        #[test]
        fn a_rate_is_never_exceeded(count in 1u64..50, steps in proptest::collection::vec((0u64..5_000_000_000, 1u64..5), 1..200)) {
            let rate = rate(&format!("{count}/min"));
            let (mut table, mut now, mut passed) = (Table::new([0; 16], 1), 0, Vec::new());
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
