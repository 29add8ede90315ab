//! The budget of calls that a message may cost, counted on a real disk.

mod common;

use common::accept;
use spool::{
    DirSettings, DirSpool, DiskCallCounter, DiskCalls, LogSettings, LogSpool, QueueDirectory, Spool,
    block_on, disk::RealDisk,
};
use std::{path::Path, sync::Arc, thread};

/// Commits messages from several threads, each one after the other, and returns the calls for them.
fn calls(spool: &dyn Spool, counter: &DiskCallCounter, submitters: u64, each: u64) -> DiskCalls {
    let before = counter.calls();
    thread::scope(|scope| {
        for submitter in 0..submitters {
            scope.spawn(move || {
                for number in 0..each {
                    let commit_seq = spool.submit(accept(1 + submitter * each + number, 1000)).unwrap();
                    block_on(spool.durable(commit_seq)).unwrap();
                }
            });
        }
    });
    assert_eq!(spool.pressure().message_count, submitters * each);
    counter.calls().since(before)
}

fn log(dir: &Path) -> (LogSpool, DiskCallCounter) {
    let counter = DiskCallCounter::default();
    let disk = counter.count(Arc::new(RealDisk::new(dir).unwrap()));
    let settings = LogSettings { segment_bytes: 4 << 20, min_free_bytes: 0, ..LogSettings::default() };
    let mut spool = LogSpool::on(Arc::new(disk), settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    (spool, counter)
}

/// Syncs that prepare a segment while messages are written; fewer than one each 64 KiB piece of it.
const PREPARATION: u64 = 8;

#[test]
fn one_submitter_costs_the_log_one_write_and_one_sync_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, counter) = log(dir.path());
    let calls = calls(&spool, &counter, 1, 200);
    assert_eq!(spool.pressure().commit_count, 200);
    assert!((200..=200 + PREPARATION).contains(&calls.file_syncs), "{calls:?}");
    assert!((200..=200 + 16 * PREPARATION).contains(&calls.writes), "{calls:?}");
    assert!(calls.opened <= 4 && calls.renames <= 4, "no file for a message: {calls:?}");
}

#[test]
fn a_hundred_submitters_cost_the_log_less_than_a_tenth_of_a_sync_a_message() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, counter) = log(dir.path());
    let calls = calls(&spool, &counter, 100, 40);
    let commits = spool.pressure().commit_count;
    assert!(commits < 400, "{commits} commits for 4000 messages");
    assert!(calls.file_syncs < 400, "{calls:?}");
    let stats = spool.commit_stats();
    assert_eq!(stats.message_count, 4000);
    assert!(stats.messages_max > 10 && stats.added_wait_sum_us > 0, "{stats:?}");
}

#[test]
fn each_file_that_the_log_opens_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (spool, counter) = log(dir.path());
    calls(&spool, &counter, 10, 50);
    drop(spool);
    let calls = counter.calls();
    assert!(calls.opened > 0 && calls.opened == calls.closed, "{calls:?}");
}

#[test]
fn queue_directories_cost_two_files_a_message_and_share_the_syncs_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let counter = DiskCallCounter::default();
    let disk = counter.count(Arc::new(RealDisk::new(dir.path()).unwrap()));
    let settings = DirSettings { min_free_bytes: 0, reserve_bytes: 0, ..DirSettings::default() };
    let mut spool = DirSpool::on(vec![QueueDirectory::flat("q", Arc::new(disk))], settings).unwrap();
    spool.recover(&mut |_| {}).unwrap();
    let calls = calls(&spool, &counter, 50, 10);
    let commits = spool.pressure().commit_count;
    // Content and envelope of each message, and the totals of each commit.
    let files = 1000 + commits;
    assert_eq!((calls.opened, calls.closed), (files, files), "each is closed: {calls:?}");
    assert_eq!((calls.renames, calls.file_syncs), (500, files), "{calls:?}");
    assert_eq!(calls.directory_syncs, 2 * commits, "new files, then names: {calls:?}");
    assert!(commits < 250, "{commits} commits for 500 messages");
}
