//! `postrider spool` on spools that real daemons left behind.

use crate::common::{Postrider, SetAtEnd, client::Client, free_address, sink::Sink, until};
use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

/// Nothing listens there: all mail stays.
fn nowhere() -> String {
    format!("[[route]]\ndomains = [\"else.test\"]\nsmarthost = \"{}\"\ntls = \"off\"\n", free_address())
}

fn command(dir: &Path, arguments: &[&str]) -> Output {
    let config = dir.join("postrider.toml");
    Command::new(crate::common::BINARY).args(arguments).env("POSTRIDER_CONFIG", config).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn first_segment(dir: &Path) -> PathBuf {
    let entries = fs::read_dir(dir.join("data/spool")).unwrap().map(|e| e.unwrap().path());
    let mut segments: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "seg")).collect();
    segments.sort();
    segments.into_iter().find(|p| find(p, "Subject: m1").is_some()).unwrap()
}

/// The file with this text in a tree, and where in it.
fn find_below(folder: &Path, needle: &str) -> Option<(PathBuf, u64)> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).find_map(|path| match path.is_dir() {
        true => find_below(&path, needle),
        false => find(&path, needle).map(|at| (path, at)),
    })
}

fn find(path: &Path, needle: &str) -> Option<u64> {
    let bytes = fs::read(path).unwrap();
    bytes.windows(needle.len()).position(|w| w == needle.as_bytes()).map(|at| at as u64)
}

#[test]
fn a_sound_spool_is_checked_and_dumped_while_the_daemon_runs() {
    let daemon = Postrider::start(&nowhere());
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("a@else.test", &["x@else.test", "y@else.test"], b"Subject: m1\r\n\r\nhi\r\n").unwrap();
    until("it was tried", || daemon.counter("queued") == 2);
    let check: serde_json::Value = serde_json::from_str(&daemon.ask(&["spool", "check", "--json"])).unwrap();
    assert_eq!((&check["is_sound"], &check["live"]["messages"]), (&true.into(), &1.into()));
    let dump = daemon.ask(&["spool", "dump", "--content"]);
    assert!(dump.contains(" from <a@else.test> ") && dump.contains(" to <x@else.test> to <y@else.test>"));
    assert!(dump.contains("    | Subject: m1\n"), "{dump}");
}

#[test]
fn what_a_damaged_segment_still_proves_is_brought_out_and_can_be_sent_again() {
    let daemon = Postrider::start(&nowhere());
    let mut client = Client::connect(daemon.address).unwrap();
    for n in 1..=3 {
        let content = format!("Subject: m{n}\r\n\r\nhi\r\n");
        assert_eq!(client.send("a@else.test", &["x@mx.test"], content.as_bytes()).unwrap().0, 250);
        until("it is in the Maildir", || daemon.mailbox("x").len() == n);
    }
    client.send("a@else.test", &["x@else.test"], b"Subject: m4\r\n\r\nhi\r\n").unwrap();
    client.send("a@else.test", &["x@else.test"], b"Subject: m5\r\n\r\nhi\r\n").unwrap();
    let (dir, address) = daemon.kill();

    // The header of the batch with the fourth message: its record stands alone, and still stands.
    let segment = first_segment(dir.path());
    let at = find(&segment, "Subject: m4").unwrap() / 4096 * 4096;
    OpenOptions::new().write(true).open(&segment).unwrap().write_all_at(b"????", at).unwrap();

    let check = command(dir.path(), &["spool", "check"]);
    assert_eq!(check.status.code(), Some(65), "{}", text(&check));
    assert!(text(&check).contains("damaged: ") && text(&check).contains("not sound"), "{}", text(&check));
    let salvage = command(dir.path(), &["spool", "salvage"]);
    assert!(salvage.status.success(), "{salvage:?}");
    let quarantine = dir.path().join("data/quarantine");
    let mut files: Vec<_> = fs::read_dir(&quarantine).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "mail"));
    assert_eq!(files.len(), 1, "{}", text(&salvage));
    assert!(fs::read_to_string(&files[0]).unwrap().contains("Subject: m4\r\n"));
    assert!(fs::read_to_string(quarantine.join("report.txt")).unwrap().contains("damaged: "));

    let name = files[0].file_name().unwrap();
    fs::rename(&files[0], dir.path().join("data/drop").join(name)).unwrap();
    let daemon = Postrider::start_in(dir, address, &nowhere());
    until("it is there again, beside the fifth", || daemon.counter("queued") == 2);
}

