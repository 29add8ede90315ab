//! Wall-clock time as it is stored and shown. Decisions use a monotonic clock instead.

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The system clock now; zero before 1970.
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// Time passed since `earlier`; zero if the clock went backwards.
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// `Sat, 21 Nov 2026 06:25:54 +0000` (RFC 5322 §3.3), always in UTC.
    pub fn rfc5322(self) -> String {
        let zoned = self.timestamp().to_zoned(TimeZone::UTC);
        DateTimePrinter::new().zoned_to_string(&zoned).unwrap_or_default()
    }

    /// `2026-11-21T06:25:54.048Z` (RFC 3339).
    pub fn rfc3339(self) -> String {
        format!("{:.3}", self.timestamp())
    }

    /// Reads `2026-11-21T06:25:54Z`, with or without a fraction of a second (RFC 3339). The time must be in UTC.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let form = b"dddd-dd-ddTdd:dd:dd";
        let fits = |(b, form): (u8, &u8)| match form {
            b'd' => b.is_ascii_digit(),
            form => b.eq_ignore_ascii_case(form),
        };
        let (time, rest) = text.split_at_checked(form.len())?;
        let fraction = rest.strip_suffix(['Z', 'z'])?;
        let is_fraction =
            |text: &str| !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
        let is_whole = fraction.is_empty() || fraction.strip_prefix('.').is_some_and(is_fraction);
        if !time.bytes().zip(form).all(fits) || !is_whole {
            return None;
        }
        let timestamp: Timestamp = text.to_ascii_uppercase().parse().ok()?;
        u64::try_from(timestamp.as_millisecond()).ok().map(Self)
    }

    fn timestamp(self) -> Timestamp {
        let ms = i64::try_from(self.0).unwrap_or(i64::MAX);
        Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_as_rfc5322_and_rfc3339() {
        let t = UnixMillis(1_795_242_354_048);
        assert_eq!(t.rfc5322(), "Sat, 21 Nov 2026 06:25:54 +0000");
        assert_eq!(t.rfc3339(), "2026-11-21T06:25:54.048Z");
    }

    #[test]
    fn what_is_written_as_rfc3339_is_read_and_nothing_else() {
        let t = UnixMillis(1_795_242_354_048);
        assert_eq!(UnixMillis::parse_rfc3339(&t.rfc3339()), Some(t));
        assert_eq!(UnixMillis::parse_rfc3339("2026-11-21t06:25:54z"), Some(UnixMillis(1_795_242_354_000)));
        for bad in [
            "",
            "2026-11-21",
            "2026-11-21T06:25:54",
            "2026-11-21T06:25:54+00:00",
            "2026-13-21T06:25:54Z",
            "2026-11-21 06:25:54Z",
            "2026-11-21T06:25:54.Z",
            "2026-11-21T25:25:54Z",
            "1900-11-21T06:25:54Z",
            "2026-11-21T06:25:54Z[UTC]",
            "\u{e4}026-11-21T06:25:5Z",
        ] {
            assert_eq!(UnixMillis::parse_rfc3339(bad), None, "{bad:?}");
        }
    }
}
