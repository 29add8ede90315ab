//! Retired words: names and phrases that code and documents no longer use. `tools/xtask/retired-words.tsv` lists them.

/// The list; each row has a word or name, the advice, and the paths where the word is still right.
const LIST: &str = include_str!("../../retired-words.tsv");

/// Files below these paths are checked.
const CHECKED: [&str; 9] = [
    "crates/",
    "lab/",
    "testing/",
    "tools/",
    "docs/",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];

/// The list itself, and this file with its examples.
const EXEMPT: [&str; 2] = ["tools/xtask/retired-words.tsv", "tools/xtask/src/tidy/words.rs"];

/// A row of the list of retired words.
#[derive(Debug)]
struct Retired {
    pattern: Pattern,
    text: &'static str,
    instead: &'static str,
    allowed: Vec<&'static str>,
}

#[derive(Debug)]
enum Pattern {
    /// Consecutive words, in any spelling of an identifier and in prose: `sync_patience`,
    /// `SyncPatience`, `sync patience`.
    Words(Vec<String>),
    /// An identifier in Rust code, not in comments. Rows that begin with a capital letter.
    Name(&'static str),
}

/// Returns each use of a retired word in a file, as `file:line: what`.
pub(super) fn faults(name: &str, text: &str) -> Vec<String> {
    faults_by(&parse(LIST), name, text)
}

fn parse(list: &'static str) -> Vec<Retired> {
    let rows = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line: &'static str| {
        let mut columns = line.split('\t');
        let (text, instead) = (columns.next().unwrap_or(line), columns.next().unwrap_or_default());
        assert!(!instead.is_empty(), "retired-words.tsv: `{text}` has no advice");
        let allowed = columns.next().map(|paths| paths.split(' ').collect()).unwrap_or_default();
        let is_name = text.starts_with(|c: char| c.is_ascii_uppercase());
        let pattern = if is_name { Pattern::Name(text) } else { Pattern::Words(words(text)) };
        Retired { pattern, text, instead, allowed }
    };
    rows.map(row).collect()
}

fn faults_by(list: &[Retired], name: &str, text: &str) -> Vec<String> {
    if !CHECKED.iter().any(|path| name.starts_with(path)) || EXEMPT.contains(&name) {
        return Vec::new();
    }
    let is_allowed = |row: &&Retired| !row.allowed.iter().any(|path| name.starts_with(path));
    let list: Vec<&Retired> = list.iter().filter(is_allowed).collect();
    let is_rust = name.ends_with(".rs");
    // What a program printed when it was measured stays as it was.
    let mut is_output = false;
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if name.starts_with("docs/results/") && line.starts_with("```") {
            is_output = !is_output;
        }
        if is_output {
            continue;
        }
        let tokens = words(line);
        let code = if is_rust { line.split("//").next().unwrap_or_default() } else { "" };
        let is_used = |row: &&&Retired| match &row.pattern {
            Pattern::Words(words) => tokens.windows(words.len()).any(|window| window == words),
            Pattern::Name(name) => identifiers(code).any(|found| found == *name),
        };
        for row in list.iter().filter(is_used) {
            faults.push(format!("{name}:{}: `{}` is retired: {}", number + 1, row.text, row.instead));
        }
    }
    faults
}

fn identifiers(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|part| !part.is_empty())
}

/// Splits text into words in lower case, also within identifiers: `LogSpool`, `log_spool` and `log spool` have two.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in text.chars() {
        if c.is_alphabetic() {
            let begins = !before.is_alphabetic() || (c.is_uppercase() && before.is_lowercase());
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut() {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = "# a comment\nleft in peace\tsay what happens\ncrew\twrite `worker pool`\tcrates/old/\nDesk\twrite `Acceptor`\n";

    fn told(name: &str, text: &str) -> Vec<String> {
        faults_by(&parse(ROWS), name, text)
    }

    #[test]
    fn a_retired_word_is_found_in_prose_and_in_each_spelling_of_an_identifier() {
        for line in ["the crew", "struct Crew;", "let crew_size = 1;", "fn by_crew()", "myCrew"] {
            let fault = "crates/x/a.rs:2: `crew` is retired: write `worker pool`";
            assert_eq!(told("crates/x/a.rs", &format!("\n{line}\n")), [fault], "{line}");
        }
        assert_eq!(told("docs/a.md", "It is left in peace.\n").len(), 1);
        assert_eq!(told("docs/a.md", "screws; left in a peace\n"), [""; 0]);
    }

    #[test]
    fn a_retired_name_is_found_in_code_only() {
        assert_eq!(told("crates/x/a.rs", "struct Desk;\n").len(), 1);
        assert_eq!(told("crates/x/a.rs", "struct DeskLamp; // Desk\n"), [""; 0]);
        assert_eq!(told("docs/a.md", "Desk\n"), [""; 0]);
    }

    #[test]
    fn a_word_is_right_where_the_list_allows_it_and_in_recorded_output() {
        assert_eq!(told("crates/old/a.rs", "crew\n"), [""; 0]);
        assert_eq!(told("docs/results/a.md", "```\ncrew\n```\n"), [""; 0]);
        assert_eq!(told("docs/results/a.md", "```\n```\ncrew\n").len(), 1);
        assert_eq!(told("LICENSE", "crew\n"), [""; 0]);
    }

    #[test]
    fn every_row_of_the_list_finds_itself() {
        for row in parse(LIST) {
            let found = faults_by(&parse(LIST), "crates/x/a.rs", row.text);
            assert!(found.iter().any(|fault| fault.contains(row.text)), "{}", row.text);
        }
    }
}
