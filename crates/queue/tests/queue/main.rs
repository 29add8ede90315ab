//! The queue manager's promises, by example and by random walks.

mod connections;
mod operators;
mod routes;
mod schedule;

use mail::{Destination, Disposition, Enhanced, HostPort, LmtpServer, NextHop, Outcome, QueueId, TlsMode};
use proptest::prelude::*;
use queue::{
    Arrival, ArrivingRecipient, CancelAs, CommandResult, ConnectionCounts, ConnectionRequest, DestinationId,
    Group, GroupId, JobStatus, Lease, Millis, Overdue, Queue, QueueSettings, Rerouted, SortOrder,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

fn domain(name: &str) -> Destination {
    Destination::mx(name, mail::TlsMode::May)
}

fn down() -> Outcome {
    Outcome::deferred(Enhanced(4, 4, 1), "connection refused")
}

fn new() -> Queue {
    Queue::new(QueueSettings::default(), 7, 0)
}

fn put(q: &mut Queue, id: u64, to: &[DestinationId], size_bytes: u64, now: Millis) {
    let recipients: Vec<_> =
        to.iter().enumerate().map(|(i, d)| ArrivingRecipient::new(i as u32, *d)).collect();
    assert!(q.insert(
        &Arrival {
            id: QueueId(id),
            arrived: now,
            size_bytes,
            held: false,
            recipients: &recipients,
            schedule: None
        },
        now
    ));
}

fn requests(q: &mut Queue, now: Millis) -> Vec<ConnectionRequest> {
    std::iter::from_fn(|| q.next_connection_request(now)).collect()
}

/// The connections of a test have no names: a destination's unused connections are used first.
trait Connections {
    fn lease(&mut self, id: DestinationId, now: Millis) -> Option<Lease>;
    fn fail(&mut self, id: DestinationId, now: Millis) -> Option<Millis>;
}

impl Connections for Queue {
    fn lease(&mut self, id: DestinationId, now: Millis) -> Option<Lease> {
        let lease = self.lease_next(id, now)?;
        if self.connections_of(id).unused > 0 {
            self.connection_used(id);
        }
        Some(lease)
    }

    fn fail(&mut self, id: DestinationId, now: Millis) -> Option<Millis> {
        self.connection_used(id);
        self.unreachable(id, down(), now)
    }
}

fn done(q: &mut Queue, lease: &Lease, disposition: Disposition, now: Millis) -> queue::Completion {
    let results: Vec<_> = lease.recipients.as_slice().iter().map(|r| (*r, disposition)).collect();
    q.complete(lease.job, &results, true, now)
}

#[test]
fn recipients_at_one_destination_go_together() {
    let mut q = new();
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a, b, a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a), ConnectionRequest::Open(b)]);
    let lease = q.lease(a, 0).unwrap();
    assert_eq!(lease.recipients.as_slice(), [0, 2]);
    assert_eq!(q.lease(a, 0), None);
    assert!(!done(&mut q, &lease, Disposition::Delivered, 1).last);
    let lease = q.lease(b, 0).unwrap();
    assert!(done(&mut q, &lease, Disposition::Failed, 1).last);
    assert!(q.is_empty());
}

