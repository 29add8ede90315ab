//! The results of a scenario's runs, in a table: medians with their spread, the ceiling beside each relay.

use super::{
    detect, overhead,
    runner::{Kind, Run},
    scenario::{Experiment, Scenario},
};
use crate::{
    rounds::{Figure, too_short},
    sink::StoreCounts,
    stat::spread::Spread,
    table::{Cell, Column, Table},
};
use std::{collections::BTreeMap, fmt::Write as _};

/// Names a case, in the order of the table: variants in the scenario's, the ceiling before the relay.
pub(crate) type Name = (u32, usize, Kind);

/// Groups the runs by case.
pub(crate) fn cases<'r>(scenario: &Scenario, runs: &'r [Run]) -> BTreeMap<Name, Vec<&'r Run>> {
    let variants = scenario.variants();
    let mut cases: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        let variant = variants.iter().position(|v| v.name == run.variant).unwrap_or(usize::MAX);
        cases.entry((run.sessions, variant, run.kind)).or_default().push(run);
    }
    cases
}

/// Returns how a value is spread over a case's runs; `None` if no run has it.
pub(crate) fn column(runs: &[&Run], value: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
    Spread::of(runs.iter().filter_map(|run| value(run)))
}

/// Only shown with `show_seconds`.
const SECONDS: &str = "seconds";

/// A figure of a case: its title, its name in JSON and CSV, and how it is read.
pub(crate) type Metric = (&'static str, &'static str, fn(&Run) -> Option<f64>);

/// All columns; those that no run has are not shown.
pub(crate) const METRICS: [Metric; 16] = [
    ("accepted/s", "accepted_per_second", |r| Some(r.source.rate)),
    ("drained/s", "drained_per_second", |r| Some(r.drained_rate)),
    (SECONDS, "drained_seconds", |r| Some(r.drained_seconds)),
    ("MB/s", "mb_per_second", |r| r.raw_tcp_mb_per_second.and(r.mb_per_second())),
    ("TCP MB/s", "tcp_mb_per_second", |r| r.raw_tcp_mb_per_second),
    ("% of TCP", "percent_of_tcp", |r| Some(r.mb_per_second()? / r.raw_tcp_mb_per_second? * 100.0)),
    ("p50 ms", "p50_ms", |r| r.source.message_ms(|t| t.p50_us)),
    ("p99 ms", "p99_ms", |r| r.source.message_ms(|t| t.p99_us)),
    ("backlog", "backlog_messages", |r| (r.kind == Kind::Relay).then_some(r.backlog_peak as f64)),
    ("MTA µs/msg", "mta_cpu_us_per_message", |r| r.mta_cpu_us_per_message),
    ("MTA MiB", "mta_peak_mib", |r| r.mta_peak_mib),
    ("writes/msg", "disk_writes_per_message", |r| r.writes_per_message),
    ("flushes/msg", "disk_flushes_per_message", |r| r.flushes_per_message),
    ("commits/msg", "store_commits_per_message", |r| r.of_store(|store| store.commits)),
    ("syncs/msg", "store_syncs_per_message", |r| r.of_store(StoreCounts::syncs)),
    ("lab µs/msg", "lab_cpu_us_per_message", |r| Some(r.source.cpu_us_per_message)),
];

/// Returns the events that accepted mail survives in a case.
pub(crate) fn durability(scenario: &Scenario, (_, variant, kind): Name) -> String {
    let variants = scenario.variants();
    let Some(mta) = scenario.mta.as_ref().filter(|_| kind == Kind::Relay) else {
        // Beside a relay the sink has no store.
        let variant = variants.get(variant).filter(|_| scenario.experiment == Experiment::Ceiling);
        let text = variant.map(|variant| variant.durability.as_str()).unwrap_or_default();
        return if text.is_empty() { "no store".into() } else { text.to_owned() };
    };
    let Some(variant) = variants.get(variant) else { return mta.durability.clone() };
    let text = if variant.durability.is_empty() { &mta.durability } else { &variant.durability };
    if variant.is_unsafe { format!("UNSAFE {text}") } else { text.clone() }
}

/// Returns the name of the case, as short as the scenario permits.
pub(crate) fn label(scenario: &Scenario, (_, variant, kind): Name) -> String {
    let variants = scenario.variants();
    let variant = variants.get(variant).map(|v| v.name.as_str()).unwrap_or_default();
    let kind = if kind == Kind::Ceiling { "ceiling" } else { "relay" };
    if variant.is_empty() { kind.to_owned() } else { format!("{kind}, {variant}") }
}

/// Returns the table for the terminal.
pub(crate) fn text(scenario: &Scenario, runs: &[Run]) -> String {
    let is_shown = |(name, _, value): &&Metric| {
        (*name != SECONDS || scenario.show_seconds) && runs.iter().any(|run| value(run).is_some())
    };
    let shown: Vec<&Metric> = METRICS.iter().filter(is_shown).collect();
    let mut rows = vec![vec!["sessions".to_owned(), String::new(), "N".to_owned()]];
    rows[0].extend(shown.iter().map(|(name, ..)| (*name).to_owned()));
    rows[0].push("durability".into());
    let mut remarks = String::new();
    for (name, runs) in cases(scenario, runs) {
        let label = label(scenario, name);
        let mut row = vec![name.0.to_string(), label.clone(), runs.len().to_string()];
        let cell =
            |value: &dyn Fn(&Run) -> Option<f64>| column(&runs, value).map(|s| s.text()).unwrap_or_default();
        row.extend(shown.iter().map(|(_, _, value)| cell(value)));
        row.push(durability(scenario, name));
        rows.push(row);
        for remark in detect::remarks(&runs) {
            // Writing to a string cannot fail.
            let _ = writeln!(remarks, "{} sessions, {label}: {remark}", name.0);
        }
    }
    let shares = shares(scenario, runs);
    aligned(&rows) + &shares + &overhead::lines(scenario, runs) + &remarks
}

