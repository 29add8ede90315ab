//! The daemon ends by itself when its spool fails, whatever meets the failure.

use crate::common::{Postrider, client::Client, faults::Faults, free_address, sink::Sink, until};
use std::{
    fs, io,
    time::{Duration, Instant},
};

/// The daemon ends within a second of the failure; the rest is for a machine that is busy. Less than [`GRACE`].
const ENDS_WITHIN: Duration = Duration::from_secs(50);
/// EX_IOERR of sysexits.h.
const IO_ERROR: i32 = 74;
/// `inbound.shutdown_timeout`, which must not be waited for.
const GRACE: &str = "[inbound]\nshutdown_timeout = \"60s\"\n";
const LOG: &str = "[log]\nfile = \"mail.log\"\n";

struct Story {
    daemon: Postrider,
    faults: Faults,
    _sink: Sink,
    /// Of a client in the middle of a message.
    _client: Client,
}

/// A daemon with one message that the next hop has deferred, and a client in the middle of another.
fn begin(reply: &'static str, spool: &str) -> Option<Story> {
    let faults = Faults::new()?;
    let sink = Sink::with(move |command| {
        let command = command.strip_prefix("RCPT TO:<")?;
        if command.starts_with("x@") { Some(reply.to_owned()) } else { None }
    });
    let config =
        format!("{spool}{GRACE}{LOG}[queue]\nretry_min = \"1h\"\nretry_max = \"1h\"\n{}", sink.route());
    let config = config + &faults.permitted();
    let dir = tempfile::tempdir().unwrap();
    let daemon = Postrider::start_with(dir, free_address(), &config, &faults.environment());
    let mut client = Client::connect(daemon.address).unwrap();
    for line in ["MAIL FROM:<b@a.test>", "RCPT TO:<y@b.test>", "DATA"] {
        client.say(line).unwrap();
    }
    Some(Story { daemon, faults, _sink: sink, _client: client })
}

impl Story {
    /// The first reply that is none of acceptance, or the last.
    fn send(&self) -> u16 {
        self.try_send("Subject: x\r\n\r\nx\r\n").unwrap()
    }

    /// As `send`, to a daemon that may end at any time.
    fn try_send(&self, content: &str) -> io::Result<u16> {
        let mut client = Client::connect(self.daemon.address)?;
        for line in ["MAIL FROM:<a@a.test>", "RCPT TO:<x@b.test>", "DATA"] {
            let code = client.say(line)?.0;
            if !matches!(code, 250 | 354) {
                return Ok(code);
            }
        }
        Ok(client.say(&format!("{content}."))?.0)
    }

    fn until_deferred(&self) {
        until("the first attempt is deferred", || {
            self.daemon.log().iter().any(|line| line["status"] == "deferred")
        });
    }

    /// Waits for the daemon to end by itself, with exit code 74.
    fn ends(mut self) {
        let begun = Instant::now();
        let mut status = None;
        until("the daemon ends", || {
            status = self.daemon.ended();
            status.is_some()
        });
        assert_eq!(status.unwrap().code(), Some(IO_ERROR));
        assert!(begun.elapsed() < ENDS_WITHIN, "it took {:?}", begun.elapsed());
    }
}

const DEFERS: &str = "450 4.2.1 Mailbox busy";

fn a_failing_outcome_ends_it(call: &str, spool: &str) {
    let Some(story) = begin(DEFERS, spool) else { return };
    assert_eq!(story.send(), 250);
    story.until_deferred();
    story.faults.order(call, "5", "*");
    // The command may meet the end of the daemon.
    let _ = story.daemon.try_ask(&["queue", "flush"]);
    story.ends();
}

#[test]
fn a_failed_sync_that_only_an_outcome_meets_ends_the_daemon() {
    a_failing_outcome_ends_it("fdatasync", "");
}

#[test]
fn a_failed_write_that_only_an_outcome_meets_ends_the_daemon() {
    a_failing_outcome_ends_it("pwrite", "");
}

#[test]
fn a_failed_sync_of_an_outcome_in_queue_directories_ends_the_daemon() {
    a_failing_outcome_ends_it("fdatasync", "backend = \"queue-dirs\"\n");
}

#[test]
fn a_failed_sync_that_only_a_report_meets_ends_the_daemon() {
    let Some(story) = begin(DEFERS, "") else { return };
    assert_eq!(story.send(), 250);
    story.until_deferred();
    story.faults.order("fdatasync", "5", "*");
    // The command may meet the end of the daemon.
    let _ = story.daemon.try_ask(&["queue", "bounce", "--sender", "a@a.test"]);
    story.ends();
}

