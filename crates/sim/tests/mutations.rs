//! A test that cannot fail proves nothing: each broken promise must be noticed.

use sim::{
    backend::Backend,
    run::{Tally, decay, full, heal},
};
use spool::Mutation;

/// Twice what the slowest of them takes.
const SEEDS: u64 = 3000;

/// One seed of something.
type Run = fn(u64, Backend, Mutation) -> Result<Tally, String>;

/// Each is noticed; the first seed by which it shows, and how.
fn are_noticed(run: Run, backend: Backend, mutations: &[Mutation], but: &[Mutation]) {
    for mutation in mutations.iter().filter(|mutation| !but.contains(mutation)) {
        let noticed =
            (1..=SEEDS).find_map(|seed| run(seed, backend, *mutation).err().map(|what| (seed, what)));
        let (seed, what) = noticed.unwrap_or_else(|| panic!("{mutation:?} went unnoticed"));
        println!("{mutation:?} is noticed by seed {seed}: {what:.200}");
    }
}

fn all_are_noticed(backend: Backend, but: &[Mutation]) {
    are_noticed(sim::run::run, backend, &Mutation::ALL, but);
}

#[test]
fn every_broken_promise_is_noticed() {
    all_are_noticed(Backend::Log, &[]);
}

#[test]
fn every_promise_that_queue_directories_break_is_noticed() {
    // Old lines must begin at the very byte of the new ones: tests/directories.rs sees to that.
    all_are_noticed(Backend::QueueDirs, &[Mutation::IgnoreSeed]);
}

#[test]
fn every_promise_that_one_of_two_spools_breaks_is_noticed() {
    all_are_noticed(Backend::Both, &[]);
}

#[test]
fn every_promise_on_what_goes_bad_is_noticed() {
    are_noticed(decay, Backend::Log, &Mutation::OF_DAMAGE, &[]);
    // What is lost in a queue directory is a file's, which keeps its room and its name for itself.
    let of_the_log = [Mutation::KeepDamaged, Mutation::GiveAgain];
    are_noticed(decay, Backend::QueueDirs, &Mutation::OF_DAMAGE, &of_the_log);
}

#[test]
fn every_promise_on_reads_that_fail_for_a_while_is_noticed() {
    let of_damage = [Mutation::TrustZeroHeader, Mutation::IgnoreHeaderCopy];
    are_noticed(heal, Backend::Log, &Mutation::OF_READING, &of_damage);
    are_noticed(decay, Backend::Log, &of_damage, &[]);
}

#[test]
fn every_promise_on_a_full_spool_is_noticed() {
    are_noticed(full, Backend::Log, &Mutation::OF_ROOM, &[]);
    // Without a limit of its own the disk is full only when it is.
    are_noticed(full, Backend::QueueDirs, &Mutation::OF_ROOM, &[Mutation::SpendReserve]);
}
