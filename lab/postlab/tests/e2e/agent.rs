//! Load from several agents, over TLS.

use crate::common::{Sink, run};
use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

/// A running agent; killed when dropped.
struct Agent {
    child: Child,
    address: String,
}

impl Agent {
    fn start(key: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
        command.args(["agent", "listen", "-k", key, "127.0.0.1:0"]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listens on ").unwrap_or_else(|| panic!("{line}")).to_owned();
        // Read on, so that the agent never waits for us.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { child, address }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn key(directory: &tempfile::TempDir) -> String {
    let path = directory.path().join("lab.key").display().to_string();
    assert!(run(&["agent", "key", &path]).status.success());
    path
}

#[test]
fn two_agents_send_together_and_their_results_are_added_up() {
    let directory = tempfile::tempdir().unwrap();
    let key = key(&directory);
    let (agents, sink) = ([Agent::start(&key), Agent::start(&key)], Sink::start(&["--json"]));
    let list = format!("{},{}", agents[0].address, agents[1].address);
    let hdr = directory.path().join("all.hlog").display().to_string();
    // An agent serves one run after the other.
    for count in [100u64, 200] {
        let output = run(&[
            "agent",
            "run",
            "-k",
            &key,
            "-a",
            &list,
            "--json",
            "--hdr",
            &hdr,
            "--",
            "-s",
            "5",
            "-m",
            "50",
            &sink.address,
        ]);
        assert!(output.status.success(), "{output:?}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let messages = |row: usize| result["rows"][row]["messages"].as_u64().unwrap();
        assert_eq!([messages(0), messages(1), messages(2)], [50, 50, 100], "{result}");
        assert!(result["rows"][2]["p99_ms"].as_f64().unwrap() > 0.0, "{result}");
        // The agents never end at the same time, so their rates do not add up.
        let figure = |row: usize, key: &str| result["rows"][row][key].as_f64().unwrap();
        let by_time = figure(2, "messages_per_second") * figure(2, "seconds");
        assert!((by_time / 100.0 - 1.0).abs() < 1e-6, "{result}");
        assert!(figure(2, "seconds") >= figure(0, "seconds").max(figure(1, "seconds")), "{result}");
        let merged = run(&["hdr", "merge", "--json", &hdr]);
        let times: serde_json::Value = serde_json::from_slice(&merged.stdout).unwrap();
        assert_eq!(times["message"]["count"], count, "{times}");
    }
    sink.stop();
    assert_eq!(sink.tally()["messages"], 200);
}

#[test]
fn an_agent_that_cannot_begin_keeps_the_others_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let key = key(&directory);
    let (agent, sink) = (Agent::start(&key), Sink::start(&["--json"]));
    let (_socket, nobody) = crate::common::silent_address();
    let list = format!("{},{nobody}", agent.address);
    let output = run(&["agent", "run", "-k", &key, "-a", &list, "--", "-m", "5", &sink.address]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text.contains("does `postlab agent listen` run there?"), "{text}");
    for (source, words) in [
        (&["-F", "/etc/passwd"][..], "-F names a file"),
        (&["--nonsense"], "unexpected argument '--nonsense'"),
    ] {
        let mut arguments = vec!["agent", "run", "-k", &key, "-a", &agent.address, "--"];
        arguments.extend(source);
        arguments.push(&sink.address);
        let output = run(&arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(words), "{text}");
    }
    sink.stop();
    assert_eq!(sink.tally()["messages"], 0);
}
