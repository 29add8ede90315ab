//! The load of the machine's processors: whether there is any use in sparing them, or in asking more
//! of them.

use super::INTERVAL;
use std::{fs, os::unix::fs::FileExt as _, thread, time::Instant};

/// One is free when as much of the time of all was unused as this part of its own.
const FREE_PERCENT: u64 = 50;

/// Samples how much time of all processors is unused.
pub struct Processors {
    /// `/proc/stat`; where it cannot be read nothing of their time counts as unused, and one of them as free.
    stat: Option<fs::File>,
    count: u64,
    last: Times,
    sampled_at: Option<Instant>,
    unused_percent: Option<u32>,
}

/// Since the machine started, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    idle: u64,
    all: u64,
}

impl Processors {
    /// Looked at when somebody asks.
    pub fn new() -> Self {
        let stat = fs::File::open("/proc/stat").ok();
        let count = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Self { stat, count, last: Times::default(), sampled_at: None, unused_percent: None }
    }

    /// Returns the share of their time that was unused lately, 0 to 100: half of it is the last interval's, a quarter
    /// that
    /// of the one before, and so on.
    pub fn unused_percent(&mut self) -> u32 {
        self.sample_if_due();
        self.unused_percent.unwrap_or(0)
    }

    /// Was there time for one more thread lately?
    pub fn has_idle_cpu(&mut self) -> bool {
        self.sample_if_due();
        self.unused_percent.is_none_or(|unused| u64::from(unused) * self.count >= FREE_PERCENT)
    }

    fn sample_if_due(&mut self) {
        if self.sampled_at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            self.sampled_at = Some(Instant::now());
            self.sample();
        }
    }

    fn sample(&mut self) {
        let mut head = [0; 256];
        let times = self.stat.as_ref().and_then(|stat| {
            let length = stat.read_at(&mut head, 0).ok()?;
            read(&head[..length])
        });
        let Some(times) = times else { return };
        let (idle, all) =
            (times.idle.saturating_sub(self.last.idle), times.all.saturating_sub(self.last.all));
        if let Some(unused) = (idle * 100).checked_div(all) {
            let unused = unused as u32;
            self.unused_percent = Some(self.unused_percent.map_or(unused, |before| (before + unused) / 2));
            self.last = times;
        }
    }
}

impl Default for Processors {
    fn default() -> Self {
        Self::new()
    }
}

/// The first line: `cpu` and the times spent in user, nice, system, idle, iowait, irq, softirq and steal.
fn read(stat: &[u8]) -> Option<Times> {
    let line = stat.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (Some("cpu"), numbers) = (words.next(), words.map_while(|word| word.parse::<u64>().ok())) else {
        return None;
    };
    let numbers: Vec<u64> = numbers.take(8).collect();
    (numbers.len() >= 5).then(|| Times { idle: numbers[3] + numbers[4], all: numbers.iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read_and_nothing_else() {
        let stat = b"cpu  10 1 5 80 4 0 1 2 7 0\ncpu0 5 0 2 40 2 0 0 1 3 0\n";
        assert_eq!(read(stat), Some(Times { idle: 84, all: 103 }));
        for other in ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4 5 6", "cpu a b c d e"] {
            assert_eq!(read(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_unused_counts_the_more_the_later_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stat");
        let mut processors = Processors { stat: None, count: 4, ..Processors::new() };
        let mut told = |user: u64, idle: u64| {
            fs::write(&path, format!("cpu {user} 0 0 {idle} 0 0 0 0\n")).unwrap();
            processors.stat = fs::File::open(&path).ok();
            processors.sample();
            processors.unused_percent
        };
        assert_eq!(told(100, 100), Some(50));
        assert_eq!(told(180, 120), Some(35));
        assert_eq!(told(275, 125), Some(20));
        assert_eq!(told(295, 205), Some(50));
        assert_eq!(told(295, 205), Some(50), "nothing new is known");
        processors.stat = None;
        processors.sample();
        assert_eq!(processors.unused_percent, Some(50));
    }

    #[test]
    fn one_is_free_when_half_of_its_time_was_unused_or_nothing_is_known() {
        let free_of_four = |unused_percent| {
            let sampled_at = Some(Instant::now());
            Processors { unused_percent, sampled_at, count: 4, ..Processors::new() }.has_idle_cpu()
        };
        assert!(free_of_four(None));
        assert!(free_of_four(Some(13)));
        assert!(!free_of_four(Some(12)));
    }
}
