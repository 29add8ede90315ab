//! `postlab ipc`: round trips between two processes.

use crate::common::run;
use proptest::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
};

const ALL: [&str; 8] = ["inet", "local", "pipe", "memory", "eventfd", "futex", "ring", "io_uring"];

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns whether the kernel lets us use io_uring.
fn has_io_uring() -> bool {
    let output = run(&["ipc", "-R", "1", "-c", "1", "--rounds", "1", "--over", "io_uring"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() || text.contains("io_uring was not measured: "), "{text}");
    output.status.success()
}

/// A measurement of hours, when it has begun.
fn begin(transport: &str) -> (Child, BufReader<ChildStdout>) {
    let arguments = ["net", "-R", "4000000000", "-c", "8", "--over", transport];
    let mut child = Command::new(env!("CARGO_BIN_EXE_postlab"))
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    // Printed after the signals are handled.
    let mut fact = String::new();
    out.read_line(&mut fact).unwrap();
    assert!(fact.starts_with("Between two processes"), "{fact}");
    (child, out)
}

/// Waits until the process has started another one that computes, and returns that one.
fn far_process(child: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    loop {
        let text = fs::read_to_string(&children).expect("the measurement ended by itself");
        if let Some(number) = text.split_whitespace().next() {
            let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            let fields: Vec<&str> = after_name.split(' ').collect();
            let ticks: u64 = [11, 12].iter().filter_map(|i| fields.get(*i)?.parse::<u64>().ok()).sum();
            if ticks >= 5 {
                return Pid::from_raw(number.parse().unwrap()).unwrap();
            }
        }
        thread::yield_now();
    }
}

#[test]
fn round_trips_go_over_all_transports() {
    let text = ok(&["ipc", "-R", "20", "-c", "32,9000", "-s", "100", "-b", "64", "--rounds", "2"]);
    let rows: Vec<&str> =
        text.lines().filter(|l| l.contains("N=2)")).map(|l| l.split([' ', ',']).next().unwrap()).collect();
    let mut expected = vec![
        "INET", "INET", "LOCAL", "LOCAL", "pipe", "pipe", "memory", "memory", "eventfd", "futex", "futex",
    ];
    expected.extend(["ring", "ring"]);
    if has_io_uring() {
        expected.extend(["io_uring", "io_uring"]);
    }
    assert_eq!(rows, expected, "{text}");
    assert_eq!(text.matches("N=2)").count(), 2 * rows.len(), "{text}");
    let text = ok(&["net", "-R", "5", "-u", "-c", "8", "--rounds", "1"]);
    let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().take(3).collect();
    assert_eq!(words, ["LOCAL", "8", "5"], "{text}");
    assert!(!text.contains("INET"), "{text}");
}

#[test]
fn the_figures_are_printed_as_json_csv_and_markdown() {
    let arguments = |form| ["ipc", "-R", "20", "-c", "32", "--rounds", "3", "--over", "futex,eventfd", form];
    let json: serde_json::Value = serde_json::from_str(&ok(&arguments("--json"))).unwrap();
    assert_eq!(json["rows"][0]["transport"], "futex");
    assert_eq!(json["rows"][1]["bytes"], 8);
    assert_eq!(json["rows"][0]["us_per_round_trip"]["values"].as_array().unwrap().len(), 3);
    let csv = ok(&arguments("--csv"));
    assert!(csv.starts_with("transport,bytes,trips,round_trips_per_second,"), "{csv}");
    assert_eq!(csv.lines().count(), 3, "{csv}");
    let markdown = ok(&arguments("--markdown"));
    assert!(markdown.contains("\n| futex | 32 | 20 | "), "{markdown}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    /// Both processes compare the octets of the first and the last trip, and end with an error if one is wrong.
    #[test]
    fn octets_arrive_intact_between_two_processes(
        buffer in 1_u32..200_000,
        client in prop_oneof![1_u32..2000, 65_530_u32..65_545, 1_u32..400_000],
        server in prop_oneof![1_u32..2000, 65_530_u32..65_545, 1_u32..400_000],
    ) {
        // A buffer of few octets makes many system calls of a large message.
        let buffer = buffer.max(client.max(server) / 100).to_string();
        let (client, server) = (client.to_string(), server.to_string());
        ok(&["ipc", "-R", "2", "--rounds", "1", "-b", &buffer, "-c", &client, "-s", &server]);
    }
}

#[test]
fn sizes_around_that_of_the_ring_arrive_intact() {
    let sizes = "65535,65536,65537,131072,131073,1000000";
    for buffer in ["65536", "65537", "1000003"] {
        ok(&[
            "ipc",
            "-R",
            "3",
            "--rounds",
            "1",
            "-b",
            buffer,
            "-c",
            sizes,
            "--over",
            "futex,ring,memory,local,pipe",
        ]);
    }
}

#[test]
fn a_signal_ends_the_round_trips_at_once_over_each_transport() {
    let is_refused = !has_io_uring();
    for transport in ALL.into_iter().filter(|name| !(is_refused && *name == "io_uring")) {
        let (mut child, mut out) = begin(transport);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let mut rows = String::new();
        out.read_to_string(&mut rows).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{transport}");
        // Cut in the first round: its heading and what it had done by then, or nothing.
        assert!(rows.lines().count() <= 2 && !rows.contains("4000000000"), "{rows}");
    }
}

#[test]
fn the_death_of_the_far_process_is_an_error_over_each_transport() {
    let is_refused = !has_io_uring();
    for transport in ALL.into_iter().filter(|name| !(is_refused && *name == "io_uring")) {
        if transport == "memory" {
            continue; // one process
        }
        let (child, _out) = begin(transport);
        kill_process(far_process(&child), Signal::KILL).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{transport}: {text}");
        assert!(
            text.contains("the other side ended before its last answer: signal: 9"),
            "{transport}: {text}"
        );
    }
}

#[test]
fn the_far_process_ends_with_the_near_one_over_each_transport() {
    let is_refused = !has_io_uring();
    for transport in ALL.into_iter().filter(|name| !(is_refused && *name == "io_uring")) {
        if transport == "memory" {
            continue; // one process
        }
        let (mut child, _out) = begin(transport);
        let far = far_process(&child);
        child.kill().unwrap();
        child.wait().unwrap();
        // Gone, or a zombie that its new parent has not yet waited for.
        let stat = format!("/proc/{}/stat", far.as_raw_nonzero());
        while fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ")) {
            thread::yield_now();
        }
    }
}
