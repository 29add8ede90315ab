//! Subjects of commits: at most 72 characters, since the commit that added this check.

use crate::shell::{Failure, output, program};

const SUBJECT_MAX: usize = 72;

/// The file whose first commit begins the checked range.
const SINCE: &str = "tools/xtask/retired-words.tsv";

/// Commits that published figures name, and whose subjects therefore stay as they are.
const PUBLISHED: [&str; 1] = ["95dc59d5"];

/// Returns each commit whose subject is too long. A checkout without history has none.
pub(super) fn faults() -> Result<Vec<String>, Failure> {
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", SINCE])?;
    let Some(first) = added.lines().last() else { return Ok(Vec::new()) };
    let log = git(&["log", "--format=%h %s", &format!("{first}..HEAD")])?;
    Ok(too_long(&log))
}

fn git(arguments: &[&str]) -> Result<String, Failure> {
    Ok(String::from_utf8_lossy(&output(program("git").args(arguments))?).into_owned())
}

/// Checks lines of a hash and a subject.
fn too_long(log: &str) -> Vec<String> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let is_kept = |hash: &str| PUBLISHED.iter().any(|kept| hash.starts_with(kept));
    let long = commits.filter(|(hash, subject)| subject.chars().count() > SUBJECT_MAX && !is_kept(hash));
    long.map(|(hash, subject)| {
        let count = subject.chars().count();
        format!("commit {hash}: the subject has {count} characters, more than {SUBJECT_MAX}: {subject}")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_may_have_72_characters() {
        let log = |length: usize| format!("abc1234 {}\n", "ü".repeat(length));
        assert_eq!(too_long(&log(72)), [""; 0]);
        let told = too_long(&(log(72) + &log(73)));
        assert!(
            matches!(&told[..], [one] if one.starts_with("commit abc1234: the subject has 73")),
            "{told:?}"
        );
    }
}
