//! The daemon ends by itself when its spool fails, whatever meets the failure.

mod common;

use common::{Postrider, client::Client, faults::Faults, free_address, sink::Sink, until};
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

    /// The daemon ends by itself, with 74.
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
