//! Builds the commit into the program: a result names the source of the program that measured it, wherever it is run.

use std::process::Command;

fn main() {
    // A release archive has no repository: whoever builds from it can say the commit.
    println!("cargo::rerun-if-env-changed=POSTLAB_COMMIT");
    // An edit of a crate of the laboratory makes the commit a dirty one.
    for path in [
        "build.rs",
        "src",
        "../scenarios",
        "../measure/src",
        "../load/src",
        "../iobench/src",
        "../../testing/recording/src",
    ] {
        println!("cargo::rerun-if-changed={path}");
    }
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let named = std::env::var("POSTLAB_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = named.or_else(commit).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=POSTLAB_BUILT_FROM={commit}");
}

/// The commit, with `-dirty` behind it if a tracked file differs.
fn commit() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| text.is_empty());
    Some(if is_clean { commit } else { format!("{commit}-dirty") })
}

/// The output of git, if there is a repository and git.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
