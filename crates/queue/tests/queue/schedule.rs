//! Releases, deadlines and priorities.

use super::{Connections as _, aged, domain, done, new, requests};
use mail::{Disposition, QueueId};
use proptest::prelude::*;
use queue::{
    Arrival, ArrivingRecipient, CommandResult, Deadline, DestinationId, JobStatus, Millis, Overdue, Queue,
    QueueSettings, Schedule,
};

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;

fn put(q: &mut Queue, id: u64, to: DestinationId, schedule: &Schedule, now: Millis) {
    let arrival = Arrival {
        id: QueueId(id),
        arrived: now,
        size_bytes: 100,
        held: false,
        recipients: &[ArrivingRecipient::new(0, to)],
        schedule: Some(schedule),
    };
    assert!(q.insert(&arrival, now));
    q.check_invariants();
}

fn held_until(release: Millis) -> Schedule {
    Schedule { release: Some(release), ..Schedule::default() }
}

fn by(at: Millis, returns: bool) -> Schedule {
    Schedule { deadline: Some(Deadline { at, returns }), ..Schedule::default() }
}

fn priority(priority: i8) -> Schedule {
    Schedule { priority, ..Schedule::default() }
}

fn leased_ids(q: &mut Queue, from: DestinationId, now: Millis) -> Vec<u64> {
    requests(q, now);
    std::iter::from_fn(|| {
        let lease = q.lease(from, now)?;
        done(q, &lease, Disposition::Delivered, now);
        q.check_invariants();
        Some(lease.id.0)
    })
    .collect()
}

#[test]
fn a_message_is_not_tried_before_its_release() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &held_until(HOUR), 0);
    assert_eq!((requests(&mut q, 0), q.next_wake()), (Vec::new(), Some(HOUR)));
    q.advance(HOUR - 1);
    assert_eq!(leased_ids(&mut q, a, HOUR - 1), []);
    q.advance(HOUR);
    assert_eq!(leased_ids(&mut q, a, HOUR), [1]);
}

#[test]
fn no_command_of_an_operator_releases_a_message_early() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &held_until(HOUR), 0);
    assert_eq!(q.retry(QueueId(1), 1), CommandResult::Unchanged);
    assert_eq!(q.flushable_count(2), 0);
    q.flush(2);
    assert_eq!(q.flush_destinations(|_| true, 2), 0);
    assert_eq!(q.hold(QueueId(1)), CommandResult::Changed);
    assert_eq!(q.release(QueueId(1), 3), CommandResult::Changed);
    q.check_invariants();
    assert_eq!(leased_ids(&mut q, a, 3), []);
    assert_eq!(q.message(QueueId(1)).unwrap().jobs[0].status, JobStatus::Waiting(HOUR));
    q.hold(QueueId(1));
    q.advance(2 * HOUR);
    assert_eq!(leased_ids(&mut q, a, 2 * HOUR), [], "an operator holds it");
    q.release(QueueId(1), 2 * HOUR);
    assert_eq!(leased_ids(&mut q, a, 2 * HOUR), [1]);
}

#[test]
fn the_lifetime_of_a_held_message_begins_with_its_release() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &held_until(10 * DAY), 0);
    q.advance(6 * DAY);
    assert_eq!(aged(&mut q, 6 * DAY), [], "neither a warning nor an expiry before the release");
    q.advance(10 * DAY);
    assert_eq!(aged(&mut q, 10 * DAY + 3 * HOUR), []);
    assert_eq!(aged(&mut q, 10 * DAY + 4 * HOUR), [Overdue::Delayed(QueueId(1), vec![0])]);
    assert_eq!(aged(&mut q, 15 * DAY - 1), []);
    let [Overdue::Expired(leases)] = &aged(&mut q, 15 * DAY)[..] else { panic!("it expires") };
    assert_eq!(leases[0].id, QueueId(1));
}

