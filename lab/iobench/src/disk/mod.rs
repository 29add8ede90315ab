//! Measurements of a disk and its file system: what a mail queue asks of them, and nothing else.

pub mod dd;
pub mod fsperf;
pub mod fsseq;
pub mod fsync_check;
pub mod iostat;
pub mod readwrite;

use crate::table::{Cell, Column};
use hdrhistogram::Histogram;
use std::time::Duration;

/// The columns of the times of syncs; the text has them as a line.
pub const SYNC_COLUMNS: [Column; 4] = [
    Column::other("syncs", "syncs"),
    Column::other("sync p50 ms", "sync_p50_ms"),
    Column::other("sync p99 ms", "sync_p99_ms"),
    Column::other("sync max ms", "sync_max_ms"),
];

/// Times of one operation, many times.
#[derive(Debug, Clone)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Self {
        let made = Histogram::new_with_bounds(100, 3_600_000_000_000, 3);
        Self(made.unwrap_or_else(|_| unreachable!("the bounds are constant and good")))
    }
}

impl Times {
    /// Notes how long the operation took.
    pub fn took(&mut self, time: Duration) {
        self.0.saturating_record(time.as_nanos() as u64);
    }

    /// Adds the times of another histogram.
    pub fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Returns the time that this share of operations stays below: 0.5 is the median.
    pub fn at(&self, share: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(share))
    }

    /// Returns the cells of the columns of [`SYNC_COLUMNS`].
    pub fn cells(&self) -> [Cell; 4] {
        if self.0.is_empty() {
            return [const { Cell::Empty }; 4];
        }
        let ms = |share: f64| Cell::Number(self.at(share).as_secs_f64() * 1e3, 3);
        [self.0.len().into(), ms(0.5), ms(0.99), ms(1.0)]
    }

    /// `fsync  p50 1.2 ms  p99 3 ms  max 9 ms`; nothing where there were none.
    pub fn line(&self, name: &str) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let shown = |share: f64| format!("{:.3} ms", self.at(share).as_secs_f64() * 1e3);
        let count = self.0.len();
        format!("{name:<8}{count} times, p50 {}, p99 {}, max {}\n", shown(0.5), shown(0.99), shown(1.0))
    }
}
