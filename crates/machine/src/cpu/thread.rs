//! The share of a processor's time that one thread uses.

use super::INTERVAL;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// With a larger share of one processor's time a thread is full: it hardly has any left for more.
const FULL_PERCENT: u32 = 85;

/// The time of the thread that asks; always the same one.
pub struct ThreadTime {
    sampled_at: Instant,
    used: Duration,
    is_saturated: bool,
}

impl ThreadTime {
    /// For the thread that calls this.
    pub fn new() -> Self {
        Self { sampled_at: Instant::now(), used: used(), is_saturated: false }
    }

    /// Had it hardly any time left lately?
    pub fn is_saturated(&mut self) -> bool {
        let elapsed = self.sampled_at.elapsed();
        if elapsed >= INTERVAL {
            self.sample(elapsed, used());
        }
        self.is_saturated
    }

    fn sample(&mut self, elapsed: Duration, used: Duration) {
        self.is_saturated = used.saturating_sub(self.used) * 100 >= elapsed * FULL_PERCENT;
        self.sampled_at += elapsed;
        self.used = used;
    }
}

impl Default for ThreadTime {
    fn default() -> Self {
        Self::new()
    }
}

/// Since it began.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_full_when_it_used_nearly_all_of_the_time() {
        let ms = Duration::from_millis;
        let mut time = ThreadTime { sampled_at: Instant::now(), used: ms(50), is_saturated: false };
        let mut told = |elapsed, used| {
            time.sample(ms(elapsed), ms(used));
            time.is_saturated
        };
        assert_eq!([told(100, 140), told(200, 300), told(100, 384)], [true, false, false]);
    }

    #[test]
    fn the_time_of_a_thread_grows_with_its_work() {
        let before = used();
        let sum = (0..2_000_000u64).fold(0u64, |sum, n| std::hint::black_box(sum.wrapping_mul(31) ^ n));
        assert!(used() > before, "{sum}");
    }
}
