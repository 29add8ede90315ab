//! The history: what a daemon writes, and what operators find in it, also when no daemon runs.

use crate::common::{Postrider, client::Client, free_address, sink::Sink, until};
use std::{fs, path::Path, process::Command};

const LOG: &str = "[log]\nfile = \"mail.log\"\n";

/// Sends a message with this Message-ID, and returns its queue id.
fn send(daemon: &Postrider, from: &str, to: &[&str], message_id: &str) -> String {
    let mut client = Client::connect(daemon.address).unwrap();
    let content = format!("Subject: s\r\nMessage-ID: <{message_id}>\r\n\r\nbody\r\n");
    let (code, said) = client.send(from, to, content.as_bytes()).unwrap();
    assert_eq!(code, 250, "{said}");
    said.trim().rsplit(' ').next().unwrap().to_owned()
}

/// Runs a command without a daemon; its exit code, standard output and standard error.
fn run(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(crate::common::BINARY)
        .args(arguments)
        .env("POSTRIDER_CONFIG", dir.join("postrider.toml"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Asks the history until it has this text.
fn found(daemon: &Postrider, arguments: &[&str], text: &str) -> String {
    let mut said = String::new();
    until(&format!("the history has {text:?}"), || {
        let arguments = [&["history", "query"], arguments].concat();
        said = daemon.try_ask(&arguments).unwrap_or_default();
        said.contains(text)
    });
    said
}

/// A next hop that refuses some recipients for a time, and some for good.
fn hop() -> Sink {
    Sink::with(|line| match line {
        line if line.starts_with("RCPT TO:<gone@") => Some("550 5.1.1 no such user".to_owned()),
        line if line.starts_with("RCPT TO:<busy@") => Some("450 4.2.1 mailbox busy".to_owned()),
        _ => None,
    })
}

#[test]
fn delivered_bounced_and_deleted_mail_is_found_by_all_its_keys_also_without_a_daemon() {
    let sink = hop();
    let daemon = Postrider::start(&format!("{LOG}{}", sink.route()));
    let id = send(&daemon, "ann@a.test", &["good@b.test", "gone@b.test"], "one@a.test");
    let waits = send(&daemon, "ann@a.test", &["busy@b.test"], "two@a.test");
    until("two are finished and one waits", || {
        daemon.counter("delivered") >= 2 && daemon.counter("bounced") == 1 && daemon.counter("queued") == 1
    });
    assert!(daemon.ask(&["queue", "delete", &waits]).contains("1 message deleted"));
    found(&daemon, &["--id", &waits], "deleted by an operator");
    found(&daemon, &["--id", &id], "bounce to the sender");
    let relay = sink.address.ip().to_string();
    let keys: [&[&str]; 9] = [
        &["--id", &id],
        &["--message-id", "<one@a.test>"],
        &["--message-id", "one@a.test"],
        &["--recipient", "GOOD@b.test"],
        &["--sender", "ann@a.test", "--recipient", "gone@b.test"],
        &["--sender", "<ann@a.test>", "--domain", "b.test"],
        &["--client", "127.0.0.1", "--recipient", "good@b.test"],
        &["--relay", &relay, "--recipient", "good@b.test"],
        &["--since", "1h", "--recipient", "good@b.test"],
    ];
    let check = |ask: &dyn Fn(&[&str]) -> String| {
        for key in keys {
            let said = ask(&[&["history", "query"], key].concat());
            assert!(said.contains(&format!("{id} from <ann@a.test>\n")), "{key:?}: {said}");
            assert!(said.contains("<good@b.test> delivered by "), "{key:?}: {said}");
            assert!(said.contains("<gone@b.test> bounced by "), "{key:?}: {said}");
            assert!(said.contains("550 5.1.1 no such user"), "{key:?}: {said}");
        }
        let said = ask(&["history", "query", "--sender", "ann@a.test"]);
        let places = [&waits, &id].map(|id| said.find(&format!("{id} from")).expect("both are found"));
        assert!(places[0] < places[1], "the newest first: {said}");
        let none = ask(&["history", "query", "--recipient", "good@b.test", "--until", "2026-01-01"]);
        assert!(none.starts_with("Nothing was found; the history begins at 2"), "{none}");
        let why = ask(&["why", &id]);
        assert!(why.contains("bytes from ann@a.test, accepted 2"), "{why}");
        assert!(why.contains("<good@b.test>\n  status: delivered\n  ended:  "), "{why}");
        assert!(why.contains("<gone@b.test>\n  status: bounced\n  ended:  "), "{why}");
        assert!(ask(&["why", &waits]).contains("<busy@b.test>\n  status: deleted\n"));
        let now: serde_json::Value = serde_json::from_str(&ask(&["why", &id, "--json"])).unwrap();
        assert_eq!(
            (&now["v"], &now["source"], &now["finished"]),
            (&1.into(), &"history".into(), &true.into())
        );
        let status: Vec<&serde_json::Value> =
            now["recipients"].as_array().unwrap().iter().map(|r| &r["status"]).collect();
        assert_eq!(status.len(), 2);
        assert!(status.contains(&&"delivered".into()) && status.contains(&&"bounced".into()), "{now}");
        // The moment of its acceptance: the event is there, and no recipient has an outcome.
        let accepted = now["events"][0]["time"].as_str().unwrap();
        let at = format!("{}999Z", accepted.trim_end_matches('Z'));
        let then = ask(&["why", &id, "--at", &at]);
        assert!(then.starts_with(&format!("{id} at 2")) && then.contains("  accepted: client="), "{then}");
        let json = ask(&["history", "query", "--json", "--message-id", "one@a.test"]);
        let entry: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(entry["id"], id.as_str());
        let words: Vec<&str> =
            entry["events"].as_array().unwrap().iter().filter_map(|e| e["event"].as_str()).collect();
        assert_eq!((words[0], words.len()), ("accepted", 5), "{json}");
        assert_eq!(entry["events"][0]["message_id"], "<one@a.test>", "{json}");
    };
    check(&|arguments| daemon.ask(arguments));
    let (dir, status) = daemon.stop();
    assert!(status.success());
    check(&|arguments| {
        let (code, said, error) = run(dir.path(), arguments);
        assert_eq!((code, error.as_str()), (0, ""), "{arguments:?}");
        said
    });
}

#[test]
fn a_reply_of_a_large_provider_is_explained_with_what_to_do() {
    let sink = Sink::with(|command| {
        let is_recipient = command.starts_with("RCPT");
        is_recipient
            .then(|| "550 5.7.26 Your email has been blocked because the sender is unauthenticated".into())
    });
    let route = sink.route().replace("\"*\"", "\"b.test\"");
    let daemon = Postrider::start(&format!("{LOG}{route}"));
    let id = send(&daemon, "", &["x@b.test"], "1@a.test");
    let mut why = String::new();
    until("it has failed", || {
        why = daemon.try_ask(&["why", &id]).unwrap_or_default();
        why.contains("bounced")
    });
    assert!(why.contains("  advice: the provider could not authenticate the message"), "{why}");
    let object: serde_json::Value = serde_json::from_str(&daemon.ask(&["why", &id, "--json"])).unwrap();
    assert!(object["recipients"][0]["advice"].as_str().unwrap().contains("postrider check"), "{object}");
}

#[test]
fn a_message_that_waits_is_explained_with_its_destination_its_end_and_a_command() {
    let nobody = free_address();
    let route = format!("[[route]]\ndomains = [\"b.test\"]\nsmarthost = \"{nobody}\"\n");
    let daemon = Postrider::start(&format!("{LOG}{route}"));
    let ids: Vec<String> =
        (0..3).map(|n| send(&daemon, "ann@a.test", &["x@b.test"], &format!("{n}@a.test"))).collect();
    let mut why = String::new();
    until("the destination is suspended", || {
        why = daemon.ask(&["why", &ids[0]]);
        why.contains("destination suspended") && why.contains("\nhistory\n")
    });
    let name = format!("smarthost:{nobody}");
    let object: serde_json::Value = serde_json::from_str(&daemon.ask(&["why", &ids[0], "--json"])).unwrap();
    let recipient = &object["recipients"][0];
    assert_eq!((&object["source"], &object["finished"]), (&"queue".into(), &false.into()), "{object}");
    assert_eq!((&recipient["status"], &recipient["others"]), (&"suspended".into(), &2.into()), "{object}");
    assert_eq!(recipient["command"], format!("postrider queue retry {}", ids[0]), "{object}");
    assert!(recipient["down_since"].is_string() && recipient["fails_at"].is_string(), "{object}");
    let early = daemon.try_ask(&["why", &ids[0], "--at", "1h"]).unwrap_err();
    assert!(early.contains("has no event before 2"), "{early}");
    let late = daemon.try_ask(&["why", &ids[0], "--at", "2999-01-01"]).unwrap_err();
    assert!(late.contains("is in the future"), "{late}");
    assert!(why.contains("  down:   no host accepts mail since "), "{why}");
    assert!(why.contains(&format!("  others: 2 more messages for {name}; open connections: ")), "{why}");
    assert!(why.contains(" (in 4d23h) if not delivered before; a delay warning is due "), "{why}");
    assert!(why.contains(&format!("  type:   postrider queue retry {}   to probe", ids[0])), "{why}");
    let summary = daemon.ask(&["queue", "summary"]);
    let cells: Vec<Vec<&str>> = summary.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        cells[0],
        ["T", "5", "10", "20", "40", "80", "160", "320", "640", "1280", "1280+"],
        "{summary}"
    );
    assert_eq!(cells[1][..3], ["TOTAL", "3", "3"], "{summary}");
    assert_eq!(cells[2][..3], [&name, "3", "3"], "{summary}");
    assert!(summary.contains("    down since ") && summary.contains("refused"), "{summary}");
    // A long reason is shown whole, and moves no column.
    let by = daemon.ask(&["queue", "summary", "--by", "reason"]);
    let is_row = |line: &&str| line.ends_with(|c: char| c.is_ascii_digit() || c == '+');
    let widths: Vec<usize> = by.lines().filter(is_row).map(|line| line.chars().count()).collect();
    assert!(widths.len() >= 3 && widths.iter().all(|width| *width == widths[0]), "{by}");
    assert!(by.contains("Connection refused"), "{by}");
    found(&daemon, &["--destination", &name], "suspended until");
    daemon.ask(&["queue", "hold", &ids[1]]);
    let held = daemon.ask(&["why", &ids[1]]);
    assert!(held.contains("  fails:  not while it is held; a delay warning is due "), "{held}");
    assert!(held.contains(&format!("postrider queue release {}", ids[1])), "{held}");
    // The summary of a queue that no daemon serves.
    let (dir, _) = daemon.stop();
    let (code, offline, _) = run(dir.path(), &["queue", "summary", "--json"]);
    let entry: serde_json::Value = serde_json::from_str(&offline).unwrap();
    assert_eq!(
        (code, &entry["destination"], &entry["recipients"]),
        (0, &name.into(), &3.into()),
        "{offline}"
    );
}

#[test]
fn a_delay_warning_is_named_and_an_expired_message_found() {
    let sink = hop();
    let schedule =
        "[queue]\ndelay_warning = \"1s\"\nexpire = \"15s\"\nretry_min = \"1s\"\nretry_max = \"1s\"\n";
    let daemon = Postrider::start(&format!("{LOG}{schedule}{}", sink.route()));
    let id = send(&daemon, "ann@b.test", &["busy@b.test"], "one@a.test");
    let said = found(&daemon, &["--id", &id], "delay warning to the sender: ");
    let warning =
        said.split("delay warning to the sender: ").nth(1).unwrap().split_whitespace().next().unwrap();
    let about = found(&daemon, &["--id", warning], &format!("delay warning to the sender, about {id}"));
    assert!(about.contains(&format!("{warning} from <>")), "{about}");
    until("the message is expired", || daemon.counter("expired") == 1);
    found(&daemon, &["--id", &id], "expired: the lifetime of the message is over");
    let why = daemon.ask(&["why", &id]);
    assert!(why.contains("<busy@b.test>\n  status: expired\n"), "{why}");
}

#[test]
fn rejected_commands_are_found_by_client_and_addresses() {
    let daemon = Postrider::start(&format!("{LOG}[relay]\nnetworks = []\n"));
    let mut client = Client::connect(daemon.address).unwrap();
    client.say("MAIL FROM:<x@y.test>").unwrap();
    assert_eq!(client.say("RCPT TO:<nobody@far.test>").unwrap().0, 550);
    let said = found(&daemon, &["--recipient", "nobody@far.test"], "rejected RCPT of 127.0.0.1");
    assert!(said.contains("from <x@y.test>, to <nobody@far.test>: 5"), "{said}");
    let said = found(&daemon, &["--client", "127.0.0.1", "--sender", "x@y.test"], "rejected RCPT");
    assert!(!said.contains("accepted"), "{said}");
}

#[test]
fn a_history_that_is_killed_loses_nothing_that_was_written() {
    let sink = hop();
    let more = format!("{LOG}{}", sink.route());
    let daemon = Postrider::start(&more);
    let id = send(&daemon, "ann@a.test", &["good@b.test"], "one@a.test");
    found(&daemon, &["--id", &id], "finished");
    let (dir, address) = daemon.kill();
    let (code, said, _) = run(dir.path(), &["history", "query", "--recipient", "good@b.test"]);
    assert!(code == 0 && said.contains(&id), "{said}");
    let daemon = Postrider::start_in(dir, address, &more);
    let second = send(&daemon, "ann@a.test", &["good@b.test"], "two@a.test");
    let said = found(&daemon, &["--recipient", "good@b.test"], &second);
    assert!(said.contains(&id), "{said}");
    let names = |dir: &Path| {
        let names = fs::read_dir(dir.join("data/history")).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".events")).count()
    };
    assert_eq!(names(daemon.dir.path()), 1, "the segment of before is continued");
    let (dir, _) = daemon.stop();
    assert_eq!(names(dir.path()), 1);
}

