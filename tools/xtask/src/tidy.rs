//! Rules that neither rustfmt nor clippy checks, for every tracked file.

mod commits;
mod links;
mod words;

use crate::shell::{Done, Failure, output, program, root};
use std::{fs, path::Path};

/// A longer file has more than one noun in it.
const LINES_MAX: usize = 800;

/// Crates that decide and do not act: whoever runs them gives the time and the bytes.
pub(crate) const PURE: [&str; 10] =
    ["mail", "smtp", "policy", "queue", "engine", "rewrite", "limits", "milter", "auth", "authn"];
/// Crates that act: a crate that only decides does not depend on them.
const RUNTIMES: [&str; 6] = ["tokio", "tokio-rustls", "rustls", "rustix", "hickory-resolver", "libc"];

/// Macros that say the work is not done. Spelled in halves, since this file is checked too.
const UNFINISHED: [&str; 3] = [concat!("to", "do!"), concat!("unimple", "mented!"), concat!("db", "g!")];

/// Text; of other files nothing is known.
const TEXT: [&str; 11] =
    ["rs", "toml", "md", "tsv", "sh", "yml", "service", "socket", "conf", "txt", "timer"];

/// Checks all files and tells of every fault at once.
pub(crate) fn check() -> Done {
    let listed =
        output(program("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let listed = String::from_utf8(listed).map_err(|_| Failure("git: a file name is not UTF-8".into()))?;
    let (mut faults, mut count) = (Vec::new(), 0);
    for name in listed.split_terminator('\0').filter(|name| is_text(name)) {
        let path = root().join(name);
        if !path.exists() {
            continue; // Removed, and not committed yet.
        }
        let text = fs::read_to_string(&path).map_err(|error| Failure(format!("read {name}: {error}")))?;
        count += 1;
        faults.extend(faults_of(name, &text));
        if name.ends_with(".md") {
            faults.extend(links::faults(&root(), name, &text));
        }
    }
    faults.extend(commits::faults()?);
    if faults.is_empty() {
        eprintln!("tidy: {count} files are in order");
        return Ok(());
    }
    Err(Failure(format!("tidy:\n  {}", faults.join("\n  "))))
}

/// Returns true if the file is checked text. The output of a program is kept as it came.
fn is_text(name: &str) -> bool {
    if name.split('/').any(|folder| folder == "golden") {
        return false;
    }
    let extension = Path::new(name).extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| TEXT.contains(&e))
}

/// Each fault as `file:line: what`.
fn faults_of(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.split('\n').enumerate() {
        faults.extend(fault_in(line).map(|what| format!("{name}:{}: {what}", number + 1)));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        faults.push(format!("{name}: the last line has no end"));
    }
    if name.ends_with(".rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX {
            faults.push(format!("{name}: {lines} lines; above {LINES_MAX} a second noun moves next door"));
        }
        faults.extend(unfinished(name, text));
    }
    faults.extend(words::faults(name, text));
    faults.extend(crate::project::faults(name, text));
    if name.ends_with("/Cargo.toml") {
        faults.extend(manifest(name, text));
    }
    faults
}

fn fault_in(line: &str) -> Option<&'static str> {
    if line.ends_with([' ', '\t', '\r']) {
        Some("white space at the end of the line")
    } else if line.starts_with("<<<<<<< ") || line.starts_with(">>>>>>> ") {
        Some("left over from a merge")
    } else {
        None
    }
}

fn unfinished(name: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(number, line)| {
        let code = line.split("//").next().unwrap_or_default();
        UNFINISHED.iter().filter(move |word| code.contains(**word)).map(move |word| (number + 1, word))
    });
    found
        .map(|(number, word)| format!("{name}:{number}: `{word}` stands for work that is not done"))
        .collect()
}

