//! A whole relay between misbehaving clients, next hops and disks keeps what it promised.

use sim::{
    mutant::{DiskMutant, Mutant},
    relay::{RelayCounts, run},
};

#[test]
fn whatever_was_answered_250_is_delivered_or_reported() {
    let mut sum = RelayCounts::default();
    for seed in 1..=20 {
        let tally = run(seed, Mutant::None).unwrap_or_else(|what| panic!("relay seed {seed}: {what}"));
        sum.add(&tally);
    }
    println!("{sum:?}");
    assert!(sum.late_count > 0, "{sum:?}");
    assert!(sum.acknowledged_count > 160 && sum.report_count > 30 && sum.arrival_count > 330, "{sum:?}");
}

/// Rules of the spool whose breach shows from outside soon; `mutants.rs` has all of them.
const SEEN: [Mutant; 5] = [
    Mutant::Disk(DiskMutant::SkipSync),
    Mutant::Disk(DiskMutant::SkipDirSync),
    Mutant::Disk(DiskMutant::RetrySync),
    Mutant::Spool(spool::Mutant::AnswerEarly),
    Mutant::Spool(spool::Mutant::DropOutcome),
];

#[test]
fn broken_promises_of_the_spool_are_noticed_from_outside() {
    for mutant in SEEN {
        let noticed = (1..=200).find_map(|seed| run(seed, mutant).err().map(|what| (seed, what)));
        println!("{mutant:?}: {:.200?}", noticed.unwrap_or_else(|| panic!("{mutant:?} went unnoticed")));
    }
}

#[test]
fn broken_rules_of_the_engine_are_noticed() {
    for mutant in engine::Mutant::ALL {
        let noticed_by = |seed| run(seed, Mutant::Engine(mutant)).err().map(|what| (seed, what));
        let noticed = (1..=200).find_map(noticed_by);
        println!("{mutant:?}: {:.200?}", noticed.unwrap_or_else(|| panic!("{mutant:?} went unnoticed")));
    }
}

#[test]
fn broken_rules_of_the_acceptor_are_noticed() {
    for mutant in accept::Mutant::ALL {
        let noticed_by = |seed| run(seed, Mutant::Accept(mutant)).err().map(|what| (seed, what));
        let noticed = (1..=200).find_map(noticed_by);
        println!("{mutant:?}: {:.200?}", noticed.unwrap_or_else(|| panic!("{mutant:?} went unnoticed")));
    }
}

#[test]
fn a_seed_of_the_relay_replays() {
    for seed in 1..=5 {
        assert_eq!(run(seed, Mutant::None), run(seed, Mutant::None));
    }
}
