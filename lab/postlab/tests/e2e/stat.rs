//! `postlab stat` beside Debian's ministat: the same text, picture included, for the same samples.

use crate::common::run;
use std::{fmt::Write as _, path::Path, process::Command};

/// Returns the output of ministat; none where ministat is not installed, and then it is said aloud.
fn ministat(arguments: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("ministat").args(arguments).env_remove("COLUMNS").output() else {
        eprintln!("SKIPPED: ministat is not installed (Debian: apt-get install ministat)");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap())
}

fn postlab(arguments: &[&str]) -> String {
    let output = run(&[&["stat"], arguments].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn write(path: &Path, points: &[f64]) {
    let mut text = String::new();
    for point in points {
        writeln!(text, "{point}").unwrap();
    }
    std::fs::write(path, text).unwrap();
}

/// ministat's picture is only as high as its last sample's highest column; ours shows all points.
fn without_upper_rows(text: &str, line_count: usize) -> String {
    let extra = text.lines().count() - line_count;
    let frame = text.lines().position(|l| l.starts_with("+-")).unwrap_or_default();
    let kept = text.lines().enumerate().filter(|(i, _)| *i <= frame || *i > frame + extra);
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// Compares words exactly and numbers up to the eighth digit: ministat subtracts squares to get a deviation,
/// which costs it some.
fn is_same(ours: &str, theirs: &str) -> bool {
    let close = |a: &str, b: &str| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 2e-8 * b.abs(),
        _ => a == b,
    };
    let line = |(a, b): (&str, &str)| {
        let (a, b) = (words(a), words(b));
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a.0 == b.0 && close(a.1, b.1))
    };
    ours.lines().count() == theirs.lines().count() && ours.lines().zip(theirs.lines()).all(line)
}

/// Returns the words of a line with the column where each ends.
fn words(line: &str) -> Vec<(usize, &str)> {
    let end = |word: &str| word.as_ptr().addr() - line.as_ptr().addr() + word.len();
    line.split_whitespace().map(|word| (end(word), word)).collect()
}

#[test]
fn texts_differ_by_a_column_a_word_or_a_digit() {
    let text = "|   x  +|\nN  Min   Max\n5 1.234567 2\n";
    assert!(is_same(text, text));
    for other in ["|  x   +|\nN  Min   Max\n5 1.234567 2\n", "|   x   |\nN  Min   Max\n5 1.234567 2\n"] {
        assert!(!is_same(text, other), "{other}");
    }
    assert!(!is_same(text, &text.replace(" 2\n", "\n")) && !is_same(text, &text.replace("567", "568")));
    assert!(is_same("a 1.00000000", "a 1.00000001"), "the eighth digit");
}

#[test]
fn random_samples_get_the_same_text_as_from_ministat() {
    let directory = tempfile::tempdir().unwrap();
    let files: Vec<_> = ["a", "b", "c"].map(|n| directory.path().join(n)).into();
    let names: Vec<&str> = files.iter().map(|f| f.to_str().unwrap()).collect();
    let mut random = fastrand::Rng::with_seed(42);
    for round in 0..250 {
        for file in &files {
            let count = random.usize(3..if round % 10 == 0 { 90 } else { 12 });
            let (base, spread) = (random.f64() * 10.0 + 90.0, random.f64() * 20.0);
            // Some in whole numbers, so that points meet.
            let point = |p: f64| if round % 3 == 0 { p.round() } else { (p * 1000.0).round() / 1000.0 };
            write(file, &(0..count).map(|_| point(base + spread * random.f64())).collect::<Vec<_>>());
        }
        let level = ["80", "90", "95", "98", "99", "99.5"][round % 6];
        let mut arguments = vec!["-c", level, "-w", ["74", "40", "120"][round % 3]];
        arguments.extend(if round % 2 == 0 { Some("-s") } else { None });
        // With three, ministat loses points in the picture.
        if round % 5 == 0 {
            arguments.extend(["-A", names[2]]);
        }
        arguments.extend(&names[..2]);
        let Some(theirs) = ministat(&arguments) else { return };
        let ours = without_upper_rows(&postlab(&arguments), theirs.lines().count());
        assert!(is_same(&ours, &theirs), "round {round}: {arguments:?}\n{ours}\n{theirs}");
    }
}

#[test]
fn a_thousand_random_pairs_get_the_same_verdict() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..1000 {
        for file in [&a, &b] {
            let base = 100.0 + random.f64() * 3.0;
            let count = random.usize(3..15);
            write(file, &(0..count).map(|_| base + random.f64() * 6.0).collect::<Vec<_>>());
        }
        let level = ["80", "90", "95", "98", "99", "99.5"][round % 6];
        let arguments = ["-A", "-c", level, a.to_str().unwrap(), b.to_str().unwrap()];
        let Some(theirs) = ministat(&arguments) else { return };
        let ours = postlab(&arguments);
        assert!(is_same(&ours, &theirs), "round {round}\n{ours}\n{theirs}");
    }
}

#[test]
fn the_other_tests_speak_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    write(&a, &[1.0, 2.0, 3.0, 4.0]);
    write(&b, &[11.0, 12.0, 13.0, 15.0]);
    let text = postlab(&["-A", "--all", a.to_str().unwrap(), b.to_str().unwrap()]);
    for words in [
        "Welch: difference (t = ",
        "Mann-Whitney: difference (U = 16, exact p = 0.0286)",
        "Bootstrap: difference (",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!postlab(&["-A", a.to_str().unwrap(), b.to_str().unwrap()]).contains("Welch"));
}

#[test]
fn wrong_input_gets_one_clear_line() {
    let directory = tempfile::tempdir().unwrap();
    let few = directory.path().join("few");
    write(&few, &[1.0, 2.0]);
    for (arguments, words) in [
        (&["stat", "/no/file"][..], "open /no/file: No such file"),
        (&["stat", few.to_str().unwrap()], "must contain at least 3 data points"),
        (&["stat", "-c", "85", "x"], "no support for the confidence level `85`"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn output_that_nobody_takes_ends_a_command_and_what_it_made_is_removed() {
    use std::process::{Command, Stdio};
    let directory = tempfile::tempdir().unwrap();
    let write = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
        command.args(["dd", "bs=8k", "count=2", "--rounds", "1"]).current_dir(directory.path());
        command
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = write().stdout(Stdio::from(writer)).output().unwrap();
    assert_eq!((closed.status.code(), closed.stderr.len()), (Some(0), 0), "{closed:?}");
    let full = write().stdout(std::fs::File::create("/dev/full").unwrap()).output().unwrap();
    let error = String::from_utf8_lossy(&full.stderr).into_owned();
    assert_eq!(error, "postlab: failed printing to stdout: No space left on device (os error 28)\n");
    assert_eq!(full.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