#[test]
fn a_daemon_without_a_history_writes_none_and_says_how_to_have_one() {
    let sink = hop();
    let daemon = Postrider::start(&format!("{LOG}[history]\nenabled = false\n{}", sink.route()));
    let id = send(&daemon, "ann@a.test", &["good@b.test"], "one@a.test");
    daemon.outcome("good@b.test");
    until("it has left the queue", || daemon.counter("queued") == 0);
    let said = daemon.try_ask(&["history", "query", "--id", &id]).unwrap_err();
    assert!(
        said.contains("there is no history in ") && said.contains("`enabled = true` in [history]"),
        "{said}"
    );
    let said = daemon.try_ask(&["why", &id]).unwrap_err();
    assert!(said.contains(&format!("{id} is not in the queue, and there is no history")), "{said}");
    assert!(!daemon.dir.path().join("data/history").exists());
}

#[test]
fn hashed_addresses_are_found_and_stand_in_no_file() {
    let sink = hop();
    let daemon = Postrider::start(&format!("{LOG}[history]\naddresses = \"hashed\"\n{}", sink.route()));
    let id = send(&daemon, "secret.ann@a.test", &["gone@b.test"], "one@a.test");
    let said = found(&daemon, &["--sender", "secret.ann@a.test"], "bounced by");
    assert!(
        said.contains(&id) && !said.contains("secret.ann") && said.contains("@b.test> bounced"),
        "{said}"
    );
    for entry in fs::read_dir(daemon.dir.path().join("data/history")).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(10).any(|window| window == b"secret.ann"));
    }
}

