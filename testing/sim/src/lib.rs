//! The real crates on a disk that fails as real disks do, replayed from a seed.
//!
//! [`disk::SimDisk`] keeps what was synced apart from what was only written, and loses any part of the
//! latter; [`model::Model`] computes what may be there afterwards. [`run`] is the spool alone, [`relay`]
//! all between a client and the next hop. The programs `kill9` and `powercut` do the same to the daemon
//! and to file systems as they are.

pub mod args;
pub mod backend;
pub mod clock;
pub mod contention;
pub mod disk;
pub mod expected_totals;
pub mod model;
pub mod mutant;
pub mod relay;
pub mod replay;
pub mod run;
pub mod seed;
pub mod survey;
pub mod workload;

use crate::mutant::Mutant;
use backend::Backend;
use std::fmt;

/// What all seeds together have done, and which of them failed.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub case_count: u64,
    /// Summed up over all seeds.
    pub tally: run::CaseCounts,
    /// Seeds that broke a promise, and which.
    pub violations: Vec<(u64, String)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let t = &self.tally;
        write!(
            f,
            "{} cases, {} crashes ({} in recovery, {} without room for it), {} bad places, {} messages, {} disk operations, {} violations",
            self.case_count,
            t.crash_count,
            t.recovery_crash_count,
            t.no_room_count,
            t.decay_count,
            t.message_count,
            t.operation_count,
            self.violations.len()
        )
    }
}

/// Runs `count` seeds from `first` on.
pub fn cases(first: u64, count: u64, backend: Backend, mutant: Mutant) -> Summary {
    summed(first, count, |seed| run::run(seed, backend, mutant))
}

/// Runs `count` seeds of a spool whose synced bytes are damaged, from `first` on.
pub fn decays(first: u64, count: u64, backend: Backend, mutant: Mutant) -> Summary {
    summed(first, count, |seed| run::decay(seed, backend, mutant))
}

/// Runs `count` seeds of a spool with little room, from `first` on.
pub fn fulls(first: u64, count: u64, backend: Backend, mutant: Mutant) -> Summary {
    summed(first, count, |seed| run::full(seed, backend, mutant))
}

/// Runs `count` seeds of a disk whose reads fail for a while, from `first` on.
pub fn heals(first: u64, count: u64, backend: Backend, mutant: Mutant) -> Summary {
    summed(first, count, |seed| run::heal(seed, backend, mutant))
}

fn summed(
    first: u64,
    count: u64,
    run: impl Fn(u64) -> Result<run::CaseCounts, String> + std::panic::RefUnwindSafe,
) -> Summary {
    let mut summary = Summary::default();
    for seed in first..first + count {
        summary.case_count += 1;
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(Ok(tally)) => summary.tally.add(&tally),
            Ok(Err(what)) => summary.violations.push((seed, what)),
            // It has said so.
            Err(_) => summary.violations.push((seed, "a panic".to_owned())),
        }
    }
    summary
}

/// Runs `count` seeds of the whole relay from `first` on: what they came to, and those that broke a promise.
pub fn relays(first: u64, count: u64) -> (relay::RelayCounts, Vec<(u64, String)>) {
    let (mut sum, mut violations) = (relay::RelayCounts::default(), Vec::new());
    for seed in first..first + count {
        match relay::run(seed, Mutant::None) {
            Ok(tally) => sum.add(&tally),
            Err(what) => violations.push((seed, what)),
        }
    }
    (sum, violations)
}