#[test]
fn what_waits_follows_new_routes_with_its_past_and_what_is_in_flight_stays() {
    let mut q = new();
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a, a], 100, 0);
    put(&mut q, 2, &[a], 100, 0);
    requests(&mut q, 0);
    let first = q.lease(a, 0).unwrap();
    let s = q.complete(first.job, &[(0, Disposition::Deferred), (1, Disposition::Deferred)], true, 10);
    let in_flight = q.lease(a, 10).unwrap();
    let result = |has_moved, has_in_flight| Rerouted { has_moved, has_in_flight };
    assert_eq!(q.reroute(QueueId(1), |index| if index == 0 { b } else { a }, 20), result(true, false));
    let again = q.reroute(QueueId(1), |index| if index == 0 { b } else { a }, 20);
    assert_eq!(again, result(false, false), "it is there already");
    assert_eq!(q.reroute(QueueId(2), |_| b, 20), result(false, true), "it is in flight");
    assert!(done(&mut q, &in_flight, Disposition::Delivered, 30).last);
    let due = s.retry_at.unwrap() + 200;
    q.advance(due);
    let lease = q.lease(b, due).unwrap();
    assert_eq!((lease.recipients.as_slice(), lease.attempt_count), (&[0][..], 1));
    assert!(!done(&mut q, &lease, Disposition::Delivered, due).last);
    let lease = q.lease(a, due).unwrap();
    assert_eq!(lease.recipients.as_slice(), [1]);
    assert!(done(&mut q, &lease, Disposition::Delivered, due).last);
    assert!(q.is_empty());
}

#[test]
fn only_deferred_recipients_are_tried_again_and_later() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a, a], 100, 0);
    requests(&mut q, 0);
    let lease = q.lease(a, 10).unwrap();
    let s = q.complete(lease.job, &[(0, Disposition::Delivered), (1, Disposition::Deferred)], true, 10);
    let due = s.retry_at.unwrap();
    assert!((240_010..=360_010).contains(&due), "{due}");
    q.advance(due - 200);
    assert_eq!(q.lease(a, due - 200), None);
    q.advance(due + 200);
    let lease = q.lease(a, due + 200).unwrap();
    assert_eq!((lease.recipients.as_slice(), lease.attempt_count), (&[1][..], 1));
}

#[test]
fn a_dead_destination_is_probed_once_and_none_of_its_messages_is_touched() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for id in 0..1000 {
        put(&mut q, id, &[a], 100, 0);
    }
    let opened = requests(&mut q, 0).len();
    assert_eq!(opened, 5, "the window's start");
    for _ in 0..opened {
        q.fail(a, 10);
        q.connection_closed(a, true, 10);
    }
    assert_eq!(requests(&mut q, 20), []);
    let JobStatus::Suspended(Some(until), _) = q.message(QueueId(500)).unwrap().jobs[0].status.clone() else {
        panic!()
    };
    put(&mut q, 5000, &[a], 100, 30);
    assert_eq!(requests(&mut q, 40), []);
    assert_eq!(q.next_wake().unwrap(), until);
    q.advance(until);
    assert_eq!(requests(&mut q, until), [ConnectionRequest::Open(a)], "one probe");
    let probe = q.lease(a, until).unwrap();
    assert_eq!((probe.attempt_count, q.lease(a, until)), (0, None));
    done(&mut q, &probe, Disposition::Delivered, until + 5);
    let mut window = Vec::new();
    for i in 0..20 {
        window.push(requests(&mut q, until + 10 + i).len());
        let lease = q.lease(a, until + 10 + i).unwrap();
        done(&mut q, &lease, Disposition::Delivered, until + 10 + i);
    }
    assert!(window[0] <= 1 && window.iter().sum::<usize>() > 3, "slow start: {window:?}");
}

#[test]
fn the_wait_for_a_dead_destination_grows_to_its_limit() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    let (mut now, mut waits) = (0, Vec::new());
    for _ in 0..12 {
        q.advance(now);
        assert_eq!(requests(&mut q, now), [ConnectionRequest::Open(a)]);
        let until = q.fail(a, now).unwrap();
        q.connection_closed(a, true, now);
        waits.push(until - now);
        now = until;
    }
    assert!((8_000..=12_000).contains(&waits[0]), "{waits:?}");
    assert!(waits.iter().all(|w| *w <= 4_800_000) && waits[11] >= 3_200_000, "{waits:?}");
    assert!(waits.windows(2).all(|w| w[1] <= 3 * w[0]), "most outages are short: {waits:?}");
}