#[test]
fn damage_is_reported_and_what_is_wrong_on_the_command_line_is_named() {
    let sink = hop();
    let daemon = Postrider::start(&format!("{LOG}{}", sink.route()));
    let id = send(&daemon, "ann@a.test", &["good@b.test"], "one@a.test");
    found(&daemon, &["--id", &id], "finished");
    let (dir, _) = daemon.stop();
    for (arguments, text) in [
        (&["--id", "nonsense"][..], "a queue id is 13 characters"),
        (&["--since", "yesterday"], "\"yesterday\" is not a time: write 2h"),
        (&["--since", "1h", "--until", "2h"], "--since is later than --until"),
        (&["--limit", "0"], "--limit must be 1 or more"),
        (&["--client", "mail.test"], "invalid"),
    ] {
        let (code, said, error) = run(dir.path(), &[&["history", "query"], arguments].concat());
        assert!(code == 64 && said.is_empty() && error.contains(text), "{arguments:?}: {code} {error}");
    }
    let file = dir.path().join("data/history/00000001.events");
    let mut bytes = fs::read(&file).unwrap();
    bytes[1] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (code, _, error) = run(dir.path(), &["history", "query"]);
    assert!(code == 65 && error.contains("00000001.events is damaged: its header"), "{code} {error}");
}

