//! Numbers as C's `%g` writes them, which is how ministat's tables look.

/// `value` with so many significant digits, trailing zeros cut, with an exponent where it is far from one.
pub(super) fn general(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    // Rounding may carry into the exponent: 9.9999999 is 10.
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..digits as i32).contains(&exponent) {
        let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or_default();
        return without_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.unsigned_abs())
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_in_c() {
        for (value, digits, text) in [
            (300.0, 8, "300"),
            (238.047_614_2, 8, "238.04761"),
            (0.000_012_345, 6, "1.2345e-05"),
            (123_456_789.0, 8, "1.2345679e+08"),
            (9.999_999_99, 6, "10"),
            (0.0001, 6, "0.0001"),
            (-1.5, 6, "-1.5"),
            (0.0, 6, "0"),
            (999_999.6, 6, "1e+06"),
        ] {
            assert_eq!(general(value, digits), text);
        }
    }
}
