//! docs/seeds.md: a table of the rows of the five texts, made from docs/seeds/rows.toml and what became of their commands.

pub(crate) mod trial;

use crate::shell::{Failure, root};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt::Write as _, fs};
use trial::{Record, Trial};

/// From the root of the repository: the page that is made.
pub(crate) const PAGE: &str = "docs/seeds.md";
/// From the root of the repository: what the page is made from.
const ROWS: &str = "docs/seeds/rows.toml";
/// The verdicts, which `postlab reproduce` computes.
const FINDINGS: &str = "lab/results/reproduce.json";
/// Rows of the five texts.
const COUNT: usize = 109;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rows {
    row: Vec<Row>,
}

/// One system, tool, experiment or figure of the texts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    number: usize,
    text: Text,
    what: String,
    command: String,
    /// Name of a page in docs/results.
    result: Option<String>,
    /// Findings of `postlab reproduce`, by their names.
    #[serde(default)]
    findings: Vec<String>,
    /// How the command is tried, if that takes more than the command.
    #[serde(rename = "try")]
    trial: Option<String>,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Text {
    S0,
    S1,
    S2,
    S3,
    S4,
}

/// Makes the page.
pub(crate) fn page() -> Result<String, Failure> {
    Ok(written(&rows()?, &verdicts()?, &Record::read()?))
}

/// Reads and checks the rows.
fn rows() -> Result<Vec<Row>, Failure> {
    let text = fs::read_to_string(root().join(ROWS)).map_err(|e| Failure(format!("read {ROWS}: {e}")))?;
    let Rows { row: rows } = toml::from_str(&text).map_err(|e| Failure(format!("read {ROWS}: {e}")))?;
    if let Some((i, row)) = rows.iter().enumerate().find(|(i, row)| row.number != i + 1) {
        return Err(Failure(format!("{ROWS}: row {} stands in place {}", row.number, i + 1)));
    }
    if rows.len() != COUNT {
        return Err(Failure(format!("{ROWS}: {} rows, of {COUNT}", rows.len())));
    }
    let missing = |row: &&Row| {
        row.result.as_ref().is_some_and(|page| !root().join("docs/results").join(page).is_file())
    };
    if let Some(row) = rows.iter().find(missing) {
        return Err(Failure(format!("{ROWS}: row {}: its page in docs/results is missing", row.number)));
    }
    Ok(rows)
}

/// What of a page's findings is read.
#[derive(Debug, Deserialize)]
struct Findings {
    findings: Vec<Finding>,
    /// Judged findings that have no figure here.
    #[serde(default)]
    without_figure: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    what: String,
    /// Of the size.
    verdict: String,
    /// On the direction, with which a row is listed; pages before 28 November 2026 have none.
    #[serde(default)]
    direction: String,
}

/// Reads the verdict on each finding that has one.
fn verdicts() -> Result<BTreeMap<String, String>, Failure> {
    let text = fs::read_to_string(root().join(FINDINGS));
    let text = text.map_err(|e| Failure(format!("read {FINDINGS}: {e}")))?;
    let Findings { findings, without_figure } =
        serde_json::from_str(&text).map_err(|e| Failure(format!("read {FINDINGS}: {e}")))?;
    let verdict = |finding: Finding| {
        let verdict = if finding.direction.is_empty() { finding.verdict } else { finding.direction };
        (verdict != "not judged").then_some((finding.what, verdict))
    };
    let open = without_figure.into_iter().map(|what| (what, "cannot tell".to_owned()));
    Ok(findings.into_iter().filter_map(verdict).chain(open).collect())
}

/// Returns the verdict on a row: one word if all its findings have the same, else how many have which.
fn verdict(row: &Row, verdicts: &BTreeMap<String, String>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for verdict in row.findings.iter().filter_map(|name| verdicts.get(name)) {
        *counts.entry(verdict).or_default() += 1;
    }
    if counts.len() < 2 {
        return counts.into_keys().next().unwrap_or_default().to_owned();
    }
    counts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect::<Vec<_>>().join(", ")
}

fn written(rows: &[Row], verdicts: &BTreeMap<String, String>, record: &Record) -> String {
    let mut out = String::from(
        "# The five texts, row by row\n\nWhat five papers on mail queues (S0 to S4) measured, and the command \
         that measures it today. `DISK` is a directory on the disk to measure.\n\n`cargo xtask docs` makes this \
         page from [seeds/rows.toml](seeds/rows.toml) and [seeds/tried.toml](seeds/tried.toml); do not edit it. The \
         tables of the papers themselves are next to those files.\n\n",
    );
    let works = rows.iter().filter(|row| state(record.trial(row.number)) == "works").count();
    let mut builds = BTreeMap::<&str, usize>::new();
    rows.iter()
        .filter_map(|row| record.trial(row.number))
        .for_each(|trial| *builds.entry(&trial.commit).or_default() += 1);
    let mut builds: Vec<(&str, usize)> = builds.into_iter().collect();
    builds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let builds: Vec<String> = builds.iter().map(|(commit, count)| format!("{count} of {commit}")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{works} of {} rows work: their commands succeeded when `cargo xtask rows` last ran them, most at a \
         reduced size (`try` in that file), with builds of several commits: {}. A commit that the repository does not have was \
         rewritten before it was published. The verdict says whether `postlab reproduce` \
         finds the direction of the row's findings again ([how, and with which figures](results/reproduce.md)). \
         A row has no verdict if it is a tool or a method, if its text has no figure, if its figures depend on the \
         machine or are answered by Postrider alone, or if the page has not measured it yet.\n",
        rows.len(),
        builds.join(", "),
    );
    let mut counts = BTreeMap::<&str, usize>::new();
    verdicts.values().for_each(|verdict| *counts.entry(verdict).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(verdict, n)| format!("{verdict} {n}")).collect();
    let _ = writeln!(out, "Verdicts on the findings: {}.\n", counts.join(", "));
    out.push_str(
        "| row | text | what | command | latest result | verdict | state |\n|---:|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let result = row.result.as_ref().map_or_else(String::new, |page| format!("[{page}](results/{page})"));
        let note = row.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        let _ = writeln!(
            out,
            "| {} | {:?} | {} | `{}` | {result} | {} | {}{note} |",
            row.number,
            row.text,
            row.what,
            row.command,
            verdict(row, verdicts),
            state(record.trial(row.number))
        );
    }
    out
}

/// What became of a row's command.
fn state(trial: Option<&Trial>) -> String {
    match trial {
        None => "not tried".to_owned(),
        Some(Trial { failure: None, .. }) => "works".to_owned(),
        Some(Trial { failure: Some(why), .. }) => format!("failed: {}", why.replace('|', "\\|")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_line_for_each_row_and_each_result_exists() {
        let page = page().unwrap();
        assert_eq!(page.lines().filter(|line| line.starts_with("| ") && line.contains("| S")).count(), COUNT);
    }
}
