//! Each mutant must be noticed: a test that cannot fail shows nothing.

use sim::{
    backend::Backend,
    mutant::{DiskMutant, Mutant},
    run::{CaseCounts, decay, full, heal},
};

/// Twice what the slowest of them takes.
const SEEDS: u64 = 3000;

/// One seed of something.
type Run = fn(u64, Backend, Mutant) -> Result<CaseCounts, String>;

/// Each is noticed; the first seed by which it shows, and how.
fn are_noticed(run: Run, backend: Backend, mutants: &[Mutant], but: &[Mutant]) {
    for mutant in mutants.iter().filter(|mutant| !but.contains(mutant)) {
        let noticed = (1..=SEEDS).find_map(|seed| run(seed, backend, *mutant).err().map(|what| (seed, what)));
        let (seed, what) = noticed.unwrap_or_else(|| panic!("{mutant:?} went unnoticed"));
        println!("{mutant:?} is noticed by seed {seed}: {what:.200}");
    }
}

fn all_are_noticed(backend: Backend, but: &[Mutant]) {
    are_noticed(sim::run::run, backend, &Mutant::OF_CRASHES, but);
}

#[test]
fn every_broken_promise_is_noticed() {
    all_are_noticed(Backend::Log, &[]);
}

#[test]
fn every_promise_that_queue_directories_break_is_noticed() {
    // Old lines must begin at the very byte of the new ones: tests/directories.rs sees to that.
    all_are_noticed(Backend::QueueDirs, &[Mutant::Disk(DiskMutant::ConstantRandom)]);
}

#[test]
fn every_promise_that_one_of_two_spools_breaks_is_noticed() {
    all_are_noticed(Backend::Both, &[]);
}

#[test]
fn every_promise_on_what_is_damaged_is_noticed() {
    are_noticed(decay, Backend::Log, &Mutant::OF_DAMAGE, &[]);
    // What is lost in a queue directory is a file's, which keeps its room and its name for itself.
    let of_the_log = [Mutant::Spool(spool::Mutant::KeepDamaged), Mutant::Spool(spool::Mutant::ReuseChunkId)];
    are_noticed(decay, Backend::QueueDirs, &Mutant::OF_DAMAGE, &of_the_log);
}

#[test]
fn every_promise_on_reads_that_fail_for_a_while_is_noticed() {
    are_noticed(heal, Backend::Log, &Mutant::OF_READING, &[]);
    are_noticed(decay, Backend::Log, &Mutant::OF_HEADERS, &[]);
}

#[test]
fn every_promise_on_a_full_spool_is_noticed() {
    are_noticed(full, Backend::Log, &Mutant::OF_SPACE, &[]);
    // Without a limit of its own the disk is full only when it is.
    are_noticed(full, Backend::QueueDirs, &Mutant::OF_SPACE, &[Mutant::Spool(spool::Mutant::SpendReserve)]);
}
