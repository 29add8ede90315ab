//! Counts of the instructions that the parts of a message's way take, by valgrind: a busy machine gives the same.
//! Compared with the baseline that is kept beside the parts.

use crate::shell::{Done, Failure, cargo, output, program, root, target_dir};
use std::{collections::BTreeMap, fs, path::PathBuf};

/// Rounds of the shorter and of the longer run: their difference leaves out what is done once.
const ROUNDS: [u64; 2] = [1_000, 3_000];
/// More than this above the baseline is a failure, in percent.
const WORSE_MAX: f64 = 5.0;
/// Builds the parts as they are shipped, and none of the other programs of the package.
pub(crate) const BUILD: [&str; 8] =
    ["build", "--quiet", "--locked", "--profile=dist", "--package", "bench", "--bin", "bench"];
const HEAD: &str = "\
# Instructions a round, counted by `cargo xtask bench` and written by `cargo xtask bench --write`.
# A part that grows by more than 5 % fails CI, unless this file is changed in the same commit, whose
# message says why.
";

fn baseline_path() -> PathBuf {
    root().join("testing/bench/baseline.txt")
}

/// Counts, prints and compares; with `write` what was counts is the new baseline.
pub(crate) fn run(write: bool) -> Done {
    if output(program("valgrind").arg("--version")).is_err() {
        let count = read_baseline()?.len();
        eprintln!("bench: SKIPPED: {count} instruction counts: valgrind is not installed");
        return Ok(());
    }
    cargo(&BUILD)?;
    let before = if write { BTreeMap::new() } else { read_baseline()? };
    let (mut text, mut worse) = (HEAD.to_owned(), Vec::new());
    println!("{:<10} {:>12} {:>12} {:>8}", "part", "instructions", "baseline", "change");
    let parts = output(program(target_dir().join("dist/bench")).arg("list"))?;
    for part in String::from_utf8_lossy(&parts).lines() {
        let (short, long) = (count(part, ROUNDS[0])?, count(part, ROUNDS[1])?);
        let each = (long - short) / (ROUNDS[1] - ROUNDS[0]);
        text += &format!("{part} {each}\n");
        let Some(known) = before.get(part) else {
            println!("{part:<10} {each:>12} {:>12} {:>8}", "-", "new");
            continue;
        };
        let change = (each as f64 / *known as f64 - 1.0) * 100.0;
        println!("{part:<10} {each:>12} {known:>12} {change:>+7.1}%");
        if change > WORSE_MAX {
            worse.push(part.to_owned());
        }
    }
    if write {
        let path = baseline_path();
        return fs::write(&path, text).map_err(|e| Failure(format!("write {}: {e}", path.display())));
    }
    if worse.is_empty() {
        return Ok(());
    }
    let why = "find out why with `valgrind --tool=callgrind`, or write a new baseline and say the reason";
    Err(Failure(format!("bench: {} take more instructions than before: {why}", worse.join(" and "))))
}

/// Instructions of so many rounds, and of the start.
fn count(part: &str, rounds: u64) -> Result<u64, Failure> {
    let out = target_dir().join(format!("bench-{part}.callgrind"));
    let mut valgrind = program("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind"]).arg(format!("--callgrind-out-file={}", out.display()));
    valgrind.arg(target_dir().join("dist/bench")).arg(part).arg(rounds.to_string());
    output(&mut valgrind)?;
    let counts = fs::read_to_string(&out).map_err(|e| Failure(format!("read {}: {e}", out.display())))?;
    let total = counts.lines().find_map(|line| line.strip_prefix("totals: "));
    let total = total.or_else(|| counts.lines().find_map(|line| line.strip_prefix("summary: ")));
    let total = total.and_then(|total| total.trim().parse().ok());
    total.ok_or_else(|| Failure(format!("{} has no total", out.display())))
}

fn read_baseline() -> Result<BTreeMap<String, u64>, Failure> {
    let path = baseline_path();
    let text = fs::read_to_string(&path).map_err(|e| Failure(format!("read {}: {e}", path.display())))?;
    let mut known = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let read = line.split_once(' ').and_then(|(part, count)| Some((part, count.parse().ok()?)));
        let Some((part, count)) = read else {
            return Err(Failure(format!("{}: `{line}` is not `PART COUNT`", path.display())));
        };
        known.insert(part.to_owned(), count);
    }
    Ok(known)
}