#[test]
fn small_messages_go_first_but_not_for_ever() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 100, &[a], 1_000_000, 0);
    for id in 0..10 {
        put(&mut q, id, &[a], 100, 1);
    }
    let order: Vec<u64> = (0..6).map(|_| q.lease(a, 2).unwrap().id.0).collect();
    assert_eq!(order, [0, 1, 2, 3, 100, 4]);
}

fn grouped(groups: impl IntoIterator<Item = Group>) -> QueueSettings {
    QueueSettings {
        groups: [Group::default()].into_iter().chain(groups).collect(),
        ..QueueSettings::default()
    }
}

#[test]
fn a_group_has_its_own_retry_schedule() {
    let day = Duration::from_secs(86_400);
    let rare = Group { retry_min: day, retry_max: day, ..Group::default() };
    let mut q = Queue::new(grouped([rare]), 7, 0);
    let a = q.destination_in(&domain("a"), GroupId(1));
    put(&mut q, 1, &[a], 100, 0);
    requests(&mut q, 0);
    let lease = q.lease(a, 0).unwrap();
    assert!(done(&mut q, &lease, Disposition::Deferred, 0).retry_at.unwrap() > 60_000_000);
}

#[test]
fn a_destinations_messages_go_in_the_order_of_its_group() {
    for (order, expected) in [
        (SortOrder::Fair, [3, 1, 2]),
        (SortOrder::None, [3, 1, 2]),
        (SortOrder::Filename, [1, 2, 3]),
        (SortOrder::Priority, [2, 1, 3]),
        (SortOrder::Time, [2, 3, 1]),
        (SortOrder::Deadline, [2, 3, 1]),
    ] {
        let mut settings = QueueSettings::default();
        settings.groups[0].order = order;
        let mut q = Queue::new(settings, 7, 100);
        let a = q.destination(&domain("a"));
        for (id, size_bytes, arrived) in [(3, 900, 50), (1, 500, 70), (2, 100, 20)] {
            put(&mut q, id, &[a], size_bytes, arrived);
        }
        requests(&mut q, 100);
        let ids: Vec<u64> = std::iter::from_fn(|| q.lease(a, 100)).map(|lease| lease.id.0).collect();
        assert_eq!(ids, expected, "{order}");
    }
}

#[test]
fn another_order_holds_for_what_is_ready_already_and_withdrawn_ones_are_gone() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    (1..=4).rev().for_each(|id| put(&mut q, id, &[a], 100, 0));
    let mut settings = QueueSettings::default();
    settings.groups[0].order = SortOrder::Filename;
    q.set_settings(settings);
    assert_eq!(q.hold(QueueId(2)), CommandResult::Changed);
    requests(&mut q, 0);
    let ids: Vec<u64> = std::iter::from_fn(|| q.lease(a, 0)).map(|lease| lease.id.0).collect();
    assert_eq!(ids, [1, 3, 4]);
}

#[test]
fn a_delay_is_reported_once_and_expiry_ends_it() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a, a], 100, 0);
    q.lease(a, 0)
        .map(|t| q.complete(t.job, &[(0, Disposition::Deferred), (1, Disposition::Delivered)], true, 0));
    let four_hours = 4 * 3600 * 1000;
    assert_eq!(q.next_overdue(four_hours - 1), None);
    assert_eq!(q.next_overdue(four_hours), Some(Overdue::Delayed(QueueId(1), vec![0])));
    assert_eq!(q.next_overdue(four_hours), None);
    let five_days = 5 * 86400 * 1000;
    let Some(Overdue::Expired(jobs)) = q.next_overdue(five_days) else { panic!() };
    assert_eq!((jobs.len(), jobs[0].recipients.as_slice()), (1, &[0][..]));
    assert!(done(&mut q, &jobs[0], Disposition::Failed, five_days).last);
    assert!(q.is_empty());
}