/// A crate obeys the workspace's lints, and a pure one lists no runtime.
fn manifest(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    if !lines.windows(2).any(|pair| pair == ["[lints]", "workspace = true"]) {
        faults.push(format!("{name}: `[lints]` with `workspace = true` below it is missing"));
    }
    let folder = name.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
    if PURE.contains(&folder) {
        // Tests may run on what they like.
        let listed = lines.iter().take_while(|line| **line != "[dev-dependencies]");
        let names = listed.filter_map(|line| line.split(['.', ' ', '=']).next());
        for runtime in names.filter(|name| RUNTIMES.contains(name)) {
            faults.push(format!("{name}: `{folder}` is pure; {runtime} belongs to the crate that drives it"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"x\"\n\n[lints]\nworkspace = true\n";

    #[test]
    fn a_tidy_file_has_no_fault() {
        assert_eq!(faults_of("crates/x/src/lib.rs", "//! Nothing.\n\nfn f() {}\n"), [""; 0]);
        assert_eq!(faults_of("crates/x/Cargo.toml", MANIFEST), [""; 0]);
        assert_eq!(faults_of("empty.md", ""), [""; 0]);
    }

    #[test]
    fn white_space_at_the_end_is_told_with_its_line() {
        let told = faults_of("a.md", "fine\nnot \nfine\nnot\t\nnot\r\n");
        let at = |n| format!("a.md:{n}: white space at the end of the line");
        assert_eq!(told, [at(2), at(4), at(5)]);
        assert_eq!(faults_of("a.md", "no end"), ["a.md: the last line has no end"]);
    }

    #[test]
    fn a_file_may_have_800_lines() {
        assert_eq!(faults_of("a.rs", &"\n".repeat(800)), [""; 0]);
        assert_eq!(
            faults_of("a.rs", &"\n".repeat(801)),
            ["a.rs: 801 lines; above 800 a second noun moves next door"]
        );
        assert_eq!(faults_of("CHANGELOG.md", &"\n".repeat(801)), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_a_fault_in_code_and_none_in_comments() {
        let word = UNFINISHED[0];
        assert_eq!(
            faults_of("a.rs", &format!("fn f() {{\n    {word}()\n}}\n")),
            [format!("a.rs:2: `{word}` stands for work that is not done")]
        );
        assert_eq!(faults_of("a.rs", &format!("// no {word} here\n")), [""; 0]);
        assert_eq!(faults_of("a.md", &format!("no {word}\n")), [""; 0]);
    }

    #[test]
    fn every_crate_obeys_the_workspace_lints() {
        let told = faults_of("crates/x/Cargo.toml", "[package]\nname = \"x\"\n");
        assert_eq!(told, ["crates/x/Cargo.toml: `[lints]` with `workspace = true` below it is missing"]);
        let other = MANIFEST.replace("[lints]", "[dependencies.y]");
        assert_eq!(faults_of("crates/x/Cargo.toml", &other).len(), 1);
    }

    #[test]
    fn a_pure_crate_lists_no_runtime_outside_its_tests() {
        let with = |section: &str| format!("{MANIFEST}\n[{section}]\ntokio.workspace = true\n");
        assert_eq!(
            faults_of("crates/queue/Cargo.toml", &with("dependencies")),
            ["crates/queue/Cargo.toml: `queue` is pure; tokio belongs to the crate that drives it"]
        );
        assert_eq!(faults_of("crates/queue/Cargo.toml", &with("dev-dependencies")), [""; 0]);
        assert_eq!(faults_of("crates/inbound/Cargo.toml", &with("dependencies")), [""; 0]);
    }

    #[test]
    fn what_a_program_printed_is_kept_as_it_came() {
        assert!(is_text("docs/operating.md"));
        assert!(!is_text("crates/config/tests/golden/broken.txt"));
        assert!(!is_text("LICENSE-MIT"));
    }

    #[test]
    fn a_merge_leaves_nothing_behind() {
        assert_eq!(faults_of("a.md", "<<<<<<< HEAD\n"), ["a.md:1: left over from a merge"]);
    }
}
