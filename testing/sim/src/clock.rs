//! Wall clocks that are wrong: by hours or by decades, for a while or until somebody sets them.

use crate::{disk::START_MS, seed::Rng};

const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 365 * 24 * HOUR_MS;

/// Errors that a clock may have. Zero is here more than once.
const ERRORS_MS: [i64; 8] =
    [0, 0, HOUR_MS, -HOUR_MS, 30 * 24 * HOUR_MS, -30 * 24 * HOUR_MS, 50 * YEAR_MS, -50 * YEAR_MS];

/// By how much a clock is wrong now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Skew {
    error_ms: i64,
    was_far_off: bool,
}

impl Skew {
    /// Somebody or something sets it.
    pub fn jump(&mut self, rng: &mut Rng) {
        self.error_ms = ERRORS_MS[rng.index(ERRORS_MS.len())];
        self.was_far_off |= self.error_ms.abs() > HOUR_MS;
    }

    /// Was it ever wrong by more than an hour?
    pub fn was_far_off(&self) -> bool {
        self.was_far_off
    }

    /// Returns the time that the clock shows when so many milliseconds of the simulation have gone by.
    pub fn shows(&self, now_ms: i64) -> u64 {
        u64::try_from(START_MS as i64 + now_ms + self.error_ms).unwrap_or(0)
    }
}