#[test]
fn a_held_message_gets_no_delay_warning() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    put(&mut q, 2, &[a], 100, 0);
    q.hold(QueueId(1));
    let four_hours = 4 * 3600 * 1000;
    assert_eq!(q.next_overdue(four_hours), Some(Overdue::Delayed(QueueId(2), vec![0])));
    assert_eq!(q.next_overdue(four_hours), None);
    q.release(QueueId(1), four_hours);
    let Some(Overdue::Expired(jobs)) = q.next_overdue(5 * 86400 * 1000) else { panic!() };
    assert_eq!(jobs[0].id, QueueId(1));
}

#[test]
fn an_attempt_that_ends_after_expiry_is_recognised() {
    let mut q =
        Queue::new(QueueSettings { expire: Duration::from_secs(10), ..QueueSettings::default() }, 7, 0);
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    let lease = q.lease(a, 9_000).unwrap();
    assert!(!q.is_expired(lease.job, 9_999));
    assert_eq!(q.next_overdue(10_000), None, "it is in flight");
    assert!(q.is_expired(lease.job, 11_000));
    assert!(done(&mut q, &lease, Disposition::Failed, 11_000).last);
}

/// A random operation of the walk.
#[derive(Debug, Clone)]
enum Op {
    Put(Vec<u8>, bool),
    Take(u8),
    Settle(usize, u8),
    PutBack(usize),
    /// A connection becomes idle.
    Rest(u8),
    /// An idle connection stops waiting by itself.
    LeaveIdle(u8),
    Close(u8),
    Down(u8),
    Hold(u64),
    Release(u64),
    Retry(u64),
    /// The recipients of the mask's bits.
    Remove(u64, u32),
    Flush,
    Pass(u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (proptest::collection::vec(0u8..4, 1..4), any::<bool>()).prop_map(|(d, big)| Op::Put(d, big)),
        6 => (0u8..4).prop_map(Op::Take),
        5 => (any::<usize>(), 0u8..27).prop_map(|(i, f)| Op::Settle(i, f)),
        1 => any::<usize>().prop_map(Op::PutBack),
        2 => (0u8..4).prop_map(Op::Rest),
        1 => (0u8..4).prop_map(Op::LeaveIdle),
        2 => (0u8..4).prop_map(Op::Close),
        1 => (0u8..4).prop_map(Op::Down),
        1 => (0u64..40).prop_map(Op::Hold),
        1 => (0u64..40).prop_map(Op::Release),
        1 => (0u64..40).prop_map(Op::Retry),
        1 => (0u64..40, 1u32..16).prop_map(|(id, mask)| Op::Remove(id, mask)),
        1 => Just(Op::Flush),
        3 => (0u32..400_000).prop_map(Op::Pass),
    ]
}

/// An open connection of the walk.
#[derive(Clone, Copy)]
struct TestConnection {
    to: DestinationId,
    is_idle: bool,
    was_used: bool,
    is_evicting: bool,
}

impl TestConnection {
    fn mark_used(&mut self, q: &mut Queue) {
        if !std::mem::replace(&mut self.was_used, true) {
            q.connection_used(self.to);
        }
    }

    fn end_eviction(&mut self, q: &mut Queue) {
        if std::mem::take(&mut self.is_evicting) {
            q.eviction_ended();
        }
    }
}

/// The walk's own book: which recipients are still to be settled, by message.
#[derive(Default)]
struct Book {
    open: BTreeMap<u64, Vec<u32>>,
    in_flight: Vec<Lease>,
    connections: Vec<TestConnection>,
    cancelled: BTreeSet<(u64, u32)>,
}

impl Book {
    fn carry_out(&mut self, q: &mut Queue, cancelled: Vec<(Lease, CancelAs)>, now: Millis) {
        for (lease, _) in cancelled {
            let s = done(q, &lease, Disposition::Failed, now);
            self.strike(lease.id, lease.recipients.as_slice(), s.last);
        }
    }

    fn strike(&mut self, id: QueueId, recipients: &[u32], last: bool) {
        let open = self.open.get_mut(&id.0).expect("message is open");
        open.retain(|r| !recipients.contains(r));
        let empty = open.is_empty();
        assert_eq!(empty, last, "`last` of {id:?}");
        if empty {
            self.open.remove(&id.0);
        }
    }

