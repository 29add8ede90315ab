//! The parameters of MAIL that schedule a message: `HOLDFOR=` and `HOLDUNTIL=` (RFC 4865), `BY=` (RFC 2852),
//! `MT-PRIORITY=` (RFC 6710).

use crate::server::replies;
use mail::{DeliverBy, DeliverByMode, DeliveryOptions, Priority, Reply, UnixMillis};

/// Digits of an interval at most (RFC 2852 §4, RFC 4865 §4).
const DIGITS_MAX: usize = 9;

/// The times that a client gave in MAIL, before they are made absolute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Schedule {
    /// `HOLDFOR=` or `HOLDUNTIL=`.
    pub hold: Option<Hold>,
    /// `BY=`.
    pub deliver_by: Option<DeliverByRequest>,
}

/// The time until which the client wants a message to be held (RFC 4865 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// `HOLDFOR=`: so many seconds.
    For(u32),
    /// `HOLDUNTIL=`.
    Until(UnixMillis),
}

/// `BY=` (RFC 2852 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliverByRequest {
    /// Seconds from now; zero or less is a deadline that is over.
    pub seconds: i32,
    /// `N` or `R`.
    pub mode: DeliverByMode,
    /// `T`.
    pub trace: bool,
}

impl Schedule {
    /// Notes one of the two forms. A message has one of them at most (RFC 4865 §4).
    pub(super) fn set_hold(&mut self, hold: Hold) -> Result<(), Reply> {
        if self.hold.replace(hold).is_some() { Err(replies::BAD_PARAMETER) } else { Ok(()) }
    }

    /// Makes the times absolute. `hold_max_seconds` and `by_min_seconds` are what the server announced. The deadline of
    /// a message that is held counts from its release.
    ///
    /// # Errors
    /// The reply for times that the server does not take.
    pub fn resolve(
        &self,
        now: UnixMillis,
        hold_max_seconds: u32,
        by_min_seconds: u32,
        options: &mut DeliveryOptions,
    ) -> Result<(), Reply> {
        let latest = later(now, i64::from(hold_max_seconds));
        let release = self.hold.map(|hold| match hold {
            Hold::For(seconds) => later(now, i64::from(seconds)),
            Hold::Until(at) => at,
        });
        if release.is_some_and(|release| release > latest) {
            return Err(replies::HOLD_TOO_LONG);
        }
        options.release = release.filter(|release| *release > now);
        if let Some(DeliverByRequest { seconds, mode, trace }) = self.deliver_by {
            let least = i32::try_from(by_min_seconds).unwrap_or(i32::MAX).max(1);
            if mode == DeliverByMode::Return && seconds < least {
                return Err(replies::DEADLINE_TOO_SOON);
            }
            let deadline = later(options.release.unwrap_or(now), i64::from(seconds));
            options.deliver_by = Some(DeliverBy { deadline, mode, trace });
        }
        Ok(())
    }
}

fn later(at: UnixMillis, seconds: i64) -> UnixMillis {
    UnixMillis(at.0.saturating_add_signed(seconds * 1000))
}

