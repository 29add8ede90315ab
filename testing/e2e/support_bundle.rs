//! `postrider support-bundle`: what is in it, what is not, and that the simulator replays its workload.

use crate::common::{BINARY, Postrider, client::Client, sink::Sink, until};
use recording::{Counts, End, Recording};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Replies of the next hop: users of bad.test are unknown, and those of slow.test have to wait.
fn reply(command: &str) -> Option<String> {
    let is_rcpt = command.starts_with("RCPT");
    if is_rcpt && command.contains("bad.test") {
        Some("550 5.1.1 no such user".to_owned())
    } else if is_rcpt && command.contains("slow.test") {
        Some("450 4.2.1 later".to_owned())
    } else {
        None
    }
}

/// A daemon that has delivered 12 messages, returned 3, and has 5 waiting, one of them on hold.
fn daemon(sink: &Sink) -> Postrider {
    let more = format!(
        "[relay]\nnetworks = [\"127.0.0.0/8\"]\n[log]\nfile = \"mail.log\"\n[history]\nenabled = true\n{}",
        sink.route()
    );
    let daemon = Postrider::start(&more);
    let mut client = Client::connect(daemon.address).unwrap();
    for (count, domain) in [(12, "fast.test"), (3, "bad.test"), (5, "slow.test")] {
        for number in 0..count {
            let to = format!("user{number}@{domain}");
            let content =
                format!("Subject: private {number}\r\n\r\n{}", "confidential\r\n".repeat(number * 100));
            assert_eq!(client.send("jane@far.test", &[&to], content.as_bytes()).unwrap().0, 250);
        }
    }
    // A notification for each message that was returned.
    until("all have been tried", || daemon.counter("delivered") == 15 && daemon.counter("bounced") == 3);
    let deferred = || daemon.ask(&["queue", "list", "--json"]).matches("450 4.2.1 later").count() == 5;
    until("the rest waits", deferred);
    let id = daemon.ask(&["queue", "list", "--ids"]).lines().next().unwrap().to_owned();
    daemon.ask(&["queue", "hold", &id]);
    let known =
        || daemon.ask(&["history", "query", "--json", "--limit", "1000"]).matches("\"completed\"").count();
    until("the history has all", || known() >= 18);
    daemon
}

/// Writes a bundle and unpacks it. Returns what the command printed, and the folder.
fn bundle(daemon: &Postrider, options: &[&str]) -> (String, PathBuf) {
    let to = daemon.dir.path().join(format!("bundle{}", options.len()));
    let file = to.with_extension("tar.zst");
    let mut arguments = vec!["support-bundle", "--offline", file.to_str().unwrap()];
    arguments.extend(options);
    let told = daemon.ask(&arguments);
    fs::create_dir(&to).unwrap();
    let decoder = zstd::Decoder::new(fs::File::open(&file).unwrap()).unwrap();
    tar::Archive::new(decoder).unpack(&to).unwrap();
    (told, to)
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap()
}

#[test]
fn a_bundle_has_no_names_and_its_workload_ends_as_the_mail_did() {
    let sink = Sink::with(reply);
    let daemon = daemon(&sink);
    let listed =
        daemon.ask(&["support-bundle", "--offline", "--dry-run", daemon.dir.path().to_str().unwrap()]);
    assert!(listed.contains("workload.jsonl") && listed.contains("Nothing was written"), "{listed}");
    let (told, dir) = bundle(&daemon, &[]);
    assert!(
        told.starts_with("The bundle contains:") && told.contains("Look at it before you send it"),
        "{told}"
    );
    for name in [
        "about.txt",
        "configuration.toml",
        "doctor.txt",
        "status.json",
        "queue.json",
        "metrics.txt",
        "log.txt",
        "workload.jsonl",
    ] {
        let text = read(&dir, name);
        assert!(told.contains(name) && !text.is_empty() && !text.contains("not available"), "{name}: {text}");
        for secret in
            ["jane", "far.test", "fast.test", "slow.test", "bad.test", "mx.test", "private", "confidential"]
        {
            assert!(!text.contains(secret), "{secret} is in {name}: {text}");
        }
    }
    assert!(read(&dir, "configuration.toml").contains("segment_size = \"4MiB\""));
    assert!(read(&dir, "status.json").contains("\"delivered\":15"));
    assert!(read(&dir, "log.txt").contains("450 4.2.1 later"));
    let workload = dir.join("workload.jsonl");
    let recording = Recording::read(fs::read(&workload).unwrap().as_slice()).unwrap();
    let counts = recording.counts();
    assert_eq!(
        (counts.delivered, counts.bounced, counts.queued, counts.deleted),
        (15, 3, 5, 0),
        "{:?}",
        recording.messages
    );
    assert!(counts.deferrals >= 5 && recording.head.destinations == 4, "{counts:?} {:?}", recording.head);
    let notifications = recording.messages.iter().filter(|message| message.is_notification).count();
    let held = recording.messages.iter().filter(|message| message.is_held);
    assert_eq!((notifications, held.count(), recording.head.unknown_recipients), (3, 1, 0));
    replay(&workload, &counts, recording.messages.len());

    let (told, dir) = bundle(&daemon, &["--with-addresses"]);
    assert!(told.contains("because of --with-addresses") && read(&dir, "log.txt").contains("jane@far.test"));
    assert!(!read(&dir, "workload.jsonl").contains("test"), "numbers are enough for the simulator");
    assert!(
        recording.messages.iter().flat_map(|message| &message.recipients).any(|one| one.end == End::Queued)
    );
}

/// Runs the simulator, which a build of the whole workspace makes.
fn replay(workload: &Path, counts: &Counts, messages: usize) {
    let sim = Path::new(BINARY).with_file_name("sim");
    if !sim.is_file() {
        println!("SKIPPED: the simulator is not built (cargo build -p sim)");
        return;
    }
    let output = Command::new(sim).arg("replay").arg(workload).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let Counts { delivered, bounced, deleted, queued, .. } = counts;
    let result =
        format!("result     delivered {delivered}, bounced {bounced}, deleted {deleted}, queued {queued};");
    assert!(
        told.contains(&format!("replayed   {messages} messages, {messages} recipients, 4 destinations")),
        "{told}"
    );
    assert!(told.contains(&result) && told.contains("the same ends as recorded"), "{told}");
}