#[test]
fn a_deletion_that_is_not_stored_is_not_reported_as_done() {
    let Some(story) = begin(DEFERS, "") else { return };
    assert_eq!(story.send(), 250);
    story.until_deferred();
    story.faults.order("fdatasync", "5", "*");
    let said = story.daemon.try_ask(&["queue", "delete", "--sender", "a@a.test"]);
    assert!(said.is_err(), "{said:?}");
    story.ends();
}

#[test]
fn a_failed_sync_while_it_stops_is_an_exit_status_of_74() {
    let Some(story) = begin(DEFERS, "") else { return };
    assert_eq!(story.send(), 250);
    story.until_deferred();
    story.faults.order("fdatasync", "5", "*");
    let _ = story.daemon.try_ask(&["queue", "flush"]);
    story.daemon.signal(rustix::process::Signal::TERM);
    story.ends();
}

#[test]
fn a_panic_of_the_commit_thread_ends_the_daemon() {
    let Some(story) = begin(DEFERS, "") else { return };
    story.faults.order("pwrite", "more", "spool-commit");
    // The reply may meet the end of the daemon.
    let reply = story.try_send("Subject: x\r\n\r\nx\r\n").map_err(drop);
    assert!(reply.is_err() || reply.is_ok_and(|code| code / 100 == 4), "{reply:?}");
    story.ends();
}

#[test]
fn a_panic_of_the_thread_that_prepares_segments_ends_the_daemon() {
    let Some(story) = begin(DEFERS, "") else { return };
    story.faults.order("pwrite", "more", "spool-prepare");
    // Segments of 4 MiB are used up until another is prepared.
    let content = format!("Subject: x\r\n\r\n{}", format!("{}\r\n", "x".repeat(70)).repeat(20_000));
    for _ in 0..50 {
        if !matches!(story.try_send(&content), Ok(250)) {
            break;
        }
    }
    story.ends();
}

/// A file system that takes new blocks for what is written in place may have no room for a commit.
#[test]
fn a_commit_that_finds_no_room_is_answered_452_and_tried_again_until_it_does() {
    const NO_SPACE: &str = "28";
    for (spool, call) in [
        ("", "pwrite"),
        ("", "fdatasync"),
        ("backend = \"queue-dirs\"\n", "pwrite"),
        ("backend = \"queue-dirs\"\n", "fdatasync"),
    ] {
        let Some(mut story) = begin(DEFERS, spool) else { return };
        assert_eq!(story.send(), 250);
        story.until_deferred();
        story.faults.order(call, NO_SPACE, "spool-commit");
        let begun = Instant::now();
        assert_eq!(story.send(), 452, "{spool}{call}: the message that is in the commit");
        assert!(begun.elapsed() < Duration::from_secs(30), "{spool}{call}: it waited {:?}", begun.elapsed());
        assert_eq!(story.send(), 452, "{spool}{call}: the next one");
        assert!(story.daemon.ended().is_none(), "{spool}{call}");
        story.faults.withdraw(call);
        until("mail is taken again", || story.send() == 250);
        // The one that was in the commit was stored after all.
        until("all are queued", || story.daemon.ask(&["queue", "count"]) == "3\n");
        let Story { daemon, _client: client, .. } = story;
        drop(client);
        assert_eq!(daemon.stop().1.code(), Some(0), "{spool}{call}");
    }
}

#[test]
fn a_spool_directory_that_is_removed_or_replaced_ends_the_daemon() {
    for (spool, is_replaced) in [("", false), ("", true), ("backend = \"queue-dirs\"\n", true)] {
        let Some(story) = begin(DEFERS, spool) else { return };
        assert_eq!(story.send(), 250);
        let path = story.daemon.dir.path().join("data/spool");
        fs::rename(&path, story.daemon.dir.path().join("moved")).unwrap();
        if is_replaced {
            fs::create_dir(&path).unwrap();
        }
        story.ends();
    }
}

#[test]
fn orders_for_other_calls_change_nothing() {
    let Some(story) = begin(DEFERS, "") else { return };
    story.faults.order("fdatasync", "5", "no-such-thread");
    assert_eq!(story.send(), 250);
    story.until_deferred();
    let Story { daemon, _client: client, .. } = story;
    drop(client);
    let (dir, status) = daemon.stop();
    assert_eq!(status.code(), Some(0));
    assert!(fs::exists(dir.path().join("mail.log")).unwrap());
}