/// Returns the columns of [`add_rows`].
pub(super) fn columns() -> Vec<Column> {
    let names = [
        Column::right("sessions", "sessions", 8),
        Column::left("kind", "kind", 8),
        Column::left("variant", "variant", 8),
    ];
    let figures = METRICS.iter().map(|(title, key, _)| Column::right(title, key, 12));
    names.into_iter().chain(figures).chain([Column::left("durability", "durability", 10)]).collect()
}

/// Adds a row with its remarks for each case; the text is that of [`text`].
pub(super) fn add_rows(table: &mut Table<'_>, scenario: &Scenario, all: &[Run]) {
    let variants = scenario.variants();
    for (name, runs) in cases(scenario, all) {
        let variant = variants.get(name.1).map(|variant| variant.name.as_str()).unwrap_or_default();
        let kind = if name.2 == Kind::Ceiling { "ceiling" } else { "relay" };
        let mut cells: Vec<Cell> = vec![name.0.into(), kind.into(), variant.into()];
        cells.extend(
            METRICS.iter().map(|(_, _, value)| {
                Cell::from(runs.iter().filter_map(|run| value(run)).collect::<Figure>())
            }),
        );
        cells.push(durability(scenario, name).into());
        table.record(cells);
        detect::remarks(&runs).into_iter().for_each(|remark| table.silent_remark(remark));
    }
    let notes = shares(scenario, all) + &overhead::lines(scenario, all);
    notes.lines().for_each(|note| table.silent_note(note));
}

/// Returns the share of its ceiling that each relay reaches.
fn shares(scenario: &Scenario, runs: &[Run]) -> String {
    let cases = cases(scenario, runs);
    let median = |runs: &Vec<&Run>| column(runs, |r| Some(r.drained_rate)).map(|s| s.median);
    let mut out = String::new();
    for (name, relay) in cases.iter().filter(|(name, _)| name.2 == Kind::Relay) {
        let Some(ceiling) = cases.get(&(name.0, name.1, Kind::Ceiling)) else { continue };
        if let Some(share) = median(relay).zip(median(ceiling)).map(|(relay, ceiling)| relay / ceiling) {
            let (label, remark) = (label(scenario, *name), above_ceiling(share, relay, ceiling));
            let _ =
                writeln!(out, "{} sessions, {label}: {:.1} % of its ceiling{remark}", name.0, share * 100.0);
        }
    }
    out
}

/// Returns the remark on a share above 100 %; empty for others.
fn above_ceiling(share: f64, relay: &[&Run], ceiling: &[&Run]) -> &'static str {
    let is_short = |runs: &[&Run]| runs.iter().any(|run| too_short(run.source.sending_seconds()).is_some());
    if share <= 1.0 {
        ""
    } else if is_short(ceiling) {
        ": CANNOT TELL: the ceiling is too short to trust; use more --messages"
    } else if is_short(relay) {
        ": CANNOT TELL: the relay is too short to trust; use more --messages"
    } else {
        ": NO CEILING: the relay has more connections to the sink than the source, or keeps them open; use more sessions, or -d"
    }
}

/// Columns as wide as their widest.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        // Words to the left, figures to the right.
        let cell = |(i, text): (usize, &String)| match i {
            1 => format!("{text:<width$}", width = widths[i]),
            _ if i + 1 == widths.len() => text.clone(),
            _ => format!("{text:>width$}", width = widths[i]),
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use detect::tests::run;

    #[test]
    fn a_share_above_all_of_the_ceiling_has_a_remark() {
        let text = "title = \"x\"\nexperiment = \"relay\"\n[load]\nmessages = 10\nsessions = [1]\n\
                    [mta]\nname = \"m\"\nendpoint = \"127.0.0.1:25\"\n";
        let scenario = Scenario::parse(text).unwrap();
        // A run has 1000 messages.
        let told = |relay: f64, ceiling: f64| {
            shares(&scenario, &[run("relay", 1, relay, 1.0, 1.0), run("ceiling", 1, ceiling, 1.0, 1.0)])
        };
        assert_eq!(told(100.0, 400.0), "1 sessions, relay: 25.0 % of its ceiling\n");
        let remark = |relay, ceiling| told(relay, ceiling).split("ceiling: ").nth(1).unwrap().to_owned();
        assert!(remark(5000.0, 4000.0).starts_with("CANNOT TELL: the ceiling is too short to trust"));
        assert!(remark(4000.0, 1000.0).starts_with("CANNOT TELL: the relay is too short to trust"));
        assert!(remark(1000.0, 500.0).starts_with("NO CEILING: the relay has more connections"));
    }
}