#[test]
fn a_spool_that_is_not_there_is_no_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("postrider.toml"), "hostname = \"host.test\"\ndata_dir = \"data\"\n").unwrap();
    let missing = dir.path().join("data/typo");
    for verb in ["check", "dump", "salvage"] {
        let output = command(dir.path(), &["spool", verb, "--path", missing.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(66), "{verb}: {output:?}");
        assert!(!missing.exists(), "{verb}");
    }
}

#[test]
fn one_damaged_message_does_not_hide_the_others_in_a_log() {
    beside_a_damaged_one("");
}

#[test]
fn one_damaged_message_does_not_hide_the_others_in_queue_directories() {
    beside_a_damaged_one("backend = \"queue-dirs\"\n");
}

fn beside_a_damaged_one(engine: &str) {
    let more = format!("{engine}{}", nowhere());
    let daemon = Postrider::start(&more);
    let mut client = Client::connect(daemon.address).unwrap();
    for n in 1..=3 {
        let content = format!("Subject: m{n}\r\n\r\nhi\r\n");
        client.send("a@else.test", &["x@else.test"], content.as_bytes()).unwrap();
    }
    let address = daemon.address;
    // What was started with is not in memory.
    let daemon = Postrider::start_in(daemon.stop().0, address, &more);
    let ids = daemon.ask(&["queue", "list", "--ids"]);
    let second = ids.lines().nth(1).unwrap();
    let (file, at) = find_below(&daemon.dir.path().join("data/spool"), "Subject: m2").unwrap();
    OpenOptions::new().write(true).open(&file).unwrap().write_all_at(b"?", at).unwrap();

    let list = command(daemon.dir.path(), &["mailq"]);
    assert_eq!(list.status.code(), Some(65), "{list:?}");
    assert!(ids.lines().all(|id| text(&list).contains(id)), "{}", text(&list));
    assert!(text(&list).contains("(its record is damaged: "), "{}", text(&list));
    assert!(text(&list).ends_with(" in 3 Requests.\n"), "{}", text(&list));
    let complaint = String::from_utf8(list.stderr).unwrap();
    assert!(complaint.starts_with(&format!("postrider: {second}: its record is damaged")), "{complaint}");
    assert_eq!(complaint.lines().count(), 1);

    let said = daemon.try_ask(&["queue", "bounce", second]).unwrap_err();
    assert!(said.contains("cannot be bounced, its record is damaged"), "{said}");
    assert_eq!(daemon.ask(&["queue", "hold", second]), "1 message held\n");
    assert_eq!(daemon.ask(&["queue", "release", second]), "1 message released\n");
    assert_eq!(daemon.ask(&["queue", "delete", "all"]), "3 messages deleted\n");
    until("all are gone", || daemon.counter("queued") == 0);
    assert_eq!(daemon.counter("deleted"), 3);
    assert_eq!(daemon.ask(&["mailq"]), "Mail queue is empty\n");
}

#[test]
fn another_spool_can_be_named_and_one_that_is_not_there_is_said() {
    let daemon = Postrider::start("");
    let said = daemon.try_ask(&["spool", "check", "--path", "/nowhere/spool"]).unwrap_err();
    assert!(said.contains("/nowhere/spool: no such folder"), "{said}");
    let said = daemon.try_ask(&["spool", "dump", "0abqxsh585000"]).unwrap_err();
    assert!(said.contains("no record of it"), "{said}");
}

#[test]
fn what_root_does_to_a_spool_is_done_as_its_owner() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can change its user");
        return;
    }
    let daemon = Postrider::start(&nowhere());
    let mut client = Client::connect(daemon.address).unwrap();
    client.send("a@else.test", &["x@else.test"], b"Subject: m1\r\n\r\nhi\r\n").unwrap();
    let (dir, status) = daemon.stop();
    assert!(status.success());
    let (uid, gid) = (65_534, 65_533);
    own(dir.path(), uid, gid);

    let run = command(dir.path(), &["queue", "run"]);
    assert!(run.status.success(), "{run:?}");
    let into = dir.path().join("data/new");
    let moved =
        command(dir.path(), &["spool", "convert", "--to", "queue-dirs", "--into", into.to_str().unwrap()]);
    assert!(moved.status.success() && text(&moved).starts_with("1 message"), "{moved:?}");
    let mut files = vec![dir.path().to_owned()];
    while let Some(file) = files.pop() {
        let owner = fs::symlink_metadata(&file).unwrap();
        assert_eq!((owner.uid(), owner.gid()), (uid, gid), "{}", file.display());
        if owner.is_dir() {
            files.extend(fs::read_dir(file).unwrap().map(|e| e.unwrap().path()));
        }
    }
}