const IO: &str = "5";
const TOO_MANY_FILES: &str = "24";
const NO_ROOM: &str = "28";
const NO_QUOTA: &str = "122";

/// A daemon with Maildirs and an mbox, whose mail waits until it is told to go.
fn with_mailboxes() -> Option<(Postrider, Faults)> {
    let faults = Faults::new()?;
    let config = format!(
        "{LOG}[queue]\nretry_min = \"1h\"\nretry_max = \"1h\"\n[local]\ndomains = [\"mx.test\"]\n\
         [[route]]\ndomains = [\"box.test\"]\nmbox = \"data/boxes/{{local}}\"\n{}",
        faults.permitted()
    );
    let dir = tempfile::tempdir().unwrap();
    let daemon = Postrider::start_with(dir, free_address(), &config, &faults.environment());
    Some((daemon, faults))
}

#[test]
fn mail_whose_mailbox_cannot_be_written_waits_leaves_no_part_and_is_delivered_once() {
    let Some((daemon, faults)) = with_mailboxes() else { return };
    let mbox = || fs::read_to_string(daemon.dir.path().join("data/boxes/joe")).unwrap_or_default();
    daemon.send("joe@box.test");
    until("the mbox has a message", || daemon.counter("delivered") == 1);
    let before = mbox();
    let (mut delivered, mut deferred) = (1, 0);
    for (call, error, status) in [
        ("fdatasync", IO, "4.3.0"),
        ("fdatasync", NO_ROOM, "4.3.1"),
        ("fdatasync", NO_QUOTA, "4.2.2"),
        ("write", IO, "4.3.0"),
        ("write", NO_ROOM, "4.3.1"),
    ] {
        let unwritable = |files: &str| faults.order(call, error, &format!("* */data/{files}"));
        let mut is_deferred = |to: &str| {
            daemon.send(to);
            deferred += 1;
            let lines = || {
                let log = daemon.log();
                log.into_iter().filter(|line| line["status"] == "deferred").collect::<Vec<_>>()
            };
            until("it is deferred", || lines().len() == deferred);
            let line = lines().pop().unwrap();
            assert!(line["to"] == to && line["dsn"] == status, "{call} {error}: {line}");
        };
        unwritable("boxes/");
        is_deferred("joe@box.test");
        assert!(mbox().starts_with(&before) && mbox().matches("\nSubject: ").count() == delivered / 2 + 1);
        unwritable("mail/");
        is_deferred("ann@mx.test");
        assert_eq!(daemon.mailbox("ann").len(), delivered / 2);
        let tmp = fs::read_dir(daemon.dir.path().join("data/mail/ann/tmp")).unwrap();
        assert_eq!(tmp.count(), 0, "{call} {error}");
        faults.withdraw(call);
        daemon.ask(&["queue", "flush"]);
        delivered += 2;
        until("both are delivered", || daemon.counter("delivered") == delivered as u64);
    }
    assert_eq!((mbox().matches("\nSubject: ").count(), daemon.mailbox("ann").len()), (6, 5));
}

#[test]
fn a_delivery_log_that_cannot_be_written_delays_no_mail_and_says_how_much_it_lacks() {
    let Some((daemon, faults)) = with_mailboxes() else { return };
    for (count, error) in [(1, IO), (2, NO_ROOM)] {
        faults.order("write", error, "* /mail.log");
        daemon.send("ann@mx.test");
        until("it is delivered", || daemon.mailbox("ann").len() == count);
        until("the status has it", || daemon.ask(&["status"]).contains("mail.log"));
        faults.withdraw("write");
        daemon.send("joe@box.test");
        until("the log goes on", || daemon.log().iter().any(|line| line["to"] == "joe@box.test"));
    }
}

#[test]
fn a_listener_without_a_descriptor_for_a_client_serves_it_when_there_is_one() {
    let Some((daemon, faults)) = with_mailboxes() else { return };
    faults.order("accept4", TOO_MANY_FILES, "*");
    let address = daemon.address;
    let client = std::thread::spawn(move || Client::connect(address).unwrap().say("NOOP").unwrap().0);
    // The sockets of operators are in need as well.
    assert!(daemon.try_ask(&["status"]).is_err() || !client.is_finished());
    faults.withdraw("accept4");
    assert_eq!(client.join().unwrap(), 250);
    daemon.ask(&["status"]);
}
