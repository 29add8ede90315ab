//! `postlab report`: result directories on one HTML page that needs nothing else, not even a network.

pub(crate) mod svg;
pub(crate) mod tracks;

use crate::{
    run::{
        detect::remarks,
        machine::Machine,
        read,
        runner::{Kind, Run},
        scenario::Scenario,
        server::{Server, servers},
        table::{METRICS, Metric, Name, cases, column, durability, label},
    },
    stat::spread::{Spread, shown},
};
use clap::Args;
use serde::Deserialize;
use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};
pub(crate) use svg::escape;
use svg::lines;
use tracks::{Track, picture};

/// Make one HTML page of result directories
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result directories of `postlab run`
    #[arg(required = true)]
    directories: Vec<PathBuf>,
    /// The file for the page
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

/// Returns a page of HTML that loads nothing else.
pub(crate) fn document(title: &str, body: &str) -> String {
    let style = include_str!("style.css");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{style}</style>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</html>\n"
    )
}

/// Returns the part of the page for one directory of results.
pub(crate) fn section(directory: &Path) -> Result<String, String> {
    let (scenario, machine, runs) = read(directory)?;
    if runs.is_empty() {
        return Err(format!("{} has no runs yet", directory.display()));
    }
    let servers = servers(directory);
    // Two results of one scenario differ in their server.
    let title =
        servers.first().map_or(scenario.title.clone(), |s| format!("{}: {}", scenario.title, s.title()));
    let mut out = format!("<section>\n<h2>{}</h2>\n", escape(&title));
    // Writing to a string cannot fail.
    if !scenario.hypothesis.is_empty() {
        let _ = writeln!(out, "<p class=\"hypothesis\">{}</p>", escape(scenario.hypothesis.trim()));
    }
    let server = servers.first().map(Server::title);
    let server = server.or_else(|| scenario.mta.as_ref().map(|mta| mta.name.clone())).unwrap_or_default();
    // Figures without this remark must not be passed on.
    if let Some(remark) = machine.busy() {
        let _ = writeln!(out, "<p class=\"note\"><strong>{}</strong></p>", escape(&remark));
    }
    out.push_str(&pictures(&scenario, &runs, &server));
    out.push_str(&table(&scenario, &runs));
    out.push_str(&conclusions(directory)?);
    out.push_str(&phases(&scenario, &runs));
    for server in &servers {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&server.text()));
    }
    out.push_str(&card(&machine));
    let toml = std::fs::read_to_string(directory.join("scenario.toml")).unwrap_or_default();
    let _ = writeln!(
        out,
        "<details><summary>Scenario</summary><pre>{}</pre></details>\n</section>",
        escape(&toml)
    );
    Ok(out)
}

/// `1 session`, `10 sessions`
fn sessions_text(count: u32) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

fn pictures(scenario: &Scenario, runs: &[Run], server: &str) -> String {
    let variants = scenario.variants();
    let track = |((sessions, variant, kind), runs): (Name, Vec<&Run>)| {
        let values: Vec<f64> = runs.iter().map(|run| run.drained_rate).collect();
        let spread = Spread::of(values.iter().copied());
        let variant = variants.get(variant).map(|v| v.name.as_str()).unwrap_or_default();
        let what = if kind == Kind::Ceiling { "ceiling" } else { server };
        let comma = if variant.is_empty() { "" } else { ", " };
        Track {
            label: format!("{what}{comma}{variant}, {}", sessions_text(sessions)),
            numbers: spread.map(|s| format!("{} a second, N={}", s.text(), values.len())).unwrap_or_default(),
            median: spread.map(|s| s.median),
            dots: values,
            class: if kind == Kind::Ceiling { "ceiling" } else { "accepted" },
            ..Track::default()
        }
    };
    let tracks: Vec<Track> = cases(scenario, runs).into_iter().map(track).collect();
    let caption = "Messages a second until the sink had all, relay and ceiling on one logarithmic scale: each run a dot, the median a line.";
    let mut out = picture(&tracks, "/s", false, caption);
    if let Some(run) = runs.iter().rev().find(|run| run.kind == Kind::Relay) {
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

/// Durability and remarks stand in a row of their own below the figures, where no narrow page can cut them off.
fn table(scenario: &Scenario, runs: &[Run]) -> String {
    let shown: Vec<_> =
        METRICS.iter().filter(|(_, _, value)| runs.iter().any(|run| value(run).is_some())).collect();
    let heads: String = shown.iter().map(|(name, ..)| format!("<th>{name}")).collect();
    let mut out =
        format!("<table class=\"runs\">\n<thead><tr><th>sessions<th><th>runs{heads}</tr></thead>\n<tbody>\n");
    for (name, runs) in cases(scenario, runs) {
        let cell = |(head, _, value): &&Metric| {
            let text = column(&runs, value).map(|s| s.text()).unwrap_or_default();
            format!("<td data-head=\"{head}\">{text}")
        };
        let cells: String = shown.iter().map(cell).collect();
        let remarks: String =
            remarks(&runs).iter().map(|remark| format!(" <strong>{}</strong>", escape(remark))).collect();
        // `postlab relay` asks each server itself, and says it in the conclusions.
        let survives = match durability(scenario, name) {
            text if text.is_empty() => String::new(),
            text => format!("survives: {}.", escape(&text)),
        };
        let _ = writeln!(
            out,
            "<tr><td data-head=\"sessions\">{}<td>{}<td data-head=\"runs\">{}{cells}</tr>\n\
             <tr class=\"notes\"><td colspan=\"{}\">{survives}{remarks}</tr>",
            name.0,
            escape(&label(scenario, name)),
            runs.len(),
            shown.len() + 3,
        );
    }
    out + "</tbody></table>\n<p class=\"note\">Median of the runs (smallest–largest). Lab CPU is source and sink together.</p>\n"
}

/// Returns what `postlab relay` concluded of each server: what it is, what its mail survives, the knee, the bottleneck, and remarks.
fn conclusions(directory: &Path) -> Result<String, String> {
    /// The part of `relay.json` that is for people.
    #[derive(Deserialize)]
    struct Relay {
        #[serde(default)]
        conclusions: Vec<(String, Vec<String>)>,
    }
    let path = directory.join("relay.json");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(String::new()) };
    let relay: Relay =
        serde_json::from_str(&text).map_err(|error| format!("read {}: {error}", path.display()))?;
    let section = |(title, lines): &(String, Vec<String>)| {
        let lines: String = lines.iter().map(|line| format!("<li>{}\n", escape(line))).collect();
        format!("<h3>{}</h3>\n<ul>\n{lines}</ul>\n", escape(title))
    };
    Ok(relay.conclusions.iter().map(section).collect())
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
            // A histogram's percentile is the upper edge of a bucket, and may lie above the largest time.
            let [p50, p90, p99, max] =
                [t.p50_us, t.p90_us, t.p99_us, t.max_us].map(|us| shown(us.min(t.max_us)));
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