    fn find(&mut self, id: DestinationId, is_idle: bool) -> Option<usize> {
        self.connections.iter().position(|one| one.to == id && one.is_idle == is_idle)
    }

    fn lease(&mut self, q: &mut Queue, id: DestinationId, now: Millis) -> Option<Lease> {
        let at = self.find(id, false)?;
        let lease = q.lease_next(id, now)?;
        self.connections[at].mark_used(q);
        self.connections[at].end_eviction(q);
        Some(lease)
    }

    fn enter_idle(&mut self, q: &mut Queue, id: DestinationId) {
        let Some(at) = self.find(id, false).filter(|_| q.enter_idle(id)) else { return };
        self.connections[at].is_idle = true;
        self.connections[at].end_eviction(q);
    }

    fn leave_idle(&mut self, q: &mut Queue, id: DestinationId) {
        if let Some(at) = self.find(id, true) {
            self.connections[at].is_idle = false;
            q.leave_idle(id);
        }
    }

    fn close(&mut self, q: &mut Queue, id: DestinationId, is_down: bool, now: Millis) {
        let Some(at) = self.find(id, false) else { return };
        let mut connection = self.connections.swap_remove(at);
        if is_down {
            connection.mark_used(q);
            q.unreachable(id, down(), now);
        }
        connection.end_eviction(q);
        q.connection_closed(id, connection.was_used, now);
    }

    fn follow_requests(&mut self, q: &mut Queue, now: Millis) {
        while let Some(request) = q.next_connection_request(now) {
            let (to, is_evicting) = match request {
                ConnectionRequest::Open(to) => {
                    let (is_idle, was_used, is_evicting) = (false, false, false);
                    self.connections.push(TestConnection { to, is_idle, was_used, is_evicting });
                    continue;
                }
                ConnectionRequest::Wake(to) => (to, false),
                ConnectionRequest::Evict(to) => (to, true),
            };
            let at = self.find(to, true).expect("one is idle");
            self.connections[at].is_idle = false;
            self.connections[at].is_evicting = is_evicting;
        }
    }

    /// The queue counts the connections as they are.
    fn compare_connections(&self, q: &Queue, id: DestinationId) {
        let all = self.connections.iter().filter(|one| one.to == id);
        let count = |is: fn(&TestConnection) -> bool| all.clone().filter(|one| is(one)).count() as u32;
        let (open, idle, unused) = (count(|_| true), count(|one| one.is_idle), count(|one| !one.was_used));
        assert_eq!(q.connections_of(id), ConnectionCounts { open, idle, unused });
    }

    /// Every open recipient is in the queue exactly once.
    fn compare(&self, q: &Queue) {
        assert_eq!(q.len(), self.open.len());
        for (id, open) in &self.open {
            let view = q.message(QueueId(*id)).expect("message is queued");
            let mut have: Vec<u32> = view.jobs.iter().flat_map(|u| u.recipients.clone()).collect();
            have.sort_unstable();
            assert_eq!(&have, open, "recipients of {id}");
        }
        let in_flight: u32 = q.destinations().iter().map(|d| d.in_flight_count).sum();
        assert_eq!(in_flight as usize, self.in_flight.len());
    }
}

