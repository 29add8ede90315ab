//! `postlab report`: result directories on one HTML page that needs nothing else, not even a network.

pub(crate) mod svg;

use crate::{
    run::{
        detect::remarks,
        machine::Machine,
        read,
        runner::{Kind, Run},
        scenario::Scenario,
        table::{COLUMNS, cases, column, durability, label},
    },
    stat::spread::{Spread, shown},
};
use clap::Args;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};
pub(crate) use svg::escape;
use svg::{Group, dots, lines};

/// Make one HTML page of result directories
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result directories of `postlab run`
    #[arg(required = true)]
    directories: Vec<PathBuf>,
    /// The page
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

/// Reads, draws, writes.
pub(crate) fn run(args: &ReportArgs) -> Result<(), String> {
    let sections = args.directories.iter().map(|d| section(d)).collect::<Result<Vec<String>, String>>()?;
    let page = document("Postlab report", &sections.concat());
    std::fs::write(&args.output, page).map_err(|e| format!("write {}: {e}", args.output.display()))?;
    println!("{}", args.output.display());
    Ok(())
}

/// A page that needs nothing else.
pub(crate) fn document(title: &str, body: &str) -> String {
    let style = include_str!("style.css");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</html>\n"
    )
}

/// Returns the section of a result directory.
pub(crate) fn section(directory: &Path) -> Result<String, String> {
    let (scenario, machine, runs) = read(directory)?;
    if runs.is_empty() {
        return Err(format!("{} has no runs yet", directory.display()));
    }
    let mut out = format!("<section>\n<h2>{}</h2>\n", escape(&scenario.title));
    // Writing to a string cannot fail.
    if !scenario.hypothesis.is_empty() {
        let _ = writeln!(out, "<p class=\"hypothesis\">{}</p>", escape(scenario.hypothesis.trim()));
    }
    out.push_str(&pictures(&scenario, &runs));
    out.push_str(&table(&scenario, &runs));
    out.push_str(&phases(&scenario, &runs));
    out.push_str(&card(&machine));
    let toml = std::fs::read_to_string(directory.join("scenario.toml")).unwrap_or_default();
    let _ = writeln!(
        out,
        "<details><summary>Scenario</summary><pre>{}</pre></details>\n</section>",
        escape(&toml)
    );
    Ok(out)
}

fn name(scenario: &Scenario, kind: Kind) -> String {
    match (kind, &scenario.mta) {
        (Kind::Relay, Some(mta)) => mta.name.clone(),
        _ => "ceiling".to_owned(),
    }
}

fn pictures(scenario: &Scenario, runs: &[Run]) -> String {
    let mut out = String::new();
    let relays = runs.iter().any(|run| run.kind == Kind::Relay);
    // A ceiling ten times as high would press the relay's dots together: each has its picture.
    for kind in [Kind::Relay, Kind::Ceiling] {
        let variants = scenario.variants();
        let groups: Vec<Group> = cases(scenario, runs)
            .into_iter()
            .filter(|(name, _)| name.2 == kind)
            .map(|((sessions, variant, _), runs)| {
                let variant = variants.get(variant).map(|v| v.name.as_str()).unwrap_or_default();
                let values: Vec<f64> = runs.iter().map(|run| run.drained_rate).collect();
                let median = Spread::of(values.iter().copied()).map_or(0.0, |s| s.median);
                let series = usize::from(kind == Kind::Ceiling);
                Group { label: format!("{sessions} {variant}").trim().to_owned(), series, values, median }
            })
            .collect();
        if groups.is_empty() {
            continue;
        }
        let title =
            format!("{}: messages a second until the sink had all, by sessions", name(scenario, kind));
        figure(&mut out, &title, &dots(&title, &groups));
    }
    if let Some(run) = runs.iter().rev().find(|run| run.kind == Kind::Relay).filter(|_| relays) {
        let settled = run.moments.iter().map(|m| (m.seconds, m.settled as f64)).collect();
        let received = run.moments.iter().map(|m| (m.seconds, m.received as f64)).collect();
        let title = format!(
            "Accepted (upper line) and at the sink (lower): the last run with {} sessions. Between them lies the queue",
            run.sessions
        );
        figure(&mut out, &title, &lines(&title, &[settled, received]));
    }
    out
}

fn figure(out: &mut String, title: &str, svg: &str) {
    let _ = writeln!(out, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(title));
}

fn table(scenario: &Scenario, runs: &[Run]) -> String {
    let shown: Vec<_> =
        COLUMNS.iter().filter(|(_, value)| runs.iter().any(|run| value(run).is_some())).collect();
    let heads: String = shown.iter().map(|(name, _)| format!("<th>{name}")).collect();
    let mut out = format!(
        "<div class=\"wide\"><table>\n<tr><th>sessions<th><th>runs{heads}<th>durability<th>remarks</tr>\n"
    );
    for (name, runs) in cases(scenario, runs) {
        let cell =
            |value: &dyn Fn(&Run) -> Option<f64>| column(&runs, value).map(|s| s.text()).unwrap_or_default();
        let cells: String = shown.iter().map(|(_, value)| format!("<td>{}", cell(value))).collect();
        let _ = writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}{cells}<td>{}<td>{}</tr>",
            name.0,
            escape(&label(scenario, name)),
            runs.len(),
            escape(&durability(scenario, name)),
            escape(&remarks(&runs).join("; "))
        );
    }
    out + "</table></div>\n<p class=\"note\">Median of the runs (smallest–largest). Lab CPU is source and sink together.</p>\n"
}

/// Returns the times of a message by phase, for the last run of each case.
fn phases(scenario: &Scenario, runs: &[Run]) -> String {
    let mut out =
        "<details><summary>Times by phase, last run of each case</summary><div class=\"wide\"><table>\n\
                   <tr><th>sessions<th><th>phase<th>count<th>p50 µs<th>p90 µs<th>p99 µs<th>max µs</tr>\n"
            .to_owned();
    for (name, runs) in cases(scenario, runs) {
        let Some(run) = runs.last() else { continue };
        let (sessions, kind) = (name.0, escape(&label(scenario, name)));
        for (phase, t) in &run.source.times {
            let [p50, p90, p99, max] = [t.p50_us, t.p90_us, t.p99_us, t.max_us].map(shown);
            let _ = writeln!(
                out,
                "<tr><td>{sessions}<td>{kind}<td>{phase}<td>{}<td>{p50}<td>{p90}<td>{p99}<td>{max}</tr>",
                t.count
            );
        }
    }
    out + "</table></div></details>\n"
}

fn card(machine: &Machine) -> String {
    let row = |(name, value): &(String, String)| format!("<dt>{}<dd>{}\n", escape(name), escape(value));
    format!("<dl>\n{}</dl>\n", machine.facts().iter().map(row).collect::<String>())
}
