//! An interval for the median of a few repeats, with the name of the method: three rounds bear no 95 %.

use super::spread::{Spread, shown};
use std::fmt;

/// Draws; enough that the ends do not move in the second digit.
const DRAWS: usize = 10_000;
/// A fixed seed, so that equal repeats have equal intervals.
const SEED: u64 = 42;
/// With fewer repeats the range says as much as a bootstrap, and is simpler.
const BOOTSTRAPPED: usize = 5;
/// With fewer repeats the real coverage of a bootstrap lies clearly below its name.
const SMALL: usize = 10;

/// How an interval was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// There is one repeat, and no interval.
    Single,
    /// From the smallest to the largest of so many repeats.
    Range(usize),
    /// The percentile bootstrap of the median of so many repeats, 95 %.
    Bootstrap(usize),
}

/// The median of repeats with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Middle of the repeats.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// How the ends were found.
    pub method: Method,
}

impl Interval {
    /// Of repeats of one figure; none of none.
    pub fn of(points: &[f64]) -> Option<Self> {
        let spread = Spread::of(points.iter().copied())?;
        let count = points.len();
        let method = match count {
            1 => Method::Single,
            2..BOOTSTRAPPED => Method::Range(count),
            _ => Method::Bootstrap(count),
        };
        let (low, high) = match method {
            Method::Bootstrap(_) => bootstrap(points)?,
            _ => (spread.min, spread.max),
        };
        Some(Self { median: spread.median, low, high, method })
    }

    /// `1.35 (1.30–1.42)`; a single repeat has no interval.
    pub fn text(&self) -> String {
        match self.method {
            Method::Single => shown(self.median),
            _ => format!("{} ({}–{})", shown(self.median), shown(self.low), shown(self.high)),
        }
    }
}

/// The share of cases in which the range of `count` repeats covers the median of what they are drawn from.
fn coverage(count: usize) -> f64 {
    1.0 - 0.5f64.powi(count as i32 - 1)
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Single => f.write_str("one round, no interval"),
            Self::Range(count) => {
                write!(f, "range of {count} rounds, covers the median in {:.0} %", coverage(count) * 100.0)
            }
            Self::Bootstrap(count) if count < SMALL => {
                write!(f, "95 % bootstrap of {count} rounds, covers less with so few")
            }
            Self::Bootstrap(count) => write!(f, "95 % bootstrap of {count} rounds"),
        }
    }
}

/// Percentiles of the medians of samples that are drawn again from `points`.
fn bootstrap(points: &[f64]) -> Option<(f64, f64)> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut draw = || {
        let drawn = (0..points.len()).map(|_| points[random.usize(..points.len())]);
        Spread::of(drawn.collect::<Vec<_>>()).map(|spread| spread.median)
    };
    let mut medians: Vec<f64> = (0..DRAWS).filter_map(|_| draw()).collect();
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians.get((share * medians.len() as f64) as usize).copied();
    Some((at(0.025)?, at(0.975)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_repeats_have_their_range_and_one_has_nothing() {
        let one = Interval::of(&[3.0]).unwrap();
        assert_eq!((one.method, one.text().as_str()), (Method::Single, "3.00"));
        let three = Interval::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((three.median, three.low, three.high), (2.0, 1.0, 3.0));
        assert_eq!(three.method.to_string(), "range of 3 rounds, covers the median in 75 %");
        assert_eq!(Interval::of(&[]), None);
    }

    #[test]
    fn a_bootstrap_is_the_same_each_time_and_drops_a_single_outlier() {
        let points = [10.0, 10.1, 9.9, 10.2, 9.8, 10.0, 10.1, 9.9, 10.0, 90.0];
        let interval = Interval::of(&points).unwrap();
        assert_eq!(Interval::of(&points), Some(interval));
        assert_eq!(interval.method, Method::Bootstrap(10));
        assert!(interval.low >= 9.8 && interval.high < 10.3, "{interval:?}");
        assert!(interval.low <= interval.median && interval.median <= interval.high);
    }
}
