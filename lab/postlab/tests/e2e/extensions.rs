//! TLS, AUTH, BDAT and XCLIENT between the source and the sink.

use crate::common::{Sink, run};

/// Runs a source with `arguments` against `address`, and reads its JSON.
fn source(arguments: &[&str], address: &str) -> serde_json::Value {
    let output = run(&[&["source", "--json", "--timeout", "20"], arguments, &[address]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {text} {output:?}"))
}

#[test]
fn every_model_takes_mail_over_tls_in_both_modes() {
    for model in ["event", "thread", "pool", "async"] {
        for mode in ["--tls", "--tls=implicit"] {
            let sink = Sink::start(&["--model", model, mode, "--verify", "--json"]);
            let arguments = ["-m", "12", "-s", "3", mode, "--random-size", "0:100000"];
            for more in [&[][..], &["-d", "--pipeline"]] {
                let report = source(&[&arguments[..], more].concat(), &sink.address);
                assert_eq!(report["messages_sent"], 12, "{model} {mode}: {report}");
                assert_eq!(report["failures"], serde_json::json!({}), "{model} {mode}: {report}");
            }
            sink.stop();
            let tally = sink.tally();
            let [messages, intact, sessions, tls] =
                ["messages", "intact", "sessions", "tls_sessions"].map(|name| tally[name].as_u64().unwrap());
            assert_eq!((messages, intact, tls), (24, 24, sessions), "{model} {mode}: {tally}");
        }
    }
}

#[test]
fn a_sink_times_out_and_closes_inside_of_tls() {
    let sink = Sink::start(&["--tls", "-Q", "DATA"]);
    let report = source(&["--tls"], &sink.address);
    assert_eq!(report["failures"], serde_json::json!({ "DATA 421": 1 }), "{report}");
    let report = source(
        &["--tls", "-m", "2", "-d", "-w", "6"],
        &Sink::start(&["--tls", "-t", "3", "--model", "thread"]).address,
    );
    // The 421 that comes meanwhile costs no message.
    assert_eq!((&report["messages_sent"], &report["connections"]), (&2.into(), &2.into()), "{report}");
}

#[test]
fn a_sink_takes_a_certificate_from_files_and_refuses_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let made = rcgen::generate_simple_self_signed(["sink.example".to_owned()]).unwrap();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let sink = Sink::start(&["--tls", "--cert", &cert, "--key", &key]);
    assert_eq!(source(&["--tls"], &sink.address)["messages_sent"], 1);
    for (arguments, words) in [
        (
            &["sink", "--tls", "--cert", &key, "--key", &key, "127.0.0.1:0"][..],
            "it has no certificate in PEM",
        ),
        (&["sink", "--tls", "--cert", "/no/file", "--key", &key, "127.0.0.1:0"], "read /no/file: "),
        (&["sink", "--cert", &cert, "--key", &key, "127.0.0.1:0"], "--tls"),
        (&["sink", "--auth", "nobody", "127.0.0.1:0"], "write USER:PASSWORD"),
        (&["source", "--xclient", "WHO=x", "127.0.0.1:0"], "`WHO=x` is not an attribute"),
    ] {
        let output = run(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn postal_sends_a_share_of_its_connections_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "a@b.test\n").unwrap();
    let sink = Sink::start(&["--tls", "--verify", "--json"]);
    let output = run(&[
        "postal",
        "-s",
        "100",
        "-r",
        "600",
        "--minutes",
        "0.1",
        &sink.address,
        users.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut count = 0;
    for line in text.lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        assert_eq!(columns[4], columns[5], "{text}");
        count += columns[5].parse::<u32>().unwrap();
    }
    assert!(count > 0, "{text}");
    sink.stop();
    let tally = sink.tally();
    assert_eq!(tally["messages"], tally["intact"], "{tally}");
}

#[test]
fn authentication_is_checked_where_a_sink_has_credentials() {
    let sink = Sink::start(&["--auth", "user:a:word"]);
    let report = source(&["--auth", "user:a:word", "-m", "3"], &sink.address);
    assert_eq!(
        (&report["messages_sent"], &report["times"]["auth"]["count"]),
        (&3.into(), &3.into()),
        "{report}"
    );
    let report = source(&["--auth", "user:else", "-m", "2"], &sink.address);
    assert_eq!(
        (&report["messages_failed"], &report["failures"]["AUTH 535"]),
        (&2.into(), &2.into()),
        "{report}"
    );
    assert_eq!(source(&[], &sink.address)["failures"]["MAIL 530"], 1);
    // LOGIN, and a name that is wrong; `=` is an empty response.
    let dialog = "EHLO me\r\nAUTH LOGIN\r\ndXNlcg==\r\nYTp3b3Jk\r\nAUTH LOGIN dXNlcg==\r\nZWxzZQ==\r\nAUTH PLAIN =\r\n\
                  AUTH LOGIN\r\n*\r\nAUTH CRAM-MD5\r\nQUIT\r\n";
    let said = sink.talk(dialog);
    let codes: Vec<&str> = said.lines().filter(|l| !l.starts_with("250")).map(|l| &l[..3]).collect();
    assert_eq!(
        codes,
        ["220", "334", "334", "235", "334", "535", "501", "334", "501", "504", "221"],
        "{said}"
    );
    for mechanism in ["SCRAM-SHA-256", "scram-sha-1", "LOGIN"] {
        let with = |auth| source(&["--auth", auth, "--auth-mechanism", mechanism], &sink.address);
        assert_eq!(with("user:a:word")["messages_sent"], 1, "{mechanism}");
        assert_eq!(with("user:a:world")["failures"]["AUTH 535"], 1, "{mechanism}");
        assert_eq!(with("nobody:a:word")["failures"]["AUTH 535"], 1, "{mechanism}");
    }
    // A sink without credentials takes any, and one without AUTH none.
    assert_eq!(source(&["--auth", "x:y"], &Sink::start(&[]).address)["messages_sent"], 1);
    let report = source(&["--auth", "x:y"], &Sink::start(&["-a"]).address);
    assert_eq!(report["failures"]["message AUTH is not offered, which --auth needs"], 1, "{report}");
}

#[test]
fn content_goes_in_one_chunk_and_only_where_that_is_offered() {
    let directory = tempfile::tempdir().unwrap();
    let (dump, transcript) = (directory.path().join("dump"), directory.path().join("transcript"));
    for pipeline in [&[][..], &["--pipeline=2"]] {
        let sink = Sink::start(&["--verify", "--json", "-D", dump.to_str().unwrap()]);
        let arguments = [
            "--bdat",
            "-m",
            "9",
            "-d",
            "--random-size",
            "0:30000",
            "--transcript",
            transcript.to_str().unwrap(),
        ];
        let report = source(&[&arguments, pipeline].concat(), &sink.address);
        assert_eq!((&report["messages_sent"], &report["connections"]), (&9.into(), &1.into()), "{report}");
        assert_eq!(report["times"].get("data"), None, "{report}");
        sink.stop();
        assert_eq!(sink.tally()["intact"], 9);
        let text = std::fs::read_to_string(&transcript).unwrap();
        assert_eq!(text.matches(">>> BDAT ").count(), 9, "{text}");
        assert!(!text.contains("BINARYMIME") && !text.contains(">>> DATA"), "{text}");
    }
    let report = source(&["--bdat", "-m", "2"], &Sink::start(&["-e"]).address);
    let kind = "message CHUNKING is not offered, which --bdat needs";
    assert_eq!((&report["messages_failed"], &report["failures"][kind]), (&2.into(), &2.into()), "{report}");
}

#[test]
fn xclient_names_another_client_and_the_session_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let transcript = directory.path().join("transcript");
    let sink = Sink::start(&["--tls"]);
    let arguments =
        ["--tls", "--xclient", "addr=192.0.2.1,NAME=mx.example", "--auth", "a:b", "-m", "2", "-d"];
    let report =
        source(&[&arguments[..], &["--transcript", transcript.to_str().unwrap()]].concat(), &sink.address);
    assert_eq!(report["messages_sent"], 2, "{report}");
    let text = std::fs::read_to_string(&transcript).unwrap();
    let verbs: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix(">>> ")?.split(' ').next()).collect();
    assert_eq!(verbs[..6], ["EHLO", "STARTTLS", "EHLO", "XCLIENT", "EHLO", "AUTH"], "{text}");
    assert!(text.contains(">>> XCLIENT ADDR=192.0.2.1 NAME=mx.example\n"), "{text}");
    let report = source(&["--xclient", "ADDR=192.0.2.1"], &Sink::start(&["-C"]).address);
    assert_eq!(report["failures"]["message XCLIENT is not offered, which --xclient needs"], 1, "{report}");
}
