//! What a scenario's runs say, in a table: medians with their spread, the ceiling beside each relay.

use super::rig::{Kind, Run};
use crate::stat::spread::Spread;
use std::{collections::BTreeMap, fmt::Write as _};

/// The runs of each case.
pub(crate) fn cases(runs: &[Run]) -> BTreeMap<(u32, Kind), Vec<&Run>> {
    let mut cases: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        cases.entry((run.sessions, run.kind)).or_default().push(run);
    }
    cases
}

/// A column of a case.
pub(crate) fn column(runs: &[&Run], value: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
    Spread::of(runs.iter().filter_map(|run| value(run)))
}

/// For the terminal.
pub(crate) fn text(runs: &[Run]) -> String {
    let mut out = String::new();
    let head = ["sessions", "", "accepted/s", "drained/s", "p99 ms", "backlog", "MTA µs/msg", "runs", ""];
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{:>8} {:8} {:>24} {:>24} {:>18} {:>10} {:>12} {:>5} {}",
        head[0], head[1], head[2], head[3], head[4], head[5], head[6], head[7], head[8]
    );
    for ((sessions, kind), runs) in cases(runs) {
        let spread =
            |value: &dyn Fn(&Run) -> Option<f64>| column(&runs, value).map(|s| s.text()).unwrap_or_default();
        let kind = if kind == Kind::Ceiling { "ceiling" } else { "relay" };
        let _ = writeln!(
            out,
            "{sessions:>8} {kind:8} {:>24} {:>24} {:>18} {:>10} {:>12} {:>5} {}",
            spread(&|r| Some(r.source.rate)),
            spread(&|r| Some(r.drained_rate)),
            spread(&|r| r.source.message_ms(|t| t.p99_us)),
            column(&runs, |r| Some(r.backlog_peak as f64))
                .map(|s| format!("{:.0}", s.max))
                .unwrap_or_default(),
            column(&runs, |r| r.mta_cpu_us_per_message)
                .map(|s| format!("{:.0}", s.median))
                .unwrap_or_default(),
            runs.len(),
            remarks(&runs).join("; ")
        );
    }
    out
}

/// What must be known before a case's figures are believed.
pub(crate) fn remarks(runs: &[&Run]) -> Vec<String> {
    let mut remarks = Vec::new();
    let incomplete = runs.iter().filter(|run| !run.complete).count();
    if incomplete > 0 {
        remarks.push(format!("{incomplete} INCOMPLETE: the sink got more or less than was accepted"));
    }
    let failed: u64 = runs.iter().map(|run| run.source.messages_failed).sum();
    if failed > 0 {
        remarks.push(format!("{failed} messages failed"));
    }
    if runs.iter().any(|run| run.source.seconds < TOO_SHORT_SECONDS) {
        remarks.push("too short to trust".to_owned());
    }
    remarks
}

/// A run that is over sooner is mostly its beginning and its end.
const TOO_SHORT_SECONDS: f64 = 0.5;
