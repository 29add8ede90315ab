//! Wall-clock time as it is stored and shown. Decisions use a monotonic clock instead.

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter, tz::TimeZone};

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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
}
