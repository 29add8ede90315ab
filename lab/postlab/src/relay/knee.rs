//! The knee: the number of sessions from which a rate no longer grows by more than its spread.

use super::table::sessions_text;
use crate::stat::spread::Spread;

/// From how many sessions on the rate grows no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Knee {
    /// From this number of sessions on.
    At(u32),
    /// Still growing at the highest number that was measured.
    Beyond(u32),
    /// Only one number of sessions was measured.
    Unknown,
}

/// Finds it in rates by sessions, in increasing order. Sessions beyond the knee gain no more than the spread of the rates
/// that are compared.
pub(crate) fn knee(rates: &[(u32, Spread)]) -> Knee {
    let Some((most, _)) = rates.last().filter(|_| rates.len() > 1) else { return Knee::Unknown };
    let grows = |from: &Spread, to: &Spread| {
        let spread = (from.max - from.min).max(to.max - to.min);
        to.median > from.median + spread
    };
    let is_end = |i: &usize| rates[i + 1..].iter().all(|(_, later)| !grows(&rates[*i].1, later));
    match (0..rates.len() - 1).find(is_end) {
        Some(i) => Knee::At(rates[i].0),
        None => Knee::Beyond(*most),
    }
}

impl std::fmt::Display for Knee {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(sessions) => {
                write!(
                    f,
                    "at {}: with more sessions the rate grows by less than the rounds differ",
                    sessions_text(*sessions)
                )
            }
            Self::Beyond(sessions) => write!(f, "beyond {sessions} sessions: the rate still grows"),
            Self::Unknown => f.write_str("unknown: two numbers of sessions are needed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rates: &[(u32, f64, f64)]) -> Knee {
        let spread =
            |median: f64, width: f64| Spread { median, min: median - width / 2.0, max: median + width / 2.0 };
        knee(
            &rates
                .iter()
                .map(|(sessions, rate, width)| (*sessions, spread(*rate, *width)))
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn the_knee_is_where_more_sessions_gain_no_more_than_the_spread() {
        assert_eq!(
            found(&[(1, 100.0, 5.0), (10, 700.0, 30.0), (50, 720.0, 40.0), (100, 650.0, 10.0)]),
            Knee::At(10)
        );
        assert_eq!(found(&[(1, 100.0, 5.0), (10, 100.0, 5.0)]), Knee::At(1));
    }

    #[test]
    fn a_rate_that_grows_to_the_end_has_no_knee() {
        assert_eq!(found(&[(1, 100.0, 5.0), (10, 700.0, 30.0), (50, 900.0, 40.0)]), Knee::Beyond(50));
        // A pause in the growth is no end of it.
        assert_eq!(found(&[(1, 100.0, 5.0), (10, 101.0, 5.0), (50, 900.0, 40.0)]), Knee::Beyond(50));
        assert_eq!(found(&[(1, 100.0, 5.0)]), Knee::Unknown);
    }
}
