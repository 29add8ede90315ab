//! Tests of restarts: holds, times and ids are kept, and a message without open recipients ends.

use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use mail::{
    Content, DeliveryOptions, Enhanced, Envelope, Expansion, ForwardPath, Mailbox, Message, Outcome, QueueId,
    Recipient, ReversePath, UnixMillis,
};
use serde_json::Value;
use spool::{DirSettings, DirSpool, Entry, Layout, LogSettings, LogSpool, Spool};
use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    sync::{Mutex, mpsc},
};
use tempfile::TempDir;

const LOG: &str = "";
const DIRECTORIES: &str = "backend = \"queue-dirs\"\ndirectories = 2\n";
const SLOW_RETRY: &str = "[queue]\nretry_min = \"1h\"\nretry_max = \"1h\"\n";

/// Opens the spool of a daemon that does not run.
fn spool(dir: &Path, backend: &str) -> Box<dyn Spool> {
    let path = dir.join("data/spool");
    let mut spool: Box<dyn Spool> = if backend == LOG {
        let settings = LogSettings { segment_bytes: 4 << 20, min_free_bytes: 0, ..LogSettings::default() };
        Box::new(LogSpool::open(&path, settings).unwrap())
    } else {
        let settings = DirSettings { min_free_bytes: 0, ..DirSettings::default() };
        Box::new(DirSpool::open(&path, Layout { directories: 2, hashed: 0 }, settings).unwrap())
    };
    spool.recover(&mut |_| ()).unwrap();
    spool
}

fn message(id: QueueId, arrived: UnixMillis) -> Message {
    let mut envelope = Envelope::new(ReversePath::parse("a@a.test", false).unwrap());
    envelope.recipients = vec![Recipient::new(ForwardPath::parse("x@b.test", false).unwrap())];
    let content = Content::from_bytes("Subject: x\r\n\r\nx\r\n");
    Message { id, arrived, origin: "test".into(), envelope, content }
}

/// A folder whose spool has one message that was delivered without the word that nothing is left of it.
fn with_a_finished_one(backend: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let spool = spool(dir.path(), backend);
    let id = QueueId(7);
    spool.submit(vec![Entry::Accept(message(id, UnixMillis::now()).into())]).unwrap();
    let delivered = Outcome::delivered(Enhanced(2, 0, 0), "250 ok");
    spool.submit(vec![Entry::Outcome { id, results: vec![(0, delivered)], last: false }]).unwrap();
    spool.close();
    dir
}

fn ids_in_the_spool(dir: &Path) -> Vec<QueueId> {
    let mut found = Vec::new();
    spool::inspect(&dir.join("data/spool"), &mut |one| found.push(one.message.id)).unwrap();
    found
}

#[test]
fn a_recovered_message_whose_recipients_are_all_finished_ends() {
    for backend in [LOG, DIRECTORIES] {
        let dir = with_a_finished_one(backend);
        assert_eq!(ids_in_the_spool(dir.path()), [QueueId(7)]);
        let daemon = Postrider::start_in(dir, free_address(), backend);
        assert_eq!(daemon.ask(&["queue", "count"]), "0\n", "{backend}");
        until("the message has left the spool", || {
            let said = daemon.ask(&["status", "--json"]);
            serde_json::from_str::<Value>(&said).unwrap()["spool"]["messages"] == 0
        });
        let (dir, status) = daemon.stop();
        assert!(status.success() && ids_in_the_spool(dir.path()).is_empty(), "{backend}");
    }
}

#[test]
fn a_queue_run_ends_a_message_whose_recipients_are_all_finished() {
    for (backend, order) in [(LOG, "none"), (DIRECTORIES, "none"), (DIRECTORIES, "priority")] {
        let dir = with_a_finished_one(backend);
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"data\"\n[spool]\nsegment_size = \"4MiB\"\nmin_free = \"0B\"\n{backend}"
        );
        std::fs::write(dir.path().join("postrider.toml"), text).unwrap();
        let output = Command::new(BINARY)
            .args(["queue", "run", "--order", order, "--config", "postrider.toml"])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(ids_in_the_spool(dir.path()).is_empty(), "{backend} {order}");
    }
}

