//! Requirements on the figures: `p99<50ms`, `drained@50>1000/s`; and their result as JUnit XML.

use super::{
    case::{Case, METRICS},
    table::sessions_text,
};
use crate::report::escape;
use crate::{run::runner::Kind, source::Phase};
use serde::Serialize;
use std::fmt::{self, Write as _};

/// What `--require` asks of a figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Requirement {
    text: String,
    /// A key of the figures, or a percentile of a phase: `quit.p99`.
    figure: Figure,
    /// Only with this number of sessions.
    sessions: Option<u32>,
    comparison: Comparison,
    limit: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Figure {
    Metric(usize),
    Phase(Phase, &'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// A requirement on a case, checked with its median.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Checked {
    pub(super) requirement: String,
    pub(super) server: String,
    pub(super) sessions: u32,
    pub(super) measured: Option<f64>,
    pub(super) is_met: bool,
}

/// What of a phase's times can be required.
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p999", "max"];

impl Requirement {
    /// Reads `FIGURE[@SESSIONS]` `<`, `<=`, `>` or `>=` `NUMBER[UNIT]`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            let keys: Vec<&str> = METRICS.iter().map(|metric| metric.key).collect();
            format!(
                "`{text}`: {why}: write FIGURE[@SESSIONS]<NUMBER[UNIT] or with <=, >, >=, as in 'p99<50ms' or 'drained@50>1000/s'; \
                 figures: {}, and PHASE.p50 to PHASE.max, as in quit.p99",
                keys.join(", ")
            )
        };
        let at = text.find(['<', '>']).ok_or_else(|| bad("there is no comparison"))?;
        let (figure, rest) = text.split_at(at);
        let (comparison, limit) = match (rest.strip_prefix("<="), rest.strip_prefix(">=")) {
            (Some(limit), _) => (Comparison::AtMost, limit),
            (_, Some(limit)) => (Comparison::AtLeast, limit),
            _ if rest.starts_with('<') => (Comparison::Less, &rest[1..]),
            _ => (Comparison::More, &rest[1..]),
        };
        let (figure, sessions) = match figure.split_once('@') {
            Some((figure, sessions)) => {
                (figure, Some(sessions.trim().parse().map_err(|_| bad("no number of sessions behind @"))?))
            }
            None => (figure, None),
        };
        let figure = figure.trim();
        let (found, dimension) =
            Figure::parse(figure).ok_or_else(|| bad(&format!("`{figure}` is no figure")))?;
        let limit = value(limit.trim(), dimension)
            .ok_or_else(|| bad(&format!("`{}` is no {}", limit.trim(), dimension.name())))?;
        Ok(Self { text: text.to_owned(), figure: found, sessions, comparison, limit })
    }

    /// Checks that it is about a number of sessions that is measured: it would never be checked.
    ///
    /// # Errors
    /// The requirement names a number of sessions that is not measured.
    pub(super) fn is_of(&self, measured: &[u32]) -> Result<(), String> {
        match self.sessions {
            Some(sessions) if !measured.contains(&sessions) => {
                let measured: Vec<String> = measured.iter().map(u32::to_string).collect();
                Err(format!(
                    "--require `{}`: there is no measurement with {}, only with {}: write one of these behind @, or add {sessions} to --sessions",
                    self.text,
                    sessions_text(sessions),
                    measured.join(", ")
                ))
            }
            _ => Ok(()),
        }
    }

    /// The check of a server that was not measured with this number of sessions; none if it is not about that.
    pub(super) fn unmeasured(&self, server: &str, sessions: u32) -> Option<Checked> {
        self.is_about(sessions).then(|| Checked {
            requirement: self.text.clone(),
            server: server.to_owned(),
            sessions,
            measured: None,
            is_met: false,
        })
    }

    fn is_about(&self, sessions: u32) -> bool {
        self.sessions.is_none_or(|named| named == sessions)
    }

    /// Checks it on a case; none if it is not about it.
    pub(super) fn check(&self, case: &Case<'_>) -> Option<Checked> {
        if case.kind != Kind::Relay || !self.is_about(case.sessions) {
            return None;
        }
        let measured = self.figure.of(case);
        let is_met = measured.is_some_and(|measured| match self.comparison {
            Comparison::Less => measured < self.limit,
            Comparison::AtMost => measured <= self.limit,
            Comparison::More => measured > self.limit,
            Comparison::AtLeast => measured >= self.limit,
        });
        let (requirement, server) = (self.text.clone(), case.label.to_owned());
        Some(Checked { requirement, server, sessions: case.sessions, measured, is_met })
    }
}

/// What a figure measures, and so which units fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Dimension {
    Rate,
    Milliseconds,
    Microseconds,
    Mebibytes,
    Count,
}

impl Dimension {
    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate, as 1000/s",
            Self::Milliseconds | Self::Microseconds => "time, as 50ms",
            Self::Mebibytes => "amount of memory, as 100MiB",
            Self::Count => "number",
        }
    }

    /// The units that may be written, with their factor; a number alone is in the unit of the table.
    fn suffixes(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::Rate => &[("/s", 1.0)],
            Self::Milliseconds => &[("ms", 1.0), ("us", 1e-3), ("µs", 1e-3), ("s", 1e3)],
            Self::Microseconds => &[("ms", 1e3), ("us", 1.0), ("µs", 1.0), ("s", 1e6)],
            Self::Mebibytes => &[("MiB", 1.0), ("GiB", 1024.0)],
            Self::Count => &[],
        }
    }
}

fn value(text: &str, dimension: Dimension) -> Option<f64> {
    let with = |(suffix, factor): &(&str, f64)| {
        let number: f64 = text.strip_suffix(suffix)?.trim().parse().ok()?;
        Some(number * factor)
    };
    let found = dimension.suffixes().iter().find_map(with).or_else(|| text.parse().ok());
    found.filter(|number| number.is_finite())
}

