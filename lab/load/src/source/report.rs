//! The output of a source at its end: for people, or as JSON.

use super::{
    counts::{Phase, SourceCounts},
    pause::{self, PhaseTimes, SplitReplies},
};
use crate::{
    rounds::too_short,
    table::{Cell, Column, Format, Table},
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How the times of one phase are distributed, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// How many times were measured.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Shortest time.
    pub min_us: f64,
    /// Half are not larger.
    pub p50_us: f64,
    /// 90 % are not larger.
    pub p90_us: f64,
    /// 99 % are not larger.
    pub p99_us: f64,
    /// 99.9 % are not larger.
    pub p999_us: f64,
    /// Longest time.
    pub max_us: f64,
}

/// What a run has measured.
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
    /// The duration of the run, until the last session ended.
    pub seconds: f64,
    /// Connections that one of several servers did not take, and another did or was asked to.
    #[serde(default)]
    pub server_failures: u64,
    /// The time until the last 250 of a message; nothing if there was none.
    #[serde(default)]
    pub accepted_seconds: f64,
    /// Sessions that waited for a reply when the run was stopped.
    #[serde(default)]
    pub unanswered_sessions: u64,
    /// Sent messages a second, until the last of them was accepted.
    pub rate: f64,
    /// Octets sent.
    pub bytes_out: u64,
    /// Octets received.
    pub bytes_in: u64,
    /// Processor time of the load source for each message.
    pub cpu_us_per_message: f64,
    /// True if a signal ended the run before its messages were sent.
    pub stopped_early: bool,
    /// Phases that did not occur are left out.
    pub times: BTreeMap<Phase, Times>,
    /// `RCPT 450` and the like, with how often.
    pub failures: BTreeMap<String, u64>,
    /// Replies that came in parts.
    #[serde(default)]
    pub split_replies: BTreeMap<Phase, SplitReplies>,
}

