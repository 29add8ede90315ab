//! Latencies as counters, for `postrider status`.

use metrics::{LATENCY_BOUNDS_US, Latencies};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Count, sum and maximum of durations, and a count for each bucket.
#[derive(Debug, Default)]
pub struct LatencyCounter {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len()],
    count: AtomicU64,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl LatencyCounter {
    /// Counts one message that took this long.
    pub fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        self.max_us.fetch_max(us, Ordering::Relaxed);
    }

    /// Returns the sum in microseconds.
    fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }

    /// Returns the counts of all buckets.
    pub fn histogram(&self) -> Latencies {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        // A time that is recorded meanwhile may be in its bucket and not yet in the count.
        let count = self.count.load(Ordering::Relaxed).max(counts.iter().sum());
        Latencies { counts, count, sum_us: self.sum_us() }
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

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let latency = LatencyCounter::default();
        [250, 251, 11_000_000].into_iter().for_each(|us| latency.record(Duration::from_micros(us)));
        let Latencies { counts, count, sum_us } = latency.histogram();
        assert_eq!((counts[0], counts[1], counts.iter().sum::<u64>()), (1, 1, 2));
        assert_eq!((count, sum_us), (3, 11_000_501));
    }
}
