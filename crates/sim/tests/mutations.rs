//! A test that cannot fail proves nothing: each broken promise must be noticed.

use spool::Mutation;

/// Twice what the slowest of them takes.
const SEEDS: u64 = 200;

/// The first seed by which it shows, and how.
fn noticed(mutation: Mutation) -> Option<(u64, String)> {
    (1..=SEEDS).find_map(|seed| sim::run::run(seed, mutation).err().map(|what| (seed, what)))
}

#[test]
fn every_broken_promise_is_noticed() {
    for mutation in Mutation::ALL {
        let (seed, what) = noticed(mutation).unwrap_or_else(|| panic!("{mutation:?} went unnoticed"));
        println!("{mutation:?} is noticed by seed {seed}: {what:.200}");
    }
}