#[test]
fn a_held_message_that_is_deleted_leaves_nothing_behind() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &Schedule { deadline: by(2 * HOUR, true).deadline, ..held_until(HOUR) }, 0);
    let leases = q.cancel(QueueId(1), |_| true, queue::CancelAs::Delete, 1).unwrap();
    assert!(done(&mut q, &leases[0], Disposition::Failed, 1).last);
    q.check_invariants();
    q.advance(3 * HOUR);
    assert_eq!((aged(&mut q, 3 * HOUR), q.is_empty()), (Vec::new(), true));
}

#[test]
fn the_earliest_deadline_goes_first() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &Schedule::default(), 0);
    put(&mut q, 2, a, &by(9 * HOUR, false), 0);
    put(&mut q, 3, a, &by(HOUR, true), 0);
    put(&mut q, 4, a, &Schedule { priority: 5, ..by(2 * HOUR, true) }, 0);
    assert_eq!(leased_ids(&mut q, a, 0), [4, 3, 2, 1]);
}

#[test]
fn a_deadline_with_return_fails_the_message_and_one_with_notify_warns_once() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &by(60_000, true), 0);
    put(&mut q, 2, a, &by(60_000, false), 0);
    put(&mut q, 3, a, &by(-5_000, false), 0);
    assert_eq!(aged(&mut q, 0), [Overdue::Delayed(QueueId(3), vec![0])]);
    assert_eq!(aged(&mut q, 59_999), []);
    assert_eq!(q.next_wake(), Some(60_000));
    let over = aged(&mut q, 60_000);
    let [Overdue::DeadlineOver(leases), Overdue::Delayed(QueueId(2), _)] = &over[..] else {
        panic!("{over:?}")
    };
    assert_eq!(leases[0].id, QueueId(1));
    done(&mut q, &leases[0], Disposition::Failed, 60_000);
    assert_eq!(aged(&mut q, HOUR), []);
    assert_eq!(leased_ids(&mut q, a, HOUR), [2, 3].into_iter().rev().collect::<Vec<_>>());
}

#[test]
fn a_message_that_ends_now_has_no_warning_and_a_late_one_has_one() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &by(4 * HOUR, true), 0);
    put(&mut q, 2, a, &by(4 * HOUR, false), 0);
    put(&mut q, 3, a, &by(5 * HOUR, true), 0);
    assert_eq!(q.gives_up_at(QueueId(3), &[0]), Some(5 * HOUR), "the deadline is before the expiry");
    let over = aged(&mut q, 4 * HOUR);
    let [Overdue::DeadlineOver(leases), Overdue::Delayed(QueueId(2), _), Overdue::Delayed(QueueId(3), _)] =
        &over[..]
    else {
        panic!("{over:?}")
    };
    assert_eq!(leases[0].id, QueueId(1));
    q.check_invariants();
}

#[test]
fn a_deadline_ends_only_the_recipients_whom_it_concerns() {
    for returns in [true, false] {
        let mut q = new();
        let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
        let schedule = Schedule { without_deadline: [1, 2].into(), ..by(60_000, returns) };
        let arrival = Arrival {
            id: QueueId(1),
            arrived: 0,
            size_bytes: 100,
            held: false,
            recipients: &[(0, a), (1, a), (2, b)].map(|(index, to)| ArrivingRecipient::new(index, to)),
            schedule: Some(&schedule),
        };
        assert!(q.insert(&arrival, 0));
        q.check_invariants();
        assert_ne!(q.gives_up_at(QueueId(1), &[2]), Some(60_000));
        let over = aged(&mut q, 70_000);
        let late = match &over[..] {
            [Overdue::DeadlineOver(leases)] if returns => leases[0].recipients.as_slice().to_vec(),
            [Overdue::Delayed(_, recipients)] if !returns => recipients.clone(),
            over => panic!("{over:?}"),
        };
        assert_eq!(late, [0]);
        let lease = q.lease(b, 70_000);
        assert!(lease.is_none_or(|lease| !q.is_expired(lease.job, 70_000)));
        q.check_invariants();
    }
}

