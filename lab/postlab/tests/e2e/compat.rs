//! The front ends of the source, each against a running sink.

use crate::common::{Sink, TOO_SHORT, counted, run, run_timed};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    sync::mpsc::Receiver,
    time::Duration,
};

/// Waits until so many more connections are open.
fn await_open(opened: &Receiver<()>, count: usize) {
    (0..count).for_each(|_| opened.recv_timeout(Duration::from_secs(60)).unwrap());
}

fn ok(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn gatling_reports_overall_and_peak_rate_in_its_words() {
    let sink = Sink::start(&["--verify", "--json", "-M", "60"]);
    let text = ok(&[
        "gatling",
        "-m",
        "5",
        "-c",
        "60",
        "-z",
        "1",
        "-Z",
        "3",
        "-f",
        "a@b.test",
        "-t",
        "c@d.test",
        &sink.address,
    ]);
    for words in [
        "Connections:                5\n",
        "Random size 1 to 3 Kbytes",
        "Overall message rate: ",
        "Peak rate: ",
        "N=1)",
    ] {
        assert!(text.contains(words), "{text}");
    }
    let tally = sink.tally();
    assert_eq!(
        (&tally["messages"], &tally["intact"], &tally["changed"]),
        (&60.into(), &60.into(), &0.into())
    );
    assert!(tally["bytes"].as_u64().unwrap() > 60 * 1024);
}

#[test]
fn smtpc_sends_a_connection_a_message() {
    let sink = Sink::start(&["--json", "-M", "40"]);
    let text = ok(&[
        "smtpc",
        "-t",
        "4",
        "-s",
        "20",
        "-f",
        "a@b.test",
        "-R",
        "c@d.test",
        "-O",
        "20",
        "-r",
        &sink.address,
        "--rounds",
        "2",
    ]);
    assert!(
        text.contains("20 messages, 0 failed, 20 connections, 4 threads") && text.contains("N=2)"),
        "{text}"
    );
    assert_eq!(sink.tally()["sessions"], 40);
}

#[test]
fn slam_adds_its_processes_up() {
    let sink = Sink::start(&["--json", "-M", "45"]);
    let text =
        ok(&["slam", "-p", "3", "-t", "2", "-m", "15", "-w", "0.001", "-l", "300", "-d", &sink.address]);
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..4], ["3", "2", "45", "0"], "{text}");
    assert_eq!(sink.tally()["messages"], 45);
    let output = run(&["slam", "-p", "1", "-m", "1", "-t", "1", "nonsense:port"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("neither a port number"), "{error}");
}

#[test]
fn postal_writes_a_line_a_minute_and_its_content_is_verified() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (users, senders) = (file("the users", "# all\na@b.test\nc@d.test\n"), file("senders", "s@t.test\n"));
    let log = directory.path().join("log").display().to_string();
    let sink = Sink::start(&["--verify", "--json"]);
    let (first, second) = (Sink::start(&["--json"]), Sink::start(&["--json"]));
    let port = |sink: &Sink| sink.address.rsplit(':').next().unwrap().to_owned();
    // Postal's notation, and servers in turn.
    let servers = format!("[127.0.0.1]{},+[127.0.0.1]{}", port(&first), port(&second));
    let text =
        ok(&["postal", "-m", "10k", "-b", "netscape", "-r", "1200", "--minutes", "0.1", &servers, &users]);
    for sink in [first, second] {
        sink.stop();
        assert!(sink.tally()["messages"].as_u64().unwrap() > 0, "{text}");
    }
    // A tenth of a minute: at 300 a minute that is 30 messages, fewer where the machine has no time for them. What is due
    // when is tested where it is planned.
    let words = "-m 2 -M 1 -p 3 -c 4 -r 300 -l 127.0.0.9 --minutes 0.1".split(' ');
    let files = ["-Z", &log, "-f", &senders, &sink.address, &users];
    let text = ok(&["postal"].into_iter().chain(words).chain(files).collect::<Vec<_>>());
    // A second line, if a minute of the clock ends meanwhile.
    let counts = text.lines().skip(1).map(|line| {
        let columns: Vec<&str> = line.split(',').collect();
        assert_eq!((columns.len(), columns[3], columns[5]), (6, "0", "0"), "{text}");
        let time: Vec<u8> = columns[0].split(':').map(|part| part.parse().unwrap()).collect();
        assert!(columns[0].len() == 5 && time[0] < 24 && time[1] < 60, "{text}");
        columns[1].parse::<u64>().unwrap()
    });
    let sent: u64 = counts.sum();
    assert!((1..=30).contains(&sent), "{text}");
    sink.stop();
    let tally = sink.tally();
    assert_eq!((&tally["messages"], &tally["intact"]), (&sent.into(), &sent.into()));
    // Of both minutes, whichever had the time for a message.
    let said =
        |end: &str| [0, 1].map(|n| std::fs::read_to_string(format!("{log}:{n}{end}")).unwrap_or_default());
    let transcript = said("").concat();
    assert!(
        transcript.contains(">>> MAIL FROM:<s@t.test>") && transcript.contains("<<< 250"),
        "{transcript}"
    );
    assert!(said(":0").concat().contains(">>> QUIT"));
    let output = run(&["postal", "-c", "0", "127.0.0.1:1", &users]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("postlab: -c 0: "));
}

