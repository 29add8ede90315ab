//! Repeats of a measurement: a single run says nothing of its spread.

use crate::stat::spread::Spread;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// The number of measurements.
#[derive(Debug, Clone, Copy, Args)]
pub struct Rounds {
    /// The number of rounds; figures are the median, the smallest and the largest
    #[arg(long = "rounds", value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub count: u32,
}

/// The progress of a measurement, and the time that is left; shown on a terminal from the third second on.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

/// Longest measurement that needs no bar.
const SHORT: Duration = Duration::from_secs(2);

impl Progress {
    /// Shows a bar of `total` steps behind the word `what`.
    pub fn new(what: &'static str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { bar, begin: Instant::now() }
    }

    /// So many are done.
    pub fn at(&self, done: u64) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.begin.elapsed() > SHORT {
            // It stays hidden where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        }
    }

    /// Notes that one more step is done.
    pub fn step(&self) {
        self.at(self.bar.position() + 1);
    }

    /// Can somebody see it?
    pub fn is_visible(&self) -> bool {
        std::io::IsTerminal::is_terminal(&std::io::stderr())
    }

    /// Names the step that runs now.
    pub fn running(&self, step: impl Into<std::borrow::Cow<'static, str>>) {
        self.bar.set_message(step);
        self.at(self.bar.position());
    }

    /// Works, and shows meanwhile which step runs.
    pub fn during<T>(&self, step: &str, work: impl FnOnce() -> T) -> T {
        beside(DRAWN, || self.running(step.to_owned()), work)
    }

    /// Prints while the bar is hidden.
    pub fn beside(&self, print: impl FnOnce()) {
        // A panic inside `suspend` would poison the lock of the bar, and the bar would panic again when it is dropped.
        let printed = self.bar.suspend(|| catch_unwind(AssertUnwindSafe(print)));
        if let Err(payload) = printed {
            resume_unwind(payload);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Between two pictures of a step that runs.
const DRAWN: Duration = Duration::from_millis(250);

/// Works, and looks at it every so often meanwhile.
pub fn beside<T>(every: Duration, mut look: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            while !over.load(Relaxed) {
                look();
                thread::park_timeout(every);
            }
        });
        // Also of a work that panics: the scope waits for the looker in any case.
        let _end = End(&over, looker.thread());
        work()
    })
}

struct End<'a>(&'a AtomicBool, &'a Thread);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
        // A work of milliseconds shall not wait for the next look.
        self.1.unpark();
    }
}

/// A run that is over sooner is mostly its beginning and its end.
pub const TOO_SHORT_SECONDS: f64 = 0.5;

/// Returns a remark on a run that is too short.
pub fn too_short(seconds: f64) -> Option<&'static str> {
    (seconds < TOO_SHORT_SECONDS).then_some("too short to trust")
}

/// Below this many seconds a round without a connection or a program to start is mostly chance.
const SHORTEST_SECONDS: f64 = 0.02;

/// Returns a remark on rounds of which the shortest is too short.
pub fn too_short_round(seconds: &Figure) -> Option<String> {
    let least = seconds.values().iter().copied().reduce(f64::min)?;
    (least < SHORTEST_SECONDS).then(|| format!("too short: the shortest round took {least:.3} s"))
}

/// Rounds that lie further apart than this share of their median disagree.
pub const DISAGREEMENT_SHARE: f64 = 0.5;

/// Returns a remark on rounds that disagree, with the one that is furthest off.
pub fn disagreement(figure: &Figure) -> Option<String> {
    let (values, spread) = (figure.values(), figure.spread()?);
    if values.len() < 3 || spread.max - spread.min <= spread.median.abs() * DISAGREEMENT_SHARE {
        return None;
    }
    let distance = |i: &usize| (values[*i] - spread.median).abs();
    let off = (0..values.len()).max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    let [least, most] = [spread.min, spread.max].map(crate::stat::spread::shown);
    Some(format!("REPEATS DISAGREE: {least} to {most}; round {} is furthest off", off + 1))
}

/// The values of one figure, one for each round.
#[derive(Debug, Clone, Default)]
pub struct Figure(Vec<f64>);

impl FromIterator<f64> for Figure {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl Figure {
    /// Not measured yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Measured once more.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Returns the median; `None` without a value.
    pub fn median(&self) -> Option<f64> {
        self.spread().map(|s| s.median)
    }

    /// Median, smallest and largest; nothing of nothing.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(self.0.iter().copied())
    }

    /// Returns the values in the order of the rounds.
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

/// `1234 (1100–1300, N=3)`
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spread() {
            Some(spread) => f.pad(&spread.text_of(self.0.len())),
            None => f.pad("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_ends_with_the_work_also_where_that_panics() {
        let mut looks = 0;
        assert_eq!(beside(Duration::from_secs(3600), || looks += 1, || 7), 7);
        let work = || beside(Duration::from_secs(3600), || {}, || resume_unwind(Box::new("x")));
        assert!(catch_unwind(work).is_err());
    }

    #[test]
    fn a_bar_can_be_used_and_dropped_after_a_print_that_panics() {
        let progress = Progress::new("x", 2);
        let print = || progress.beside(|| resume_unwind(Box::new("x")));
        let payload = catch_unwind(AssertUnwindSafe(print)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"x"));
        progress.step();
        drop(progress);
    }

    #[test]
    fn rounds_that_lie_far_apart_disagree_and_one_is_named() {
        let of = |values: &[f64]| disagreement(&values.iter().copied().collect());
        assert_eq!(
            of(&[106.0, 503.0, 110.0]).unwrap(),
            "REPEATS DISAGREE: 106 to 503; round 2 is furthest off"
        );
        assert_eq!(of(&[-0.1, 0.2, -0.15]).unwrap().split(';').next_back(), Some(" round 2 is furthest off"));
        assert_eq!(
            [of(&[100.0, 500.0]), of(&[100.0, 110.0, 140.0]), of(&[0.0, 0.0, 0.0])],
            [None, None, None]
        );
    }

    #[test]
    fn a_time_below_its_limit_is_too_short() {
        assert_eq!(
            [0.0, 0.499, 0.5, 60.0].map(|seconds| too_short(seconds).is_some()),
            [true, true, false, false]
        );
        let of = |seconds: &[f64]| too_short_round(&seconds.iter().copied().collect());
        assert_eq!(of(&[0.5, 0.019, 0.3]).unwrap(), "too short: the shortest round took 0.019 s");
        assert_eq!([of(&[0.02, 0.5]), of(&[])], [None, None]);
    }

    #[test]
    fn a_figure_carries_its_spread_and_count() {
        let mut figure = Figure::default();
        assert_eq!(format!("{figure:>3}"), "  -");
        [3.0, 1.0, 200.0].iter().for_each(|value| figure.push(*value));
        assert_eq!(figure.to_string(), "3.00 (1.00–200, N=3)");
        assert_eq!(figure.median(), Some(3.0));
    }
}
