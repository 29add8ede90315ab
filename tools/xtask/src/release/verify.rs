//! A second build of a release, from a clone in another folder and from nothing, compared with the first one.

use crate::{
    files::{read, remove},
    shell::{Done, Failure, cargo_program, program, root, run, target_dir},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Builds again and compares all checksums.
pub(crate) fn again(first: &Path, profile: &str) -> Done {
    let work = target_dir().join("release-again");
    let (clone, target) = (work.join("a-clone-of-the-repository"), work.join("target"));
    remove(&work)?;
    run(program("git").args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(&clone))?;
    // The tools are the same; everything else is built anew.
    let mut link = program("mkdir");
    run(link.arg("--parents").arg(&target))?;
    run(program("ln").args(["--symbolic"]).arg(target_dir().join("tools")).arg(target.join("tools")))?;
    let second: PathBuf = work.join("files");
    let mut build = program(cargo_program());
    build.args([
        "run",
        "--quiet",
        "--locked",
        "--package",
        "xtask",
        "--",
        "release",
        "--profile",
        profile,
        "--out",
    ]);
    build.arg(&second).current_dir(&clone).env("CARGO_TARGET_DIR", &target);
    run(&mut build)?;
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