#[test]
fn the_daemon_of_another_user_writes_its_history_and_others_may_not_read_it() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can start a daemon that becomes another user");
        return;
    }
    let (dir, sink) = (tempfile::tempdir().unwrap(), hop());
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let past = dir.path().join("past");
    let more = format!(
        "[history]\npath = \"past\"\n[process]\nuser = \"nobody\"\nsandbox = \"enforce\"\n{LOG}{}",
        sink.route()
    );
    let daemon = Postrider::start_in(dir, free_address(), &more);
    let id = send(&daemon, "ann@a.test", &["good@b.test"], "one@a.test");
    found(&daemon, &["--id", &id], "finished");
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let meta = fs::metadata(&past).unwrap();
    let (mode, uid) = (
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()),
        std::os::unix::fs::MetadataExt::uid(&meta),
    );
    assert!(mode & 0o007 == 0 && uid != 0, "{mode:o} {uid}");
    let (code, said, _) = run(dir.path(), &["why", &id]);
    assert!(code == 0 && said.contains("status: delivered"), "{said}");
}

#[test]
fn times_are_in_the_zone_of_the_variable_tz() {
    let daemon = Postrider::start(LOG);
    let id = send(&daemon, "ann@a.test", &["good@localhost"], "zone@a.test");
    found(&daemon, &["--id", &id], "<good@localhost> delivered");
    let (dir, _) = daemon.stop();
    let json = run(dir.path(), &["history", "query", "--json", "--id", &id]).1;
    let entry: serde_json::Value = serde_json::from_str(&json).unwrap();
    let utc = entry["events"][0]["time"].as_str().unwrap();
    let hour: u32 = utc[11..13].parse().unwrap();
    // A rule needs no files of zones; a name does.
    for (zone, ahead) in [("UTC0", 0), ("JST-9", 9), ("Asia/Tokyo", 9)] {
        if zone.contains('/') && !Path::new("/usr/share/zoneinfo").join(zone).exists() {
            continue;
        }
        let output = Command::new(crate::common::BINARY)
            .args(["history", "query", "--id", &id])
            .env("POSTRIDER_CONFIG", dir.path().join("postrider.toml"))
            .env("TZ", zone)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted = format!(" {:02}{}", (hour + ahead) % 24, &utc[13..19]);
        assert!(said.contains(&wanted), "{zone}: {wanted}: {said}");
    }
}

