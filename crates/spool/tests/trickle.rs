//! A full log of small messages that leave one by one: the records that end them must not use up the reserve.

mod common;

use common::accept;
use mail::QueueId;
use spool::{Entry, LogSettings, LogSpool, Refused, Spool, WorkStep, disk::RealDisk};
use std::{path::Path, sync::Arc};

const SEGMENT_BYTES: u64 = 256 * 1024;
const SEGMENTS: u64 = 40;

fn opened(dir: &Path, is_broken: bool) -> LogSpool {
    let settings = LogSettings {
        segment_bytes: SEGMENT_BYTES,
        max_bytes: SEGMENTS * SEGMENT_BYTES,
        min_free_bytes: 0,
        ..LogSettings::default()
    };
    let disk = Arc::new(RealDisk::new(dir).unwrap());
    #[cfg(feature = "mutants")]
    let mutant = if is_broken { spool::Mutant::SkipRound } else { spool::Mutant::None };
    #[cfg(feature = "mutants")]
    let mut spool = LogSpool::open_mutant(disk, settings, mutant, true).unwrap();
    #[cfg(not(feature = "mutants"))]
    let mut spool = LogSpool::single_stepped(disk, settings).unwrap();
    assert!(!is_broken || cfg!(feature = "mutants"));
    spool.recover(&mut |_| {}).unwrap();
    spool
}

fn ended(id: u64) -> Vec<Entry> {
    vec![Entry::Outcome { id: QueueId(id), results: Vec::new(), last: true }]
}

/// As the threads do it.
fn all_turns(spool: &LogSpool) {
    while [WorkStep::Prepare, WorkStep::Commit, WorkStep::Compact].into_iter().any(|step| spool.step(step)) {}
}

/// Fills the log with messages; how many.
fn fill(spool: &LogSpool) -> u64 {
    let mut count = 0;
    loop {
        match spool.submit(accept(count + 1, 800)) {
            Ok(_) => count += 1,
            Err(Refused::Busy) => {}
            Err(Refused::Full | Refused::TooLarge) => break,
            Err(Refused::Poisoned) => panic!("the spool has failed"),
        }
        if count % 64 == 0 {
            all_turns(spool);
        }
    }
    all_turns(spool);
    count
}

/// Ends messages from all over the log, each in a commit of its own; how many could be ended.
fn trickle(spool: &LogSpool, count: u64, most: u64) -> u64 {
    const STRIDE: usize = 17;
    let ids = (0..STRIDE as u64).flat_map(|first| (1 + first..=count).step_by(STRIDE));
    let mut ended_count = 0;
    for id in ids.take(most as usize) {
        if spool.submit(ended(id)).is_err() {
            break;
        }
        all_turns(spool);
        if spool.pressure().poisoned {
            break;
        }
        ended_count += 1;
    }
    ended_count
}

#[test]
fn messages_that_leave_a_full_log_one_by_one_do_not_use_up_its_reserve() {
    // The reserve has room for so many commits of one outcome, and somewhat more.
    let commits = 2 * SEGMENT_BYTES / 4096;
    // The feature is on in `cargo test --workspace`.
    let cases: &[bool] = if cfg!(feature = "mutants") { &[false, true] } else { &[false] };
    for &is_broken in cases {
        let dir = tempfile::tempdir().unwrap();
        let spool = opened(dir.path(), is_broken);
        let count = fill(&spool);
        assert!(count > 4000, "{count}");
        let wanted = 4 * commits;
        let ended_count = trickle(&spool, count, wanted);
        assert_eq!(ended_count == wanted, !is_broken, "{ended_count} of {wanted} left");
        if is_broken {
            continue;
        }
        assert_eq!(spool.pressure().message_count, count - wanted);
        drop(spool);
        let mut found = 0;
        let disk = Arc::new(RealDisk::new(dir.path()).unwrap());
        let settings =
            LogSettings { segment_bytes: SEGMENT_BYTES, min_free_bytes: 0, ..LogSettings::default() };
        let mut spool = LogSpool::single_stepped(disk, settings).unwrap();
        let report = spool.recover(&mut |_| found += 1).unwrap();
        assert!(report.corrupt.is_empty(), "{:?}", report.corrupt);
        assert_eq!(found, count - wanted);
    }
}
