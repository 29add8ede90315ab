//! Predictions as checkable expressions, such as `ratio(ten, five) > 1`, and the verdict on one.

use super::seeds::Figures;
use crate::stat::interval::{Interval, Method};

/// A measured expression, and what the finding predicts of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Prediction {
    pub(super) factor: f64,
    pub(super) above: String,
    /// The divisor of a ratio; `None` for other figures.
    pub(super) below: Option<String>,
    /// None where there is nothing to predict: a rate of another machine.
    pub(super) condition: Option<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Condition {
    /// Within the range of the machines of the text.
    InSeeds,
    /// From half to twice the effect of the text on a logarithmic scale: from the square root of its ratio to the square.
    NearSeeds,
    Above(f64),
    Below(f64),
    Within(f64, f64),
}

/// The values that agree with a prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The result of comparing a figure with the finding.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Agrees,
    /// All of the interval lies above what is predicted.
    Above,
    /// All of the interval lies below what is predicted.
    Below,
    /// The text has an effect, and the interval comes within a hundredth of none and lies within a tenth of it.
    NoEffect,
    /// Nothing can be said, for this reason.
    CannotTell(String),
}

/// Why most figures cannot be told.
pub(super) const CROSSES_EDGE: &str = "the interval crosses an edge of the prediction";

/// Why a figure does not confirm an effect, although all of its interval lies on one side of one.
pub(super) const NEAR_ONE: &str = "the interval comes within a hundredth of no effect";

/// Rounds below which nothing can be told: the range of two covers the median as often as not.
const FEWEST: usize = 3;

impl Prediction {
    /// Reads `[NUMBER *] ratio(a, b) CONDITION` or `value(a)`, where a name may be a sum or a difference of series, `a + b` or `a - b`; the condition is `in seeds`, `near seeds`, `in 0.9..1.1`,
    /// `> 1` or `< 1`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{text}`: {why}");
        let (factor, rest) = match text.split_once(" * ") {
            Some((factor, rest)) => {
                (factor.trim().parse().map_err(|_| wrong("the factor is not a number"))?, rest)
            }
            None => (1.0, text),
        };
        let (head, condition) = rest.split_once(')').ok_or_else(|| wrong("`)` is missing"))?;
        let (kind, names) = head.split_once('(').ok_or_else(|| wrong("`(` is missing"))?;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let (above, below) = match (kind.trim(), names.as_slice()) {
            ("value", [one]) => ((*one).to_owned(), None),
            ("ratio", [above, below]) => ((*above).to_owned(), Some((*below).to_owned())),
            _ => return Err(wrong("write value(a) or ratio(a, b)")),
        };
        let condition = Condition::parse(condition.trim()).map_err(|why| wrong(&why))?;
        Ok(Self { factor, above, below, condition })
    }

    /// Returns the names of the series that the figure is computed from.
    pub(super) fn series(&self) -> impl Iterator<Item = &str> {
        let both = std::iter::once(&self.above).chain(&self.below);
        both.flat_map(|names| terms(names).map(|(_, name)| name))
    }

    /// The figure of each round: the ratio is formed within a round, where both sides met the same machine.
    pub(super) fn points(&self, series: impl Fn(&str) -> Vec<Option<f64>>) -> Vec<f64> {
        let series = |names: &str| {
            let all: Vec<(f64, Vec<Option<f64>>)> =
                terms(names).map(|(sign, name)| (sign, series(name))).collect();
            let rounds = all.iter().map(|(_, one)| one.len()).min().unwrap_or_default();
            let of = |round: usize| all.iter().map(|(sign, one)| Some(sign * one[round]?)).sum();
            (0..rounds).map(of).collect::<Vec<Option<f64>>>()
        };
        let above = series(&self.above);
        match &self.below {
            None => above.into_iter().flatten().map(|value| self.factor * value).collect(),
            Some(below) => {
                let pairs = above.into_iter().zip(series(below));
                let ratio =
                    |(a, b): (Option<f64>, Option<f64>)| Some(self.factor * a? / b.filter(|b| *b != 0.0)?);
                pairs.filter_map(ratio).collect()
            }
        }
    }
}

/// The series of a sum or a difference, with their signs.
fn terms(names: &str) -> impl Iterator<Item = (f64, &str)> {
    names.split(" + ").flat_map(|sum| {
        let signs = std::iter::once(1.0).chain(std::iter::repeat(-1.0));
        signs.zip(sum.split(" - ").map(str::trim))
    })
}

impl Condition {
    /// Reads `in seeds`, `near seeds`, `in 0.9..1.1`, `> 1` or `< 1`; nothing is none.
    pub(super) fn parse(text: &str) -> Result<Option<Self>, String> {
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("`{text}` is not a number"));
        Ok(Some(match text.split_once(' ') {
            None if text.is_empty() => return Ok(None),
            Some(("in", "seeds")) => Self::InSeeds,
            Some(("near", "seeds")) => Self::NearSeeds,
            Some((">", limit)) => Self::Above(number(limit)?),
            Some(("<", limit)) => Self::Below(number(limit)?),
            Some(("in", range)) => {
                let (low, high) = range.split_once("..").ok_or("a range is 0.9..1.1")?;
                Self::Within(number(low)?, number(high)?)
            }
            _ => return Err(format!("`{text}` is not a condition")),
        }))
    }

    /// Returns whether this says no more than that there is an effect.
    pub(super) fn is_effect(self) -> bool {
        matches!(self, Self::Above(1.0) | Self::Below(1.0))
    }

    pub(super) fn window(self, seeds: &Figures) -> Window {
        let (low, high) = match self {
            Self::InSeeds => seeds.range(),
            Self::NearSeeds => {
                let (low, high) = seeds.range();
                let least = |x: f64| if x < 1.0 { x.powi(2) } else { x.sqrt() };
                let most = |x: f64| if x < 1.0 { x.sqrt() } else { x.powi(2) };
                (least(low), most(high))
            }
            Self::Above(limit) => (limit, f64::INFINITY),
            Self::Below(limit) => (f64::NEG_INFINITY, limit),
            Self::Within(low, high) => (low, high),
        };
        Window { low, high }
    }
}

