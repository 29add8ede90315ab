//! Sentences with figures, beside the tables and files that they are made from.

mod cases;
mod derive;
mod figures;
mod prose;

use std::path::{Path, PathBuf};

/// Pages of results whose prose is not read: one is made by a program from its records, and the counts of the other
/// are those of the importers' own tests.
const NOT_READ: [&str; 1] = ["reproduce.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    let path = root().join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()))
}

/// `README.md`, the manual of Postlab and the pages of results.
fn pages() -> Vec<String> {
    let folder = "docs/results";
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_read = |name: &String| name.ends_with(".md") && !NOT_READ.contains(&name.as_str());
    let mut pages: Vec<String> = names.filter(is_read).map(|name| format!("{folder}/{name}")).collect();
    pages.extend(["README.md".to_owned(), "docs/postlab.md".to_owned()]);
    pages.sort();
    pages
}

#[test]
fn each_figure_in_prose_stands_in_its_data_or_is_derived_from_it() {
    let faults: Vec<String> = pages().iter().flat_map(|page| figures::faults(page, &read(page))).collect();
    assert!(faults.is_empty(), "{} figures:\n{}", faults.len(), faults.join("\n"));
}

/// A text in one line, without marks of emphasis.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("**", "")
}

/// The numbers of a text: `9 to 15` has two.
fn numbers(text: &str) -> Vec<f64> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    text.split(|c| !is_part(c)).filter_map(|word| word.trim_matches('.').parse().ok()).collect()
}

/// The numbers between two marks that stand once in the text.
fn between(text: &str, begin: &str, end: &str) -> Vec<f64> {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("`{begin}` is not in {text}"));
    numbers(rest.split_once(end).unwrap_or_else(|| panic!("`{end}` is not in {rest}")).0)
}

/// The cells of the table of ratios in relay-peers.md: rows by their names.
fn ratios(page: &str, row: &str, columns: &[usize]) -> Vec<f64> {
    let line = page.lines().find(|line| line.starts_with(&format!("| {row} | "))).unwrap();
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    columns.iter().flat_map(|column| numbers(cells[column + 2])).collect()
}

/// Checks that a range, which may be rounded, is that of these values.
fn is_range(said: &[f64], values: &[f64], what: &str) {
    let (low, high) = (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max));
    let [first, last] = said[..] else { panic!("{what}: {said:?} is no range") };
    let half = if first.fract() == 0.0 { 0.5 } else { 0.05 } + 1e-9;
    let is_it = (first - low.unwrap()).abs() <= half && (last - high.unwrap()).abs() <= half;
    assert!(is_it, "{what}: {said:?} is said, {low:?} to {high:?} is in the table");
}

/// Columns of the table: the rates of three measurements accepted, then drained.
const ACCEPTED: [usize; 3] = [0, 1, 2];
const DRAINED: [usize; 3] = [3, 4, 5];

#[test]
fn the_ratios_of_the_readme_are_those_of_their_page() {
    let (readme, page) = (plain(&read("README.md")), read("docs/results/relay-peers.md"));
    let of = |rows: &[&str], columns: &[usize]| -> Vec<f64> {
        rows.iter().flat_map(|row| ratios(&page, row, columns)).collect()
    };
    let many = ["50 sessions", "100 sessions", "50 sessions, kept connections"];
    let (_, text) = readme.split_once("With 50 or 100 sessions").unwrap();
    is_range(&between(text, "accepts ", " times"), &of(&many, &ACCEPTED), "accepted");
    let delivered = between(text, "delivers ", " times");
    is_range(&delivered, &of(&many, &DRAINED), "delivered");
    let one = between(text, "With one session it is ", " times");
    is_range(&one, &of(&["1 session"], &[ACCEPTED, DRAINED].concat()), "one session");
    assert_eq!(between(&readme, "just as durable: ", " times as many messages"), delivered);
}

/// Each ratio of the evening is that of the medians below.
#[test]
fn the_ratios_of_relays_are_those_of_their_medians() {
    let page = read("docs/results/relay-peers.md");
    let sections = [
        ("## A connection for each message, 26 November, evening", ""),
        ("## Kept connections, 26 November, evening", ", kept connections"),
    ];
    for (title, suffix) in sections {
        let section = page.split(title).nth(1).unwrap_or_else(|| panic!("no section `{title}`"));
        let section = section.split("\n## ").next().unwrap();
        let median = |sessions: &str, server: &str, column: usize| {
            let line = section.lines().find(|line| line.starts_with(&format!("| {sessions} | {server} |")));
            numbers(line.unwrap().split('|').nth(column).unwrap())[0]
        };
        for sessions in ["1", "10", "50", "100"] {
            if !suffix.is_empty() && !["10", "50"].contains(&sessions) {
                continue;
            }
            let plural = if sessions == "1" { "session" } else { "sessions" };
            for (column, measurement) in [(4, 0), (5, 3)] {
                let said = ratios(&page, &format!("{sessions} {plural}{suffix}"), &[measurement]);
                let own = median(sessions, "postrider:stock", column);
                for (said, peer) in said.into_iter().zip(["postfix:stock", "postfix:tuned"]) {
                    let ratio = own / median(sessions, peer, column);
                    assert!(
                        (said - ratio).abs() < 0.0501,
                        "{sessions}{suffix}, {peer}: {said} is said, not {ratio}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_counts_of_findings_are_those_of_the_published_file() {
    let page = plain(&read("docs/postlab.md"));
    let file: serde_json::Value = serde_json::from_str(&read("lab/results/reproduce.json")).unwrap();
    let verdict = |finding: &serde_json::Value| {
        // Pages before 28 November 2026 have one verdict.
        let word = finding.get("direction").unwrap_or(&finding["verdict"]);
        word.as_str().unwrap().to_owned()
    };
    let mut all: Vec<String> = file["findings"].as_array().unwrap().iter().map(verdict).collect();
    let blank = file.get("without_figure").and_then(serde_json::Value::as_array).into_iter().flatten();
    all.extend(blank.map(|_| "cannot tell".to_owned()));
    let count = |word: &str| all.iter().filter(|verdict| *verdict == word).count() as f64;
    let [agree, differ, none, open] = ["agrees", "differs", "no effect", "cannot tell"].map(count);
    let said = between(&page, "Of the papers' ", "cannot be told");
    assert_eq!(said, [agree + differ + none + open, agree, differ, none, open]);
    let page = plain(&read("docs/results/reproduce.md"));
    let said = between(&page, "Of ", "cannot be told");
    assert_eq!(said[..4], [agree + differ + none + open, agree, differ, none]);
}
