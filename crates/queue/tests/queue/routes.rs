//! Routes with a schedule of their own.

use super::*;
use queue::RouteSchedule;
use std::{collections::HashMap, sync::Arc};

const ROUTE: &str = "lifetime 50s";

/// A destination of the route.
fn routed(name: &str) -> mail::Destination {
    mail::Destination { route: Some(ROUTE.into()), ..domain(name) }
}

fn settings(schedule: RouteSchedule) -> QueueSettings {
    let routes = HashMap::from([(Arc::from(ROUTE), schedule)]);
    QueueSettings { routes, jitter: 0.0, delay_warning: Duration::ZERO, ..brief() }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The recipients of each expired job, by message.
fn ended(q: &mut Queue, now: Millis) -> Vec<(u64, Vec<u32>)> {
    let jobs = aged(q, now).into_iter().flat_map(|aged| match aged {
        Overdue::Expired(jobs) => jobs,
        Overdue::Delayed(..) | Overdue::DeadlineOver(_) => Vec::new(),
    });
    jobs.map(|lease| (lease.id.0, lease.recipients.as_slice().to_vec())).collect()
}

#[test]
fn a_short_lifetime_ends_the_jobs_of_its_route_alone() {
    let mut q =
        Queue::new(settings(RouteSchedule { lifetime: Some(seconds(50)), ..Default::default() }), 7, 0);
    let (own, other) = (q.destination(&routed("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[own, other], 100, 0);
    let gives_up = |q: &Queue, recipients: &[u32]| q.gives_up_at(mail::QueueId(1), recipients);
    assert_eq!(
        (gives_up(&q, &[0, 1]), gives_up(&q, &[1]), gives_up(&q, &[2])),
        (Some(50_000), Some(100_000), None)
    );
    assert_eq!((ended(&mut q, 49_999), q.next_wake()), (vec![], Some(50_000)));
    assert_eq!(ended(&mut q, 50_000), [(1, vec![0])]);
    assert_eq!(ended(&mut q, 99_999), []);
    assert_eq!(ended(&mut q, 100_000), [(1, vec![1])]);
    q.check_invariants();
}

#[test]
fn a_long_lifetime_outlives_that_of_the_queue() {
    let mut q =
        Queue::new(settings(RouteSchedule { lifetime: Some(seconds(500)), ..Default::default() }), 7, 0);
    let (own, other) = (q.destination(&routed("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[own, other], 100, 0);
    assert_eq!(ended(&mut q, 100_000), [(1, vec![1])]);
    let lease = q.lease(own, 100_001).unwrap();
    assert!(!q.is_expired(lease.job, 499_999) && q.is_expired(lease.job, 500_000));
    done(&mut q, &lease, Disposition::Deferred, 100_002);
    assert_eq!((ended(&mut q, 499_999), ended(&mut q, 500_000)), (vec![], vec![(1, vec![0])]));
    q.check_invariants();
}

#[test]
fn what_is_held_or_in_flight_expires_when_it_comes_back() {
    let mut q =
        Queue::new(settings(RouteSchedule { lifetime: Some(seconds(50)), ..Default::default() }), 7, 0);
    let own = q.destination(&routed("a"));
    put(&mut q, 1, &[own], 100, 0);
    put(&mut q, 2, &[own], 100, 0);
    q.hold(mail::QueueId(2));
    let lease = q.lease(own, 10).unwrap();
    assert_eq!(ended(&mut q, 60_000), []);
    q.return_lease(lease.job, 60_001);
    q.release(mail::QueueId(2), 60_001);
    let mut both = ended(&mut q, 60_001);
    both.sort();
    assert_eq!(both, [(1, vec![0]), (2, vec![0])]);
}

#[test]
fn a_list_of_intervals_is_used_in_its_order_and_the_last_one_repeats() {
    let schedule = RouteSchedule { intervals: vec![seconds(5), seconds(20)], ..Default::default() };
    let mut q = Queue::new(settings(schedule), 7, 0);
    let own = q.destination(&routed("a"));
    put(&mut q, 1, &[own], 100, 0);
    let mut now = 1000;
    for interval in [5_000, 20_000, 20_000] {
        let lease = q.lease(own, now).unwrap();
        let due = done(&mut q, &lease, Disposition::Deferred, now).retry_at;
        assert_eq!(due, Some(now + interval));
        now += interval;
        q.advance(now);
    }
}

#[test]
fn other_settings_give_queued_jobs_another_lifetime() {
    let mut q =
        Queue::new(settings(RouteSchedule { lifetime: Some(seconds(50)), ..Default::default() }), 7, 0);
    let own = q.destination(&routed("a"));
    put(&mut q, 1, &[own], 100, 0);
    q.set_settings(settings(RouteSchedule { lifetime: Some(seconds(20)), ..Default::default() }));
    assert_eq!(ended(&mut q, 20_000), [(1, vec![0])]);
    put(&mut q, 2, &[own], 100, 0);
    q.set_settings(QueueSettings { routes: HashMap::new(), ..settings(RouteSchedule::default()) });
    assert_eq!((ended(&mut q, 99_999), ended(&mut q, 100_000)), (vec![], vec![(2, vec![0])]));
}
