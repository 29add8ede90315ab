//! How long phases take, as counters: for those who cannot read a probe.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A phase's durations so far.
#[derive(Debug, Default)]
pub(crate) struct Phase {
    count: AtomicU64,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Phase {
    pub(crate) fn note(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.max_us.fetch_max(us, Ordering::Relaxed);
    }

    /// Count, mean and largest, the last two in microseconds.
    pub(crate) fn sums(&self) -> (u64, u64, u64) {
        let (count, sum) = (self.count.load(Ordering::Relaxed), self.sum_us.load(Ordering::Relaxed));
        (count, sum / count.max(1), self.max_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_knows_how_many_how_long_and_the_longest() {
        let phase = Phase::default();
        assert_eq!(phase.sums(), (0, 0, 0));
        [10, 20, 60].into_iter().for_each(|us| phase.note(Duration::from_micros(us)));
        assert_eq!(phase.sums(), (3, 30, 60));
    }
}
