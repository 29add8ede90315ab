//! Checks docs/rfc.tsv: for each section of an RFC, whether Postrider implements it, and where in the code.

use crate::shell::{Done, Failure, root};
use std::{collections::HashMap, fs, path::Path};

const FILE: &str = "docs/rfc.tsv";
const HEAD: &str = "rfc\tsection\tstatus\tplace\tsubject";
const STATUSES: [&str; 4] = ["yes", "partly", "no", "not applicable"];

/// Checks the file; an error has one line for each fault.
pub(crate) fn check() -> Done {
    let text = fs::read_to_string(root().join(FILE)).map_err(|e| Failure(format!("read {FILE}: {e}")))?;
    let mut sources = HashMap::new();
    let faults = faults(&text, &mut |path, symbol| {
        let source = sources.entry(path.to_owned()).or_insert_with(|| {
            let is_source = Path::new(path).extension().is_some_and(|e| e == "rs");
            is_source.then(|| fs::read_to_string(root().join(path)).ok()).flatten()
        });
        source.as_ref().map(|source| has_symbol(source, symbol))
    });
    if faults.is_empty() {
        eprintln!("rfc: {} sections are in order", text.lines().count() - 1);
        return Ok(());
    }
    Err(Failure(format!("rfc:\n  {}", faults.join("\n  "))))
}

/// Returns whether the code defines a symbol: an item, a field or a variant.
fn has_symbol(source: &str, symbol: &str) -> bool {
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).any(|line| defines(line, symbol))
}

const KEYWORDS: [&str; 9] =
    ["fn", "struct", "enum", "const", "static", "mod", "trait", "type", "macro_rules"];

fn defines(line: &str, symbol: &str) -> bool {
    let words: Vec<&str> =
        line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).collect();
    if words.windows(2).any(|pair| KEYWORDS.contains(&pair[0]) && pair[1] == symbol) {
        return true;
    }
    // A field or variant stands at the beginning of its line, and ends with a comma or opens its fields.
    let line = line.trim().trim_start_matches("pub(crate) ").trim_start_matches("pub ");
    let Some(rest) = line.strip_prefix(symbol) else { return false };
    let is_field = rest.starts_with(':') && !rest.starts_with("::");
    // A reply of the table in `replies.rs`.
    if rest.starts_with(" = ")
        && symbol.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    {
        return true;
    }
    let is_variant = rest == "," || rest.starts_with(" {") || rest.starts_with('(');
    (is_field || is_variant) && (rest.ends_with(',') || rest.ends_with('{')) && !rest.contains("=>")
}

/// Checks the rows. `find` says whether a file has a symbol; `None` when there is no such file.
fn faults(text: &str, find: &mut dyn FnMut(&str, &str) -> Option<bool>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut rows = text.lines().enumerate();
    if rows.next().is_none_or(|(_, head)| head != HEAD) {
        faults.push(format!("{FILE}:1: the first line names the columns: {HEAD:?}"));
    }
    let mut before = None;
    for (number, row) in rows {
        let mut fault = |what: String| faults.push(format!("{FILE}:{}: {what}", number + 1));
        let columns: Vec<&str> = row.split('\t').collect();
        let [rfc, section, status, places, subject] = columns[..] else {
            fault(format!("{} columns instead of 5", columns.len()));
            continue;
        };
        let Some(key) = key_of(rfc, section) else {
            fault(format!("RFC {rfc:?} or section {section:?} is not a number"));
            continue;
        };
        if before.as_ref().is_some_and(|before| *before >= key) {
            fault(format!("RFC {rfc}, section {section}, is not in order, or there twice"));
        }
        before = Some(key);
        if !STATUSES.contains(&status) {
            fault(format!("the status {status:?} is none of {}", STATUSES.join(", ")));
        }
        if subject.is_empty() {
            fault("the subject is missing".to_owned());
        }
        if places == "-" {
            if status == "yes" {
                fault("a section that is implemented has a place in the code".to_owned());
            }
            continue;
        }
        for place in places.split(' ') {
            let found = place.split_once('#').map(|(path, symbol)| find(path, symbol));
            match found {
                None => fault(format!("the place {place:?} is not `path#symbol`")),
                Some(None) => fault(format!("there is no file for {place}")),
                Some(Some(false)) => fault(format!("the file has no symbol for {place}")),
                Some(Some(true)) => {}
            }
        }
    }
    faults
}

/// Returns the sort key of a row; `-` stands for the whole RFC.
fn key_of(rfc: &str, section: &str) -> Option<(u32, Vec<u32>)> {
    let section = match section {
        "-" => Vec::new(),
        section => section.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?,
    };
    Some((rfc.parse().ok()?, section))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rows: &str) -> Vec<String> {
        faults(&format!("{HEAD}\n{rows}"), &mut |path, symbol| (path == "a.rs").then_some(symbol == "Known"))
    }

    #[test]
    fn the_list_in_the_repository_names_places_that_exist() {
        check().unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[test]
    fn rows_are_sorted_by_number_and_unique() {
        let row = |rfc: &str, section: &str| format!("{rfc}\t{section}\tno\t-\tx\n");
        assert_eq!(told(&(row("822", "-") + &row("5321", "4.2") + &row("5321", "4.10"))), [""; 0]);
        assert_eq!(told(&(row("5321", "4.10") + &row("5321", "4.2"))).len(), 1);
        assert_eq!(told(&(row("5321", "4.2") + &row("5321", "4.2"))).len(), 1);
        assert_eq!(told(&row("5321", "4.x")).len(), 1);
    }

    #[test]
    fn a_status_is_one_of_four_and_yes_has_a_place_that_exists() {
        assert_eq!(told("1\t1\tyes\ta.rs#Known a.rs#Known\tx\n"), [""; 0]);
        for row in [
            "1\t1\tmaybe\t-\tx\n",
            "1\t1\tyes\t-\tx\n",
            "1\t1\tyes\tb.rs#Known\tx\n",
            "1\t1\tpartly\ta.rs#Unknown\tx\n",
            "1\t1\tyes\ta.rs\tx\n",
            "1\t1\tno\t-\t\n",
            "1\t1\tno\n",
        ] {
            assert_eq!(told(row).len(), 1, "{row:?}");
        }
        assert_eq!(faults("x\n", &mut |_, _| None).len(), 1);
    }

    #[test]
    fn a_symbol_in_a_comment_or_in_a_longer_word_is_none() {
        assert!(has_symbol("fn parse_mail() {}", "parse_mail"));
        assert!(!has_symbol("// parse_mail\nfn parse_mail_from() {}", "parse_mail"));
        assert!(!has_symbol("let a = parse_mail();\nparse_mail(&text);\nKnown => {", "parse_mail"));
        for line in
            ["    Known,", "    Known { at: u8 },", "Known(u8),", "pub Known: u8,", "KNOWN = 250 2 . 0 . 0"]
        {
            assert!(defines(line, if line.starts_with("KNOWN") { "KNOWN" } else { "Known" }), "{line}");
        }
        assert!(!defines("Known => {", "Known") && !defines("Known(a) => b,", "Known"));
    }
}
