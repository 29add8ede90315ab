//! The promises hold at some hundred seeds; `cargo run -p sim --release` tries as many as one likes.

use spool::Mutation;

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    let summary = sim::points(1, 400, Mutation::None);
    println!("{summary}");
    assert_eq!(summary.violations, []);
    // And there was something to lose.
    assert!(summary.tally.crash_count >= 1500 && summary.tally.recovery_crash_count >= 300, "{summary}");
    assert!(summary.tally.message_count >= 40_000, "{summary}");
}

#[test]
fn a_seed_replays() {
    assert_eq!(sim::points(1, 60, Mutation::None).tally, sim::points(1, 60, Mutation::None).tally);
}
