//! A release is built from a clone of the repository, so that nothing that changes here meanwhile is in it. A second clone in another
//! folder, built from nothing, shows that the files depend on the commit alone.

use crate::{
    files::{make_dir, read, remove},
    shell::{Done, Failure, cargo_program, output, program, root, run, target_dir},
};
use std::{collections::BTreeMap, path::Path};

/// Returns the commit that is checked out, which a later build must use, too.
pub(super) fn commit() -> Result<String, Failure> {
    let commit = output(program("git").args(["rev-parse", "HEAD"]))?;
    Ok(String::from_utf8_lossy(&commit).trim().to_owned())
}

/// Builds the files of a commit from a clone below target/NAME. What Cargo built before in its folder is used again.
pub(super) fn build(name: &str, commit: &str, out: &Path, profile: &str) -> Done {
    let work = target_dir().join(name);
    let (clone, target) = (work.join("tree"), work.join("target"));
    remove(&clone)?;
    make_dir(&target)?;
    run(program("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(&clone))?;
    run(program("git").args(["checkout", "--quiet", "--detach", commit]).current_dir(&clone))?;
    // The tools are the same; everything else is built.
    remove(&target.join("tools"))?;
    run(program("ln").args(["--symbolic"]).arg(target_dir().join("tools")).arg(target.join("tools")))?;
    let out = std::path::absolute(out).map_err(|error| Failure(format!("{}: {error}", out.display())))?;
    let mut build = program(cargo_program());
    build.args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--",
        "release",
        "--here",
        "--profile",
        profile,
    ]);
    build.arg("--out").arg(&out).current_dir(&clone).env("CARGO_TARGET_DIR", &target);
    run(&mut build)
}

/// Builds again from nothing, in folders with other names, and compares all checksums.
pub(super) fn verify(commit: &str, first: &Path, profile: &str) -> Done {
    let again = "release-again/in-another-folder";
    remove(&target_dir().join("release-again"))?;
    let second = target_dir().join("release-again/files");
    build(again, commit, &second, profile)?;
    compare(&read(&first.join("SHA256SUMS"))?, &read(&second.join("SHA256SUMS"))?)
}

/// Fails with the names of the files that differ.
fn compare(first: &str, second: &str) -> Done {
    let (first, second) = (sums(first), sums(second));
    let names: std::collections::BTreeSet<&str> = first.keys().chain(second.keys()).copied().collect();
    let differ: Vec<&str> =
        names.iter().filter(|name| first.get(**name) != second.get(**name)).copied().collect();
    if differ.is_empty() {
        println!("release: built twice, {} files are the same bit for bit", first.len());
        return Ok(());
    }
    Err(Failure(format!("release: the second build differs in {}", differ.join(", "))))
}

fn sums(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once("  ")).map(|(sum, name)| (name, sum)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_differs_or_is_missing_is_named() {
        assert!(compare("1  a\n2  b\n", "2  b\n1  a\n").is_ok());
        let failure = compare("1  a\n2  b\n3  c\n", "1  a\n9  b\n").unwrap_err();
        assert_eq!(failure.0, "release: the second build differs in b, c");
    }
}
