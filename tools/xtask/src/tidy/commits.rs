//! Subjects of commits since the one that added this check: `crate: verb object`, at most 72 characters.

use crate::shell::{Failure, output, program};

const SUBJECT_MAX: usize = 72;

/// The file whose first commit begins the checked range.
const SINCE: &str = "tools/xtask/retired-words.tsv";

/// Commits that published figures name, and whose subjects therefore stay as they are.
const PUBLISHED: [&str; 1] = ["95dc59d5"];

/// Returns each commit whose subject is too long or names no crate or part. A checkout without history has none.
pub(super) fn faults() -> Result<Vec<String>, Failure> {
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", SINCE])?;
    let Some(first) = added.lines().last() else { return Ok(Vec::new()) };
    let log = git(&["log", "--format=%h %s", &format!("{first}..HEAD")])?;
    Ok(wrong(&log))
}

fn git(arguments: &[&str]) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&output(program("git").args(arguments))?).into_owned())
}

/// Checks lines of a hash and a subject.
fn wrong(log: &str) -> Vec<String> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let is_kept = |hash: &str| PUBLISHED.iter().any(|kept| hash.starts_with(kept));
    let mut faults = Vec::new();
    for (hash, subject) in commits.filter(|(hash, _)| !is_kept(hash)) {
        let count = subject.chars().count();
        if count > SUBJECT_MAX {
            faults.push(format!(
                "commit {hash}: the subject has {count} characters, more than {SUBJECT_MAX}: {subject}"
            ));
        }
        let (parts, what) = subject.split_once(": ").unwrap_or_default();
        if parts.is_empty() || parts.starts_with(char::is_uppercase) || what.trim().is_empty() {
            faults.push(format!("commit {hash}: the subject is not `crate: verb object`: {subject}"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_names_its_part_and_may_have_72_characters() {
        let log = |length: usize| format!("abc1234 mail: {}\n", "ü".repeat(length - 6));
        assert_eq!(wrong(&log(72)), [""; 0]);
        let told = wrong(&(log(72) + &log(73)));
        assert!(
            matches!(&told[..], [one] if one.starts_with("commit abc1234: the subject has 73")),
            "{told:?}"
        );
        for subject in ["Repair the queue", "Mail: repair the queue", "mail:", "mail: ", ": repair"] {
            let told = wrong(&format!("abc1234 {subject}\n"));
            assert!(
                matches!(&told[..], [one] if one.contains("is not `crate: verb object`")),
                "{subject}: {told:?}"
            );
        }
    }
}
