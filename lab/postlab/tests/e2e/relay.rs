//! `postlab relay`: servers measured in rounds, through their scripts or where they run already.

use crate::common::{Sink, run, silent_address, wire};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    thread,
};

/// An address for the sink, which must be known before it listens. No other test has its host.
fn sink_address() -> String {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [low, high, ..] = std::process::id().to_le_bytes();
    let host = format!("127.{}.{low}.{}", high | 128, NEXT.fetch_add(1, Relaxed));
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().to_string()
}

/// The directory of the only result.
fn result(results: &Path) -> PathBuf {
    std::fs::read_dir(results).unwrap().next().unwrap().unwrap().path()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Words that make a measurement short.
const SHORT: [&str; 6] = ["--duration", "0.2", "--rounds", "1", "--sessions", "1,3"];

#[test]
fn a_server_is_measured_beside_its_ceiling_and_everything_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results");
    let (sink, junit) = (sink_address(), directory.path().join("junit.xml"));
    let server = wire(&sink);
    let mut words = vec!["relay", &server, "--sink", &sink, "--json", "--results", results.to_str().unwrap()];
    words.extend(SHORT);
    words.extend(["--require", "accepted>1/s", "--require", "message.p99<1h", "--require", "failed<1"]);
    let output = run(&words);
    // An hour is no unit here.
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let at = words.iter().position(|word| *word == "message.p99<1h").unwrap();
    words[at] = "message.p99<60s";
    words.extend(["--junit", junit.to_str().unwrap()]);
    let output = run(&words);
    assert!(output.status.success(), "{output:?}");
    assert!(stderr(&output).contains("A test message for postlab.test arrived at the sink."), "{output:?}");
    let result_json = json(&output);
    let cases = result_json["cases"].as_array().unwrap();
    let named: Vec<(&str, u64)> =
        cases.iter().map(|c| (c["server"].as_str().unwrap(), c["sessions"].as_u64().unwrap())).collect();
    assert_eq!(named, [("ceiling", 1), ("ceiling", 3), (server.as_str(), 1), (server.as_str(), 3)]);
    for case in cases {
        let figure = |key: &str| case["figures"][key]["median"].as_f64().unwrap();
        assert!(figure("accepted") > 0.0 && figure("drained") > 0.0, "{case}");
        assert!(case["phases_us"]["QUIT"]["count"].as_u64().unwrap() > 0, "{case}");
    }
    assert_eq!(result_json["servers"][0]["server"], server);
    // No server that is only installed.
    let versions = result_json["machine"]["versions"].as_object().unwrap();
    assert_eq!(versions.keys().collect::<Vec<_>>(), [&server], "{versions:?}");
    let kept = result(&results);
    for name in ["scenario.toml", "machine.json", "runs.jsonl", "relay.json", "relay.csv", "relay.md"] {
        assert!(kept.join(name).exists(), "{name}");
    }
    let csv = std::fs::read_to_string(kept.join("relay.csv")).unwrap();
    // A comma between quotes belongs to a field.
    let width = |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum();
    let widths: Vec<usize> = csv.lines().map(width).collect();
    assert!(csv.lines().next().unwrap().ends_with(",remarks"), "{csv}");
    assert!(widths.len() == 5 && widths.iter().all(|width| *width == widths[0]), "{csv}");
    // Other commands read it.
    let kept = kept.to_str().unwrap();
    let output = run(&["compare", kept, kept]);
    assert!(String::from_utf8_lossy(&output.stdout).contains(&server), "{output:?}");
    let junit = std::fs::read_to_string(junit).unwrap();
    assert!(junit.contains("tests=\"6\" failures=\"0\""), "{junit}");
}

