//! Operations of a run fail in step, in every way, once and for good, until a run passes clean: the odd ones in one week, and the
//! even ones in the next. `POSTRIDER_TEST_STEP=1` has all of them fail at once.

use sim::mutant::{DiskMutant, Mutant};
use sim::{
    backend::Backend,
    disk::{EIO, EMFILE, ENOSPC, Fault},
    run::{Swept, sweep},
};
use std::time::{SystemTime, UNIX_EPOCH};

/// Every way in which an operation can fail.
const FAULTS: [Fault; 8] = [
    Fault::Once(EIO),
    Fault::ForGood(EIO),
    Fault::Once(ENOSPC),
    Fault::ForGood(ENOSPC),
    Fault::Once(EMFILE),
    Fault::ForGood(EMFILE),
    Fault::Short,
    Fault::Sync,
];

/// The first operation that fails, and how many lie between two.
fn steps() -> (u64, u64) {
    const WEEK_S: u64 = 7 * 24 * 60 * 60;
    let step =
        std::env::var("POSTRIDER_TEST_STEP").ok().and_then(|step| step.parse().ok()).unwrap_or(2).max(1);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    (1 + now / WEEK_S % step, step)
}

/// Operations of a run, when the steps have come to its end.
fn swept(seed: u64, fault: Fault, backend: Backend, mutant: Mutant) -> Result<u64, String> {
    let (first, step) = steps();
    for at in (first..).step_by(usize::try_from(step).unwrap()) {
        let struck = sweep(seed, at, fault, backend, mutant);
        match struck.map_err(|what| format!("seed {seed}, {fault:?} at {at}: {what}"))? {
            Swept::Struck => {}
            Swept::Clean => return Ok(at - 1),
        }
    }
    unreachable!()
}

#[test]
fn an_error_at_any_operation_loses_nothing_that_was_acknowledged() {
    every_fault(Backend::Log);
}

#[test]
fn nor_does_it_in_queue_directories() {
    every_fault(Backend::QueueDirs);
}

fn every_fault(backend: Backend) {
    for fault in FAULTS {
        let operations = swept(1, fault, backend, Mutant::None).unwrap_or_else(|what| panic!("{what}"));
        println!("{backend}, {fault:?}: operations up to {operations} failed in step");
        assert!(operations > 150);
    }
}

#[test]
fn a_sync_that_is_tried_again_is_noticed_at_the_first_sweeps() {
    let noticed = (1..=3)
        .find_map(|seed| swept(seed, Fault::Sync, Backend::Log, Mutant::Disk(DiskMutant::RetrySync)).err());
    println!("{}", noticed.expect("a sync that failed was believed"));
}