fn show(daemon: &Postrider, id: &str) -> Value {
    serde_json::from_str(&daemon.ask(&["queue", "show", id, "--json"])).unwrap()
}

/// Sends a message; its queue id.
fn send(daemon: &Postrider) -> String {
    let mut client = Client::connect(daemon.address).unwrap();
    let (code, text) = client.send("a@a.test", &["x@b.test"], b"Subject: x\r\n\r\nx\r\n").unwrap();
    assert_eq!(code, 250, "{text}");
    text.trim().rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn ids_go_on_behind_those_in_the_spool_although_the_clock_is_behind_them() {
    for backend in [LOG, DIRECTORIES] {
        let dir = tempfile::tempdir().unwrap();
        let sink = Sink::with(|command| command.starts_with("RCPT").then(|| "450 4.2.1 busy".to_owned()));
        let ahead = UnixMillis(UnixMillis::now().0 + 10 * 365 * 86_400_000);
        let old = mail::IdSource::default().next(ahead.0);
        let before = spool(dir.path(), backend);
        before.submit(vec![Entry::Accept(message(old, UnixMillis::now()).into())]).unwrap();
        before.close();
        drop(before);
        let daemon =
            Postrider::start_in(dir, free_address(), &format!("{backend}{}{SLOW_RETRY}", sink.route()));
        let new: QueueId = send(&daemon).parse().unwrap();
        assert!(new > old, "{new} comes before {old}");
    }
}

fn defers() -> Sink {
    Sink::with(|command| command.starts_with("RCPT").then(|| "450 4.2.1 Mailbox busy".to_owned()))
}

fn until_deferred(daemon: &Postrider, id: &str) {
    until("the attempt is deferred", || show(daemon, id)["recipients"][0]["status"] == "waiting");
}

#[test]
fn a_hold_outlives_a_kill_and_so_does_its_release() {
    for backend in [LOG, DIRECTORIES] {
        let sink = defers();
        let config = format!("{backend}{}{SLOW_RETRY}", sink.route());
        let daemon = Postrider::start(&config);
        let id = send(&daemon);
        until_deferred(&daemon, &id);
        daemon.ask(&["queue", "hold", &id]);
        let (dir, address) = daemon.kill();
        let daemon = Postrider::start_in(dir, address, &config);
        assert_eq!(show(&daemon, &id)["recipients"][0]["status"], "held", "{backend}");
        daemon.ask(&["queue", "release", &id]);
        let (dir, address) = daemon.kill();
        let daemon = Postrider::start_in(dir, address, &config);
        assert_ne!(show(&daemon, &id)["recipients"][0]["status"], "held", "{backend}");
    }
}

#[test]
fn what_is_held_while_it_is_in_flight_is_held_afterwards_and_after_a_kill() {
    let (let_go, reply) = mpsc::channel::<()>();
    let reply = Mutex::new(reply);
    // The reply waits until the channel is closed.
    let sink = Sink::with(move |command| {
        command.starts_with("RCPT").then(|| {
            let _ = reply.lock().unwrap().recv();
            "450 4.2.1 Mailbox busy".to_owned()
        })
    });
    let config = format!("{}{SLOW_RETRY}", sink.route());
    let daemon = Postrider::start(&config);
    let id = send(&daemon);
    until("it is in flight", || show(&daemon, &id)["recipients"][0]["status"] == "in-flight");
    daemon.ask(&["queue", "hold", &id]);
    drop(let_go);
    until("its attempt has ended", || show(&daemon, &id)["recipients"][0]["status"] != "in-flight");
    let recipient = show(&daemon, &id)["recipients"][0].clone();
    assert!(recipient["status"] == "held" && recipient["attempt_count"] == 1, "{recipient}");
    daemon.ask(&["queue", "flush"]);
    assert_eq!(show(&daemon, &id)["recipients"][0]["status"], "held");
    let (dir, address) = daemon.kill();
    let daemon = Postrider::start_in(dir, address, &config);
    assert_eq!(show(&daemon, &id)["recipients"][0]["status"], "held");
}

#[test]
fn arrival_attempts_and_the_next_attempt_are_the_same_after_a_restart() {
    const HOUR_MS: u64 = 3_600_000;
    for backend in [LOG, DIRECTORIES] {
        let sink = defers();
        let config = format!("{backend}{}{SLOW_RETRY}", sink.route());
        let daemon = Postrider::start(&config);
        let before = UnixMillis::now().0;
        let id = send(&daemon);
        until_deferred(&daemon, &id);
        let after = UnixMillis::now().0;
        let check = |daemon: &Postrider| {
            let shown = show(daemon, &id);
            let recipient = &shown["recipients"][0];
            let arrived = shown["arrived_ms"].as_u64().unwrap();
            let tried = recipient["last_ms"].as_u64().unwrap();
            let next = recipient["next_ms"].as_u64().unwrap();
            assert!((before..=after).contains(&arrived), "{backend}: {shown}");
            assert!((arrived..=after + 100).contains(&tried), "{backend}: {shown}");
            // The wait is spread by a part of itself.
            assert!((HOUR_MS / 2..=HOUR_MS * 3 / 2).contains(&(next - tried)), "{backend}: {shown}");
            assert_eq!(recipient["attempt_count"], 1, "{backend}: {shown}");
            (arrived, next)
        };
        let (arrived, _) = check(&daemon);
        let (dir, status) = daemon.stop();
        assert!(status.success());
        let daemon = Postrider::start_in(dir, free_address(), &config);
        assert_eq!(check(&daemon).0, arrived, "{backend}");
    }
}

#[test]
fn mail_of_this_machine_has_the_time_of_its_arrival() {
    let sink = defers();
    let daemon = Postrider::start(&format!("{}{SLOW_RETRY}", sink.route()));
    let before = UnixMillis::now().0;
    let mut sendmail = Command::new(BINARY)
        .args(["sendmail", "-f", "a@a.test", "x@b.test"])
        .env("POSTRIDER_CONFIG", daemon.config())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    sendmail.stdin.take().unwrap().write_all(b"Subject: x\n\nx\n").unwrap();
    assert!(sendmail.wait().unwrap().success());
    let arrived =
        show(&daemon, daemon.ask(&["queue", "list", "--ids"]).trim())["arrived_ms"].as_u64().unwrap();
    assert!((before..=UnixMillis::now().0).contains(&arrived), "{arrived}");
}

#[test]
fn the_next_attempt_of_an_old_message_is_counted_from_its_last_one() {
    // The wait is as long as the message was old then: a start that counted from itself, or from the arrival, or
    // that took the message for a new one, would show it.
    const MINUTE_MS: u64 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let now = UnixMillis::now().0;
    let arrived = UnixMillis(now - 150 * MINUTE_MS);
    let before = spool(dir.path(), LOG);
    let id = QueueId(9);
    let recipients = vec![spool::RecipientState {
        settled: false,
        attempt_count: 3,
        last: Some((UnixMillis(now - 30 * MINUTE_MS), Outcome::deferred(Enhanced(4, 2, 1), "busy"))),
    }];
    let message = message(id, arrived).into();
    let found = spool::Recovered { message, recipients, held: None };
    before.submit(vec![Entry::Import(Box::new(found))]).unwrap();
    before.close();
    drop(before);
    let sink = defers();
    let retry = "[queue]\nretry_min = \"1h\"\nretry_max = \"8h\"\n";
    let daemon = Postrider::start_in(dir, free_address(), &format!("{}{retry}", sink.route()));
    let shown = show(&daemon, &id.to_string());
    let recipient = &shown["recipients"][0];
    assert_eq!(
        (&shown["arrived_ms"], &recipient["attempt_count"]),
        (&arrived.0.into(), &3.into()),
        "{shown}"
    );
    assert_eq!(recipient["last_ms"], now - 30 * MINUTE_MS, "{shown}");
    let wait_ms = recipient["next_ms"].as_u64().unwrap() - (now - 30 * MINUTE_MS);
    assert!((96 * MINUTE_MS..=144 * MINUTE_MS).contains(&wait_ms), "{wait_ms}: {shown}");
}

#[test]
fn a_spool_in_memory_is_named_at_the_start() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("SKIPPED: a spool on tmpfs: there is no /dev/shm");
        return;
    };
    for backend in [LOG, DIRECTORIES] {
        let text = format!(
            "hostname = \"mx.test\"\ndata_dir = \"data{}\"\n[[listen]]\naddress = \"{}\"\n[spool]\n\
             segment_size = \"4MiB\"\nmin_free = \"0B\"\n{backend}",
            backend.len(),
            free_address()
        );
        std::fs::write(dir.path().join("postrider.toml"), text).unwrap();
        let mut daemon = Command::new(BINARY)
            .args(["serve", "--config", "postrider.toml"])
            .current_dir(dir.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(daemon.stderr.take().unwrap()).lines().map_while(Result::ok);
        let before: Vec<String> = lines.take_while(|line| !line.contains("listening on")).collect();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        let warned =
            before.iter().filter(|line| line.contains("WARN") && line.contains("is on tmpfs")).count();
        assert_eq!(warned, 1, "{backend}: {before:#?}");
    }
}

