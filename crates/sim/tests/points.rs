//! The promises hold at some hundred seeds; `cargo run -p sim --release` tries as many as one likes.

use sim::engine::Engine;
use spool::Mutation;

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    let summary = sim::points(1, 400, Engine::Log, Mutation::None);
    println!("{summary}");
    assert_eq!(summary.violations, []);
    // And there was something to lose.
    assert!(summary.tally.crash_count >= 1500 && summary.tally.recovery_crash_count >= 300, "{summary}");
    assert!(summary.tally.message_count >= 40_000, "{summary}");
}

#[test]
fn the_same_is_true_of_queue_directories() {
    let summary = sim::points(1, 300, Engine::Directories, Mutation::None);
    println!("{summary}");
    assert_eq!(summary.violations, []);
    assert!(summary.tally.crash_count >= 1000 && summary.tally.recovery_crash_count >= 100, "{summary}");
    assert!(summary.tally.message_count >= 10_000, "{summary}");
}

#[test]
fn the_same_is_true_of_both_beside_each_other() {
    let summary = sim::points(1, 200, Engine::Both, Mutation::None);
    println!("{summary}");
    assert_eq!(summary.violations, []);
    assert!(summary.tally.crash_count >= 700 && summary.tally.recovery_crash_count >= 150, "{summary}");
    assert!(summary.tally.message_count >= 10_000, "{summary}");
}

#[test]
fn a_seed_replays() {
    assert_eq!(
        sim::points(1, 60, Engine::Log, Mutation::None).tally,
        sim::points(1, 60, Engine::Log, Mutation::None).tally
    );
}
