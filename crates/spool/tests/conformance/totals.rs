//! The totals survive a restart, with every backend, and agree with the recipients that are left.

use super::{BACKENDS, Backend, commit, deferred, delivered, durable_backends, message, small};
use mail::{Cause, Content, Enhanced, Outcome, QueueId};
use spool::{ControlOp, Entry, Spool, Totals, inspect, migrate_message};

fn failed(index: u32, cause: Cause) -> (u32, Outcome) {
    (index, Outcome::failed(Enhanced(5, 0, 0), "no").because(cause))
}

fn outcome(id: u64, results: Vec<(u32, Outcome)>, last: bool) -> Entry {
    Entry::Outcome { id: QueueId(id), results, last }
}

/// A recipient of each kind, and two that are left.
fn work(spool: &dyn Spool) -> Totals {
    commit(spool, vec![Entry::Accept(small(1)), Entry::Accept(message(2, 5, Content::from_bytes("x\r\n")))]);
    commit(spool, vec![outcome(2, vec![delivered(0), failed(1, Cause::Expired), deferred(2)], false)]);
    commit(spool, vec![outcome(2, vec![failed(2, Cause::Returned)], false)]);
    commit(spool, vec![outcome(2, vec![deferred(3)], false)]);
    let deleted = Totals { deleted: 2, ..Totals::default() };
    commit(spool, vec![Entry::Control { id: QueueId(1), op: ControlOp::Delete }, Entry::Count(deleted)]);
    Totals { accepted: 7, delivered: 1, bounced: 1, expired: 1, deleted: 2, moved: 0 }
}

#[test]
fn totals_survive_a_restart_and_count_on() {
    durable_backends(|backend, dir| {
        let (spool, _, report) = backend.open(dir);
        assert_eq!((report.totals, report.imbalances), (Totals::default(), vec![]));
        let mut totals = work(&*spool);
        drop(spool);
        for round in 0..3 {
            let (spool, found, report) = backend.open(dir);
            assert_eq!((report.totals, report.imbalances, found.len()), (totals, vec![], 1), "{round}");
            commit(&*spool, vec![Entry::Accept(small(10 + round))]);
            commit(&*spool, vec![outcome(10 + round, vec![delivered(0), delivered(1)], true)]);
            totals.accepted += 2;
            totals.delivered += 2;
            drop(spool);
        }
        // A start without work changes nothing.
        drop(backend.open(dir));
        assert_eq!(backend.open(dir).2.totals, totals);
    });
}

#[test]
fn a_difference_is_reported_once_with_both_numbers() {
    durable_backends(|backend, dir| {
        let (spool, ..) = backend.open(dir);
        work(&*spool);
        // Nobody says what became of the two recipients.
        commit(&*spool, vec![outcome(2, Vec::new(), true)]);
        drop(spool);
        let (_, _, report) = backend.open(dir);
        let told: Vec<_> = report.imbalances.iter().map(ToString::to_string).collect();
        let numbers = if matches!(backend, Backend::Both) {
            "finished), but 0"
        } else {
            "(7 accepted, 5 finished), but 0"
        };
        assert!(told.len() == 1 && told[0].contains(numbers), "{told:?}");
        assert!(report.problems().any(|problem| problem.starts_with("recipients are not accounted for: ")));
        let (spool, ..) = backend.open(dir);
        commit(&*spool, vec![Entry::Accept(small(5))]);
        drop(spool);
        let report = backend.open(dir).2;
        assert_eq!((report.imbalances, report.totals.left()), (vec![], Some(2)));
    });
}

#[test]
fn totals_are_inspected_without_opening_the_spool() {
    for backend in [Backend::Log, Backend::Directories(3, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let (spool, ..) = backend.open(dir.path());
        let totals = work(&*spool);
        drop(spool);
        let report = inspect(dir.path(), &mut |_| {}).unwrap();
        assert_eq!((report.totals, report.imbalances), (totals, vec![]));
    }
}

#[test]
fn totals_are_moved_with_the_messages() {
    for (from, to) in BACKENDS.iter().flat_map(|from| BACKENDS.map(|to| (*from, to))) {
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (spool, ..) = from.open(old.path());
        let totals = work(&*spool);
        drop(spool);
        let (spool, found, _) = from.open(old.path());
        let (other, ..) = to.open(new.path());
        for found in &found {
            migrate_message(&*spool, found, &*other, &mut || panic!("little waits")).unwrap().unwrap();
        }
        commit(&*other, vec![Entry::Count(Totals { accepted: totals.finished(), ..totals })]);
        drop(other);
        let report = to.open(new.path()).2;
        assert_eq!((report.totals, report.imbalances), (totals, vec![]), "{from:?} to {to:?}");
    }
}