fn counters(daemon: &Postrider) -> [u64; 5] {
    let status: Value = serde_json::from_str(&daemon.ask(&["status", "--json"])).unwrap();
    assert_eq!(status["consistent"], true, "{status}");
    ["accepted", "delivered", "bounced", "deleted", "queued"].map(|name| status[name].as_u64().unwrap())
}

#[test]
fn the_counters_continue_after_a_kill() {
    for backend in [LOG, DIRECTORIES] {
        let sink = Sink::with(|command| command.contains("<x@").then(|| "450 4.2.1 Mailbox busy".to_owned()));
        let config = format!("{backend}{}{SLOW_RETRY}", sink.route());
        let daemon = Postrider::start(&config);
        let mut client = Client::connect(daemon.address).unwrap();
        let content = b"Subject: x\r\n\r\nx\r\n";
        assert_eq!(client.send("a@a.test", &["y@b.test"], content).unwrap().0, 250);
        let (waiting, deleted) = (send(&daemon), send(&daemon));
        until_deferred(&daemon, &waiting);
        until_deferred(&daemon, &deleted);
        until("one is delivered", || counters(&daemon) == [3, 1, 0, 0, 2]);
        // The answer to the deletion waits for the commit of everything before it.
        daemon.ask(&["queue", "delete", &deleted]);
        let expected = [3, 1, 0, 1, 1];
        assert_eq!(counters(&daemon), expected);
        let (dir, address) = daemon.kill();
        let daemon = Postrider::start_in(dir, address, &config);
        assert_eq!(counters(&daemon), expected, "{backend}");
        daemon.ask(&["queue", "delete", &waiting]);
        let (dir, _) = daemon.stop();
        let report = spool::inspect(&dir.path().join("data/spool"), &mut |_| {}).unwrap();
        let totals = spool::Totals { accepted: 3, delivered: 1, deleted: 2, ..spool::Totals::default() };
        assert_eq!((report.totals, report.imbalances), (totals, vec![]), "{backend}");
    }
}

