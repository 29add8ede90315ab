//! A whole relay between misbehaving clients, next hops and disks keeps what it promised.

use sim::relay::{Mutant, Tally, run, run_mutant};
use spool::Mutation;

#[test]
fn whatever_was_answered_250_is_delivered_or_reported() {
    let mut sum = Tally::default();
    for seed in 1..=60 {
        let tally = run(seed, Mutation::None).unwrap_or_else(|what| panic!("relay seed {seed}: {what}"));
        sum.add(&tally);
    }
    println!("{sum:?}");
    assert!(sum.acknowledged_count > 500 && sum.report_count > 100 && sum.arrival_count > 1000, "{sum:?}");
}

/// Those of the spool's promises that show from outside soon; `mutations.rs` has all of them.
const SEEN: [Mutation; 5] = [
    Mutation::SkipSync,
    Mutation::SkipDirSync,
    Mutation::AnswerEarly,
    Mutation::DropOutcome,
    Mutation::RetrySync,
];

#[test]
fn broken_promises_of_the_spool_are_noticed_from_outside() {
    for mutation in SEEN {
        let noticed = (1..=200).find_map(|seed| run(seed, mutation).err().map(|what| (seed, what)));
        println!("{mutation:?}: {:.200?}", noticed.unwrap_or_else(|| panic!("{mutation:?} went unnoticed")));
    }
}

#[test]
fn broken_rules_of_the_engine_are_noticed() {
    for mutant in Mutant::ALL {
        let noticed_by = |seed| run_mutant(seed, Mutation::None, mutant).err().map(|what| (seed, what));
        let noticed = (1..=200).find_map(noticed_by);
        println!("{mutant:?}: {:.200?}", noticed.unwrap_or_else(|| panic!("{mutant:?} went unnoticed")));
    }
}

#[test]
fn a_seed_of_the_relay_replays() {
    for seed in 1..=5 {
        assert_eq!(run(seed, Mutation::None), run(seed, Mutation::None));
    }
}
