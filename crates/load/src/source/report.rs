//! The output of a source at its end: for people, or as JSON.

use super::{
    counts::{Phase, SourceCounts},
    pause::{self, PhaseTimes, SplitReplies},
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

/// One phase's times in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The number of values.
    pub count: u64,
    /// The mean.
    pub mean_us: f64,
    /// The smallest.
    pub min_us: f64,
    /// The median.
    pub p50_us: f64,
    /// 90 % are not larger.
    pub p90_us: f64,
    /// 99 % are not larger.
    pub p99_us: f64,
    /// 99.9 % are not larger.
    pub p999_us: f64,
    /// The largest.
    pub max_us: f64,
}

/// A run's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Messages that were answered 250.
    pub messages_sent: u64,
    /// Messages that were not.
    pub messages_failed: u64,
    /// Recipients of the sent messages.
    pub recipients: u64,
    /// Refused recipients of messages that were accepted for others.
    #[serde(default)]
    pub recipients_refused: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// The duration of the run.
    pub seconds: f64,
    /// Sent messages a second.
    pub rate: f64,
    /// Octets sent.
    pub bytes_out: u64,
    /// Octets received.
    pub bytes_in: u64,
    /// Processor time of the load source for each message.
    pub cpu_us_per_message: f64,
    /// A signal ended the run.
    pub stopped_early: bool,
    /// The times of each phase.
    pub times: BTreeMap<Phase, Times>,
    /// `RCPT 450` and the like, with how often.
    pub failures: BTreeMap<String, u64>,
    /// Replies that came in parts.
    #[serde(default)]
    pub split_replies: BTreeMap<Phase, SplitReplies>,
}

impl Report {
    /// From a counts, and how long the run took.
    pub(crate) fn new(counts: &SourceCounts, elapsed: Duration, cpu: Duration, stopped_early: bool) -> Self {
        let seconds = elapsed.as_secs_f64();
        let times = Phase::ALL.iter().filter_map(|phase| Some((*phase, times_of(counts.times(*phase))?)));
        let failures =
            counts.faults.iter().map(|((phase, fault), count)| (format!("{phase} {fault}"), *count));
        Self {
            messages_sent: counts.sent,
            messages_failed: counts.failed,
            recipients: counts.recipients,
            recipients_refused: counts.recipients_refused,
            connections: counts.connections,
            seconds,
            rate: counts.sent as f64 / seconds.max(1e-9),
            bytes_out: counts.bytes_out,
            bytes_in: counts.bytes_in,
            cpu_us_per_message: cpu.as_secs_f64() * 1e6 / (counts.sent + counts.failed).max(1) as f64,
            stopped_early,
            times: times.collect(),
            failures: failures.collect(),
            split_replies: counts.pauses.split_replies(),
        }
    }

    /// A figure of the whole messages' times, in milliseconds.
    pub fn message_ms(&self, figure_us: impl Fn(&Times) -> f64) -> Option<f64> {
        self.times.get(&Phase::Message).map(|times| figure_us(times) / 1e3)
    }

    /// Returns a remark for each phase with a pause of 40 or 200 ms.
    pub(crate) fn pauses(&self) -> Vec<String> {
        let remark = |(phase, times): (&Phase, &Times)| {
            let split = self.split_replies.get(phase);
            let [min_ms, p50_ms, p90_ms] = [times.min_us, times.p50_us, times.p90_us].map(|us| us / 1e3);
            pause::remark(PhaseTimes { phase: *phase, count: times.count, min_ms, p50_ms, p90_ms, split })
        };
        self.times.iter().filter_map(remark).collect()
    }

    /// For people.
    pub(crate) fn text(&self, percentiles: bool) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{} messages sent in {:.3} s: {:.1} a second, {} connections, {:.1} µs of CPU a message here",
            self.messages_sent, self.seconds, self.rate, self.connections, self.cpu_us_per_message
        );
        if self.stopped_early {
            let _ = writeln!(out, "stopped before the end");
        }
        if percentiles {
            out.push_str(HEAD);
            out.extend(self.times.iter().map(|(phase, times)| times.row(phase.name())));
        }
        for remark in self.pauses() {
            let _ = writeln!(out, "{remark}");
        }
        if self.messages_failed > 0 {
            let _ = writeln!(out, "{} messages failed", self.messages_failed);
        }
        if self.recipients_refused > 0 {
            let _ =
                writeln!(out, "{} recipients refused of messages taken for others", self.recipients_refused);
        }
        for (kind, count) in &self.failures {
            let _ = writeln!(out, "{count:>10}  {kind}");
        }
        out
    }
}

/// The head of a table of times.
pub(crate) const HEAD: &str =
    "µs            count        min       mean        p50        p90        p99      p99.9        max\n";

impl Times {
    /// Returns a row of the table, with the line end.
    pub(crate) fn row(&self, name: &str) -> String {
        format!(
            "{name:<8}{:>10}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}{:>11.1}\n",
            self.count,
            self.min_us,
            self.mean_us,
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p999_us,
            self.max_us
        )
    }
}

/// Returns the times in a histogram of nanoseconds; none of an empty one.
pub(crate) fn times_of(histogram: &Histogram<u64>) -> Option<Times> {
    let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
    let at = |quantile: f64| us(histogram.value_at_quantile(quantile));
    (!histogram.is_empty()).then(|| Times {
        count: histogram.len(),
        mean_us: histogram.mean() / 1e3,
        min_us: us(histogram.min()),
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: us(histogram.max()),
    })
}
