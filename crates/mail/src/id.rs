//! Queue ids: 64 bits, ordered by time of acceptance, shown as 13 base-32 characters.

use crate::UnixMillis;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering},
};

/// Names one accepted message, for ever. Safe in shells and file names, the same in any letter case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueId(pub u64);

/// Crockford's base 32: no i, l, o, u, so an id can be read aloud on the telephone.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 13;

/// The value of each byte as a digit, in any letter case; 32 and more: the byte is no digit. A table, because a
/// queue directory has tens of thousands of names to be read at a start.
const VALUES: [u8; 256] = {
    let mut values = [u8::MAX; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        values[DIGITS[digit] as usize] = digit as u8;
        values[DIGITS[digit].to_ascii_uppercase() as usize] = digit as u8;
        digit += 1;
    }
    values
};

impl QueueId {
    /// The 13 characters, in ASCII.
    pub fn to_ascii(self) -> [u8; LENGTH] {
        let mut out = [0; LENGTH];
        for (i, c) in out.iter_mut().enumerate() {
            *c = DIGITS[(self.0 >> (5 * (LENGTH - 1 - i)) & 31) as usize];
        }
        out
    }

    /// Returns the time at which the id was made; later than that if the clock had stepped back before.
    pub fn made_at(self) -> UnixMillis {
        UnixMillis(EPOCH_MS + (self.0 >> 12) / 1000)
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.to_ascii()).expect("base 32 is ASCII"))
    }
}

impl fmt::Debug for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text has not the form of a queue id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a queue id is 13 characters of 0-9 and a-z without i, l, o, u")
    }
}

impl std::error::Error for NotAnId {}

impl FromStr for QueueId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        if text.len() != LENGTH {
            return Err(NotAnId);
        }
        text.bytes()
            .try_fold(0u64, |sum, c| {
                let digit = u64::from(VALUES[usize::from(c)]);
                if digit >= 32 {
                    return Err(NotAnId);
                }
                // 13 × 5 bits is one more than fits: the first digit is below 16.
                sum.checked_mul(32).and_then(|s| s.checked_add(digit)).ok_or(NotAnId)
            })
            .map(Self)
    }
}

/// 2024-01-01, so that 52 bits of microseconds last until 2166.
const EPOCH_MS: u64 = 1_704_067_200_000;

/// Hands out ids that grow with time and never repeat, even when the clock steps back.
#[derive(Debug, Default)]
pub struct IdSource {
    last: AtomicU64,
}

impl IdSource {
    /// Never hands out `seen` or anything before it; called for every id found at recovery.
    pub fn never_before(&self, seen: QueueId) {
        self.last.fetch_max(seen.0, Ordering::Relaxed);
    }

    /// Returns a new id for a time in Unix milliseconds; no two calls return the same one.
    pub fn next(&self, now_ms: u64) -> QueueId {
        let wanted = now_ms.saturating_sub(EPOCH_MS).saturating_mul(1000) << 12;
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let id = wanted.max(last + 1);
            match self.last.compare_exchange_weak(last, id, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return QueueId(id),
                Err(seen) => last = seen,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_id_survives_being_shown_and_read(bits: u64) {
            let shown = QueueId(bits).to_string();
            prop_assert_eq!(shown.parse(), Ok(QueueId(bits)));
            prop_assert_eq!(shown.to_uppercase().parse(), Ok(QueueId(bits)));
        }

        #[test]
        fn ids_sort_as_text_like_as_numbers(a: u64, b: u64) {
            prop_assert_eq!(a.cmp(&b), QueueId(a).to_string().cmp(&QueueId(b).to_string()));
        }
    }

    #[test]
    fn ids_grow_when_the_clock_steps_back() {
        let ids = IdSource::default();
        let first = ids.next(1_795_242_354_048);
        assert!(ids.next(1_795_242_000_000) > first);
        assert_eq!(first.made_at(), UnixMillis(1_795_242_354_048));
    }

    #[test]
    fn junk_is_no_id() {
        for junk in ["", "0", "zzzzzzzzzzzzz", "000000000000i", "00000000000000", "é00000000000"] {
            assert_eq!(junk.parse::<QueueId>(), Err(NotAnId), "{junk}");
        }
    }
}