#[test]
fn options_and_expansions_are_shown_after_each_restart() {
    for backend in [LOG, DIRECTORIES] {
        let dir = tempfile::tempdir().unwrap();
        let before = spool(dir.path(), backend);
        let id = QueueId(9);
        let mut message = message(id, UnixMillis::now());
        let login = Some("alice".into());
        message.envelope.options = DeliveryOptions { login, ..DeliveryOptions::default() }.boxed();
        let mailbox = |text| Mailbox::parse(text, false).unwrap();
        let (original, through) = (mailbox("list@b.test"), vec![mailbox("all@b.test")]);
        message.envelope.recipients[0].options.get_or_insert_default().expansion =
            Some(Expansion { original, through });
        before.submit(vec![Entry::Accept(message.into())]).unwrap();
        before.close();
        drop(before);
        let sink = defers();
        let config = format!("{backend}{}{SLOW_RETRY}", sink.route());
        let mut daemon = Postrider::start_in(dir, free_address(), &config);
        for _ in 0..2 {
            let shown = show(&daemon, &id.to_string());
            assert_eq!(shown["options"], serde_json::json!({ "login": "alice" }), "{shown}");
            let from = serde_json::json!(["list@b.test", "all@b.test"]);
            assert_eq!(shown["recipients"][0]["expanded_from"], from, "{shown}");
            let text = daemon.ask(&["queue", "show", &id.to_string()]);
            let lines = ["options:  login alice\n", "expanded from <list@b.test> through <all@b.test>\n"];
            assert!(lines.iter().all(|line| text.contains(line)), "{text}");
            until_deferred(&daemon, &id.to_string());
            let (dir, address) = daemon.kill();
            daemon = Postrider::start_in(dir, address, &config);
        }
    }
}

