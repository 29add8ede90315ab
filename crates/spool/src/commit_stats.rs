//! The numbers of group commit: how many transactions share a commit, and how long messages were held back for that.

use std::time::Duration;

/// The width of a bucket in microseconds.
const BUCKET_US: u64 = 50;
/// Buckets up to the longest time that the commit queue holds messages back; the last has all above.
const BUCKETS: usize = 101;

/// Commits of a spool since it was opened.
///
/// The *added wait* of a message begins when it is queued and the commit thread is free, and ends when its commit begins:
/// it is the price of sharing a sync. A message whose commit begins at once has an added wait of zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStats {
    /// The largest number of messages that shared a commit.
    pub messages_max: u64,
    /// Messages in all commits since the start.
    pub message_count: u64,
    /// Sum over all messages, in microseconds.
    pub added_wait_sum_us: u64,
    /// Longest of one message, in microseconds.
    pub added_wait_max_us: u64,
    buckets: [u64; BUCKETS],
}

impl Default for CommitStats {
    fn default() -> Self {
        Self {
            messages_max: 0,
            message_count: 0,
            added_wait_sum_us: 0,
            added_wait_max_us: 0,
            buckets: [0; BUCKETS],
        }
    }
}

impl CommitStats {
    /// Counts messages that begin their commit together, and the added waits of those that were held back.
    pub(crate) fn note(&mut self, message_count: usize, added: impl Iterator<Item = Duration>) {
        let message_count = message_count as u64;
        self.messages_max = self.messages_max.max(message_count);
        self.message_count += message_count;
        let mut held_count = 0;
        for wait in added {
            held_count += 1;
            let us = wait.as_micros() as u64;
            self.added_wait_sum_us += us;
            self.added_wait_max_us = self.added_wait_max_us.max(us);
            self.buckets[((us / BUCKET_US) as usize).min(BUCKETS - 1)] += 1;
        }
        assert!(held_count <= message_count, "more messages were held back than are committed");
        self.buckets[0] += message_count - held_count;
    }

    /// Takes in the commits of another spool.
    pub fn add(&mut self, other: &Self) {
        self.messages_max = self.messages_max.max(other.messages_max);
        self.message_count += other.message_count;
        self.added_wait_sum_us += other.added_wait_sum_us;
        self.added_wait_max_us = self.added_wait_max_us.max(other.added_wait_max_us);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, more)| *mine += more);
    }

    /// Returns an added wait in microseconds that so many of 100 messages do not exceed, rounded up to 50 µs.
    pub fn added_wait_percentile_us(&self, percent: u64) -> u64 {
        let wanted = (self.message_count * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && wanted > 0 {
                return ((bucket as u64 + 1) * BUCKET_US).min(self.added_wait_max_us);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_were_not_held_back_count_as_no_wait() {
        let mut stats = CommitStats::default();
        assert_eq!(stats.added_wait_percentile_us(99), 0);
        stats.note(97, std::iter::empty());
        stats.note(3, [120, 130, 9_000].map(Duration::from_micros).into_iter());
        assert_eq!((stats.messages_max, stats.message_count, stats.added_wait_sum_us), (97, 100, 9_250));
        assert_eq!(stats.added_wait_percentile_us(50), 50, "less than a bucket");
        assert_eq!(stats.added_wait_percentile_us(99), 150);
        assert_eq!(stats.added_wait_percentile_us(100), 5_050, "the last bucket has all above");
        let mut both = stats.clone();
        both.add(&stats);
        assert_eq!((both.message_count, both.added_wait_max_us, both.messages_max), (200, 9_000, 97));
    }
}
