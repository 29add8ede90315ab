//! docs/interop.md: programs that are not ours, what was tried with them, and what was seen. The tests note what they see.

use crate::shell::{Done, Failure, cargo_command, output, program, root, run_watched};
use serde::Deserialize;
use std::{collections::BTreeSet, fmt::Write as _, fs};

/// From the root of the repository: the page that is made.
const PAGE: &str = "docs/interop.md";

/// Test programs that talk to other servers and clients.
const TESTS: [&str; 9] = [
    "rules",
    "programs",
    "go_programs",
    "interop",
    "logins",
    "extensions",
    "certificates",
    "tokens",
    "signatures",
];

/// The programs in the order of the document; others follow.
const PROGRAMS: [&str; 14] = [
    "Postfix",
    "Dovecot",
    "swaks",
    "msmtp",
    "gsasl",
    "nullmailer",
    "dma",
    "Python smtplib",
    "scramp",
    "Go net/smtp",
    "curl",
    "OpenSSL",
    "postgrey",
    "dkimpy",
];

/// A conversation of a test with one program.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    program: String,
    version: String,
    tried: String,
    seen: String,
}

/// Runs the tests, and writes the document.
pub(crate) fn run() -> Done {
    let record = std::env::temp_dir().join(format!("postrider-interop-{}", std::process::id()));
    let _ = fs::remove_file(&record);
    let mut command = cargo_command(&["test", "--locked", "--no-fail-fast", "--package", "postrider"]);
    command.args(["--test", "e2e", "--"]).args(TESTS.map(|module| format!("{module}::")));
    command.arg("--show-output").env("POSTRIDER_INTEROP", &record);
    let mut skipped = BTreeSet::new();
    let done = run_watched(&mut command, |line| {
        skipped.extend(line.trim().strip_prefix("SKIPPED: ").map(str::to_owned));
    });
    let text = fs::read_to_string(&record).unwrap_or_default();
    let _ = fs::remove_file(&record);
    done?;
    let rows = text.lines().map(serde_json::from_str::<Row>).collect::<Result<BTreeSet<Row>, _>>();
    let rows = rows.map_err(|error| Failure(format!("read what the tests noted: {error}")))?;
    for what in &skipped {
        eprintln!("interop: SKIPPED: {what}");
    }
    eprintln!("interop: {} dialogs seen, {} skipped", rows.len(), skipped.len());
    let page = page(&rows, &skipped, &machine());
    fs::write(root().join(PAGE), page).map_err(|error| Failure(format!("write {PAGE}: {error}")))
}

/// Returns in one line which commit ran on which day.
fn machine() -> String {
    let word = |name: &str, arguments: &[&str]| {
        let said = output(program(name).args(arguments)).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().to_owned()
    };
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("Linux");
    let commit = word("git", &["rev-parse", "--short=10", "HEAD"]);
    format!("{}, commit {commit}, {}", word("date", &["-u", "+%F"]), system.trim_matches('"'))
}

fn page(rows: &BTreeSet<Row>, skipped: &BTreeSet<String>, machine: &str) -> String {
    let mut page = format!(
        "# Interoperability\n\nThis page lists the programs that Postrider has been tested with. Each row is a \
         dialog that a test in `testing/e2e` had with the real program; the test fails if the program sees anything else. \
         `cargo xtask interop` wrote this page ({machine}), and `cargo xtask setup` installs or unpacks the \
         programs.\n\nThe test vectors of the RFCs for SCRAM, with and without \
         channel binding, are tests of the crate `auth`.\n"
    );
    let others = rows.iter().map(|row| row.program.as_str()).filter(|name| !PROGRAMS.contains(name));
    let others: BTreeSet<&str> = others.collect();
    for name in PROGRAMS.into_iter().chain(others) {
        let of: Vec<&Row> = rows.iter().filter(|row| row.program == name).collect();
        let versions: BTreeSet<&str> = of.iter().map(|row| row.version.as_str()).collect();
        let versions = versions.into_iter().collect::<Vec<_>>().join(", ");
        let _ = write!(page, "\n## {name} {versions}");
        page.truncate(page.trim_end().len());
        if of.is_empty() {
            page.push_str("\n\nNot seen in this run.\n");
            continue;
        }
        page.push_str("\n\n| tried | seen |\n|---|---|\n");
        for row in of {
            let _ = writeln!(page, "| {} | {} |", cell(&row.tried), cell(&row.seen));
        }
    }
    page.push_str("\n## Skipped\n\n");
    if skipped.is_empty() {
        page.push_str("Nothing.\n");
    }
    for what in skipped {
        let _ = writeln!(page, "- {what}");
    }
    page
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_table_for_each_program_and_says_what_is_missing() {
        let row = |program: &str, tried: &str| Row {
            program: program.to_owned(),
            version: "1.2".to_owned(),
            tried: tried.to_owned(),
            seen: "delivered".to_owned(),
        };
        let rows =
            BTreeSet::from([row("swaks", "STARTTLS"), row("swaks", "a|b"), row("xmail", "in clear text")]);
        let skipped = BTreeSet::from(["dma is not unpacked".to_owned()]);
        let page = page(&rows, &skipped, "today");
        for part in [
            "## swaks 1.2\n\n| tried | seen |\n|---|---|\n| STARTTLS | delivered |\n| a\\|b | delivered |\n",
            "## dma\n\nNot seen in this run.\n",
            "## xmail 1.2\n",
            "## Skipped\n\n- dma is not unpacked\n",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
