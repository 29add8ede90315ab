//! Times in lines, formatted once a second.

use crate::UnixMicros;
use jiff::{Timestamp, tz::TimeZone};
use std::{cell::RefCell, io::Write as _};

thread_local! {
    /// The texts of the current second: formatting them costs more than the rest of a line.
    static SECOND: RefCell<(u64, String, String)> = const { RefCell::new((u64::MAX, String::new(), String::new())) };
}

/// Calls `then` with `2026-11-21T06:25:54` (UTC) and `Nov 21 06:25:54` (local).
pub(super) fn with_second<T>(at: UnixMicros, then: impl FnOnce(&str, &str) -> T) -> T {
    let now = at.millis();
    SECOND.with_borrow_mut(|(second, iso, syslog)| {
        if *second != now.0 / 1000 {
            *second = now.0 / 1000;
            *iso = now.rfc3339().chars().take(19).collect();
            let local = Timestamp::from_millisecond(i64::try_from(now.0).unwrap_or(0)).unwrap_or_default();
            *syslog = local.to_zoned(TimeZone::system()).strftime("%b %e %H:%M:%S").to_string();
        }
        then(iso, syslog)
    })
}

/// Writes `2026-11-21T06:25:54.048Z` into `out`.
pub(super) fn iso(at: UnixMicros, out: &mut [u8; 24]) -> &str {
    with_second(at, |iso, _| {
        let _ = write!(&mut out[..], "{iso}.{:03}Z", at.millis().0 % 1000);
    });
    std::str::from_utf8(out).unwrap_or_default()
}