/// As [`wire`], and connections of these numbers, from 1 on, never get a word.
fn wire_with_hung(to: &str, hung: &'static [usize]) -> String {
    let behind = wire(to);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        let mut held = Vec::new();
        for (i, near) in listener.incoming().map_while(Result::ok).enumerate() {
            if hung.contains(&(i + 1)) {
                held.push(near);
                continue;
            }
            let far = TcpStream::connect(&behind).unwrap();
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    address
}

#[test]
fn a_session_that_hangs_makes_no_rate_smaller_and_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let sink = sink_address();
    // The first connections are those of the recognition, of the test message, and of the four sessions of the warm-up.
    let server = wire_with_hung(&sink, &[8, 9]);
    let mut words = vec!["relay", &server, "--sink", &sink, "--keep", "--json", "--sessions", "4"];
    words.extend(["--rounds", "1", "--duration", "1", "--drain", "8"]);
    words.extend(["--results", directory.path().to_str().unwrap()]);
    let result_json = json(&run(&words));
    let case = result_json["cases"].as_array().unwrap().iter().find(|c| c["server"] == server).unwrap();
    let figure = |key: &str| case["figures"][key]["median"].as_f64().unwrap();
    assert!(figure("accepted") >= figure("drained") && figure("drained") > 0.0, "{case}");
    let runs = std::fs::read_to_string(result(directory.path()).join("runs.jsonl")).unwrap();
    let kept: Value = serde_json::from_str(runs.lines().last().unwrap()).unwrap();
    let source = &kept["source"];
    let [seconds, accepted, rate] =
        ["seconds", "accepted_seconds", "rate"].map(|key| source[key].as_f64().unwrap());
    // The messages of a second, and not the wait for those that hang.
    assert!(seconds >= 9.0 && accepted < 7.0, "{source}");
    let sent = source["messages_sent"].as_f64().unwrap();
    assert!((rate * accepted / sent - 1.0).abs() < 1e-6, "{source}");
    let remarks = case["remarks"].to_string();
    assert!(remarks.contains("HUNG SESSIONS: 2 waited for a reply"), "{remarks}");
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_latency_from_the_due_time() {
    let directory = tempfile::tempdir().unwrap();
    let sink = sink_address();
    let server = wire(&sink);
    let measured = |options: &str, sink_options: &str| {
        let mut words = vec!["relay", &server, "--sink", &sink, "--json", "--rounds", "1", "--sessions", "1"];
        words.extend(["--results", directory.path().to_str().unwrap(), "--source-options", options]);
        words.extend(["--sink-options", sink_options]);
        let output = run(&words);
        assert!(output.status.success(), "{output:?}");
        // That the processor is busy depends on what else runs here.
        let found = json(&output)["servers"][0]["bottlenecks"].clone();
        let of_server = |one: &&Value| !["cpu", "other-load"].contains(&one["cause"].as_str().unwrap());
        let count = found.as_array().unwrap().iter().filter(of_server).count();
        assert!(options.starts_with("--rate 100") || count == 0, "{options}: {found}");
        let cases = json(&output)["cases"].clone();
        [&server, "ceiling"].map(|name: &str| {
            let case = cases.as_array().unwrap().iter().find(|case| case["server"] == name).unwrap();
            ["accepted", "max"].map(|key| case["figures"][key]["median"].as_f64().unwrap())
        })
    };
    // The last of 40 messages is due 50 ms before the end of two seconds.
    for [accepted, _] in measured("--rate 20 --duration 2", "") {
        assert!(accepted < 21.0, "{accepted}");
    }
    // A ramp has half the messages of its last rate.
    let [[accepted, _], _] = measured("--rate 40 --arrivals ramp --duration 2", "");
    assert!(accepted < 24.0, "{accepted}");
    // The sink takes a message in 50 ms, so the last of half a second is late by two.
    let [[_, max_ms], _] = measured("--rate 100 --duration 0.5", "-W .:0.05");
    assert!(max_ms > 1000.0, "{max_ms}");
}

#[test]
fn a_missed_requirement_is_exit_code_1_and_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let sink = sink_address();
    let server = wire(&sink);
    let mut words = vec!["relay", &server, "--sink", &sink, "--results", directory.path().to_str().unwrap()];
    words.extend(SHORT);
    words.extend(["--require", "drained@3>1000000000/s"]);
    let output = run(&words);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text.matches("MISSED: drained@3>1000000000/s").count(), 1, "{text}");
    assert!(text.contains("\n  knee ") && text.contains("\n  bottleneck at "), "{text}");
}

