//! Durations and sizes as operators write them.

use std::{fmt, time::Duration};

/// Seconds a unit, longest first so that showing finds the largest that fits.
const DURATION_UNITS: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
/// Bytes a unit; the binary ones first, for showing.
const SIZE_UNITS: [(&str, u64); 11] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1000),
    ("KB", 1000),
    ("B", 1),
    ("", 1),
];

/// Reads `"300s"`, `"5m"`, `"4h"`, `"5d"`, `"1w"`, `"250ms"`, `"1h30m"`, or bare seconds.
/// `None` when it is none of these or too large.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
        return rest.parse().ok().map(Duration::from_secs);
    }
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, unit, behind) = split_quantity(rest)?;
        let part = if unit == "ms" {
            Duration::from_millis(number)
        } else {
            let (_, seconds) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
            Duration::from_secs(number.checked_mul(*seconds)?)
        };
        total = total.checked_add(part)?;
        rest = behind;
    }
    Some(total)
}

/// `12`, `h`, and what follows, from `12h30m`.
fn split_quantity(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (unit, rest) = rest.split_at(letters);
    Some((number.parse().ok()?, unit, rest))
}

/// The shortest form [`parse_duration`] reads back: one unit where it divides, else milliseconds.
pub fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if duration.subsec_millis() > 0 {
        return format!("{}ms", duration.as_millis());
    }
    let (unit, size) = DURATION_UNITS
        .iter()
        .find(|(_, size)| seconds > 0 && seconds.is_multiple_of(*size))
        .unwrap_or(&("s", 1));
    format!("{}{unit}", seconds / size)
}

/// A number of bytes; written `"50MiB"`, `"64KiB"`, `"1GB"` or bare bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Returns the size as an index or capacity, limited to the largest one.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Reads what operators write; `None` when it is not a size or too large.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start();
        let (_, scale) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
        number.parse::<u64>().ok()?.checked_mul(*scale).map(Self)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = SIZE_UNITS[..4].iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale));
        let (unit, scale) = binary.unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_take_one_or_several_units_or_bare_seconds() {
        for (text, seconds) in [
            ("300s", 300),
            ("5m", 300),
            ("4h", 14_400),
            ("5d", 432_000),
            ("1w", 604_800),
            ("90", 90),
            ("1h30m", 5400),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        for junk in [
            "",
            "s",
            "5 minutes",
            "5x",
            "-5s",
            "1.5h",
            "5m3",
            "99999999999999999999s",
            "18446744073709551615w",
        ] {
            assert_eq!(parse_duration(junk), None, "{junk}");
        }
    }

    #[test]
    fn sizes_take_binary_and_decimal_units_or_bare_bytes() {
        for (text, bytes) in [
            ("50MiB", 52_428_800),
            ("64 KiB", 65_536),
            ("1GB", 1_000_000_000),
            ("1000", 1000),
            ("7B", 7),
            ("0", 0),
        ] {
            assert_eq!(ByteSize::parse(text), Some(ByteSize(bytes)), "{text}");
        }
        for junk in ["", "MiB", "50 megs", "-1", "1.5GiB", "99999999TiB"] {
            assert_eq!(ByteSize::parse(junk), None, "{junk}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_the_same(ms in 0u64..10_000_000_000, bytes: u64) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse_duration(&show_duration(duration)), Some(duration));
            prop_assert_eq!(ByteSize::parse(&ByteSize(bytes).to_string()), Some(ByteSize(bytes)));
        }
    }
}