impl Window {
    /// The ratios that nobody would call an effect.
    pub(super) const NO_EFFECT: Self = Self { low: 1.0 / 1.1, high: 1.1 };

    /// The ratios that are printed as one. An interval that begins or ends there has not shown an effect.
    pub(super) const ONE: Self = Self { low: 1.0 / 1.01, high: 1.01 };

    /// Returns whether the whole range lies within.
    pub(super) fn holds(self, (low, high): (f64, f64)) -> bool {
        self.low <= low && high <= self.high
    }

    /// Returns whether some value is in both.
    pub(super) fn meets(self, interval: Interval) -> bool {
        interval.low <= self.high && interval.high >= self.low
    }

    /// Compares an interval: inside, outside, or across an edge. Remarks say why the figure is not to be believed.
    pub(super) fn judge(self, interval: Option<Interval>, remarks: &[String]) -> Verdict {
        let Some(interval) = interval else {
            return Verdict::CannotTell("no figure in what was measured".into());
        };
        let count = match interval.method {
            Method::Single => 1,
            Method::Range(count) | Method::Bootstrap(count) => count,
        };
        if count < FEWEST {
            let rounds = if count == 1 { "one round" } else { "two rounds" };
            return Verdict::CannotTell(format!("{rounds}: at least {FEWEST} are needed"));
        }
        if !remarks.is_empty() {
            return Verdict::CannotTell(remarks.join("; "));
        }
        if interval.low >= self.low && interval.high <= self.high {
            Verdict::Agrees
        } else if interval.low > self.high {
            Verdict::Above
        } else if interval.high < self.low {
            Verdict::Below
        } else {
            Verdict::CannotTell(CROSSES_EDGE.into())
        }
    }
}

impl Verdict {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Above | Self::Below => "differs",
            Self::NoEffect => "no effect",
            Self::CannotTell(_) => "cannot tell",
        }
    }

    pub(super) fn differs(&self) -> bool {
        matches!(self, Self::Above | Self::Below)
    }

    pub(super) fn is_told(&self) -> bool {
        !matches!(self, Self::CannotTell(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(points: &[f64], low: f64, high: f64, remarks: &[String]) -> Verdict {
        Window { low, high }.judge(Interval::of(points), remarks)
    }

    #[test]
    fn a_prediction_is_read_and_checked() {
        let prediction = Prediction::parse("10 * ratio(one, ten) > 1").unwrap();
        assert_eq!((prediction.factor, prediction.condition), (10.0, Some(Condition::Above(1.0))));
        let series = |name: &str| match name {
            "one" => vec![Some(100.0), Some(90.0), None],
            _ => vec![Some(50.0), None, Some(1.0)],
        };
        assert_eq!(prediction.points(series), [20.0]);
        let difference = Prediction::parse("ratio(one - ten, ten + one) > 1").unwrap();
        assert_eq!(difference.points(series), [50.0 / 150.0]);
        assert_eq!(difference.series().collect::<Vec<_>>(), ["one", "ten", "ten", "one"]);
        assert_eq!(Prediction::parse("value(a)").unwrap().condition, None);
        for wrong in ["ratio(a) > 1", "value(a", "ratio(a, b) > x", "ratio(a, b) near 1", "x * value(a)"] {
            assert!(Prediction::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn near_is_half_to_twice_the_effect() {
        let seeds = |value| Figures {
            values: vec![(String::new(), value)],
            words: None,
            place: String::new(),
            inferred: false,
        };
        let window = |value| Condition::NearSeeds.window(&seeds(value));
        assert_eq!(window(4.0), Window { low: 2.0, high: 16.0 });
        assert_eq!(window(0.25), Window { low: 0.0625, high: 0.5 });
    }

    #[test]
    fn one_round_and_two_can_never_tell() {
        let one = judged(&[5.0], 1.0, 10.0, &[]);
        assert_eq!(one, Verdict::CannotTell("one round: at least 3 are needed".into()));
        assert_eq!(judged(&[5.0, 5.0], 1.0, 10.0, &[]).word(), "cannot tell");
        assert_eq!(judged(&[5.0; 3], 1.0, 10.0, &[]), Verdict::Agrees);
        assert_eq!(judged(&[], 1.0, 10.0, &[]).word(), "cannot tell");
    }

    #[test]
    fn the_whole_interval_decides_and_not_the_median() {
        assert_eq!(judged(&[0.9, 0.95, 0.97], 1.0, f64::INFINITY, &[]), Verdict::Below);
        assert_eq!(judged(&[0.9, 1.05, 1.2], 1.0, f64::INFINITY, &[]).word(), "cannot tell");
        assert_eq!(judged(&[3.0, 3.1, 3.2], 0.3, 2.9, &[]), Verdict::Above);
    }

    #[test]
    fn a_remark_takes_the_verdict_away() {
        let verdict = judged(&[5.0; 3], 1.0, 10.0, &["too short to trust".into()]);
        assert_eq!(verdict, Verdict::CannotTell("too short to trust".into()));
    }
}
