//! Commands that look at processes with strace and perf.

use crate::common::run;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn a_histogram_has_each_call_of_each_kind() {
    if Command::new("strace").arg("-V").output().is_err() {
        eprintln!("SKIPPED: strace is not installed");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path().join("f");
    let words = format!("for i in 1 2 3 4 5 6 7; do : > {}$i; done", files.display());
    let command = ["syscalls", "--with", "strace", "--histogram", "--", "sh", "-c", &words];
    let output = run(&command);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let counts = |words: &str| -> u64 {
        let lines = text.split(words).nth(1).unwrap_or_else(|| panic!("{words}: {text}")).lines().skip(1);
        let count = |line: &str| line.split_whitespace().nth(5).and_then(|n| n.parse::<u64>().ok());
        lines.map_while(count).sum()
    };
    let said =
        text.split("command, openat: ").nth(1).unwrap().split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(said >= 7 && counts("command, openat: ") == said, "{text}");
    let csv = run(&["syscalls", "--with", "strace", "--histogram", "--csv", "--", "true"]);
    let csv = String::from_utf8(csv.stdout).unwrap();
    assert!(
        csv.starts_with("part,phase,syscall,count,") && csv.contains("\nhistogram,command,execve,"),
        "{csv}"
    );
}

#[test]
fn without_perf_a_flame_graph_says_what_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    let output = command.args(["flame", "--", "/bin/true"]).env("PATH", directory.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "postlab: run perf: it is not installed; it is in Debian's linux-perf\n"
    );
    assert_eq!(output.status.code(), Some(2));
    let output = run(&["flame", "-p", "99999999"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("watch process 99999999: there is none"));
    let output = run(&["flame", "--", "/no/such"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "postlab: run /no/such: there is no such program\n");
}

#[test]
fn a_flame_graph_has_the_functions_of_a_command() {
    let directory = tempfile::tempdir().unwrap();
    let (svg, folded) = (directory.path().join("f.svg"), directory.path().join("folded"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.arg("flame").arg("-o").arg(&svg).arg("--folded").arg(&folded);
    command.args(["--", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
    let output = command.output().unwrap();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            error.contains("run perf: it is not installed") || error.contains("perf_event_paranoid is "),
            "{error}"
        );
        eprintln!("SKIPPED: {error}");
        return;
    }
    let lines = std::fs::read_to_string(folded).unwrap();
    assert!(lines.lines().any(|line| line.starts_with("sh;")), "{lines}");
    assert!(std::fs::read_to_string(svg).unwrap().contains("<title>sh: "));
}

#[test]
fn a_signal_ends_the_command_and_what_was_sampled_is_drawn() {
    // Ctrl-C reaches all processes, `kill` only one.
    for (signal, is_for_all) in [(Signal::TERM, false), (Signal::INT, false), (Signal::INT, true)] {
        let directory = tempfile::tempdir().unwrap();
        let (svg, temporary) = (directory.path().join("f.svg"), directory.path().join("tmp"));
        std::fs::create_dir(&temporary).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
        command.arg("flame").arg("-o").arg(&svg).env("TMPDIR", &temporary).process_group(0);
        command.args(["--", "sh", "-c", "echo $$; while :; do :; done"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        reader.read_line(&mut line).unwrap();
        let pid = Pid::from_child(&child);
        if !line.is_empty() {
            // For some hundred samples.
            std::thread::sleep(Duration::from_millis(500));
            let send = if is_for_all { kill_process_group } else { kill_process };
            send(pid, signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        if line.is_empty() {
            eprintln!("SKIPPED: {error}");
            return;
        }
        assert_eq!(output.status.code(), Some(130), "{error}");
        assert!(error.contains("stopped by a signal, with what was measured until then"), "{error}");
        let text = std::fs::read_to_string(&svg).unwrap_or_default();
        assert!(text.contains("<title>sh: "), "{signal:?} {is_for_all}: {text}{error}");
        let summary: String = reader.lines().map_while(Result::ok).collect();
        assert!(summary.contains(" samples; functions with the most of their own:"), "{summary}");
        assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
        assert!(!Path::new("/proc").join(line.trim()).exists(), "the command runs on");
    }
}