#[test]
fn a_destination_is_down_since_its_first_failure_also_after_a_stop_or_a_kill_but_not_after_a_long_time() {
    let address = free_address();
    let config =
        format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{address}\"\ntls = \"off\"\n{SLOW_RETRY}");
    let mut daemon = Postrider::start(&config);
    daemon.send("x@b.test");
    let down_since = |daemon: &Postrider| {
        let mut since = None;
        until("the destination is down", || {
            let id = daemon.ask(&["queue", "list", "--ids"]);
            let why: Value = serde_json::from_str(&daemon.ask(&["why", id.trim(), "--json"])).unwrap();
            since =
                why["recipients"][0]["down_since"].as_str().map(|at| at.parse::<jiff::Timestamp>().unwrap());
            since.is_some()
        });
        since.unwrap().as_millisecond()
    };
    let file = daemon.dir.path().join("data/unreachable.json");
    let first = down_since(&daemon);
    let has = |text: &str| std::fs::read_to_string(&file).is_ok_and(|now| now.contains(text));
    for is_killed in [true, false] {
        until("the file has it", || has("since_ms"));
        let address = daemon.address;
        let dir = if is_killed { daemon.kill().0 } else { daemon.stop().0 };
        // The first failure of this start comes later than the time that is told.
        let started = UnixMillis::now().0 as i64;
        daemon = Postrider::start_in(dir, address, &config);
        let again = down_since(&daemon);
        assert!((first - again).abs() <= 100 && again < started, "killed: {is_killed}: {first} {again}");
    }
    let long_ago = UnixMillis::now().0 as i64 - 20 * 86_400_000;
    let make_old = || {
        let mut outages: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for outage in outages.as_object_mut().unwrap().values_mut() {
            outage["since_ms"] = long_ago.into();
            outage["failed_ms"] = UnixMillis::now().0.into();
        }
        std::fs::write(&file, outages.to_string()).unwrap();
        outages
    };
    // Held mail is not tried: its destination is as it was.
    let id = daemon.ask(&["queue", "list", "--ids"]);
    daemon.ask(&["queue", "hold", id.trim()]);
    let (dir, address) = daemon.kill();
    make_old();
    let daemon = Postrider::start_in(dir, address, &config);
    daemon.ask(&["queue", "release", id.trim()]);
    assert_eq!(down_since(&daemon), long_ago);
    let (dir, address) = daemon.kill();
    let mut outages = make_old();
    for outage in outages.as_object_mut().unwrap().values_mut() {
        outage["failed_ms"] = (long_ago + 1000).into();
    }
    std::fs::write(&file, outages.to_string()).unwrap();
    let daemon = Postrider::start_in(dir, address, &config);
    assert!(down_since(&daemon) > first, "weeks later nobody knows");
}