#[test]
fn a_requirement_on_sessions_that_are_not_measured_is_refused_before_the_measurement() {
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().to_str().unwrap();
    let output = run(&[
        "relay",
        "127.0.0.1:1",
        "--sessions",
        "2,5",
        "--results",
        results,
        "--require",
        "p99@5<60s",
        "--require",
        "p99@77<50ms",
    ]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert_eq!(
        stderr(&output),
        "postlab: --require `p99@77<50ms`: there is no measurement with 77 sessions, only with 2, 5: \
         write one of these behind @, or add 77 to --sessions\n"
    );
}

#[test]
fn a_message_that_does_not_arrive_comes_with_the_lines_to_write() {
    // It takes all mail, and passes nothing on.
    let server = Sink::start(&["-h", "mx.example ESMTP Postfix"]);
    let sink = sink_address();
    let output = run(&["relay", &server.address, "--sink", &sink, "--wait", "0.1"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text.contains(&format!("{} is Postfix", server.address)), "{text}");
    let (host, port) = sink.rsplit_once(':').unwrap();
    assert!(
        text.contains(&format!("transport_maps = inline:{{ postlab.test=smtp:[{host}]:{port} }}")),
        "{text}"
    );
    // It refuses: that is about permission, not about the route.
    let server = Sink::start(&["-h", "mx.example ESMTP Postfix", "-f", "RCPT"]);
    let output = run(&["relay", &server.address, "--sink", &sink, "--wait", "0.1"]);
    assert!(stderr(&output).contains("the client's address must be in mynetworks"), "{output:?}");
}

#[test]
fn what_to_write_is_printed_without_a_server() {
    let output = run(&["relay", "--explain", "opensmtpd", "--domain", "a.test", "--sink", "127.0.0.1:77"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("relay host smtp://127.0.0.1:77\n"), "{output:?}");
    assert!(text.contains("match from local for domain \"a.test\" action"), "{text}");
}

#[test]
fn wrong_words_are_exit_code_64_and_say_what_to_write() {
    for (words, expected) in [
        (["relay", "nobody"], "is neither HOST:PORT nor a peer"),
        (["relay", "--require=p99"], "write FIGURE[@SESSIONS]<NUMBER[UNIT]"),
        (["relay", "--duration=0"], "write 0.1 or more"),
        (["relay", "--domain=a b"], "is not a domain"),
    ] {
        let output = run(&words);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(stderr(&output).contains(expected), "{output:?}");
    }
    let output = run(&["relay", "127.0.0.1:1", "127.0.0.1:1"]);
    assert!(stderr(&output).contains("127.0.0.1:1 is named twice"), "{output:?}");
    for (option, path) in [("--queue", "/no/queue"), ("--log", "/no/log"), ("--junit", "/no/junit.xml")] {
        let output = run(&["relay", "127.0.0.1:1", "--require", "p99<1s", option, path]);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        assert!(stderr(&output).contains(path), "{output:?}");
    }
}

#[test]
fn a_server_that_does_not_answer_has_missed_all_that_is_required() {
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("junit.xml");
    let (_socket, server) = silent_address();
    let words = ["relay", &server, "--sink", &sink_address(), "--require", "p99<1s", "--sessions", "1,2"];
    let output = run(&[&words[..], &["--junit", junit.to_str().unwrap()]].concat());
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let text = std::fs::read_to_string(junit).unwrap();
    assert!(text.contains("tests=\"2\" failures=\"2\""), "{text}");
}

/// A peer that accepts everything and delivers nothing: its script keeps a list of what it was asked to do.
const PEER: &str = r#"#!/bin/bash
here=$(dirname "$0")
case $1 in
  start) "$POSTLAB" sink "127.0.0.1:$PEER_PORT" 2>/dev/null & echo $! > "$here/pid"
         until (exec 3<>"/dev/tcp/127.0.0.1/$PEER_PORT") 2>/dev/null; do :; done
         echo "start $2 to $SINK_PORT" >> "$here/calls" ;;
  reset) if [ -e "$here/pid" ]; then kill "$(cat "$here/pid")"; rm "$here/pid"; echo stop >> "$here/calls"; fi ;;
  version) echo "Black hole 1.0" ;;
  config-hash) echo "hash-of-$2" ;;
  durability) echo nothing ;;
  diff) echo "+ faster = yes" ;;
  queue) echo "$here" ;;
