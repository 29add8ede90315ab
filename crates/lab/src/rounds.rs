//! Repeats of a measurement: a single run says nothing of its spread.

use crate::stat::spread::Spread;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// How often something is measured.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Rounds {
    /// Measure so often; figures are the median, with the smallest and the largest beside it
    #[arg(long = "rounds", value_name = "COUNT", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
}

/// How far, and how long still; shown to whoever looks, from the third second on.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

/// What is over sooner needs no bar.
const SHORT: Duration = Duration::from_secs(2);

impl Progress {
    /// Of `total` steps.
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what);
        Self { bar, begin: Instant::now() }
    }

    /// So many are done.
    pub(crate) fn at(&self, done: u64) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.begin.elapsed() > SHORT {
            // It stays hidden where standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
        }
    }

    /// One more is done.
    pub(crate) fn step(&self) {
        self.at(self.bar.position() + 1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// One figure's repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figure(Vec<f64>);

impl Figure {
    /// Not measured yet.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Measured once more.
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The one in the middle; nothing of nothing.
    pub(crate) fn median(&self) -> Option<f64> {
        Spread::of(self.0.iter().copied()).map(|s| s.median)
    }
}

/// `1234 (1100–1300, N=3)`
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Spread::of(self.0.iter().copied()) {
            Some(spread) => f.pad(&spread.text_of(self.0.len())),
            None => f.pad("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_carries_its_spread_and_count() {
        let mut figure = Figure::default();
        assert_eq!(format!("{figure:>3}"), "  -");
        [3.0, 1.0, 200.0].iter().for_each(|value| figure.push(*value));
        assert_eq!(figure.to_string(), "3.00 (1.00–200, N=3)");
        assert_eq!(figure.median(), Some(3.0));
    }
}
