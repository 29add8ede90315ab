//! Student's t on two samples, as ministat decides it.

use super::{format::general, sample::Sample};
use statrs::distribution::{ContinuousCDF as _, Normal, StudentsT};

/// The confidence that a difference needs. The words are ministat's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Confidence {
    /// The name of the level in percent, as ministat prints it.
    pub percent: f64,
    /// Of the distribution's upper side.
    quantile: f64,
}

/// ministat's last column is the 99.8 % one under the name of 99.5; we keep its verdicts, and say so in
/// the manual.
const LEVELS: [Confidence; 6] = [
    Confidence { percent: 80.0, quantile: 0.90 },
    Confidence { percent: 90.0, quantile: 0.95 },
    Confidence { percent: 95.0, quantile: 0.975 },
    Confidence { percent: 98.0, quantile: 0.99 },
    Confidence { percent: 99.0, quantile: 0.995 },
    Confidence { percent: 99.5, quantile: 0.999 },
];

/// Values of the last column of ministat's table that are a little less than t, by degrees of freedom.
const MISPRINTS: [(usize, f64); 6] =
    [(7, 4.782), (8, 4.499), (9, 4.296), (10, 4.143), (11, 4.024), (12, 3.929)];

impl Confidence {
    /// From what -c says.
    pub fn parse(text: &str) -> Result<Self, String> {
        let percent: f64 = text.trim_end_matches('%').parse().map_err(|_| unsupported(text))?;
        LEVELS.into_iter().find(|level| level.percent == percent).ok_or_else(|| unsupported(text))
    }

    /// The t that must be exceeded. ministat has a table of three decimals up to 100 degrees of freedom and
    /// takes the normal distribution beyond; so do we, for the same verdicts.
    pub fn critical(self, degrees: usize) -> f64 {
        if let (true, Some((_, t))) = (self == LEVELS[5], MISPRINTS.iter().find(|(d, _)| *d == degrees)) {
            return *t;
        }
        let exact = match degrees {
            1..=100 => StudentsT::new(0.0, 1.0, degrees as f64).map(|t| t.inverse_cdf(self.quantile)).ok(),
            _ => None,
        };
        let value = exact.unwrap_or_else(|| Normal::standard().inverse_cdf(self.quantile));
        (value * 1000.0).round() / 1000.0
    }

    /// The share of chances that is left to error.
    pub fn alpha(self) -> f64 {
        1.0 - self.percent / 100.0
    }
}

fn unsupported(text: &str) -> String {
    format!("no support for the confidence level `{text}`: 80, 90, 95, 98, 99 or 99.5")
}

/// The result of Student's t-test.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// At which the margin was computed.
    pub confidence: Confidence,
    /// Mean of the sample less mean of the reference.
    pub difference: f64,
    /// Half the width of the interval around it.
    pub margin: f64,
    /// Pooled standard deviation of both samples.
    pub pooled: f64,
    /// Mean of the reference.
    pub base: f64,
}

impl Verdict {
    /// Compares `sample` with `reference` by Student's t-test.
    pub fn new(sample: &Sample, reference: &Sample, confidence: Confidence) -> Self {
        let degrees = sample.count() + reference.count() - 2;
        let squares = |s: &Sample| (s.n() - 1.0) * s.variance();
        let pooled = ((squares(sample) + squares(reference)) / degrees as f64).sqrt();
        let error = pooled * (1.0 / sample.n() + 1.0 / reference.n()).sqrt();
        Self {
            confidence,
            difference: sample.mean() - reference.mean(),
            margin: confidence.critical(degrees) * error,
            pooled,
            base: reference.mean(),
        }
    }

    /// Is there a difference?
    pub fn is_proven(&self) -> bool {
        self.difference.abs() > self.margin
    }

    /// In ministat's words.
    pub fn text(&self) -> String {
        let percent = self.confidence.percent;
        if !self.is_proven() {
            return format!("No difference proven at {percent:.1}% confidence\n");
        }
        let share = |value: f64| general(value * 100.0 / self.base, 6);
        format!(
            "Difference at {percent:.1}% confidence\n\t{} +/- {}\n\t{}% +/- {}%\n\t(Student's t, pooled s = {})\n",
            general(self.difference, 6),
            general(self.margin, 6),
            share(self.difference),
            share(self.margin),
            general(self.pooled, 6),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_printed_table() {
        let level = |text: &str| Confidence::parse(text).unwrap();
        for (confidence, degrees, t) in [
            ("80", 1, 3.078),
            ("95", 1, 12.706),
            ("95", 10, 2.228),
            ("99", 30, 2.75),
            ("99.5", 5, 5.893),
            ("95", 101, 1.96),
            ("90%", 2000, 1.645),
        ] {
            assert_eq!(level(confidence).critical(degrees), t, "{confidence} {degrees}");
        }
        assert!(Confidence::parse("85").is_err() && Confidence::parse("x").is_err());
    }
}
