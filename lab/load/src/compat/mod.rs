//! Load tools of the five papers with their own options and reports, in front of the one source: slam, smtpc, gatling
//! and postal.

pub mod gatling;
pub mod postal;
pub mod slam;
pub mod smtpc;

use crate::{
    arguments::exactly,
    rounds::{Figure, Progress, beside, disagreement, too_short},
    source::{Plan, Report, SourceArgs, Times, measure},
    table::{Column, Format, Table},
};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// Sender and rounds of the mail; every front end takes these
#[derive(Debug, Clone, clap::Args)]
pub struct Delivery {
    /// Sender [default: foo@HOSTNAME]
    #[arg(short = 'f', value_name = "ADDRESS")]
    from: Option<String>,
    /// How many times to repeat the run
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    format: Format,
}

/// A round of a front end: the reports of its processes.
struct Round {
    seconds: f64,
    /// The highest rate over a second, where it is known.
    peak: Option<f64>,
    reports: Vec<Report>,
}

impl Round {
    fn sum(&self, value: fn(&Report) -> u64) -> u64 {
        self.reports.iter().map(value).sum()
    }

    /// Sent messages a second.
    fn rate(&self) -> f64 {
        self.sum(|report| report.messages_sent) as f64 / self.seconds.max(1e-9)
    }

    fn mb_per_second(&self) -> f64 {
        self.sum(|report| report.bytes_out) as f64 / 1e6 / self.seconds.max(1e-9)
    }

    fn is_good(&self) -> bool {
        let is_good = |report: &Report| {
            report.messages_failed == 0 && report.server_failures == 0 && !report.stopped_early
        };
        self.reports.iter().all(is_good)
    }

    /// Of whole messages, in milliseconds; of several processes it is not known.
    fn message_ms(&self, figure_us: fn(&Times) -> f64) -> Option<f64> {
        let [report] = &self.reports[..] else { return None };
        report.message_ms(figure_us)
    }
}

const COLUMNS: [Column; 10] = [
    Column::other("sessions", "sessions"),
    Column::other("messages sent", "messages_sent"),
    Column::other("failed", "messages_failed"),
    Column::other("connections", "connections"),
    Column::other("s", "seconds"),
    Column::other("messages/s", "messages_per_second"),
    Column::other("peak messages/s", "peak_messages_per_second"),
    Column::other("MB/s", "mb_per_second"),
    Column::other("p50 ms", "p50_ms"),
    Column::other("p99 ms", "p99_ms"),
];

/// Adds the row of all rounds, with their remarks.
fn record(table: &mut Table<'_>, sessions: u32, rounds: &[Round]) {
    let of = |value: &dyn Fn(&Round) -> Option<f64>| rounds.iter().filter_map(value).collect::<Figure>();
    let count = |value: fn(&Report) -> u64| of(&|round| Some(round.sum(value) as f64));
    table.record([
        sessions.into(),
        count(|report| report.messages_sent).into(),
        count(|report| report.messages_failed).into(),
        count(|report| report.connections).into(),
        of(&|round| Some(round.seconds)).into(),
        of(&|round| Some(round.rate())).into(),
        of(&|round| round.peak).into(),
        of(&|round| Some(round.mb_per_second())).into(),
        of(&|round| round.message_ms(|times| times.p50_us)).into(),
        of(&|round| round.message_ms(|times| times.p99_us)).into(),
    ]);
    let mut remarks = std::collections::BTreeSet::new();
    remarks.extend(disagreement(&of(&|round| Some(round.rate()))));
    for round in rounds {
        remarks.extend(too_short(round.seconds).map(str::to_owned));
        remarks.extend(round.reports.iter().flat_map(Report::remarks));
    }
    remarks.into_iter().for_each(|remark| table.remark(remark));
}

/// A run under way; Ctrl-C ends it, and the rounds behind it.
struct Runner {
    plan: Arc<Mutex<Option<Arc<Plan>>>>,
    stopped: Arc<AtomicBool>,
}

/// Messages settled at some seconds.
type Samples = Vec<(f64, u64)>;

/// Between two looks at how far it is.
const TICK: Duration = Duration::from_millis(50);

impl Runner {
    fn new() -> Result<Self, String> {
        let runner = Self { plan: Arc::default(), stopped: Arc::default() };
        let (plan, stopped) = (runner.plan.clone(), runner.stopped.clone());
        crate::signals::on_end(move || {
            stopped.store(true, Relaxed);
            if let Ok(Some(plan)) = plan.lock().as_deref() {
                plan.stop();
            }
        })?;
        Ok(runner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Sends with the options of a source, for at most `limit`.
    fn send(&self, words: &[&str], limit: Option<Duration>) -> Result<(Report, Samples), String> {
        let args: SourceArgs = exactly(words.iter().copied())?;
        let setup = args.setup()?;
        let plan = Arc::new(args.plan());
        if let Ok(mut current) = self.plan.lock() {
            *current = Some(plan.clone());
        }
        if self.is_stopped() {
            plan.stop();
        }
        let (progress, mut samples) = (Progress::new("send", args.messages), Samples::new());
        let look = || {
            let (elapsed, (done, _)) = (plan.begin().elapsed(), plan.progress());
            samples.push((elapsed.as_secs_f64(), done));
            progress.at(done);
            if limit.is_some_and(|limit| elapsed >= limit) {
                plan.stop();
            }
        };
        let report = beside(TICK, look, || measure(&args, &setup, &plan))?;
        drop(progress);
        samples.push((report.seconds, plan.progress().0));
        Ok((report, samples))
    }

    /// Does the rounds. `words` are the words of the original for a round; all say the rates at the end.
    fn rounds(
        &self,
        delivery: &Delivery,
        sessions: u32,
        head: &str,
        words: impl Fn(&Round) -> String,
        mut round: impl FnMut() -> Result<Round, String>,
    ) -> Result<bool, String> {
        let mut table = Table::new(delivery.format, &COLUMNS, None);
        table.text(head);
        let mut rounds = Vec::new();
        for _ in 0..delivery.rounds {
            if self.is_stopped() {
                break;
            }
            let one = round()?;
            table.text(&words(&one));
            rounds.push(one);
        }
        table.text(&format!("Messages a second: {}", rounds.iter().map(Round::rate).collect::<Figure>()));
        record(&mut table, sessions, &rounds);
        table.finish();
        Ok(rounds.iter().all(Round::is_good))
    }
}

/// The highest rate over a second; of a shorter run, the rate of all.
fn peak(samples: &Samples) -> f64 {
    let mut peak = 0.0f64;
    let mut from = 0;
    for (seconds, done) in samples {
        while samples.get(from + 1).is_some_and(|(early, _)| seconds - early >= 1.0) {
            from += 1;
        }
        let (early, before) = samples[from];
        if seconds - early >= 1.0 {
            peak = peak.max((done - before) as f64 / (seconds - early));
        }
    }
    match samples.last() {
        Some((seconds, done)) if peak == 0.0 && *seconds > 0.0 => *done as f64 / seconds,
        _ => peak,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_that_of_the_best_second() {
        let samples = vec![(0.0, 0), (0.5, 100), (1.0, 100), (1.5, 100), (2.0, 250), (2.5, 300), (3.0, 301)];
        assert!((peak(&samples) - 200.0).abs() < 1e-9, "{}", peak(&samples));
        assert!((peak(&vec![(0.0, 0), (0.5, 100)]) - 200.0).abs() < 1e-9);
    }
}