esac
"#;

#[test]
fn a_peer_is_started_for_each_run_and_mail_that_stays_in_it_is_exit_code_1() {
    let directory = tempfile::tempdir().unwrap();
    let (peers, results) = (directory.path().join("peers"), directory.path().join("results"));
    std::fs::create_dir(&peers).unwrap();
    let script = peers.join("hole.sh");
    std::fs::write(&script, PEER).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&script).status().unwrap().success());
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.args(["relay", "hole:stock", "hole:tuned", "--json", "--drain", "0.1", "--peers"]).arg(&peers);
    command.arg("--results").arg(&results).args(SHORT).env("POSTLAB", env!("CARGO_BIN_EXE_postlab"));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let calls = std::fs::read_to_string(peers.join("calls")).unwrap();
    let verbs: Vec<&str> = calls.lines().map(|line| line.split(" to ").next().unwrap()).collect();
    // The order of the servers rotates.
    let (stock, tuned) = (["start stock", "stop"], ["start tuned", "stop"]);
    assert_eq!(verbs, [stock, tuned, tuned, stock].concat(), "{calls}");
    let result_json = json(&output);
    let case = result_json["cases"].as_array().unwrap().iter().find(|c| c["server"] == "hole:tuned").unwrap();
    assert_eq!(
        (&case["about"]["version"], &case["about"]["config_hash"]),
        (&"Black hole 1.0".into(), &"hash-of-tuned".into())
    );
    assert!(case["figures"]["queued"]["median"].as_f64().unwrap() > 0.0, "{case}");
    assert!(
        case["remarks"].as_array().unwrap().iter().any(|r| r.as_str().unwrap().contains("INCOMPLETE")),
        "{case}"
    );
    assert_eq!(result_json["differences"]["hole"], "+ faster = yes");
    assert!(!peers.join("pid").exists());
    // A page that is passed on has every remark that the text has.
    let result = std::fs::read_dir(&results).unwrap().next().unwrap().unwrap().path();
    let (text, page) =
        (std::fs::read_to_string(result.join("relay.md")).unwrap(), results.join("report.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    assert!(command.arg("report").arg(&result).arg("-o").arg(&page).output().unwrap().status.success());
    let page = std::fs::read_to_string(page).unwrap();
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let (_, sections) = text.split_once("\n## ").unwrap();
    let lines: Vec<&str> = sections.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    assert!(lines.iter().any(|line| line.contains("an accepted message survives nothing")), "{text}");
    assert!(lines.iter().any(|line| line.starts_with("bottleneck at ")), "{text}");
    for line in lines {
        assert!(page.contains(&escaped(line)), "{line}\n{page}");
    }
    assert!(!page.contains("survives: ."), "{page}");
}

#[test]
fn ctrl_c_keeps_the_runs_that_are_complete() {
    let directory = tempfile::tempdir().unwrap();
    let sink = sink_address();
    let server = wire(&sink);
    let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
    command.args(["relay", &server, "--sink", &sink, "--results"]).arg(directory.path());
    command.args(["--sessions", "2", "--duration", "0.2", "--rounds", "1000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    // The ceiling, then the server.
    let is_run = |line: &String| line.starts_with("round 1,");
    assert_eq!(lines.by_ref().map(Result::unwrap).filter(is_run).take(2).count(), 2);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    lines.for_each(drop);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&server) && text.contains("ceiling"), "{text}");
    let runs = std::fs::read_to_string(result(directory.path()).join("runs.jsonl")).unwrap();
    assert!(runs.lines().count() >= 2, "{runs}");
}
