//! The state of a run while it goes on: rates, what waits in the server, and recent times of messages.

use super::Plan;
use std::{
    fmt::Write as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Buckets for each power of two of microseconds.
const STEPS: usize = 8;
/// Powers of two of microseconds: up to 71 minutes.
const POWERS: usize = 32;

/// Recent times of messages, to within an eighth. Nothing is counted unless somebody looks.
#[derive(Debug)]
pub(crate) struct LiveTimes {
    is_watched: AtomicBool,
    buckets: Box<[AtomicU64]>,
}

impl Default for LiveTimes {
    fn default() -> Self {
        let buckets = (0..STEPS * POWERS).map(|_| AtomicU64::new(0)).collect();
        Self { is_watched: AtomicBool::new(false), buckets }
    }
}

impl LiveTimes {
    /// Begins to count.
    fn watch(&self) {
        self.is_watched.store(true, Relaxed);
    }

    /// Counts the time of a message.
    pub(crate) fn took(&self, time: Duration) {
        if self.is_watched.load(Relaxed) {
            self.buckets[bucket(time)].fetch_add(1, Relaxed);
        }
    }

    /// Returns the median and the 99th percentile of the times since the last call.
    fn recent(&self) -> Option<(Duration, Duration)> {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.swap(0, Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let at = |share: f64| {
            let rank = ((total as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let place = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            place.map(upper_bound)
        };
        Some((at(0.5)?, at(0.99)?)).filter(|_| total > 0)
    }
}

fn bucket(time: Duration) -> usize {
    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = us.ilog2() as usize;
    // The three bits behind the first.
    let step = if power >= 3 { (us >> (power - 3)) as usize & 7 } else { (us << (3 - power)) as usize & 7 };
    (power * STEPS + step).min(STEPS * POWERS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let (power, step) = (bucket / STEPS, bucket % STEPS);
    Duration::from_secs_f64(f64::from(1u32 << power) * (STEPS + step + 1) as f64 / STEPS as f64 / 1e6)
}

/// Between two lines of the view.
const EVERY: Duration = Duration::from_millis(500);

/// The view of a run: a line of text every half second.
#[derive(Debug)]
pub struct LiveView {
    /// Named in front of the figures.
    step: String,
    at: Instant,
    sent: u64,
    received: u64,
}

impl LiveView {
    /// Begins to watch a plan; `step` names what runs, such as `postfix, 10 sessions`.
    pub fn new(step: impl Into<String>, plan: &Plan) -> Self {
        plan.live().watch();
        Self { step: step.into(), at: plan.begin(), sent: 0, received: 0 }
    }

    /// Returns the line if it is time for one: the rate, and where `received` is the number of messages that reached the
    /// sink, their rate and what waits between; and the recent times of messages.
    pub fn look(&mut self, plan: &Plan, received: Option<u64>, now: Instant) -> Option<String> {
        let elapsed = now.saturating_duration_since(self.at);
        if elapsed < EVERY {
            return None;
        }
        let sent = plan.progress().0;
        let rate = |count: u64| count as f64 / elapsed.as_secs_f64();
        let mut text = format!("{}: {:.0} msg/s", self.step, rate(sent.saturating_sub(self.sent)));
        if let Some(received) = received {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                ", {:.0} arrived/s, backlog {}",
                rate(received.saturating_sub(self.received)),
                sent.saturating_sub(received)
            );
            self.received = received;
        }
        if let Some((p50, p99)) = plan.live().recent() {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let _ = write!(text, ", p50 {:.1} ms, p99 {:.1} ms", ms(p50), ms(p99));
        }
        (self.at, self.sent) = (now, sent);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_an_eighth_wide_at_most() {
        for us in [1u64, 7, 8, 9, 100, 1000, 123_456, 3_600_000_000] {
            let time = Duration::from_micros(us);
            let bound = upper_bound(bucket(time));
            assert!(bound >= time, "{us}");
            assert!(us < 8 || bound.as_secs_f64() <= time.as_secs_f64() * 1.126, "{us}: {bound:?}");
        }
    }

    #[test]
    fn a_view_has_rates_backlog_and_recent_times() {
        let begin = Instant::now();
        let plan = Plan::new(100, None, begin);
        let mut view = LiveView::new("1 session", &plan);
        for _ in 0..10 {
            plan.done();
            plan.live().took(Duration::from_millis(1));
        }
        assert_eq!(view.look(&plan, Some(4), begin), None);
        let line = view.look(&plan, Some(4), begin + Duration::from_secs(1)).unwrap();
        assert_eq!(line, "1 session: 10 msg/s, 4 arrived/s, backlog 6, p50 1.0 ms, p99 1.0 ms");
        let line = view.look(&plan, None, begin + Duration::from_secs(2)).unwrap();
        assert_eq!(line, "1 session: 0 msg/s");
    }

    #[test]
    fn nothing_is_counted_unless_somebody_looks() {
        let times = LiveTimes::default();
        times.took(Duration::from_millis(1));
        assert_eq!(times.recent(), None);
    }
}