fn walk(ops: Vec<Op>, order: SortOrder) {
    let groups = vec![Group { order, ..Group::default() }];
    let expire = Duration::from_secs(1500);
    let settings = QueueSettings { expire, connections_max: 6, groups, ..QueueSettings::default() };
    let mut q = Queue::new(settings, 7, 0);
    let destinations: Vec<DestinationId> =
        ["a", "b", "c", "d"].iter().map(|n| q.destination(&domain(n))).collect();
    let (mut now, mut next_id, mut book) = (0, 0, Book::default());
    for op in ops {
        match op {
            Op::Put(to, big) => {
                let to: Vec<_> = to.iter().map(|d| destinations[usize::from(*d)]).collect();
                put(&mut q, next_id, &to, if big { 1_000_000 } else { 100 }, now);
                book.open.insert(next_id, (0..to.len() as u32).collect());
                next_id += 1;
            }
            Op::Take(d) => {
                if let Some(lease) = book.lease(&mut q, destinations[usize::from(d)], now) {
                    let again = |index: &u32| book.cancelled.contains(&(lease.id.0, *index));
                    assert!(
                        !lease.recipients.as_slice().iter().any(again),
                        "tried although it was cancelled"
                    );
                    book.in_flight.push(lease);
                }
            }
            Op::Settle(i, dispositions) if !book.in_flight.is_empty() => {
                let lease = book.in_flight.swap_remove(i % book.in_flight.len());
                let disposition = |n: usize| {
                    [Disposition::Delivered, Disposition::Deferred, Disposition::Failed]
                        [usize::from(dispositions) / 3usize.pow(n as u32) % 3]
                };
                let results: Vec<_> = lease
                    .recipients
                    .as_slice()
                    .iter()
                    .enumerate()
                    .map(|(n, r)| (*r, disposition(n)))
                    .collect();
                let s = q.complete(lease.job, &results, true, now);
                let gone: Vec<u32> =
                    results.iter().filter(|(_, f)| *f != Disposition::Deferred).map(|(r, _)| *r).collect();
                book.strike(lease.id, &gone, s.last);
                book.carry_out(&mut q, s.cancelled, now);
            }
            Op::PutBack(i) if !book.in_flight.is_empty() => {
                let lease = book.in_flight.swap_remove(i % book.in_flight.len());
                let cancelled = q.return_lease(lease.job, now);
                book.carry_out(&mut q, cancelled, now);
            }
            Op::Close(d) | Op::Down(d) => {
                book.close(&mut q, destinations[usize::from(d)], matches!(op, Op::Down(_)), now);
            }
            Op::Rest(d) => book.enter_idle(&mut q, destinations[usize::from(d)]),
            Op::LeaveIdle(d) => book.leave_idle(&mut q, destinations[usize::from(d)]),
            Op::Hold(id) => {
                q.hold(QueueId(id));
            }
            Op::Release(id) => {
                q.release(QueueId(id), now);
            }
            Op::Retry(id) => {
                q.retry(QueueId(id), now);
            }
            Op::Remove(id, mask) => {
                let meant = |index: u32| mask >> index & 1 == 1;
                let cancel_as = if mask & 8 == 0 { CancelAs::Delete } else { CancelAs::Bounce };
                let lease = q.cancel(QueueId(id), meant, cancel_as, now);
                if lease.is_some() {
                    book.cancelled.extend((0..3).filter(|index| meant(*index)).map(|index| (id, index)));
                }
                let cancelled = lease.into_iter().flatten().map(|lease| (lease, cancel_as)).collect();
                book.carry_out(&mut q, cancelled, now);
            }
            Op::Flush => q.flush(now),
            Op::Pass(ms) => now += Millis::from(ms),
            Op::Settle(..) | Op::PutBack(_) => {}
        }
        q.advance(now);
        while let Some(aged) = q.next_overdue(now) {
            if let Overdue::Expired(jobs) = aged {
                for lease in jobs {
                    let s = done(&mut q, &lease, Disposition::Failed, now);
                    book.strike(lease.id, lease.recipients.as_slice(), s.last);
                }
            }
        }
        book.follow_requests(&mut q, now);
        q.check_invariants();
        assert!(book.connections.len() <= 6);
        destinations.iter().for_each(|id| book.compare_connections(&q, *id));
        let evicting = book.connections.iter().filter(|one| one.is_evicting).count();
        assert_eq!(q.evicting_count() as usize, evicting);
        book.compare(&q);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn every_recipient_is_in_exactly_one_place(ops in proptest::collection::vec(op(), 1..120)) {
        walk(ops.clone(), SortOrder::Fair);
        walk(ops, SortOrder::Priority);
    }
}

/// More destinations than places are kept for, none of them in use.
fn crowded() -> Queue {
    let mut q = new();
    for number in 0..1024 {
        q.destination(&domain(&format!("past{number}")));
    }
    put(&mut q, u64::MAX, &[DestinationId(0)], 100, 0);
    q.cancel(QueueId(u64::MAX), |_| true, CancelAs::Delete, 0).into_iter().flatten().for_each(|lease| {
        done(&mut q, &lease, Disposition::Failed, 0);
    });
    q
}

fn names(q: &Queue, id: u64) -> Vec<String> {
    let mut jobs = q.message(QueueId(id)).unwrap().jobs;
    jobs.sort_by_key(|job| job.recipients[0]);
    jobs.iter().map(|job| job.destination.to_string().replace("mx:", "")).collect()
}

#[test]
fn no_two_recipients_of_a_message_are_given_the_same_place_of_a_past_destination() {
    let mut q = crowded();
    let wanted: Vec<String> = (0..300).map(|number| format!("new{number}")).collect();
    let to: Vec<_> = wanted.iter().map(|name| q.destination(&domain(name))).collect();
    put(&mut q, 1, &to, 100, 0);
    assert_eq!(names(&q, 1), wanted);
    assert!(q.destinations().len() >= 300 && q.destination(&domain("new7")) == to[7]);
}

#[test]
fn the_place_of_a_held_message_is_not_given_away() {
    let mut q = crowded();
    let to = q.destination(&domain("held"));
    put(&mut q, 1, &[to], 100, 0);
    assert_eq!(q.hold(QueueId(1)), CommandResult::Changed);
    for number in 0..2000 {
        let to = q.destination(&domain(&format!("new{number}")));
        put(&mut q, 2, &[to], 100, 0);
        q.cancel(QueueId(2), |_| true, CancelAs::Delete, 0).into_iter().flatten().for_each(|lease| {
            done(&mut q, &lease, Disposition::Failed, 0);
        });
        requests(&mut q, 0);
    }
    assert_eq!(q.release(QueueId(1), 0), CommandResult::Changed);
    assert_eq!(names(&q, 1), ["held"]);
}

fn aged(q: &mut Queue, now: Millis) -> Vec<Overdue> {
    std::iter::from_fn(|| q.next_overdue(now)).collect()
}

fn brief() -> QueueSettings {
    let (delay_warning, expire) = (Duration::from_secs(10), Duration::from_secs(100));
    QueueSettings { delay_warning, expire, ..QueueSettings::default() }
}

#[test]
fn an_attempt_that_never_began_does_not_save_a_message_from_its_expiry() {
    let mut q = Queue::new(brief(), 7, 0);
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    let lease = q.lease(a, 0).unwrap();
    aged(&mut q, 100_000);
    q.return_lease(lease.job, 100_001);
    assert!(matches!(&aged(&mut q, 100_001)[..], [Overdue::Expired(_)]));
}

#[test]
fn messages_expire_by_their_age_and_not_by_the_order_they_were_found_in() {
    let settings = QueueSettings { expire: Duration::from_secs(7200), ..brief() };
    let mut q = Queue::new(settings, 7, 0);
    let a = q.destination(&domain("a"));
    for (id, arrived) in [(1, -1_000_000), (2, -3_500_000), (3, -2_000_000)] {
        put(&mut q, id, &[a], 100, arrived);
    }
    assert_eq!(expired(&mut q, 3_700_000), [2]);
    assert_eq!(q.next_wake(), Some(5_200_000));
    assert_eq!(expired(&mut q, 6_200_000), [3, 1]);
}

fn expired(q: &mut Queue, now: Millis) -> Vec<u64> {
    let jobs = aged(q, now).into_iter().filter_map(|aged| match aged {
        Overdue::Expired(jobs) => Some(jobs[0].id.0),
        Overdue::Delayed(..) | Overdue::DeadlineOver(_) => None,
    });
    jobs.collect()
}

#[test]
fn what_is_found_at_the_start_is_tried_before_it_expires() {
    let mut q = Queue::new(QueueSettings { expire: Duration::from_secs(86_400), ..brief() }, 7, 1000);
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a], 100, -90_000_000);
    put(&mut q, 2, &[b], 100, -90_000_000);
    assert_eq!(expired(&mut q, 1000), [0; 0]);
    let lease = q.lease(a, 1000).unwrap();
    assert!(q.is_expired(lease.job, 2000), "its deferral is the end");
    assert!(done(&mut q, &lease, Disposition::Failed, 2000).last);
    // The other's destination is down, and nobody can try it.
    assert_eq!((expired(&mut q, 3_600_999), q.next_wake()), (vec![], Some(3_601_000)));
    assert_eq!(expired(&mut q, 3_601_000), [2]);
}

