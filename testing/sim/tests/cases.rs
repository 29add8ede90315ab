//! The promises hold at some hundred seeds; `cargo xtask sim` tries as many as one likes, and CI some thousand.

use sim::backend::Backend;
use sim::mutant::Mutant;

/// No promise was broken at so many seeds, and there was something to lose: at least so many crashes, so
/// many of them in recovery, and so many messages.
fn holds(backend: Backend, seeds: u64, crashes: u64, in_recovery: u64, messages: u64) {
    let summary = sim::cases(1, seeds, backend, Mutant::None);
    println!("{summary}");
    assert_eq!(summary.violations, []);
    let tally = &summary.tally;
    assert!(tally.crash_count >= crashes && tally.recovery_crash_count >= in_recovery, "{summary}");
    assert!(tally.message_count >= messages, "{summary}");
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    holds(Backend::Log, 50, 150, 30, 4_000);
}

#[test]
fn the_same_is_true_of_queue_directories() {
    holds(Backend::QueueDirs, 50, 140, 12, 1_300);
}

#[test]
fn the_same_is_true_of_both_beside_each_other() {
    holds(Backend::Both, 30, 80, 15, 1_000);
}

#[test]
fn bytes_that_are_damaged_take_nothing_along_but_their_own_messages() {
    for (backend, seeds) in [(Backend::Log, 50), (Backend::QueueDirs, 25), (Backend::Both, 15)] {
        let summary = sim::decays(1, seeds, backend, Mutant::None);
        println!("{backend}: {summary}, {} places", summary.tally.decay_count);
        assert_eq!(summary.violations, []);
        assert!(summary.tally.decay_count > 2 * seeds, "{summary:?}");
    }
}

#[test]
fn reads_that_fail_for_a_while_lose_nothing() {
    for (backend, seeds) in [(Backend::Log, 50), (Backend::QueueDirs, 25), (Backend::Both, 15)] {
        let summary = sim::heals(1, seeds, backend, Mutant::None);
        println!("{backend}: {summary}");
        assert_eq!(summary.violations, []);
        assert!(summary.tally.decay_count > 4 * seeds, "{summary:?}");
    }
}

#[test]
fn a_full_spool_takes_outcomes_and_gives_its_room_back() {
    for (backend, seeds) in [(Backend::Log, 40), (Backend::QueueDirs, 15)] {
        let summary = sim::fulls(1, seeds, backend, Mutant::None);
        println!("{backend}: {summary}");
        assert_eq!(summary.violations, []);
        assert!(summary.tally.no_room_count > 20 * seeds, "it was hardly ever full: {summary}");
    }
}

#[test]
fn a_seed_replays() {
    assert_eq!(
        sim::cases(1, 60, Backend::Log, Mutant::None).tally,
        sim::cases(1, 60, Backend::Log, Mutant::None).tally
    );
}
