//! `postlab sink` over real sockets, in each of its models.

use crate::common::{Sink, run};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Command, Stdio},
    time::Duration,
};

const ONE: &str = "EHLO me\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\nSubject: x\r\n\r\n..dot\r\n.\r\nQUIT\r\n";

#[test]
fn every_model_takes_mail_and_ends_when_it_has_enough() {
    for model in ["event", "thread", "pool", "async"] {
        let sink = Sink::start(&["--model", model, "-M", "2", "--json", "-m", "1"]);
        for _ in 0..2 {
            let said = sink.talk(ONE);
            assert!(said.starts_with("220 postlab-sink ESMTP\r\n250-postlab-sink\r\n"), "{model}: {said}");
            assert!(said.ends_with("250 2.0.0 Ok\r\n221 2.0.0 Bye\r\n"), "{model}: {said}");
        }
        let tally: serde_json::Value = serde_json::from_str(sink.output().trim()).unwrap();
        assert_eq!((&tally["messages"], &tally["quits"]), (&2.into(), &2.into()), "{model}");
    }
}

#[test]
fn every_model_waits_closes_and_refuses_as_told() {
    for model in ["event", "thread", "pool", "async"] {
        let sink = Sink::start(&["--model", model, "-W", "MAIL:0.2", "-f", "VRFY", "-Q", "RCPT"]);
        let begun = std::time::Instant::now();
        let said = sink.talk(ONE.replace("EHLO", "VRFY").as_str());
        assert!(begun.elapsed().as_millis() >= 200, "{model}");
        assert!(said.contains("500 5.3.0 Error: command failed\r\n250 2.1.0 Ok\r\n421 "), "{model}: {said}");
    }
}

#[test]
fn every_model_ends_a_silent_session() {
    for model in ["event", "thread", "pool", "async"] {
        let sink = Sink::start(&["--model", model, "-t", "0.2", "-n", "1", "--json"]);
        assert!(sink.talk("").ends_with("421 4.4.2 Timeout exceeded\r\n"), "{model}");
        assert!(sink.output().contains("\"timeouts\":1"), "{model}");
    }
}

#[test]
fn every_model_goes_on_where_no_more_files_may_be_open() {
    for (model, threads) in [("event", "1"), ("thread", "1"), ("pool", "9"), ("async", "1")] {
        let sink = Sink::start(&["--model", model, "--threads", threads]);
        // It serves: from here on it opens sessions and nothing else.
        assert!(sink.talk(ONE).ends_with("221 2.0.0 Bye\r\n"), "{model}");
        sink.bound_files(3);
        let clients: Vec<_> = (0..8).map(|_| TcpStream::connect(&sink.address).unwrap()).collect();
        for mut client in clients {
            client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
            client.write_all(ONE.as_bytes()).unwrap();
            let mut said = String::new();
            client.read_to_string(&mut said).unwrap_or_else(|e| panic!("{model}: {e}"));
            assert!(said.ends_with("221 2.0.0 Bye\r\n"), "{model}: {said}");
        }
        sink.stop();
        sink.output();
    }
}

#[test]
fn a_message_that_cannot_be_written_leaves_no_part_of_a_file_and_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all");
    let one = directory.path().join("one.");
    for (option, template) in [("-D", &all), ("-d", &one)] {
        std::fs::write(&all, "before\n").unwrap();
        // A file of its may have 512 octets.
        let arguments = [option, template.to_str().unwrap(), "-n", "1", "--json"];
        let sink = Sink::start_behind("trap '' XFSZ; ulimit -f 1", &arguments);
        assert!(
            sink.talk(&ONE.replace("dot", &"long ".repeat(200))).contains("\r\n250 2.0.0 Ok\r\n"),
            "{option}"
        );
        let (said, status) = sink.ended();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert!(said["messages"] == 1 && said["unwritten"] == 1, "{option}: {said}");
        assert_eq!(status.code(), Some(2), "{option}");
        assert_eq!(std::fs::read_to_string(&all).unwrap(), "before\n", "{option}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "{option}");
    }
}

#[test]
fn messages_are_kept_in_files_with_smtp_sinks_headers() {
    let directory = tempfile::tempdir().unwrap();
    let template = directory.path().join("new/%Y.").display().to_string();
    let sink = Sink::start(&["-d", &template, "-S", "-- \\101\\n", "-n", "1", "-h", "sink.example"]);
    sink.talk(ONE);
    sink.output();
    let files: Vec<_> = std::fs::read_dir(directory.path().join("new")).unwrap().collect();
    assert_eq!(files.len(), 1);
    let text = std::fs::read_to_string(files[0].as_ref().unwrap().path()).unwrap();
    let head = "-- A\nX-Client-Addr: 127.0.0.1\nX-Client-Proto: ESMTP\nX-Helo-Args: me\nX-Mail-Args: <a@b.example>\n\
                X-Rcpt-Args: <c@d.example>\nReceived: from me ([127.0.0.1])\n\tby sink.example ";
    assert!(text.starts_with(head), "{text}");
    assert!(text.ends_with("\nSubject: x\n\n.dot\n\n"), "{text}");
}

#[test]
fn appended_messages_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("all");
    let sink = Sink::start(&["-D", &file.display().to_string(), "-n", "2"]);
    sink.talk(ONE);
    sink.talk(ONE);
    sink.output();
    assert_eq!(std::fs::read_to_string(file).unwrap().matches("X-Client-Addr").count(), 2);
}