impl Figure {
    fn parse(text: &str) -> Option<(Self, Dimension)> {
        if let Some((phase, percentile)) = text.split_once('.') {
            let phase = Phase::ALL.into_iter().find(|known| known.to_string().eq_ignore_ascii_case(phase))?;
            let percentile = PERCENTILES.into_iter().find(|known| *known == percentile)?;
            return Some((Self::Phase(phase, percentile), Dimension::Milliseconds));
        }
        let place = METRICS.iter().position(|metric| metric.key == text)?;
        let dimension = match text {
            "accepted" | "drained" => Dimension::Rate,
            "p50" | "p90" | "p99" | "p999" | "max" => Dimension::Milliseconds,
            "cpu" | "lab" => Dimension::Microseconds,
            "memory" => Dimension::Mebibytes,
            _ => Dimension::Count,
        };
        Some((Self::Metric(place), dimension))
    }

    /// Returns the median of the figure over a case's runs.
    fn of(&self, case: &Case<'_>) -> Option<f64> {
        let spread = match self {
            Self::Metric(place) => case.figure(METRICS[*place].of),
            Self::Phase(phase, percentile) => case.figure(|run| {
                let times = run.run.source.times.get(phase)?;
                let us = match *percentile {
                    "p50" => times.p50_us,
                    "p90" => times.p90_us,
                    "p99" => times.p99_us,
                    "p999" => times.p999_us,
                    _ => times.max_us,
                };
                Some(us / 1e3)
            }),
        };
        spread.map(|spread| spread.median)
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.is_met { "met" } else { "MISSED" };
        write!(f, "{word}: {} by {} with {}: ", self.requirement, self.server, sessions_text(self.sessions))?;
        match self.measured {
            Some(measured) => write!(f, "{measured:.3}"),
            None => f.write_str("not measured"),
        }
    }
}

/// The checks as a JUnit file: a test case for each.
pub(super) fn junit(checked: &[Checked]) -> String {
    let missed = checked.iter().filter(|check| !check.is_met).count();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a string cannot fail.
    let _ =
        writeln!(out, "<testsuite name=\"postlab relay\" tests=\"{}\" failures=\"{missed}\">", checked.len());
    for check in checked {
        let name = escape(&format!("{} with {}", check.requirement, sessions_text(check.sessions)));
        let _ = write!(out, "  <testcase classname=\"{}\" name=\"{name}\"", escape(&check.server));
        if check.is_met {
            out.push_str("/>\n");
        } else {
            let _ = writeln!(out, "><failure message=\"{}\"/></testcase>", escape(&check.to_string()));
        }
    }
    out + "</testsuite>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::tests::run;

    #[test]
    fn a_requirement_names_a_figure_a_comparison_and_a_limit_with_its_unit() {
        let limit = |text: &str| Requirement::parse(text).unwrap().limit;
        assert_eq!((limit("p99<50ms"), limit("p99 < 0.05s"), limit("drained>1000/s")), (50.0, 50.0, 1000.0));
        assert_eq!((limit("cpu<1ms"), limit("memory<=1GiB"), limit("failed<=0")), (1000.0, 1024.0, 0.0));
        assert_eq!(Requirement::parse("quit.p99@50<=1s").unwrap().sessions, Some(50));
        for bad in ["p99", "p98<5", "p99<5/s", "drained@x>1", "quit.p98<1", "p99<nan"] {
            let error = Requirement::parse(bad).unwrap_err();
            assert!(error.starts_with(&format!("`{bad}`: ")) && error.contains("'p99<50ms'"), "{error}");
        }
    }

    #[test]
    fn a_requirement_is_about_a_number_of_sessions_that_is_measured() {
        let is_of = |text: &str| Requirement::parse(text).unwrap().is_of(&[2, 50]);
        assert!(is_of("p99<5ms").is_ok() && is_of("p99@50<5ms").is_ok());
        let error = is_of("p99@77<5ms").unwrap_err();
        assert!(
            error.contains("`p99@77<5ms`: there is no measurement with 77 sessions, only with 2, 50: "),
            "{error}"
        );
    }

    #[test]
    fn a_requirement_is_checked_on_the_median_of_each_case_it_is_about() {
        let runs = [run("a", 1, 100.0), run("a", 1, 300.0), run("a", 1, 200.0), run("a", 9, 50.0)];
        let cases = super::super::case::cases(&runs);
        let check = |text: &str| {
            let requirement = Requirement::parse(text).unwrap();
            cases.iter().filter_map(|case| requirement.check(case)).map(|c| c.is_met).collect::<Vec<_>>()
        };
        assert_eq!((check("accepted>199/s"), check("accepted>200")), (vec![true, false], vec![false, false]));
        assert_eq!((check("accepted@9>=50"), check("accepted@5>=50")), (vec![true], vec![]));
        // What was not measured does not meet anything.
        assert_eq!(check("tls.p99<1s"), [false, false]);
    }

    #[test]
    fn junit_has_a_failure_for_each_miss() {
        let check = |is_met| Checked {
            requirement: "p99<5ms".into(),
            server: "a&b".into(),
            sessions: 10,
            measured: Some(4.0),
            is_met,
        };
        let text = junit(&[check(true), check(false)]);
        assert!(text.contains("tests=\"2\" failures=\"1\""), "{text}");
        assert!(text.contains("classname=\"a&amp;b\" name=\"p99&lt;5ms with 10 sessions\"/>"), "{text}");
        assert_eq!(text.matches("<failure ").count(), 1);
    }
}