impl Report {
    /// From counts, the begin of the run, and how long it took.
    pub(crate) fn new(
        counts: &SourceCounts,
        begin: Instant,
        elapsed: Duration,
        cpu: Duration,
        stopped_early: bool,
    ) -> Self {
        let since_begin = |at: Instant| at.saturating_duration_since(begin).as_secs_f64();
        let accepted_seconds = counts.last_sent.map_or(0.0, since_begin);
        let times = Phase::ALL.iter().filter_map(|phase| Some((*phase, times_of(counts.times(*phase))?)));
        let failures =
            counts.faults.iter().map(|((phase, fault), count)| (format!("{phase} {fault}"), *count));
        Self {
            messages_sent: counts.sent,
            messages_failed: counts.failed,
            recipients: counts.recipients,
            recipients_refused: counts.recipients_refused,
            connections: counts.connections,
            seconds: elapsed.as_secs_f64(),
            server_failures: counts.server_failures,
            accepted_seconds,
            unanswered_sessions: counts.unanswered_sessions,
            // Sessions that wait for a reply or pause behind the last message make the run longer, and the server no slower.
            rate: counts.sent as f64 / accepted_seconds.max(1e-9),
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

    /// Did the servers take all messages for all recipients, each on the first attempt to connect?
    pub fn is_good(&self) -> bool {
        self.messages_failed == 0 && self.recipients_refused == 0 && self.server_failures == 0
    }

    /// Returns the time to which the rate belongs; of a run without an accepted message, its duration.
    pub fn sending_seconds(&self) -> f64 {
        if self.accepted_seconds > 0.0 { self.accepted_seconds } else { self.seconds }
    }

    /// Returns a remark if sessions waited for a reply to the end.
    pub fn unanswered(&self) -> Option<String> {
        (self.unanswered_sessions > 0 && !self.stopped_early).then(|| {
            format!(
                "HUNG SESSIONS: {} waited for a reply until they were closed after {:.1} s; the last message was accepted after {:.1} s",
                self.unanswered_sessions, self.seconds, self.accepted_seconds
            )
        })
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

    /// Returns the remarks that must be read with the figures.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let stopped = self.stopped_early.then(|| STOPPED.to_owned());
        let failed = (self.messages_failed > 0).then(|| format!("{} messages failed", self.messages_failed));
        let refused = (self.recipients_refused > 0)
            .then(|| format!("{} recipients refused of messages taken for others", self.recipients_refused));
        let kinds = self.failures.iter().map(|(kind, count)| format!("{count:>10}  {kind}"));
        stopped
            .into_iter()
            .chain(self.unanswered())
            .chain(self.pauses())
            .chain(failed)
            .chain(refused)
            .chain(kinds)
            .collect()
    }

    /// Prints: for people a summary, with `percentiles` the phases, and the remarks; else a table with all of it.
    pub(crate) fn print(&self, format: Format, percentiles: bool) -> Result<(), String> {
        let mut table = Table::new(format, &RUN, None);
        table.part("run", &RUN);
        let cpu = format!(", {:.1} µs of CPU a message here", self.cpu_us_per_message);
        table.text(&format!(
            "{} messages sent in {:.3} s: {:.1} a second, {} connections{}",
            self.messages_sent,
            self.sending_seconds(),
            self.rate,
            self.connections,
            if self.messages_sent > 0 { cpu.as_str() } else { "" }
        ));
        table.fields(self)?;
        table.record(self.cells());
        let (remarks, too_short) = (self.remarks(), too_short(self.sending_seconds()));
        for remark in remarks.iter().map(String::as_str).chain(too_short) {
            table.silent_remark(remark);
        }
        let (stopped, others): (Vec<_>, Vec<_>) = remarks.iter().partition(|remark| *remark == STOPPED);
        stopped.into_iter().for_each(|remark| table.text(remark));
        if percentiles || !format.is_text() {
            add_times(&mut table, self.times.iter().map(|(phase, times)| (phase.name(), times.clone())));
        }
        others.into_iter().map(String::as_str).chain(too_short).for_each(|remark| table.text(remark));
        table.finish();
        Ok(())
    }

    fn cells(&self) -> [Cell; 11] {
        [
            self.messages_sent.into(),
            self.messages_failed.into(),
            self.recipients.into(),
            self.recipients_refused.into(),
            self.connections.into(),
            Cell::Number(self.seconds, 3),
            Cell::Number(self.accepted_seconds, 3),
            Cell::Number(self.rate, 1),
            self.bytes_out.into(),
            self.bytes_in.into(),
            Cell::Number(self.cpu_us_per_message, 1),
        ]
    }
}

const STOPPED: &str = "stopped before the end";

const RUN: [Column; 11] = [
    Column::other("messages sent", "messages_sent"),
    Column::other("failed", "messages_failed"),
    Column::other("recipients", "recipients"),
    Column::other("recipients refused", "recipients_refused"),
    Column::other("connections", "connections"),
    Column::other("s", "seconds"),
    Column::other("s to the last 250", "accepted_seconds"),
    Column::other("messages/s", "messages_per_second"),
    Column::other("octets out", "bytes_out"),
    Column::other("octets in", "bytes_in"),
    Column::other("CPU µs a message here", "cpu_us_per_message"),
];

const TIMES: [Column; 9] = [
    Column::left("phase", "phase", 8),
    Column::right("count", "count", 9),
    Column::right("min µs", "min_us", 10),
    Column::right("mean µs", "mean_us", 10),
    Column::right("p50 µs", "p50_us", 10),
    Column::right("p90 µs", "p90_us", 10),
    Column::right("p99 µs", "p99_us", 10),
    Column::right("p99.9 µs", "p999_us", 10),
    Column::right("max µs", "max_us", 10),
];

/// Adds a part with the times of each phase.
pub(crate) fn add_times<'n>(table: &mut Table<'_>, times: impl Iterator<Item = (&'n str, Times)>) {
    table.part("phases", &TIMES);
    for (name, times) in times {
        let us = |value: f64| Cell::Number(value, 1);
        table.row([
            name.into(),
            times.count.into(),
            us(times.min_us),
            us(times.mean_us),
            us(times.p50_us),
            us(times.p90_us),
            us(times.p99_us),
            us(times.p999_us),
            us(times.max_us),
        ]);
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
