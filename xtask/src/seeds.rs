//! docs/seeds.md: a table of the rows of the five texts, made from docs/seeds/rows.toml.

use crate::shell::{Failure, root};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt::Write as _, fs};

/// The table that is made.
pub(crate) const PAGE: &str = "docs/seeds.md";
/// The rows that it is made from.
const ROWS: &str = "docs/seeds/rows.toml";
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
    /// A page in docs/results.
    result: Option<String>,
    verdict: Option<Verdict>,
    state: State,
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

/// Comparison of the finding of a text with what is found here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum Verdict {
    #[serde(rename = "agrees")]
    Agrees,
    #[serde(rename = "differs")]
    Differs,
    #[serde(rename = "cannot tell")]
    CannotTell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
enum State {
    #[serde(rename = "works")]
    Works,
    #[serde(rename = "in part")]
    InPart,
    #[serde(rename = "missing")]
    Missing,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::CannotTell => "cannot tell",
        }
    }
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::InPart => "in part",
            Self::Missing => "missing",
        }
    }
}

/// Returns the page.
pub(crate) fn page() -> Result<String, Failure> {
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
    Ok(written(&rows))
}

fn written(rows: &[Row]) -> String {
    let mut out = String::from(
        "# The five texts, row by row\n\nMade from [seeds/rows.toml](seeds/rows.toml) by `cargo xtask docs`; do not edit it. \
         The tables of the texts themselves are beside that file.\n\n",
    );
    let count = |state: State| rows.iter().filter(|row| row.state == state).count();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "{} of {} rows work, {} in part, {} are missing. A verdict compares what a text found with what is published here; without one, the \
         row is a tool or a method.\n",
        count(State::Works),
        rows.len(),
        count(State::InPart),
        count(State::Missing)
    );
    let mut verdicts = BTreeMap::<Verdict, usize>::new();
    rows.iter().filter_map(|row| row.verdict).for_each(|verdict| *verdicts.entry(verdict).or_default() += 1);
    let counts: Vec<String> = verdicts.iter().map(|(verdict, n)| format!("{} {n}", verdict.name())).collect();
    let _ = writeln!(out, "Verdicts: {}. `DISK` is a directory on the disk to measure.\n", counts.join(", "));
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
            row.verdict.map_or("", Verdict::name),
            row.state.name()
        );
    }
    out
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