#[test]
fn without_delay_warnings_queued_messages_cause_none_either() {
    let mut q = Queue::new(brief(), 7, 0);
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    q.set_settings(QueueSettings { delay_warning: Duration::ZERO, ..brief() });
    put(&mut q, 2, &[a], 100, 1);
    assert_eq!(aged(&mut q, 99_999), []);
    assert_eq!(aged(&mut q, 100_001).len(), 2);
}

fn outage(failed: Millis) -> Vec<queue::Outage> {
    let destination = domain("a").to_string();
    vec![queue::Outage { destination, since: -50_000_000, failed, reason: down() }]
}

#[test]
fn an_outage_that_an_earlier_start_saw_goes_on_with_new_mail_unless_it_was_too_long_ago_or_has_ended() {
    let down_since = |failed: Millis, is_reached: bool| {
        let mut q = new();
        q.continue_outages(outage(failed), 0);
        let a = q.destination(&domain("a"));
        put(&mut q, 1, &[a], 100, 0);
        put(&mut q, 2, &[a], 100, 0);
        assert_eq!(q.down_since(a), None, "nothing was tried yet");
        requests(&mut q, 0);
        if is_reached {
            let lease = q.lease(a, 10).unwrap();
            done(&mut q, &lease, Disposition::Delivered, 10);
            q.connection_closed(a, true, 10);
            requests(&mut q, 10);
        }
        q.fail(a, 20);
        q.down_since(a)
    };
    assert_eq!(down_since(-3_900_000, false), Some(-50_000_000));
    assert_eq!(down_since(-5_100_000, false), Some(20), "nobody knows what was meanwhile");
    assert_eq!(down_since(-3_900_000, true), Some(20));
}

