//! `postlab postmark` as a program: commands in, PostMark's report out.

use crate::common::run;
use std::{
    io::Write as _,
    process::{Command, Stdio},
};

fn commands(input: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    let mut child = command.arg("postmark").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn commands_lead_to_postmarks_report() {
    let directory = tempfile::tempdir().unwrap();
    let location = directory.path().display();
    let text = commands(&format!(
        "set number 20\nset transactions 40\nset location {location}\nshow\nrun\nquit\nfoo\n"
    ));
    assert!(text.contains("Transactions: 40\n"), "{text}");
    assert!(
        text.contains(
            "Creating files...Done\nPerforming transactions..........Done\nDeleting files...Done\nTime:\n\t"
        ),
        "{text}"
    );
    assert!(text.contains("\t\tCreation alone: 20 files ("), "{text}");
    assert!(!text.contains("Eh?"), "nothing is read behind quit");
}

#[test]
fn wrong_commands_are_told_and_passed_over() {
    let text = commands("set number x\nset foo 1\nfoo\nset location /no/dir\npreset t9\nhelp set bias\n");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..3], ["Error: invalid number of files", "Eh?", "Eh?"]);
    assert_eq!(lines[3], "Error: no valid location: /no/dir is not a directory");
    assert_eq!(lines[5], "set bias read - Sets the chance of choosing read over append");
}

#[test]
fn a_file_that_loads_itself_or_is_not_there_is_told_and_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("commands").display().to_string();
    std::fs::write(&path, format!("load {path}\nset number 7\n")).unwrap();
    let text = commands(&format!("load {path}\nload /no/file\nshow\n"));
    assert!(
        text.starts_with("Error: 16 files load each other\nError: open /no/file: No such file"),
        "{text}"
    );
    assert!(text.contains("The base number of files is 7\n"), "{text}");
    assert_eq!(run(&["postmark", "/no/file"]).status.code(), Some(2));
}

#[test]
fn one_line_runs_a_preset_with_changes() {
    let directory = tempfile::tempdir().unwrap();
    let location = format!("location {}", directory.path().display());
    let output = run(&[
        "postmark",
        "--preset",
        "t4",
        "--set",
        "number 30",
        "--set",
        "transactions 20",
        "--set",
        "fsync directory",
        "--set",
        "report terse",
        "--set",
        &location,
        "--run",
    ]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.split_whitespace().count(), 13, "{text}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    let output = run(&["postmark", "--set", "number none", "--run"]);
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "postlab: set number none: invalid number of files\n"
    );
}
