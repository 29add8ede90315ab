//! Load tools of the 2002–2005 papers with their own options and reports, in front of the one source: slam, smtpc, gatling
//! and postal.

pub mod gatling;
pub mod postal;
pub mod slam;
pub mod smtpc;

use crate::{
    arguments::exactly,
    rounds::{Figure, Progress, beside},
    source::{Plan, Report, SourceArgs, measure},
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
    /// Sender [default: foo@ our name]
    #[arg(short = 'f', value_name = "ADDRESS")]
    from: Option<String>,
    /// Number of times that the whole is done
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
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

    /// Does the rounds, and says what their rates were if there were several.
    fn rounds(
        &self,
        count: u32,
        mut round: impl FnMut() -> Result<(f64, bool), String>,
    ) -> Result<bool, String> {
        let (mut rates, mut good) = (Figure::default(), true);
        for _ in 0..count {
            if self.is_stopped() {
                break;
            }
            let (rate, was_good) = round()?;
            rates.push(rate);
            good &= was_good;
        }
        println!("Messages a second: {rates}");
        Ok(good)
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

/// Returns the failures, a line each.
fn failures(report: &Report) -> String {
    report.failures.iter().map(|(kind, count)| format!("{count:>10}  {kind}\n")).collect()
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