#[test]
fn a_destination_whose_mail_waited_through_the_restart_is_down_and_probed_by_one_connection() {
    for (failed, arrived, is_held, is_down) in [
        (-3_900_000, -60_000_000, false, true),
        (-5_100_000, -60_000_000, false, false),
        (-5_100_000, -60_000_000, true, true),
        // This mail came after the destination was forgotten.
        (-3_900_000, -3_800_000, false, false),
        (-3_900_000, -3_800_000, true, false),
    ] {
        let mut q = new();
        let a = q.destination(&domain("a"));
        for id in 1..=10 {
            put(&mut q, id, &[a], 100, arrived);
            if is_held {
                q.hold(QueueId(id));
            }
        }
        q.continue_outages(outage(failed), 0);
        let case = format!("{failed} {arrived} {is_held}");
        assert_eq!(q.down_since(a), is_down.then_some(-50_000_000), "{case}");
        assert_eq!(q.down_reason(a), is_down.then_some(&down()), "{case}");
        if is_held {
            assert_eq!(requests(&mut q, 0), [], "{case}");
            (1..=10).for_each(|id| _ = q.release(QueueId(id), 5));
        }
        let opened = requests(&mut q, 5).len();
        assert_eq!(opened == 1, is_down, "{case}: {opened}");
        q.check_invariants();
    }
}
