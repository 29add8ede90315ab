//! The small measurements as programs: net, lookup, format.

mod common;

use common::run;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Command, Stdio},
};

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn round_trips_go_over_all_five_ways() {
    let text = ok(&["ipc", "-R", "20", "-c", "32,9000", "-s", "100", "-b", "64", "--rounds", "2"]);
    let rows: Vec<&str> = text.lines().skip(1).map(|l| l.split_whitespace().next().unwrap()).collect();
    assert_eq!(rows, ["INET", "INET", "LOCAL", "LOCAL", "pipe", "pipe", "memory", "memory", "eventfd"]);
    assert!(text.matches("N=2)").count() == 18, "{text}");
    let text = ok(&["ipc", "-R", "5", "-u", "-c", "8", "--rounds", "1"]);
    assert!(text.contains("LOCAL      8        5") && !text.contains("INET"), "{text}");
}

#[test]
fn a_signal_ends_the_round_trips_at_once_over_each_way() {
    for way in ["inet", "local", "pipe", "memory", "eventfd"] {
        // Hours of them, if nothing ended them.
        let arguments = ["ipc", "-R", "4000000000", "-c", "8", "--over", way];
        let mut child = Command::new(env!("CARGO_BIN_EXE_postlab"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (mut title, mut rows) = (String::new(), String::new());
        out.read_line(&mut title).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        out.read_to_string(&mut rows).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{way}");
        // Cut in the first round: what it had done by then, or nothing.
        assert!(rows.lines().count() <= 1 && !rows.contains("4000000000"), "{rows}");
    }
}

#[test]
fn lookups_find_every_key_in_every_map() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let text = ok(&["map-lookup", "-n", "500", "-l", "9", "-m", "300", "--rounds", "2", path]);
    for name in [
        "hash map",
        "sorted vector",
        "cdb file",
        "SQLite, cache of 64 KB",
        "cdb file, sequential",
        "SQLite",
        "unix socket, 32 at once",
        "TCP socket",
    ] {
        assert!(text.contains(name), "{text}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn a_log_line_is_formatted_in_each_way() {
    let text = ok(&["log-format", "-n", "1000", "--rounds", "2"]);
    for name in ["format!", "write!", "by hand", "serde_json"] {
        assert!(text.contains(name) && text.contains("N=2"), "{text}");
    }
}

#[test]
fn each_command_has_a_man_page() {
    let directory = tempfile::tempdir().unwrap();
    ok(&["man", directory.path().to_str().unwrap()]);
    let help = ok(&["--help"]);
    let commands = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    // Deeper lines go on with what a command does.
    let names: Vec<&str> =
        commands.filter_map(|l| l.strip_prefix("  ")?.split(' ').next().filter(|w| !w.is_empty())).collect();
    assert!(names.len() > 25, "{help}");
    for name in names.iter().filter(|name| **name != "help") {
        let page = std::fs::read_to_string(directory.path().join(format!("postlab-{name}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS"), "{name}");
    }
}
