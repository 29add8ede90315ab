//! Times as the other servers write them: a number with a unit, such as `4h`.

/// Returns the digits of a time, and its unit; `unit` is that of numbers without one.
pub(crate) fn cut_unit(value: &str, unit: char) -> (&str, char) {
    match value.char_indices().next_back() {
        Some((at, letter @ ('s' | 'm' | 'h' | 'd' | 'w'))) => (&value[..at], letter),
        _ => (value, unit),
    }
}

/// Returns a time in seconds; none for a text that is no time.
pub(crate) fn seconds(value: &str, unit: char) -> Option<u64> {
    let (digits, unit) = cut_unit(value.trim(), unit);
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => 7 * 86_400,
    };
    digits.parse::<u64>().ok().map(|count| count.saturating_mul(factor))
}

/// Returns whether a text is a time with a unit, which Postrider reads as it stands.
pub(crate) fn is_time(text: &str) -> bool {
    text.ends_with(['s', 'm', 'h', 'd', 'w']) && seconds(text, 's').is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_unit_has_the_usual_one() {
        assert_eq!(
            (seconds("4h", 's'), seconds(" 90", 'm'), seconds("2w", 's')),
            (Some(14_400), Some(5400), Some(1_209_600))
        );
        assert_eq!((seconds("h", 's'), seconds("4y", 's')), (None, None));
        assert!(is_time("5d") && !is_time("5") && !is_time("d"));
    }
}