#[test]
fn a_message_in_flight_at_its_deadline_fails_when_its_attempt_does() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &by(60_000, true), 0);
    requests(&mut q, 0);
    let lease = q.lease(a, 0).unwrap();
    assert!(!q.is_expired(lease.job, 59_999) && q.is_expired(lease.job, 60_000));
    assert_eq!(aged(&mut q, 70_000), []);
    q.return_lease(lease.job, 70_000);
    let over = aged(&mut q, 70_000);
    assert!(matches!(&over[..], [Overdue::DeadlineOver(_)]), "{over:?}");
}

#[test]
fn the_deadline_of_a_message_that_an_operator_holds_waits_for_the_operator() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &by(60_000, true), 0);
    q.hold(QueueId(1));
    assert_eq!(aged(&mut q, 70_000), []);
    q.release(QueueId(1), 80_000);
    assert!(matches!(&aged(&mut q, 80_000)[..], [Overdue::DeadlineOver(_)]));
}

#[test]
fn high_priorities_go_first_and_low_ones_last() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for (id, level) in [(1, -9), (2, 0), (3, 9), (4, 1), (5, 0), (6, -1)] {
        put(&mut q, id, a, &priority(level), 0);
    }
    assert_eq!(leased_ids(&mut q, a, 0), [3, 4, 2, 5, 6, 1]);
}

#[test]
fn a_low_priority_goes_before_younger_mail_only() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for id in 1..=10 {
        put(&mut q, id, a, &priority(0), 0);
    }
    put(&mut q, 20, a, &priority(-5), 1);
    for id in 11..=20 {
        put(&mut q, id + 20, a, &priority(0), 2);
    }
    let order = leased_ids(&mut q, a, 3);
    let low = order.iter().position(|id| *id == 20).unwrap();
    assert!((10..19).contains(&low), "{order:?}");
}

#[test]
fn mail_of_each_priority_goes_on_under_a_flood_of_the_highest() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for id in 1..=4 {
        put(&mut q, id, a, &priority(-9), 0);
        put(&mut q, 10 + id, a, &priority(0), 0);
        put(&mut q, 20 + id, a, &by(DAY, true), 0);
    }
    requests(&mut q, 0);
    let mut seen = Vec::new();
    for round in 0..100 {
        // As fast as messages leave, others of the highest priority come.
        put(&mut q, 1000 + round, a, &priority(9), 1 + round as Millis);
        let lease = q.lease(a, 1 + round as Millis).unwrap();
        done(&mut q, &lease, Disposition::Delivered, 1 + round as Millis);
        seen.extend(Some(lease.id.0).filter(|id| *id < 1000));
        requests(&mut q, 1 + round as Millis);
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24]);
}

