//! Mail for servers that take it does not wait for those that do not.

use sim::contention::{LongestWaits, run};

#[test]
fn good_mail_does_not_wait_for_servers_that_do_not_take_theirs() {
    let mut abandoned_count = 0;
    let mut longest = LongestWaits::default();
    for seed in 1..=30 {
        let waits = run(seed, engine::Mutant::None).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        abandoned_count += waits.abandoned_count;
        longest.known = longest.known.max(waits.known);
        longest.new = longest.new.max(waits.new);
        assert!(waits.good_count > 500, "{waits}");
    }
    println!("{longest:?}, {abandoned_count} connections were given up");
    assert!(abandoned_count > 100, "connections were short");
}

#[test]
fn rules_that_keep_strangers_apart_are_missed_when_they_are_broken() {
    for mutant in engine::Mutant::OF_CONTENTION {
        let noticed = (1..=30).find_map(|seed| run(seed, mutant).err().map(|what| (seed, what)));
        println!("{mutant:?}: {:?}", noticed.unwrap_or_else(|| panic!("{mutant:?} went unnoticed")));
    }
}
