//! The times of renewals and of attempts.

use std::time::Duration;

/// The part of its life after which a certificate is renewed, in thirds.
const RENEWED_AFTER_THIRDS: u64 = 2;
/// The renewals of many machines that began together are spread over this part of the life.
const SPREAD: f64 = 1.0 / 30.0;
/// The pauses after one failure, after two, and so on. Let's Encrypt permits five failed validations in an hour.
const PAUSES_SECONDS: [u64; 6] = [60, 600, 1800, 3600, 4 * 3600, 12 * 3600];

/// Returns when a certificate is renewed, in seconds since 1970: after two thirds of its life and a little more.
///
/// `spread` is from 0 to 1, and has to be the same for the same certificate, so that a restart moves nothing.
pub fn renewal_seconds(not_before: u64, not_after: u64, spread: f64) -> u64 {
    let life = not_after.saturating_sub(not_before);
    let later = (life as f64 * SPREAD * spread.clamp(0.0, 1.0)) as u64;
    not_before.saturating_add(life / 3 * RENEWED_AFTER_THIRDS).saturating_add(later).min(not_after)
}

/// Returns a time in the window that the authority suggests (RFC 9773 §4.2), in seconds since 1970.
pub fn suggested_seconds(start: u64, end: u64, spread: f64) -> u64 {
    let width = end.saturating_sub(start);
    start.saturating_add((width as f64 * spread.clamp(0.0, 1.0)) as u64)
}

/// Returns the pause after so many failures in a row.
pub fn pause(failures: u32) -> Duration {
    let at = (failures.max(1) as usize - 1).min(PAUSES_SECONDS.len() - 1);
    Duration::from_secs(PAUSES_SECONDS[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 86_400;

    #[test]
    fn a_certificate_of_ninety_days_is_renewed_about_thirty_days_before_its_end() {
        assert_eq!(renewal_seconds(0, 90 * DAY, 0.0), 60 * DAY);
        assert_eq!(renewal_seconds(0, 90 * DAY, 1.0), 63 * DAY);
        assert_eq!(renewal_seconds(0, 6 * DAY, 0.0), 4 * DAY);
    }

    #[test]
    fn attempts_become_rare() {
        let minutes: Vec<u64> = (0..9).map(|failures| pause(failures).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 1, 10, 30, 60, 240, 720, 720, 720]);
        // Those of the first hour stay below the limit of the authority.
        assert!(PAUSES_SECONDS[..3].iter().sum::<u64>() + PAUSES_SECONDS[3] > 3600);
    }

    proptest! {
        #[test]
        fn a_renewal_is_in_the_life_of_the_certificate(from: u64, until: u64, spread in 0.0..=1.0) {
            let at = renewal_seconds(from, until, spread);
            prop_assert!(at <= until);
            prop_assert!(at >= from.min(until));
        }

        #[test]
        fn a_suggestion_is_kept(from in 0_u64..1 << 40, width in 0_u64..1 << 30, spread in 0.0..=1.0) {
            let at = suggested_seconds(from, from + width, spread);
            prop_assert!((from..=from + width).contains(&at));
        }
    }
}
