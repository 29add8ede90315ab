//! The page that `reproduce` leaves: the 2002–2005 papers' ratios beside ours as a picture, the table, what each step printed,
//! and the scenarios' own sections.

use super::{Row, Table};
use crate::report::{document, escape, section};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The picture goes from 1/100 to 1000.
const DECADES: (f64, f64) = (-2.0, 3.0);

/// All of it.
pub(super) fn page(table: &Table, results: &Path) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for warning in &table.warnings {
        let _ = writeln!(out, "<p class=\"warning\">{}</p>", escape(warning));
    }
    let agreed = table.rows.iter().filter(|row| row.verdict == "agrees").count();
    let judged = table.rows.iter().filter(|row| row.ratio.is_some()).count();
    let _ = writeln!(
        out,
        "<p>Five texts on mail queues, from 2002 to 2005, measured again on one machine. Of {judged} findings that are \
         ratios, {agreed} are found again.</p>"
    );
    out.push_str(&ratios(&table.rows));
    out.push_str(&figures(&table.rows));
    for directory in scenarios(results) {
        // One that was cut short has no runs, and no section.
        out.push_str(&section(&directory).unwrap_or_default());
    }
    out.push_str(&outputs(&table.rows, results));
    out.push_str("<h2>Machine</h2>\n<dl>\n");
    for (name, value) in &table.machine {
        let _ = writeln!(out, "<dt>{}<dd>{}", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
    document("The 2002–2005 papers' experiments again", &out)
}

/// A line for each ratio: the seed's as a bar or a ring, ours as a dot.
fn ratios(rows: &[Row]) -> String {
    let mut out = "<figure class=\"ratios\">\n".to_owned();
    for row in rows {
        let (Some(here), Some((low, high))) = (row.ratio, range(&row.theirs)) else { continue };
        let class = if row.verdict == "agrees" { "agrees" } else { "differs" };
        let _ = writeln!(
            out,
            "<div class=\"ratio\"><span>{:?} {}</span><span class=\"numbers\">theirs {}, here {}</span>\
             <div class=\"track\" role=\"img\" aria-label=\"theirs {}, here {}\">\
             <i style=\"left:{:.1}%;width:{:.1}%\"></i><b class=\"{class}\" style=\"left:{:.1}%\"></b></div></div>",
            row.seed,
            escape(&row.what),
            escape(&row.theirs),
            escape(&row.here),
            escape(&row.theirs),
            escape(&row.here),
            place(low),
            place(high) - place(low),
            place(here)
        );
    }
    let marks: String = (DECADES.0 as i32..=DECADES.1 as i32)
        .map(|power| {
            let value = 10f64.powi(power);
            format!("<span style=\"left:{:.1}%\">{value}×</span>", place(value))
        })
        .collect();
    let _ = writeln!(
        out,
        "<div class=\"scale\">{marks}</div>\n<figcaption>Ratios on a logarithmic scale: the seed's as a bar, ours as a dot, \
         filled where both find the same.</figcaption></figure>"
    );
    out
}

/// In hundredths of the width.
fn place(ratio: f64) -> f64 {
    let (low, high) = DECADES;
    ((ratio.max(1e-9).log10() - low) / (high - low) * 100.0).clamp(0.0, 100.0)
}

/// `38 to 103×`
fn range(theirs: &str) -> Option<(f64, f64)> {
    let numbers = theirs.trim_end_matches('×');
    let (low, high) = numbers.split_once(" to ").unwrap_or((numbers, numbers));
    Some((low.parse().ok()?, high.parse().ok()?))
}

fn figures(rows: &[Row]) -> String {
    let mut out = "<h2>Every figure</h2>\n<div class=\"wide\"><table class=\"wraps\">\n\
                   <tr><th>seed<th>what<th>theirs<th>here<th></tr>\n"
        .to_owned();
    for row in rows {
        let _ = writeln!(
            out,
            "<tr><td>{:?}<td>{}<td class=\"figure\">{}<td class=\"figure\">{}<td>{}</tr>",
            row.seed,
            escape(&row.what),
            escape(&row.theirs),
            escape(&row.here),
            escape(&row.verdict)
        );
    }
    out + "</table></div>\n<p class=\"note\">Medians, or ratios of medians; their spread, N and durability stand in what each step printed, below.</p>\n"
}

/// Returns the output of each step.
fn outputs(rows: &[Row], results: &Path) -> String {
    let mut out = "<h2>What each step printed</h2>\n".to_owned();
    let mut steps: Vec<&str> = rows.iter().map(|row| row.step).collect();
    steps.dedup();
    for step in steps {
        let Ok(text) = fs::read_to_string(results.join(format!("{step}.txt"))) else { continue };
        let _ = writeln!(
            out,
            "<details><summary>{step}</summary><pre>{}</pre></details>",
            escape(text.trim_end())
        );
    }
    out
}

/// Result directories of `postlab run`, the oldest first.
fn scenarios(results: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(results.join("runs")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.join("scenario.toml").exists()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_the_papers_is_a_number_or_a_range() {
        assert_eq!(range("4.8×"), Some((4.8, 4.8)));
        assert_eq!(range("38 to 103×"), Some((38.0, 103.0)));
        assert_eq!(range(""), None);
        assert_eq!((place(0.01), place(1000.0), place(1e9), place(0.0)), (0.0, 100.0, 100.0, 0.0));
    }
}
