//! Latencies as counters, for `postrider status`.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Count, sum and maximum of durations.
#[derive(Debug, Default)]
pub struct LatencyCounter {
    count: AtomicU64,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl LatencyCounter {
    /// Counts one.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.max_us.fetch_max(us, Ordering::Relaxed);
    }

    /// Returns the sum in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }

    /// Returns the count, the mean and the maximum; the last two in microseconds.
    pub fn sums(&self) -> (u64, u64, u64) {
        let (count, sum) = (self.count.load(Ordering::Relaxed), self.sum_us());
        (count, sum / count.max(1), self.max_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_knows_how_many_how_long_and_the_longest() {
        let latency = LatencyCounter::default();
        assert_eq!(latency.sums(), (0, 0, 0));
        [10, 20, 60].into_iter().for_each(|us| latency.record(Duration::from_micros(us)));
        assert_eq!((latency.sums(), latency.sum_us()), ((3, 30, 60), 90));
    }
}