#[test]
fn running_counters_look_like_smtp_sinks() {
    let sink = Sink::start(&["-c", "-n", "1"]);
    sink.talk(ONE);
    assert_eq!(sink.output(), "sess=0 quit=0 mesg=1\rsess=1 quit=1 mesg=1\r\n");
}

#[test]
fn wrong_arguments_get_one_clear_line() {
    for (arguments, words) in [
        (&["sink", "-f", "SEND", "127.0.0.1:0"][..], "`SEND` is not a command"),
        (&["sink", "127.0.0.1"], "has no port"),
        (&["sink", "-u", "nobody-here", "127.0.0.1:0"], "no such user in /etc/passwd"),
        (&["sink", "192.0.2.1:0"], "listen on 192.0.2.1:0: Cannot assign requested address"),
        (&["sink", "-W", "MAIL:1:200", "127.0.0.1:0"], "odds are 1 to 99"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn a_sink_that_cannot_change_its_root_or_user_does_not_say_that_it_listens() {
    for arguments in [["-u", "nobody-here"], ["-R", "/no/where"]] {
        let output = run(&["sink", arguments[0], arguments[1], "127.0.0.1:0"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && !error.contains("listens"), "{arguments:?}: {error}");
    }
}

#[test]
fn a_unix_socket_will_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let endpoint = format!("unix:{}", path.display());
    for model in ["event", "thread", "pool", "async"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
        command.args(["sink", "-L", "-n", "1", "--model", model, &endpoint]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        stderr.read_line(&mut line).unwrap();
        let mut socket = std::os::unix::net::UnixStream::connect(&path).unwrap();
        socket.write_all(b"LHLO me\r\nQUIT\r\n").unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("220 postlab-sink LMTP\r\n250-"), "{model}: {said}");
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn every_model_stores_in_files_and_in_the_log_before_it_accepts() {
    for model in ["event", "thread", "pool", "async"] {
        for store in ["files", "log"] {
            let directory = tempfile::tempdir().unwrap();
            let sink = Sink::start(&[
                "--model",
                model,
                "--store",
                store,
                "--store-directory",
                directory.path().to_str().unwrap(),
                "--json",
                "-M",
                "40",
            ]);
            let sent = run(&["source", "-m", "40", "-s", "8", "-d", "-l", "9000", "--json", &sink.address]);
            let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
            assert_eq!(sent["messages_sent"], 40, "{model} {store}");
            let counts: serde_json::Value = serde_json::from_str(sink.output().trim()).unwrap();
            let kept = &counts["store"];
            assert_eq!(
                (&kept["stored"], &kept["failed"]),
                (&40.into(), &0.into()),
                "{model} {store}: {counts}"
            );
            let number = |key: &str| kept[key].as_u64().unwrap();
            match store {
                "files" => {
                    assert_eq!((number("file_syncs"), number("directory_syncs")), (40, 40), "{model}");
                }
                _ => assert!(number("commits") >= 1 && number("commits") <= 40, "{model}: {counts}"),
            }
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{model} {store}");
        }
    }
}

#[test]
fn a_message_that_the_store_cannot_keep_is_refused_and_the_session_goes_on() {
    for model in ["event", "thread", "pool", "async"] {
        let directory = tempfile::tempdir().unwrap();
        // A file may have 512 octets: the message does not fit.
        let arguments = [
            "--model",
            model,
            "--store",
            "files",
            "--store-directory",
            directory.path().to_str().unwrap(),
            "-n",
            "1",
            "--json",
        ];
        let sink = Sink::start_behind("trap '' XFSZ; ulimit -f 1", &arguments);
        let said = sink.talk(&ONE.replace("dot", &"long ".repeat(400)));
        assert!(
            said.contains("\r\n451 4.3.0 Error: message not stored\r\n221 2.0.0 Bye\r\n"),
            "{model}: {said}"
        );
        let counts: serde_json::Value = serde_json::from_str(sink.output().trim()).unwrap();
        assert_eq!((&counts["store"]["failed"], &counts["messages"]), (&1.into(), &0.into()), "{model}");
    }
}

#[test]
fn sinks_share_a_port_only_if_both_want_it() {
    let sink = Sink::start(&["--reuse-port", "-n", "1"]);
    let second = |options: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postlab"));
        command.arg("sink").args(options).args(["-n", "1", &sink.address]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let refused = second(&[]).wait_with_output().unwrap();
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("in use"),
        "{refused:?}"
    );
    let mut shared = second(&["--reuse-port"]);
    let mut line = String::new();
    BufReader::new(shared.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listens on"), "{line}");
    shared.kill().unwrap();
    shared.wait().unwrap();
}

#[test]
fn options_that_a_store_cannot_be_combined_with_are_named() {
    for (options, word) in [
        (&["--store", "log", "-u", "nobody"][..], "-R and -u"),
        (&["--store", "log", "--store-layout", "hashed:4"], "--store files"),
        (&["--store", "files", "--store-layout", "hashed:1"], "hashed:COUNT"),
        (&["--store", "log", "--store-writers", "2"], "--store-writers is for --store files"),
        (&["--store", "files", "--model", "pool", "--store-writers", "2"], "--model event or async"),
        (&["--store", "files", "--store-directory", "/nonexistent/there"], "/nonexistent/there"),
    ] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_postlab")).arg("sink").args(options).arg("127.0.0.1:0").output();
        let output = output.unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(word), "{options:?}: {told}");
    }
}
