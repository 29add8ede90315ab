//! `spool.durability`, `spool.content_path`, and what `postrider status` says of commits and connections.

use crate::common::{BINARY, Postrider, client::Client, free_address, sink::Sink, until};
use std::{fs, path::Path, process::Command};

fn send(daemon: &Postrider, count: usize) {
    let mut client = Client::connect(daemon.address).unwrap();
    for n in 0..count {
        let content = format!("Subject: m{n}\r\n\r\nhi\r\n");
        assert_eq!(client.send("a@news.test", &["x@else.test"], content.as_bytes()).unwrap().0, 250);
    }
}

fn unreachable_hop() -> String {
    format!("[[route]]\ndomains = [\"*\"]\nsmarthost = \"{}\"\ntls = \"off\"\n", free_address())
}

fn status(daemon: &Postrider) -> serde_json::Value {
    serde_json::from_str(&daemon.ask(&["status", "--json"])).unwrap()
}

#[test]
fn mail_that_may_be_lost_is_announced_and_an_orderly_stop_loses_nothing() {
    // The keys of [spool] come first.
    let more = format!("durability = \"none\"\n{}", unreachable_hop());
    let daemon = Postrider::start(&more);
    send(&daemon, 20);
    assert!(daemon.ask(&["status"]).contains("\nDURABILITY IS NONE"), "{}", daemon.ask(&["status"]));
    assert_eq!(status(&daemon)["spool"]["durability"], "none");
    let (dir, exit) = daemon.stop();
    assert!(exit.success());
    let daemon = Postrider::start_in(dir, free_address(), &unreachable_hop());
    assert_eq!(daemon.counter("queued"), 20);
    assert!(!daemon.ask(&["status"]).contains("DURABILITY"), "the default is not mentioned");
}

#[test]
fn a_durability_that_does_not_exist_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("postrider.toml");
    for (value, is_good) in [
        ("durable", true),
        ("after-checks", true),
        ("deliver-first", true),
        ("on-defer", false),
        ("no", false),
    ] {
        let text = format!(
            "hostname = \"a.test\"\ndata_dir = \"{}\"\n[[listen]]\naddress = \"127.0.0.1:2525\"\n[spool]\ndurability = \"{value}\"\n",
            dir.path().display()
        );
        fs::write(&path, text).unwrap();
        let output =
            Command::new(BINARY).args(["config", "check"]).env("POSTRIDER_CONFIG", &path).output().unwrap();
        let told =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), is_good, "{value}: {told}");
        assert!(
            is_good || told.contains("\"durable\", \"after-checks\", \"deliver-first\" and \"none\""),
            "{told}"
        );
    }
}

#[test]
fn status_has_the_waits_of_commits_and_the_connections_of_both_sides() {
    let sink = Sink::start();
    let daemon = Postrider::start(&sink.route());
    send(&daemon, 30);
    until("all is delivered", || sink.count() == 30);
    let spool = &status(&daemon)["spool"];
    assert_eq!(spool["added_wait_count"], 30, "{spool}");
    assert!(
        spool["commit_messages_max"].as_u64() >= Some(1)
            && spool["transactions_per_commit"].as_f64() >= Some(1.0)
    );
    assert!(spool["added_wait_p50_us"].as_u64() <= spool["added_wait_p99_us"].as_u64());
    assert_eq!(spool["client_connections"], spool["queue_connections"], "{spool}");
    assert_eq!(spool["connection_drift"], 0);
    assert!(daemon.ask(&["status"]).contains("group commit delay: p50"));
}

#[test]
fn the_phases_of_a_queue_run_are_in_the_status_of_the_next_daemon() {
    let daemon = Postrider::start(&unreachable_hop());
    assert!(status(&daemon)["queue_run"].is_null());
    send(&daemon, 5);
    let (dir, _) = daemon.stop();
    let run = Command::new(BINARY)
        .args(["queue", "run"])
        .env("POSTRIDER_CONFIG", dir.path().join("postrider.toml"))
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    let daemon = Postrider::start_in(dir, free_address(), &unreachable_hop());
    let run = &status(&daemon)["queue_run"];
    assert_eq!(run["messages"], 5, "{run}");
    let figure = |key: &str| run[key].as_u64().unwrap();
    let (read, sort, sum) = (figure("queue_read_us"), figure("queue_sort_us"), figure("sum_us"));
    assert!(read > 0 && sum >= read + sort && sum - read - sort <= 1, "{run}");
    assert!(daemon.ask(&["status"]).contains("queue run"));
}

fn with_content(dir: &Path) -> String {
    let content = dir.join("content").display().to_string();
    format!("backend = \"queue-dirs\"\ndirectories = 2\ncontent_path = \"{content}\"\n{}", unreachable_hop())
}

#[test]
fn content_on_another_path_survives_a_kill_and_is_found_by_spool_check() {
    let dir = tempfile::tempdir().unwrap();
    let more = with_content(dir.path());
    let daemon = Postrider::start_in(dir, free_address(), &more);
    send(&daemon, 20);
    let (dir, _) = daemon.kill();
    let kind = |queue: &str, kind: &str| {
        let files = fs::read_dir(dir.path().join(queue)).into_iter().flatten();
        files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|e| e == kind)).count()
    };
    assert_eq!(kind("content/q00", "msg") + kind("content/q01", "msg"), 20);
    let check = Command::new(BINARY)
        .args(["spool", "check", "--json"])
        .env("POSTRIDER_CONFIG", dir.path().join("postrider.toml"))
        .output()
        .unwrap();
    let checked: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(checked["live"]["messages"], 20, "{checked}");
    let daemon = Postrider::start_in(dir, free_address(), &more);
    assert_eq!(daemon.counter("queued"), 20);
    let ids = daemon.ask(&["queue", "list", "--ids"]);
    let shown = daemon.ask(&["queue", "show", ids.lines().next().unwrap()]);
    assert!(shown.contains("Subject: m"), "{shown}");
}