/// A step of a random walk.
#[derive(Debug, Clone)]
enum Step {
    Put { release: Option<Millis>, deadline: Option<(Millis, bool)>, priority: i8 },
    Lease,
    Finish { index: usize, is_delivered: bool },
    Return(usize),
    Operate(u64, u8),
    Wait(Millis),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let time = || -HOUR..20 * HOUR;
    let put = (
        proptest::option::of(time()),
        proptest::option::of((time(), any::<bool>())),
        prop_oneof![Just(0i8), -9..=9i8],
    );
    let put = put.prop_map(|(release, deadline, priority)| Step::Put { release, deadline, priority });
    let finish =
        (0..4usize, any::<bool>()).prop_map(|(index, is_delivered)| Step::Finish { index, is_delivered });
    let step = prop_oneof![
        4 => put,
        4 => Just(Step::Lease),
        3 => finish,
        1 => (0..4usize).prop_map(Step::Return),
        2 => (0..40u64, 0..5u8).prop_map(|(id, verb)| Step::Operate(id, verb)),
        3 => (1..2 * HOUR).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #[test]
    fn no_walk_breaks_an_invariant_or_a_release(steps in steps()) {
        let settings = QueueSettings { expire: std::time::Duration::from_secs(86_400), ..QueueSettings::default() };
        let mut q = Queue::new(settings, 7, 0);
        let a = q.destination(&domain("a"));
        let (mut now, mut next, mut in_flight, mut releases) = (0, 0, Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Put { release, deadline, priority } => {
                    let a = q.destination(&domain("a"));
                    let deadline = deadline.map(|(at, returns)| Deadline { at: now + at, returns });
                    let release = release.map(|at| now + at);
                    put(&mut q, next, a, &Schedule { release, deadline, priority, ..Schedule::default() }, now);
                    releases.push(release);
                    next += 1;
                }
                Step::Lease => {
                    requests(&mut q, now);
                    if let Some(lease) = q.lease(a, now) {
                        prop_assert!(releases[lease.id.0 as usize].is_none_or(|release| release <= now));
                        in_flight.push(lease);
                    }
                }
                Step::Finish { index, is_delivered } if index < in_flight.len() => {
                    let lease = in_flight.remove(index);
                    let is_expired = q.is_expired(lease.job, now);
                    done(&mut q, &lease, match (is_delivered, is_expired) {
                        (true, _) => Disposition::Delivered,
                        (false, true) => Disposition::Failed,
                        (false, false) => Disposition::Deferred,
                    }, now);
                }
                Step::Return(index) if index < in_flight.len() => {
                    let lease = in_flight.remove(index);
                    q.return_lease(lease.job, now);
                }
                Step::Operate(id, 0) => { q.hold(QueueId(id)); }
                Step::Operate(id, 1) => { q.release(QueueId(id), now); }
                Step::Operate(id, 2) => { q.retry(QueueId(id), now); }
                Step::Operate(_, 3) => q.set_settings(QueueSettings::default()),
                Step::Operate(..) => q.flush(now),
                Step::Wait(time) => {
                    now += time;
                    q.advance(now);
                    while let Some(overdue) = q.next_overdue(now) {
                        if let Overdue::Expired(leases) | Overdue::DeadlineOver(leases) = overdue {
                            for lease in leases {
                                done(&mut q, &lease, Disposition::Failed, now);
                            }
                        }
                    }
                }
                Step::Finish { .. } | Step::Return(_) => {}
            }
            q.check_invariants();
        }
        // Whatever happened, everything leaves in the end.
        for id in q.ids() {
            q.release(id, now);
        }
        in_flight.iter().for_each(|lease| { q.return_lease(lease.job, now); });
        now += 30 * DAY;
        q.advance(now);
        while let Some(overdue) = q.next_overdue(now) {
            if let Overdue::Expired(leases) | Overdue::DeadlineOver(leases) = overdue {
                for lease in leases {
                    done(&mut q, &lease, Disposition::Failed, now);
                }
            }
        }
        q.check_invariants();
        prop_assert!(q.is_empty(), "{:?}", q.ids());
    }

    #[test]
    fn every_job_is_taken_within_a_bound(levels in proptest::collection::vec(-9..=9i8, 1..60)) {
        let mut q = new();
        let a = q.destination(&domain("a"));
        for (id, level) in levels.iter().enumerate() {
            put(&mut q, id as u64, a, &priority(*level), id as Millis);
        }
        requests(&mut q, 100);
        let mut left = levels.len();
        // Eight turns for each job that waited longer, while others of the highest priority go on coming.
        for round in 0..levels.len() * 8 + 8 {
            put(&mut q, 1000 + round as u64, a, &priority(9), 100 + round as Millis);
            let lease = q.lease(a, 100).unwrap();
            done(&mut q, &lease, Disposition::Delivered, 100);
            left -= usize::from(lease.id.0 < 1000);
            requests(&mut q, 100);
        }
        prop_assert_eq!(left, 0);
    }
}

#[test]
fn urgent_messages_that_come_one_by_one_do_not_stop_the_others() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, a, &priority(0), 0);
    requests(&mut q, 100);
    let is_taken = (0..16).any(|round| {
        put(&mut q, 1000 + round, a, &priority(9), 100);
        let lease = q.lease(a, 100).unwrap();
        done(&mut q, &lease, Disposition::Delivered, 100);
        requests(&mut q, 100);
        lease.id == QueueId(1)
    });
    assert!(is_taken);
}
