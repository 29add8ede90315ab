//! Pauses of 40 or 200 ms before a reply, and whether a delayed acknowledgement of this machine causes them.
//!
//! A server with Nagle's algorithm that writes a reply in two pieces sends the second when the first is acknowledged. A
//! client with nothing to send acknowledges after 40 ms (Linux) or up to 200 ms (RFC 9293 §3.8.6.3). So a delayed
//! acknowledgement needs two things: octets that arrived since the client wrote last, and a pause behind them that ends
//! when they are acknowledged. The source acknowledges some of them at once: if the pause is gone then, it was theirs.
//! A reply that arrives whole behind its pause was not held back: the command has acknowledged all that was there.

use super::counts::Phase;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};

/// Delays of acknowledgements in milliseconds: 200 ms, the longest of Linux and the usual one of others, and 40 ms, the
/// shortest of Linux. TCP_CORK ends after 200 ms too.
const STEPS_MS: [f64; 2] = [200.0, 40.0];
/// Distance from a step, as a share of the step, that still counts as the step.
const STEP_SHARE: f64 = 0.06;
/// Replies that are needed before anything is said of their times.
const REPLIES_MIN: u64 = 5;
/// Pauses behind a part of a reply from which on acknowledgements are tried.
pub(crate) const SUSPECT: Duration = Duration::from_millis(30);
/// One of so many parts of replies is acknowledged at once, after a suspect pause.
const TRIAL_EVERY: u64 = 4;
/// Replies acknowledged at once that are needed for a comparison.
const TRIALS_MIN: u64 = 2;

/// Pauses behind parts of replies, of one phase.
#[derive(Debug, Clone)]
struct SplitTimes {
    /// Acknowledged when the kernel likes; in nanoseconds, as the other.
    usual: Histogram<u64>,
    /// Acknowledged at once.
    hurried: Histogram<u64>,
}

/// Pauses behind the first parts of replies, as a loop has seen them.
#[derive(Debug, Default)]
pub(crate) struct PauseCounts {
    waits: BTreeMap<Phase, SplitTimes>,
    suspects: u64,
    parts: u64,
}

/// The pauses behind the first parts of replies, of one phase. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitReplies {
    /// Replies that arrived in parts, with acknowledgements as the kernel sends them.
    pub usual_count: u64,
    /// Median pause of these.
    pub usual_p50_us: f64,
    /// Replies whose first part was acknowledged at once.
    pub hurried_count: u64,
    /// Median pause of these.
    pub hurried_p50_us: f64,
}

impl PauseCounts {
    /// Is the part of a reply that arrived now to be acknowledged at once?
    pub(crate) fn tries_acknowledgement(&mut self) -> bool {
        if self.suspects == 0 {
            return false;
        }
        self.parts += 1;
        self.parts.is_multiple_of(TRIAL_EVERY)
    }

    /// A reply was complete so long after an earlier part of it.
    pub(crate) fn waited(&mut self, phase: Phase, pause: Duration, was_hurried: bool) {
        self.suspects += u64::from(pause >= SUSPECT);
        let empty = || {
            let made = Histogram::new(2);
            made.unwrap_or_else(|_| unreachable!("two digits are allowed"))
        };
        let waits =
            self.waits.entry(phase).or_insert_with(|| SplitTimes { usual: empty(), hurried: empty() });
        let histogram = if was_hurried { &mut waits.hurried } else { &mut waits.usual };
        // A histogram that grows takes any time.
        let _ = histogram.record(pause.as_nanos() as u64);
    }

    /// Adds another loop's.
    pub(crate) fn add(&mut self, other: &Self) {
        for (phase, theirs) in &other.waits {
            match self.waits.get_mut(phase) {
                None => drop(self.waits.insert(*phase, theirs.clone())),
                Some(mine) => {
                    // Both grow as needed.
                    let _ = mine.usual.add(&theirs.usual);
                    let _ = mine.hurried.add(&theirs.hurried);
                }
            }
        }
        self.suspects += other.suspects;
        self.parts += other.parts;
    }

    /// Returns what each phase has seen of replies in parts.
    pub(crate) fn split_replies(&self) -> BTreeMap<Phase, SplitReplies> {
        let p50_us = |histogram: &Histogram<u64>| histogram.value_at_quantile(0.5) as f64 / 1e3;
        let row = |waits: &SplitTimes| SplitReplies {
            usual_count: waits.usual.len(),
            usual_p50_us: p50_us(&waits.usual),
            hurried_count: waits.hurried.len(),
            hurried_p50_us: p50_us(&waits.hurried),
        };
        self.waits.iter().map(|(phase, waits)| (*phase, row(waits))).collect()
    }
}

/// The times of a phase, of which a pause may be a part.
#[derive(Debug, Clone, Copy)]
pub struct PhaseTimes<'a> {
    /// Phase of the session.
    pub phase: Phase,
    /// How many times were measured.
    pub count: u64,
    /// Shortest time in milliseconds.
    pub min_ms: f64,
    /// Median in milliseconds.
    pub p50_ms: f64,
    /// 90 % are not longer.
    pub p90_ms: f64,
    /// Replies of the phase that arrived in parts.
    pub split: Option<&'a SplitReplies>,
}