#[test]
fn what_operators_and_rules_do_to_a_message_is_told_with_who_and_why_also_after_a_restart() {
    let rule = "[[rule]]\nfor = \"all\"\nheader = [\"Subject: /lottery/\"]\nhold = \"may be a fraud\"\n";
    let sink = hop();
    let config = format!("{LOG}{}{rule}", sink.route());
    let daemon = Postrider::start(&config);
    let user = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
    let by = format!("by {}", user.trim());
    let mut client = Client::connect(daemon.address).unwrap();
    assert_eq!(
        client.send("ann@a.test", &["busy@b.test"], b"Subject: a lottery\r\n\r\nx\r\n").unwrap().0,
        250
    );
    let listed = daemon.ask(&["queue", "list", "--ids"]);
    let ruled = listed.trim().to_owned();
    let id = send(&daemon, "ann@a.test", &["busy@b.test"], "one@a.test");
    until("it waits", || daemon.ask(&["queue", "list", &id]).contains("450 4.2.1"));
    let hold = ["queue", "hold", &id, "--reason", "an odd attachment"];
    assert!(daemon.ask(&hold).contains("1 message held"));
    let again = daemon.ask(&["queue", "hold", &id, "--reason", "another"]);
    assert!(again.contains("0 messages held, 1 unchanged: held already"), "{again}");
    let holds = |daemon: &Postrider| {
        let (mine, rules) = (format!("held {by}: an odd attachment"), "may be a fraud (rule 1");
        let json = daemon.ask(&["queue", "list", &id, "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["hold_reason"], format!("{by}: an odd attachment"));
        for view in [&["queue", "list"][..], &["mailq"], &["queue", "summary"]] {
            let said = daemon.ask(view);
            assert!(said.contains(rules) || view.contains(&"summary"), "{view:?}: {said}");
            assert!(said.contains(&mine) || said.contains(rules), "{view:?}: {said}");
        }
        for (id, reason) in [(&id, &*mine), (&ruled, rules)] {
            for view in [&["why", &**id][..], &["queue", "show", id], &["queue", "list", id]] {
                let said = daemon.ask(view);
                assert!(said.contains(reason), "{view:?}: {said}");
            }
        }
    };
    holds(&daemon);
    // A kill costs the last second of the history, and nothing of the queue.
    found(&daemon, &["--id", &id], "an odd attachment");
    found(&daemon, &["--id", &ruled], "held: may be a fraud");
    let (dir, address) = daemon.kill();
    let offline = run(dir.path(), &["queue", "list"]).1;
    assert!(offline.contains("an odd attachment") && offline.contains("may be a fraud"), "{offline}");
    let daemon = Postrider::start_in(dir, address, &config);
    holds(&daemon);
    assert!(
        daemon
            .ask(&["queue", "retry", &id])
            .contains("0 messages due now, 1 unchanged: held: release them first")
    );
    assert!(daemon.ask(&["queue", "release", &id, "--reason", "checked"]).contains("1 message released"));
    assert!(!daemon.ask(&["queue", "list", &id]).contains("odd attachment"));
    until("it waits again", || daemon.ask(&["queue", "list", &id]).contains("next attempt"));
    assert!(daemon.ask(&["queue", "retry", &id, "--reason", "b.test called"]).contains("1 message due now"));
    until("it waits again", || daemon.ask(&["queue", "list", &id]).contains("next attempt"));
    daemon.ask(&["queue", "bounce", &id, "--reason", "the list is closed"]);
    daemon.ask(&["queue", "delete", &ruled, "--reason", "spam"]);
    let uid = rustix::process::getuid().as_raw();
    for (id, done) in [
        (&id, format!("held {by} (uid {uid}): an odd attachment")),
        (&id, format!("released {by} (uid {uid}): checked")),
        (&id, format!("due now {by} (uid {uid}): b.test called")),
        (&id, format!("returned {by} (uid {uid}): the list is closed")),
        (&ruled, format!("deleted {by} (uid {uid}): spam")),
        (&ruled, "held: may be a fraud".to_owned()),
    ] {
        found(&daemon, &["--id", id], &done);
    }
    let why = daemon.ask(&["why", &id]);
    let order = ["held", "released", "due now", "returned"];
    let order = order.map(|done| why.find(&format!("  {done} {by} (uid")).expect(done));
    assert!(order.is_sorted(), "{why}");
    assert!(!why.contains(": another"), "{why}");
    let text = fs::read_to_string(daemon.dir.path().join("mail.log")).unwrap();
    let line = text.lines().find(|line| line.contains("\"changed\"") && line.contains("odd attachment"));
    let line: serde_json::Value = serde_json::from_str(line.expect("the log has it, too")).unwrap();
    assert_eq!((line["action"].as_str(), line["user"].as_str()), (Some("hold"), Some(user.trim())));
}

#[test]
fn the_queue_and_the_history_take_the_same_patterns_and_keys() {
    let sink = hop();
    let daemon = Postrider::start(&format!("{LOG}{}", sink.route()));
    let one = send(&daemon, "News-12@Lists.test", &["busy@b.test"], "one@a.test");
    let two = send(&daemon, "ann@a.test", &["busy@c.test"], "two@a.test");
    until("both wait", || {
        [&one, &two].iter().all(|id| daemon.ask(&["queue", "list", id]).contains("450 4.2.1"))
    });
    let only_one: [&[&str]; 9] = [
        &["--sender", "news-*@lists.test"],
        &["--sender", "<NEWS-??@*>"],
        &["--sender", "News-12@lists.TEST"],
        &["--recipient", "b*@b.test"],
        &["--recipient", "<busy@B.test>"],
        &["--domain", "@b.test"],
        &["--domain", "?.test", "--sender", "news*"],
        &["--destination", "B.test"],
        &["--client", "127.0.0.0/8", "--domain", "b.*"],
    ];
    found(&daemon, &["--id", &one], "450 4.2.1");
    found(&daemon, &["--id", &two], "450 4.2.1");
    for conditions in only_one {
        for command in [&["queue", "list"][..], &["history", "query"]] {
            let said = daemon.ask(&[command, conditions].concat());
            assert!(said.contains(&one) && !said.contains(&two), "{command:?} {conditions:?}: {said}");
        }
    }
    let nothing: [&[&str]; 4] = [
        &["--sender", "x*@lists.test"],
        &["--client", "192.0.2.0/24"],
        &["--login", "*"],
        &["--domain", "test"],
    ];
    for conditions in nothing {
        let queue = daemon.ask(&[&["queue", "count"], conditions].concat());
        let history = daemon.ask(&[&["history", "query"], conditions].concat());
        assert!(queue.starts_with('0') && history.contains("Nothing was found"), "{conditions:?}");
    }
    for command in [["queue", "list"], ["history", "query"]] {
        let said = daemon.try_ask(&[&command[..], &["--client", "127.0.*"]].concat()).unwrap_err();
        assert!(said.contains("write 192.0.2.7, 192.0.2.0/24"), "{said}");
    }
    let rows = |arguments: &[&str]| daemon.ask(&[&["queue", "summary"], arguments].concat());
    let said = rows(&["--by", "sender"]);
    assert!(said.contains("News-12@Lists.test") && said.contains("ann@a.test"), "{said}");
    let said = rows(&["--by", "sender-domain", "--json"]);
    assert!(said.contains(r#""sender_domain":"a.test""#), "{said}");
    let said = rows(&["--by", "reason"]);
    assert!(
        said.lines().any(|row| row.starts_with("450 4.2.1 mailbox busy") && row.contains(" 2 ")),
        "{said}"
    );
    let said = rows(&["--by", "sender", "--limit", "1"]);
    assert!(said.contains("1 more row with 1 recipient; use --limit"), "{said}");
}

#[test]
fn retry_says_for_how_many_messages_and_why_others_did_not_change() {
    let sink = hop();
    let dead = free_address();
    let routes = format!("[[route]]\ndomains = [\"dead.test\"]\nsmarthost = \"{dead}\"\n{}", sink.route());
    let daemon = Postrider::start(&format!("{LOG}{routes}"));
    let waits = send(&daemon, "ann@a.test", &["busy@b.test"], "1@a.test");
    let held = send(&daemon, "ann@a.test", &["busy@b.test"], "2@a.test");
    daemon.ask(&["queue", "hold", &held]);
    until("it waits", || daemon.ask(&["queue", "list", &waits]).contains("450 4.2.1"));
    let said = daemon.ask(&["queue", "retry", &waits, &held]);
    assert!(said.contains("1 message due now, 1 unchanged: held: release them first"), "{said}");
    let json = daemon.ask(&["queue", "retry", &held, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["unchanged_by_reason"]["held: release them first"], 1);
    let id = send(&daemon, "ann@a.test", &["x@dead.test"], "3@a.test");
    until("the destination is down", || daemon.ask(&["queue", "list", &id]).contains("refused"));
    let said = daemon.ask(&["queue", "retry", &id]);
    assert!(said.contains("1 message due now\n1 message waits for the probe of "), "{said}");
}