fn digits(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.len() <= DIGITS_MAX && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// One to nine digits, not zero.
pub(super) fn parse_hold_for(value: Option<&str>) -> Result<Hold, Reply> {
    let seconds = value.and_then(digits).filter(|seconds| *seconds > 0);
    seconds.map(Hold::For).ok_or(replies::BAD_PARAMETER)
}

/// A date and time in UTC (RFC 3339).
pub(super) fn parse_hold_until(value: Option<&str>) -> Result<Hold, Reply> {
    value.and_then(UnixMillis::parse_rfc3339).map(Hold::Until).ok_or(replies::BAD_PARAMETER)
}

/// `[+|-]seconds;N|R[T]`.
pub(super) fn parse_by(value: Option<&str>) -> Result<DeliverByRequest, Reply> {
    let parse = |value: &str| {
        let (time, mode) = value.split_once(';')?;
        let (sign, number) = match time.strip_prefix('-') {
            Some(number) => (-1, number),
            None => (1, time.strip_prefix('+').unwrap_or(time)),
        };
        let seconds = sign * i32::try_from(digits(number)?).ok()?;
        let (mode, trace) = match mode.as_bytes() {
            [b'N' | b'n'] => (DeliverByMode::Notify, false),
            [b'R' | b'r'] => (DeliverByMode::Return, false),
            [b'N' | b'n', b'T' | b't'] => (DeliverByMode::Notify, true),
            [b'R' | b'r', b'T' | b't'] => (DeliverByMode::Return, true),
            _ => return None,
        };
        Some(DeliverByRequest { seconds, mode, trace })
    };
    value.and_then(parse).ok_or(replies::BAD_PARAMETER)
}

/// `-9` to `9`, without `+` and leading zeros (RFC 6710 §4).
pub(super) fn parse_priority(value: Option<&str>) -> Result<Priority, Reply> {
    let parse = |value: &str| match value.as_bytes() {
        [digit @ b'0'..=b'9'] => Priority::new((digit - b'0') as i8),
        [b'-', digit @ b'1'..=b'9'] => Priority::new(-((digit - b'0') as i8)),
        _ => None,
    };
    value.and_then(parse).ok_or(replies::BAD_PARAMETER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_795_242_354_000);
    const DAY: u32 = 86_400;

    fn resolve(hold: Option<Hold>, by: Option<&str>) -> Result<DeliveryOptions, Reply> {
        let deliver_by = by.map(|by| parse_by(Some(by)).unwrap());
        let mut options = DeliveryOptions::default();
        Schedule { hold, deliver_by }.resolve(NOW, DAY, 60, &mut options).map(|()| options)
    }

    #[test]
    fn a_hold_is_an_interval_or_a_time_up_to_the_longest() {
        let released_at = |hold| resolve(Some(hold), None).map(|options| options.release);
        assert_eq!(released_at(Hold::For(DAY)), Ok(Some(UnixMillis(NOW.0 + 86_400_000))));
        assert_eq!(released_at(Hold::For(DAY + 1)), Err(replies::HOLD_TOO_LONG));
        let until = |text| parse_hold_until(Some(text)).unwrap();
        assert_eq!(released_at(until("2026-11-21T06:25:55Z")), Ok(Some(UnixMillis(NOW.0 + 1000))));
        assert_eq!(released_at(until("2026-11-23T06:25:55Z")), Err(replies::HOLD_TOO_LONG));
        assert_eq!(released_at(until("2020-11-23T06:25:55Z")), Ok(None), "is released at once");
    }

    #[test]
    fn a_deadline_with_return_is_not_below_the_least() {
        for by in ["0;R", "-5;R", "59;RT"] {
            assert_eq!(resolve(None, Some(by)), Err(replies::DEADLINE_TOO_SOON), "{by}");
        }
        let by = resolve(None, Some("+60;rt")).unwrap().deliver_by.unwrap();
        assert_eq!((by.deadline.0 - NOW.0, by.mode, by.trace), (60_000, DeliverByMode::Return, true));
        let by = resolve(None, Some("-5;N")).unwrap().deliver_by.unwrap();
        assert_eq!((NOW.0 - by.deadline.0, by.mode, by.trace), (5000, DeliverByMode::Notify, false));
    }

    #[test]
    fn the_deadline_of_a_held_message_counts_from_its_release() {
        let options = resolve(Some(Hold::For(100)), Some("60;R")).unwrap();
        assert_eq!(options.deliver_by.unwrap().deadline.0 - NOW.0, 160_000);
    }

    #[test]
    fn priorities_are_one_digit_with_a_sign() {
        for value in -9..=9 {
            assert_eq!(parse_priority(Some(&value.to_string())).ok(), Priority::new(value));
        }
        for bad in ["", "-", "-0", "00", "10", "+1", "1 ", "a"] {
            assert_eq!(parse_priority(Some(bad)), Err(replies::BAD_PARAMETER), "{bad:?}");
        }
    }
}