/// Returns a remark if replies of the phase wait for an acknowledgement, or if the phase takes 40 or 200 ms, or twice or
/// three times that, again and again. An acknowledgement is named only if the pause was shorter where it was sent at once.
pub fn remark(times: PhaseTimes<'_>) -> Option<String> {
    let PhaseTimes { phase, count, min_ms, p50_ms, p90_ms, split } = times;
    if count < REPLIES_MIN || phase == Phase::Message {
        return None;
    }
    // Most replies came in parts, and the pause lies between the parts.
    let suspect_us = SUSPECT.as_secs_f64() * 1e6;
    let is_held = |split: &&SplitReplies| {
        (split.usual_count + split.hurried_count) * 2 >= count && split.usual_p50_us >= suspect_us
    };
    let held = split.filter(is_held);
    if let Some(split) = held.filter(|split| split.is_shorter_when_hurried()) {
        return Some(format!(
            "DELAYED ACK: a pause of {:.0} ms in {phase}: the server sends the rest of its reply when the first part is acknowledged, \
             {:.1} ms later where that is done at once",
            split.usual_p50_us / 1e3,
            split.hurried_p50_us / 1e3
        ));
    }
    // A timer takes the same time again and again; work does not. On a busy machine some are late.
    STEPS_MS.into_iter().find(|step| {
        let multiple = (p50_ms / step).round();
        let is_near = |ms: f64| (ms - multiple * step).abs() < step * STEP_SHARE;
        (1.0..=3.0).contains(&multiple) && is_near(p50_ms) && (is_near(p90_ms) || is_near(min_ms))
    })?;
    let evidence = match held {
        None => "no acknowledgement of this machine was awaited".to_owned(),
        Some(split) if split.hurried_count < TRIALS_MIN => {
            "replies come in parts, too few of which were acknowledged at once to compare".to_owned()
        }
        Some(split) => {
            format!("it is {:.0} ms where the first part is acknowledged at once", split.hurried_p50_us / 1e3)
        }
    };
    Some(format!("PAUSE: a pause of {p50_ms:.0} ms in {phase}, cause unknown; {evidence}"))
}

impl SplitReplies {
    fn is_shorter_when_hurried(&self) -> bool {
        self.hurried_count >= TRIALS_MIN && self.hurried_p50_us * 2.0 < self.usual_p50_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(p50_ms: f64, p90_ms: f64, split: Option<(u64, f64, u64, f64)>) -> String {
        let split = split.map(|(usual_count, usual_ms, hurried_count, hurried_ms)| SplitReplies {
            usual_count,
            usual_p50_us: usual_ms * 1e3,
            hurried_count,
            hurried_p50_us: hurried_ms * 1e3,
        });
        let times =
            PhaseTimes { phase: Phase::Quit, count: 100, min_ms: 0.1, p50_ms, p90_ms, split: split.as_ref() };
        remark(times).unwrap_or_default()
    }

    #[test]
    fn a_pause_is_an_acknowledgements_only_if_one_at_once_ends_it() {
        assert!(
            told(200.3, 201.0, None).starts_with("PAUSE: a pause of 200 ms in QUIT, cause unknown; no ack")
        );
        assert!(
            told(43.0, 50.0, Some((80, 43.9, 20, 0.1))).starts_with("DELAYED ACK: a pause of 44 ms in QUIT")
        );
        assert!(told(40.0, 40.0, Some((80, 40.0, 1, 0.1))).contains("cause unknown; replies come in parts"));
        assert!(told(200.0, 202.0, Some((80, 199.0, 20, 198.0))).contains("it is 198 ms where"));
        assert!(told(200.0, 202.0, Some((100, 199.0, 0, 0.0))).contains("to compare"));
        // Few replies come in parts, or the pause is before the first part.
        assert!(told(200.0, 202.0, Some((10, 199.0, 5, 0.1))).contains("no acknowledgement"));
        assert!(told(200.0, 202.0, Some((80, 0.1, 20, 0.1))).contains("no acknowledgement"));
    }

    #[test]
    fn times_that_scatter_or_are_no_step_have_no_remark() {
        for (p50_ms, p90_ms) in [(2.0, 3.0), (200.0, 300.0), (100.0, 100.0), (1000.0, 1000.0), (60.0, 60.0)] {
            assert_eq!(told(p50_ms, p90_ms, None), "");
        }
        let late = PhaseTimes {
            phase: Phase::Quit,
            count: 9,
            min_ms: 200.1,
            p50_ms: 203.0,
            p90_ms: 260.0,
            split: None,
        };
        assert!(remark(late).is_some_and(|text| text.starts_with("PAUSE: a pause of 203 ms")));
        assert_eq!(remark(PhaseTimes { count: 4, ..late }), None);
    }

    #[test]
    fn a_step_is_left_at_six_hundredths_of_it() {
        // From any multiple of a step the distance is the same: 12 ms of 200 ms, 2.4 ms of 40 ms.
        for (p50_ms, is_told) in [
            (188.1, true),
            (211.9, true),
            (212.1, false),
            (187.9, false),
            (611.9, true),
            (612.1, false),
            (42.3, true),
            (42.5, false),
            (82.3, true),
            (82.5, false),
        ] {
            assert_eq!(told(p50_ms, p50_ms, None).starts_with("PAUSE: "), is_told, "{p50_ms}");
        }
    }

    #[test]
    fn acknowledgements_are_tried_only_after_a_suspect_pause() {
        let mut counts = PauseCounts::default();
        counts.waited(Phase::Rcpt, Duration::from_millis(1), false);
        assert!(!(0..8).any(|_| counts.tries_acknowledgement()));
        counts.waited(Phase::Rcpt, Duration::from_millis(40), false);
        assert_eq!((0..8).filter(|_| counts.tries_acknowledgement()).count(), 2);
        let mut all = PauseCounts::default();
        all.add(&counts);
        all.add(&counts);
        assert_eq!(all.split_replies()[&Phase::Rcpt].usual_count, 4);
    }
}
