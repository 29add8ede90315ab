//! Mail that has to come again.

use super::{keys::GreylistKeys, values::GreylistMode};
use crate::section::Reading;
use limits::GreylistTimes;
use toml::{Spanned, de::DeTable};

/// Whose mail has to come again, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greylisting {
    /// False: that of suspects only.
    pub is_for_all: bool,
    /// How long mail waits, and how long its origin is remembered.
    pub times: GreylistTimes,
}

impl Reading<'_> {
    /// Reads `[greylist]`, which has an effect only with `greylist` in `[checks]`.
    pub(super) fn greylisting(&mut self, root: &DeTable<'_>, mode: GreylistMode) -> Option<Greylisting> {
        let table = self.table(root, "greylist");
        let keys: GreylistKeys = self.section("greylist", table);
        let span_of = |key: &str| table.and_then(|table| table.get(key)).map(Spanned::span);
        for (key, is_wrong, what) in [
            (
                "retry",
                keys.retry <= keys.wait,
                "longer than `greylist.wait`: no mail could come again in time",
            ),
            ("keep", keys.keep <= keys.retry, "longer than `greylist.retry`"),
        ] {
            let span = span_of(key).or_else(|| span_of("wait")).or_else(|| span_of("retry"));
            if let Some(span) = span.filter(|_| is_wrong) {
                self.cx.problem(span, format!("`greylist.{key}` must be {what}"), "", String::new());
            }
        }
        let times = GreylistTimes {
            wait: keys.wait.as_secs(),
            retry: keys.retry.as_secs(),
            keep: keys.keep.as_secs(),
            known_after: u32::try_from(keys.known_after).unwrap_or(u32::MAX),
        };
        (mode != GreylistMode::Off).then_some(Greylisting { is_for_all: mode == GreylistMode::All, times })
    }
}
