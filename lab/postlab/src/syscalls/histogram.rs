//! Durations of system calls in buckets of powers of two.

use std::{collections::BTreeMap, fmt::Write as _};

/// Counts by bucket: bucket b has the durations from 2^b to below 2^(b+1) nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Histogram(BTreeMap<u32, u64>);

/// Characters of the longest bar.
const BAR: u64 = 40;

impl Histogram {
    pub(super) fn took(&mut self, ns: u64) {
        self.add(ns, 1);
    }

    /// So many took about `ns`.
    pub(super) fn add(&mut self, ns: u64, count: u64) {
        *self.0.entry(ns.max(1).ilog2()).or_default() += count;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the nanoseconds that this share stays below, interpolated in its bucket.
    pub(super) fn at(&self, share: f64) -> f64 {
        let wanted = share * self.0.values().sum::<u64>() as f64;
        let mut before = 0.0;
        for (bucket, count) in &self.0 {
            let (low, count) = (2f64.powi(bucket.cast_signed()), *count as f64);
            if before + count >= wanted {
                return low + low * (wanted - before) / count;
            }
            before += count;
        }
        0.0
    }

    /// Returns one line for each bucket, with a bar.
    pub(super) fn text(&self) -> String {
        let most = self.0.values().copied().max().unwrap_or(1);
        let (first, last) = (self.0.keys().next(), self.0.keys().next_back());
        let (Some(first), Some(last)) = (first, last) else { return String::new() };
        let mut out = String::new();
        for bucket in *first..=*last {
            let count = self.0.get(&bucket).copied().unwrap_or_default();
            let bar = "#".repeat((count * BAR).div_ceil(most) as usize);
            let (low, high) = (1u64 << bucket, 1u64 << (bucket + 1));
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{:>12} - {:>9} {count:>10} {bar}", time(low as f64), time(high as f64));
        }
        out
    }

    /// The lower and upper bounds in microseconds, and the count, of each bucket.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (f64, f64, u64)> {
        let us = |bucket: u32| 2f64.powi(bucket.cast_signed()) / 1e3;
        self.0.iter().map(move |(bucket, count)| (us(*bucket), us(bucket + 1), *count))
    }
}

/// Returns a duration with the unit that fits.
pub(super) fn time(ns: f64) -> String {
    match ns {
        1e9.. => format!("{:.2} s", ns / 1e9),
        1e6.. => format!("{:.2} ms", ns / 1e6),
        1e3.. => format!("{:.1} µs", ns / 1e3),
        _ => format!("{ns:.0} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_powers_of_two_and_shares_are_interpolated() {
        let mut histogram = Histogram::default();
        assert_eq!((histogram.at(0.5), histogram.text().as_str()), (0.0, ""));
        (0..98).for_each(|_| histogram.took(1500));
        histogram.took(0);
        histogram.took(1 << 20);
        let buckets: Vec<_> = histogram.buckets().map(|(from, _, count)| (from, count)).collect();
        assert_eq!(buckets, [(0.001, 1), (1.024, 98), (1048.576, 1)]);
        assert!((1024.0..2048.0).contains(&histogram.at(0.5)), "{}", histogram.at(0.5));
        assert!(histogram.at(0.995) > 1048576.0 && histogram.at(0.99) <= 2048.0);
        let text = histogram.text();
        assert_eq!(text.lines().count(), 21, "empty buckets between are shown: {text}");
        assert!(text.contains("1.0 µs -    2.0 µs         98 ########"), "{text}");
    }
}
