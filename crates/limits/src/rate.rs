//! A number of events in a time.

use std::{fmt, time::Duration};

/// A rate such as `500/h`. The whole number may come at once; after that it fills up again evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u64,
    /// The unit in which the count was written, with its factor.
    unit: (&'static str, u64),
    period: Duration,
}

/// As the configuration writes them, with their seconds.
const UNITS: [(&str, u64); 4] = [("s", 1), ("min", 60), ("h", 3600), ("d", 86_400)];

/// The multiples of a count: `10M/h` for bytes.
const MULTIPLES: [(&str, u64); 6] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

impl Rate {
    /// Reads `count/unit`, where the unit is `s`, `min`, `h` or `d`, also with a number: `100/10min`. The count may have a
    /// unit of bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let (count, period) = text.split_once('/')?;
        let (number, unit) = MULTIPLES
            .iter()
            .find_map(|unit| Some((count.strip_suffix(unit.0)?, *unit)))
            .unwrap_or((count, ("", 1)));
        let count = parse_number(number)?.checked_mul(unit.1)?;
        let digits = period.find(|c: char| !c.is_ascii_digit())?;
        let times = if digits == 0 { 1 } else { parse_number(&period[..digits])? };
        let (_, seconds) = UNITS.iter().find(|(unit, _)| *unit == &period[digits..])?;
        let seconds = times.checked_mul(*seconds).filter(|seconds| (1..=366 * 86_400).contains(seconds))?;
        (1..=1 << 50).contains(&count).then_some(Self { count, unit, period: Duration::from_secs(seconds) })
    }

    /// Returns how many events are permitted in a period.
    pub fn count(self) -> u64 {
        self.count
    }

    /// Returns the period in which events are counted.
    pub fn period(self) -> Duration {
        self.period
    }
}

fn parse_number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let divides = |unit: u64, value: u64| value.is_multiple_of(unit);
        let (unit, factor) = self.unit;
        write!(f, "{}{unit}", self.count / factor)?;
        let seconds = self.period.as_secs();
        let (unit, each) =
            UNITS.iter().rev().find(|(_, each)| divides(*each, seconds)).expect("seconds divide");
        match seconds / each {
            1 => write!(f, "/{unit}"),
            times => write!(f, "/{times}{unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shown_as_it_is_read() {
        for text in [
            "500/h",
            "3000/min",
            "1/s",
            "20/d",
            "100/10min",
            "10MiB/h",
            "2GB/d",
            "90/90s",
            "10000000/h",
            "1000kB/h",
        ] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Rate::parse("60/60s").unwrap().to_string(), "60/min");
    }

    #[test]
    fn other_text_is_no_rate() {
        for text in [
            "",
            "500",
            "500/",
            "/h",
            "0/h",
            "5/0s",
            "-1/h",
            "1.5/h",
            "5/hour",
            "5 /h",
            "5/h ",
            "99999999999999999999/h",
        ] {
            assert_eq!(Rate::parse(text), None, "{text}");
        }
    }
}
