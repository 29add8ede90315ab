//! The 2002–2005 papers' queues in a real daemon: S0's senders and directories, S1's orders.

use super::{
    Seed,
    read::ratio,
    steps::{Step, StepFactory, beside, expect, has_postrider},
};
use crate::reproduce::read::median;

impl StepFactory {
    /// Sendmail 8 is measured beside it where its scripts have been used to install it.
    pub(super) fn daemon(&self) -> [Step; 2] {
        let mut steps = [self.creation(), self.passes()];
        for step in &mut steps {
            step.needs =
                (!has_postrider()).then(|| "postrider is neither on the path nor in $POSTRIDER".into());
        }
        steps
    }

    fn creation(&self) -> Step {
        let shared = "what waits is committed together, so that senders share a sync";
        self.step(
            Seed::S0,
            "queuedirs-postrider",
            "queuedirs --mta postrider -m 1000 --rounds 1 -q 1,10 -s 1,10 --results runs DISK",
            "queuedirs --mta postrider -m 5000 --rounds 3 -s 1,10,30 --results runs DISK",
            vec![
                expect("log: 10 senders to 1, rate", "0.2", 0.0..0.5, shared, |t| {
                    ratio(t, &["log", "1", "10"], &["log", "1", "1"], 0)
                }),
                expect(
                    "log: 10 senders to 1, a sender's time for a message",
                    "49.4",
                    20.0..100.0,
                    shared,
                    |t| ratio(t, &["log", "1", "10"], &["log", "1", "1"], 1),
                ),
                expect("directories: 10 senders to 1, rate", "0.2", 0.0..0.5, shared, |t| {
                    ratio(t, &["queue-dirs", "1", "10"], &["queue-dirs", "1", "1"], 0)
                }),
                expect("directories, 10 senders: 10 to 1, rate", "5.7", 2.0..12.0, shared, |t| {
                    ratio(t, &["queue-dirs", "10", "10"], &["queue-dirs", "1", "10"], 0)
                }),
            ],
        )
    }

    fn passes(&self) -> Step {
        let why = "every envelope is read, whatever the order";
        let order = |what, name: &'static str, seed: &str| {
            expect(what, seed, 0.1..0.6, why, move |t: &str| {
                ratio(t, &[name, "warm", "-"], &["priority", "warm", "-"], 2)
            })
        };
        self.step(
            Seed::S1,
            "queuerun-postrider",
            "queuerun --mta postrider --backend log -m 3000 --rounds 3 --results runs DISK",
            "queuerun --mta postrider --backend log -m 30000 --rounds 5 --results runs DISK",
            vec![
                beside("Postrider's log: priority, ms for 30,000", "461", |t| {
                    median(t, &["priority", "warm", "-"], 2)
                }),
                order("Postrider's log: filename, to priority", "filename", "0.36"),
                order("Postrider's log: modification, to priority", "modification", "0.33"),
            ],
        )
    }
}