/// Gives a tree away.
fn own(path: &Path, uid: u32, gid: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|e| own(&e.unwrap().path(), uid, gid));
    }
}

#[test]
fn a_spool_that_a_daemon_is_writing_is_sound_and_nothing_is_salvaged() {
    for backend in ["log", "queue-dirs"] {
        let sink = Sink::start();
        let daemon = Postrider::start(&format!("backend = \"{backend}\"\n{}", sink.route()));
        let (is_done, sent) = (AtomicBool::new(false), AtomicUsize::new(0));
        let send_until_done = || {
            let mut client = Client::connect(daemon.address).unwrap();
            let content = format!("Subject: m\r\n\r\n{}", "0123456789\r\n".repeat(300));
            while !is_done.load(Ordering::Relaxed) {
                client.send("a@far.test", &["x@else.test"], content.as_bytes()).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            let _done_at_end = SetAtEnd(&is_done);
            (0..6).for_each(|_| drop(scope.spawn(send_until_done)));
            for count in 1..=10 {
                until("more is written", || sent.load(Ordering::Relaxed) >= 50 * count);
                let check = command(daemon.dir.path(), &["spool", "check"]);
                assert!(check.status.success(), "{backend}: {}", text(&check));
                if backend == "log" {
                    let salvage = text(&command(daemon.dir.path(), &["spool", "salvage"]));
                    assert!(salvage.contains("; 0 messages written to files;"), "{salvage}");
                }
            }
        });
    }
}

#[test]
fn messages_move_to_another_backend_and_back_with_their_past() {
    let nowhere = nowhere();
    let daemon = Postrider::start(&nowhere);
    let mut client = Client::connect(daemon.address).unwrap();
    let large = format!("Subject: large\r\n\r\n{}", "0123456789\r\n".repeat(60_000));
    for content in ["Subject: m1\r\n\r\nhi\r\n", &large] {
        assert_eq!(
            client.send("a@else.test", &["x@else.test", "y@mx.test"], content.as_bytes()).unwrap().0,
            250
        );
    }
    until("all were tried", || daemon.mailbox("y").len() == 2 && daemon.counter("queued") == 2);
    let ids = daemon.ask(&["queue", "list", "--ids"]);
    daemon.ask(&["queue", "hold", ids.lines().next().unwrap()]);
    let refused = daemon.try_ask(&["spool", "convert", "--to", "queue-dirs", "--into", "/nowhere/x"]);
    assert!(refused.unwrap_err().contains("the daemon is running, and has the spool"));
    let (dir, status) = daemon.stop();
    assert!(status.success());

    let list = |dir: &Path| {
        let output = command(dir, &["queue", "list", "--json"]);
        assert!(output.status.success(), "{output:?}");
        let text = text(&output);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<serde_json::Value>>()
    };
    let before = list(dir.path());
    assert_eq!(before.len(), 2);
    let config = fs::read_to_string(dir.path().join("postrider.toml")).unwrap();
    let with = |keys: &str| config.replace("[spool]\n", &format!("[spool]\n{keys}"));
    let from_directories = "backend = \"queue-dirs\"\npath = \"as-queue-dirs\"\n";
    for (to, from) in [("queue-dirs", ""), ("log", from_directories)] {
        fs::write(dir.path().join("postrider.toml"), with(from)).unwrap();
        let into = dir.path().join(format!("as-{to}"));
        let moved = command(dir.path(), &["spool", "convert", "--to", to, "--into", into.to_str().unwrap()]);
        assert!(moved.status.success(), "{moved:?}");
        assert!(text(&moved).starts_with("2 messages, "), "{}", text(&moved));
        let check = command(dir.path(), &["spool", "check", "--path", into.to_str().unwrap()]);
        assert!(check.status.success(), "{}", text(&check));
        let totals = "\n  totals         accepted 4 delivered 2 bounced 0 expired 0 deleted 0 moved 0\n";
        assert!(text(&check).contains(totals), "{}", text(&check));
    }
    fs::write(dir.path().join("postrider.toml"), with("path = \"as-log\"\n")).unwrap();
    assert_eq!(list(dir.path()), before);
    let dump = text(&command(dir.path(), &["spool", "dump", "--content"]));
    // Chunks end in the middle of lines, and the header is in the record behind them.
    let is_body = |line: &&str| line.bytes().all(|b| b.is_ascii_digit());
    let content: String =
        dump.lines().filter_map(|line| line.strip_prefix("    | ")).filter(is_body).collect();
    assert_eq!(content.matches("0123456789").count(), 60_000);
}
