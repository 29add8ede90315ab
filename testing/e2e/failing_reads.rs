//! Reads of the spool that fail for a while lose nothing, on the binary as it is shipped.
//!
//! With `POSTRIDER_TEST_RUNS=20` each test runs so often; with `POSTRIDER_TEST_BINARY=PATH` of another build, which
//! may lose mail: then the tests tell how much. `POSTRIDER_TEST_COUNT_ONLY` keeps them from failing.

use crate::common::{Postrider, client::Client, faults::Faults, free_address, until};
use std::{fs, net::SocketAddr, os::unix::fs::FileExt as _, path::Path};
use tempfile::TempDir;

/// Messages that wait before the fault, and as many that come beside it.
const MESSAGES: u64 = 100;

/// No server listens at the next hop; mail for one domain is discarded.
fn config(dead: SocketAddr) -> String {
    format!(
        "[queue]\nretry_min = \"1h\"\nretry_max = \"1h\"\n\
         [[route]]\ndomains = [\"gone.test\"]\ndiscard = true\n\
         [[route]]\ndomains = [\"*\"]\nsmarthost = \"{dead}\"\ntls = \"off\"\n"
    )
}

struct Story {
    faults: Faults,
    config: String,
}

impl Story {
    fn begin() -> Option<Self> {
        let faults = Faults::new()?;
        let config = config(free_address()) + &faults.permitted();
        Some(Self { faults, config })
    }

    fn start(&self, dir: TempDir) -> Postrider {
        Postrider::start_with(dir, free_address(), &self.config, &self.faults.environment())
    }

    /// Messages that were answered 250.
    fn accept(&self, daemon: &Postrider, to: &str, count: u64, size: usize) -> u64 {
        let mut client = Client::connect(daemon.address).unwrap();
        let content = format!("Subject: x\r\n\r\n{}\r\n", "x".repeat(980)).repeat(size.div_ceil(1000));
        let sent = (0..count).map(|_| client.send("a@a.test", &[to], content.as_bytes()));
        sent.filter(|reply| reply.as_ref().is_ok_and(|reply| reply.0 == 250)).count() as u64
    }
}

fn queued(daemon: &Postrider) -> u64 {
    daemon.ask(&["queue", "list", "--ids"]).lines().count() as u64
}

fn spool_files(dir: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let all = fs::read_dir(dir.join("data/spool")).unwrap().map(|entry| entry.unwrap().path());
    let mut some: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == ending)).collect();
    some.sort();
    some
}

/// Returns the path of the segment with mail in it.
fn segment_in_use(dir: &Path) -> std::path::PathBuf {
    let has_batch = |path: &std::path::PathBuf| {
        let mut magic = [0; 4];
        fs::File::open(path).unwrap().read_at(&mut magic, 4096).unwrap();
        &magic == b"PBAT"
    };
    spool_files(dir, "seg").into_iter().find(has_batch).unwrap()
}

/// Tells a story so often, and how many messages of how many were lost.
fn tell(name: &str, story: impl Fn(&Story) -> (u64, u64)) {
    let runs = std::env::var("POSTRIDER_TEST_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(1);
    let (mut all, mut lost, mut hurt) = (0, 0, 0);
    for _ in 0..runs {
        let Some(one) = Story::begin() else { return };
        let (accepted, found) = story(&one);
        all += accepted;
        lost += accepted.saturating_sub(found);
        hurt += u64::from(found < accepted);
    }
    println!("{name}: {runs} runs, {all} messages answered 250, {lost} lost in {hurt} runs");
    assert!(lost == 0 || std::env::var_os("POSTRIDER_TEST_COUNT_ONLY").is_some(), "{lost} of {all} lost");
}

/// After everything can be read again.
fn found_after(story: &Story, daemon: Postrider) -> u64 {
    if story.faults.has("pread") {
        story.faults.withdraw("pread");
    }
    let (dir, _) = daemon.kill();
    let daemon = story.start(dir);
    queued(&daemon)
}

#[test]
fn a_segment_that_cannot_be_read_while_the_log_is_compacted_loses_nothing() {
    tell("read errors while the log is compacted", |story| {
        let daemon = story.start(tempfile::tempdir().unwrap());
        let accepted = story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        let segment = segment_in_use(daemon.dir.path());
        let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
        story.faults.order("pread", &format!("5 4096 {name}"), "");
        // So much that the oldest segment is to be compacted.
        let mut rounds = 0;
        until("the log is compacted", || {
            story.accept(&daemon, "x@gone.test", 10, 200_000);
            rounds += 1;
            let is_set_aside = !spool_files(daemon.dir.path(), "quarantined").is_empty();
            is_set_aside || rounds >= 40 || daemon.ask(&["status"]).contains("compaction pauses")
        });
        (accepted, found_after(story, daemon))
    });
}

#[test]
fn a_tail_that_cannot_be_read_at_a_start_loses_nothing() {
    tell("read errors in the tail at a start", |story| {
        let daemon = story.start(tempfile::tempdir().unwrap());
        let mut accepted = story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        let segment = segment_in_use(daemon.dir.path());
        let name = segment.file_name().unwrap().to_str().unwrap().to_owned();
        story.faults.order("pread", &format!("5 40960 {name}"), "");
        let daemon = story.start(daemon.kill().0);
        accepted += story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        (accepted, found_after(story, daemon))
    });
}

#[test]
fn a_segment_that_cannot_be_opened_at_a_start_loses_nothing() {
    tell("a segment that cannot be opened at a start", |story| {
        let daemon = story.start(tempfile::tempdir().unwrap());
        let mut accepted = story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        // Another start, so that there is more than one segment with mail in it.
        let daemon = story.start(daemon.kill().0);
        accepted += story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        let segment = segment_in_use(daemon.dir.path());
        let aside = segment.with_extension("elsewhere");
        let (dir, _) = daemon.kill();
        // What stands for it answers ELOOP, which an open without following links does.
        fs::rename(&segment, &aside).unwrap();
        std::os::unix::fs::symlink(&aside, &segment).unwrap();
        let daemon = story.start(dir);
        accepted += story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        let (dir, _) = daemon.kill();
        fs::rename(&aside, &segment).unwrap();
        let daemon = story.start(dir);
        (accepted, queued(&daemon))
    });
}

#[test]
fn a_header_of_zeros_loses_nothing() {
    tell("a segment's first block lost", |story| {
        let daemon = story.start(tempfile::tempdir().unwrap());
        let mut accepted = story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        let segment = segment_in_use(daemon.dir.path());
        let (dir, _) = daemon.kill();
        let file = fs::OpenOptions::new().write(true).open(segment).unwrap();
        file.write_all_at(&[0; 4096], 0).unwrap();
        let daemon = story.start(dir);
        accepted += story.accept(&daemon, "x@b.test", MESSAGES, 1000);
        // Until every segment that was taken for free is used.
        story.accept(&daemon, "x@gone.test", 30, 200_000);
        (accepted, found_after(story, daemon))
    });
}