#[test]
fn the_original_postal_understands_the_same_words_and_prints_the_same_head() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "a@b.test\n").unwrap();
    let sink = Sink::start(&["--json"]);
    let (address, opened) = counted(&sink.address);
    let server = format!("[127.0.0.1]{}", address.rsplit(':').next().unwrap());
    let words = ["-m", "2", "-c", "3", "-r", "6000", &server, users.to_str().unwrap()];
    let mut postal = Command::new("stdbuf");
    postal
        // It writes a log where it is.
        .current_dir(directory.path())
        .args(["-oL", "/usr/sbin/postal"])
        .args(words)
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let child = std::path::Path::new("/usr/sbin/postal").exists().then(|| postal.spawn().unwrap());
    let Some(mut child) = child else {
        println!("SKIPPED: postal is not installed (Debian: apt-get install postal)");
        return;
    };
    let mut theirs = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut theirs).unwrap();
    // It sends until it is stopped; that it has connected twice means that it has sent.
    await_open(&opened, 2);
    kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    let ours = ok(&[&["postal", "--minutes", "0.1"], &words[..]].concat());
    assert_eq!(ours.lines().next(), Some(theirs.trim_end()));
    await_open(&opened, 1);
    sink.stop();
    assert!(sink.tally()["messages"].as_u64().unwrap() > 1, "{ours}");
}

#[test]
fn a_stopped_load_prints_what_it_measured_and_exits_with_130() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "a@b.test\n").unwrap();
    let users = users.to_str().unwrap();
    let sink = Sink::start(&["-W", ".:0.05"]);
    for (arguments, words) in [
        (&["source", "-m", "100000"][..], "stopped before the end"),
        (&["slam", "-p", "2", "-t", "2", "-m", "100000"], "Messages a second:"),
        (&["gatling", "-m", "2", "-c", "100000"], "Overall message rate: "),
        (&["smtpc", "-t", "2", "-s", "100000", "-r"], "messages, 0 failed"),
        (&["postal", "-p", "2"], "\n"),
    ] {
        let (address, opened) = counted(&sink.address);
        let with_users = arguments[0] == "postal";
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
        command.args(arguments).arg(&address).args(with_users.then_some(users));
        // A group of its own, which gets the signal as a terminal's does at Ctrl-C.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // Of slam: the two sessions of each process.
        let sessions = if arguments[0] == "slam" { 4 } else { 1 };
        await_open(&opened, sessions);
        kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(130), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_said = said.lines().all(|line| line.starts_with("postlab: stopped by a signal"));
        assert!(text.contains(words) && is_said && !said.is_empty(), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_sink_that_verifies_tells_what_was_changed() {
    let sink = Sink::start(&["--verify", "--json", "-M", "2"]);
    let message = "X-Postlab-Check: 00000001\r\n\r\nchanged\r\n.\r\n";
    let none = "Subject: none\r\n\r\nunknown\r\n.\r\n";
    let mail = "MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n";
    sink.talk(&format!("HELO x\r\n{mail}{message}{mail}{none}QUIT\r\n"));
    let tally = sink.tally();
    assert_eq!((&tally["messages"], &tally["intact"], &tally["changed"]), (&2.into(), &0.into(), &1.into()));
}

#[test]
fn the_null_sender_is_a_sender() {
    let directory = tempfile::tempdir().unwrap();
    let dump = directory.path().join("dump");
    let sink = Sink::start(&["-D", dump.to_str().unwrap(), "-n", "1"]);
    let output = run(&["smtpc", "-f", "", "-t", "1", "-s", "1", "-r", &sink.address]);
    assert!(output.status.success(), "{output:?}");
    sink.output();
    assert!(std::fs::read_to_string(dump).unwrap().contains("X-Mail-Args: <>\n"));
}

#[test]
fn a_result_that_is_too_short_says_so_in_the_text() {
    let sink = Sink::start(&[]);
    for words in [
        &["source", "-m", "3"][..],
        &["slam", "-m", "1", "-p", "1"],
        &["gatling", "-m", "1", "-c", "2"],
        &["smtpc", "-t", "1", "-s", "2", "-r"],
    ] {
        let (output, is_short) = run_timed(&[words, &[&sink.address]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        // A slow machine may have measured for long enough.
        assert!(output.status.success() && (text.contains(TOO_SHORT) || !is_short), "{words:?}: {output:?}");
    }
}
