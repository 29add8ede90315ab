//! A test that cannot fail proves nothing: each broken promise must be noticed.

use sim::engine::Engine;
use spool::Mutation;

/// Twice what the slowest of them takes.
const SEEDS: u64 = 1000;

/// The first seed by which it shows, and how.
fn noticed(engine: Engine, mutation: Mutation) -> Option<(u64, String)> {
    (1..=SEEDS).find_map(|seed| sim::run::run(seed, engine, mutation).err().map(|what| (seed, what)))
}

fn all_are_noticed(engine: Engine, but: &[Mutation]) {
    for mutation in Mutation::ALL.into_iter().filter(|mutation| !but.contains(mutation)) {
        let (seed, what) = noticed(engine, mutation).unwrap_or_else(|| panic!("{mutation:?} went unnoticed"));
        println!("{mutation:?} is noticed by seed {seed}: {what:.200}");
    }
}

#[test]
fn every_broken_promise_is_noticed() {
    all_are_noticed(Engine::Log, &[]);
}

#[test]
fn every_promise_that_queue_directories_break_is_noticed() {
    // Old lines must begin at the very byte of the new ones: tests/directories.rs sees to that.
    all_are_noticed(Engine::Directories, &[Mutation::IgnoreSeed]);
}

#[test]
fn every_promise_that_one_of_two_spools_breaks_is_noticed() {
    all_are_noticed(Engine::Both, &[]);
}
