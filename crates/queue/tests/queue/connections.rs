//! Tests of which destination gets a connection, and when.

use super::*;

#[test]
fn a_long_queue_for_one_destination_leaves_connections_to_the_others() {
    let mut q = Queue::new(
        QueueSettings { connections_max: 2, quantum_bytes: 1000, ..QueueSettings::default() },
        7,
        0,
    );
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    for id in 0..100 {
        put(&mut q, id, &[a], 100, 0);
    }
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a), ConnectionRequest::Open(a)]);
    put(&mut q, 1000, &[b], 100, 0);
    assert_eq!(requests(&mut q, 0), []);
    let mut served = 0;
    while let Some(lease) = q.lease(a, 1) {
        done(&mut q, &lease, Disposition::Delivered, 1);
        served += 1;
    }
    assert_eq!((served, q.is_contended(a)), (10, true));
    q.connection_closed(a, true, 1);
    assert_eq!(requests(&mut q, 1), [ConnectionRequest::Open(b)]);
}

#[test]
fn a_destination_that_made_room_gets_a_connection_before_later_ones() {
    let mut q = Queue::new(
        QueueSettings { connections_max: 1, quantum_bytes: 1000, ..QueueSettings::default() },
        7,
        0,
    );
    let a = q.destination(&domain("a"));
    for id in 0..100 {
        put(&mut q, id, &[a], 100, 0);
    }
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let mut opened = a;
    let mut turns = Vec::new();
    for other in 0..10 {
        let to = q.destination(&domain(&format!("b{other}")));
        put(&mut q, 1000 + other, &[to], 100, 0);
        assert_eq!(requests(&mut q, 0), []);
        while let Some(lease) = q.lease(opened, 1) {
            done(&mut q, &lease, Disposition::Delivered, 1);
        }
        q.connection_closed(opened, true, 1);
        match requests(&mut q, 1)[..] {
            [ConnectionRequest::Open(next)] => opened = next,
            ref requests => panic!("{requests:?}"),
        }
        turns.push(opened);
    }
    assert!(turns.iter().filter(|turn| **turn == a).count() >= 3, "{turns:?}");
}

#[test]
fn a_group_has_as_many_connections_as_it_may_and_the_next_when_one_is_closed() {
    let slow = Group { connections_max: 1, ..Group::default() };
    let mut q = Queue::new(grouped([slow]), 7, 0);
    let (a, b) = (q.destination_in(&domain("a"), GroupId(1)), q.destination_in(&domain("b"), GroupId(1)));
    let other = q.destination(&domain("a"));
    assert_ne!(a, other, "the same destination in two groups is two");
    for (id, to) in [(1, a), (2, b), (3, other)] {
        put(&mut q, id, &[to], 100, 0);
    }
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a), ConnectionRequest::Open(other)]);
    assert!(q.is_contended(a) && !q.is_contended(other), "b waits for the group's only runner");
    let lease = q.lease(a, 0).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 0);
    q.connection_closed(a, true, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(b)]);
    assert!(!q.is_contended(b));
}

#[test]
fn a_connection_that_the_next_destination_does_not_need_goes_to_the_one_behind_it() {
    let slow = Group { connections_max: 1, ..Group::default() };
    let mut q = Queue::new(grouped([slow]), 7, 0);
    let [a, b, c] = ["a", "b", "c"].map(|name| q.destination_in(&domain(name), GroupId(1)));
    for (id, to) in [(1, a), (2, b), (3, c)] {
        put(&mut q, id, &[to], 100, 0);
    }
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let lease = q.lease(a, 0).unwrap();
    q.hold(QueueId(2));
    done(&mut q, &lease, Disposition::Delivered, 0);
    q.connection_closed(a, true, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(c)], "b is held");
}

#[test]
fn the_wait_of_a_message_begins_when_its_destination_was_refused_another_connection() {
    let mut q = Queue::new(QueueSettings { connections_max: 2, ..QueueSettings::default() }, 7, 0);
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a], 100, 0);
    put(&mut q, 2, &[b], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a), ConnectionRequest::Open(b)]);
    let (slow, quick) = (q.lease(a, 0).unwrap(), q.lease(b, 0).unwrap());
    put(&mut q, 3, &[a], 100, 0);
    done(&mut q, &quick, Disposition::Delivered, 1);
    q.advance(60);
    assert_eq!(requests(&mut q, 60), [], "a has waited for long enough, and there is none to be had");
    let third = q.lease(a, 60).unwrap();
    put(&mut q, 4, &[a], 100, 60);
    q.connection_closed(b, true, 60);
    assert_eq!(requests(&mut q, 60), [], "the fourth has not waited yet");
    q.advance(120);
    assert_eq!(requests(&mut q, 120), [ConnectionRequest::Open(a)]);
    for lease in [slow, third] {
        done(&mut q, &lease, Disposition::Delivered, 120);
    }
}

#[test]
fn a_raised_connection_limit_is_used_at_once() {
    let slow = Group { connections_max: 1, ..Group::default() };
    let mut q = Queue::new(grouped([slow.clone()]), 7, 0);
    let (a, b) = (q.destination_in(&domain("a"), GroupId(1)), q.destination_in(&domain("b"), GroupId(1)));
    put(&mut q, 1, &[a, b], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    q.set_settings(grouped([Group { connections_max: 2, ..slow }]));
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(b)]);
}

#[test]
fn where_connections_are_scarce_the_higher_priority_goes_first() {
    let urgent = Group { priority: 5, ..Group::default() };
    let mut q = Queue::new(QueueSettings { connections_max: 1, ..grouped([urgent]) }, 7, 0);
    let (low, high) = (q.destination(&domain("a")), q.destination_in(&domain("b"), GroupId(1)));
    put(&mut q, 1, &[low], 100, 0);
    put(&mut q, 2, &[high], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(high)]);
}

#[test]
fn an_idle_connection_is_woken_instead_of_a_new_one() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    assert!(!q.enter_idle(a), "there is work");
    let lease = q.lease(a, 0).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 0);
    assert!(q.enter_idle(a));
    put(&mut q, 2, &[a], 100, 1);
    assert_eq!(requests(&mut q, 1), [ConnectionRequest::Wake(a)]);
}

#[test]
fn an_idle_connection_is_woken_though_another_one_was_wanted_and_not_to_be_had() {
    let mut q = Queue::new(QueueSettings { connections_max: 1, ..QueueSettings::default() }, 7, 0);
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let first = q.lease(a, 0).unwrap();
    put(&mut q, 2, &[a], 100, 0);
    q.advance(60);
    assert_eq!(requests(&mut q, 60), [], "there is no second one");
    done(&mut q, &first, Disposition::Delivered, 60);
    let second = q.lease(a, 60).unwrap();
    done(&mut q, &second, Disposition::Delivered, 70);
    assert!(q.enter_idle(a));
    put(&mut q, 3, &[a], 100, 80);
    assert_eq!(requests(&mut q, 80), [ConnectionRequest::Wake(a)]);
}

#[test]
fn as_many_idle_connections_are_evicted_as_destinations_have_none() {
    let rare = Group { connections_max: 2, ..Group::default() };
    let all_or_group = [
        (GroupId(0), QueueSettings { connections_max: 2, ..QueueSettings::default() }),
        (GroupId(1), grouped([rare])),
    ];
    for (group, settings) in all_or_group {
        let mut q = Queue::new(settings, 7, 0);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| q.destination_in(&domain(name), group));
        for (id, to) in [(1, a), (2, b)] {
            put(&mut q, id, &[to], 100, 0);
            assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(to)]);
            let lease = q.lease(to, 0).unwrap();
            done(&mut q, &lease, Disposition::Delivered, 0);
            assert!(!q.is_contended(to) && q.enter_idle(to));
        }
        put(&mut q, 3, &[c], 100, 10);
        let first = match requests(&mut q, 10)[..] {
            [ConnectionRequest::Evict(first)] => first,
            ref requests => panic!("{requests:?}"),
        };
        assert!(q.is_contended(first), "it is to leave");
        put(&mut q, 4, &[c], 100, 11);
        assert_eq!(requests(&mut q, 11), [], "one is on its way");
        put(&mut q, 5, &[d], 100, 12);
        let second = if first == a { b } else { a };
        assert_eq!(requests(&mut q, 12), [ConnectionRequest::Evict(second)]);
        for (gone, next) in [(first, c), (second, d)] {
            q.eviction_ended();
            q.connection_closed(gone, true, 20);
            assert_eq!(requests(&mut q, 20), [ConnectionRequest::Open(next)]);
        }
    }
}

#[test]
fn a_slow_connection_does_not_hold_up_the_next_message() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    q.lease(a, 0).unwrap();
    put(&mut q, 2, &[a], 100, 5);
    assert_eq!(requests(&mut q, 5), []);
    assert_eq!(q.next_wake(), Some(55));
    q.advance(55);
    assert_eq!(requests(&mut q, 55), [ConnectionRequest::Open(a)]);
}

#[test]
fn one_failed_connection_among_many_only_narrows_the_window() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for id in 0..100 {
        put(&mut q, id, &[a], 100, 0);
    }
    assert_eq!(requests(&mut q, 0).len(), 5);
    assert_eq!(q.fail(a, 1), None);
    q.connection_closed(a, true, 1);
    assert!(q.lease(a, 1).is_some());
}

#[test]
fn a_closed_queue_orders_no_connection() {
    let mut q = new();
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a], 100, 0);
    put(&mut q, 2, &[a, b], 100, 0);
    assert_eq!(q.next_connection_request(0), Some(ConnectionRequest::Open(a)));
    q.close();
    assert_eq!(requests(&mut q, 0), []);
    let lease = q.lease(a, 0).unwrap();
    done(&mut q, &lease, Disposition::Deferred, 1);
    q.connection_closed(a, true, 1);
    q.advance(1_000_000_000);
    assert_eq!((requests(&mut q, 1_000_000_000), q.connection_count()), (vec![], 0));
}

#[test]
fn a_connection_that_was_never_made_does_not_count_as_unused() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let slow = q.lease(a, 0).unwrap();
    put(&mut q, 2, &[a], 100, 0);
    q.advance(60);
    assert_eq!(requests(&mut q, 60), [ConnectionRequest::Open(a)]);
    assert_eq!(q.fail(a, 70), None, "the other one works");
    q.connection_closed(a, true, 70);
    assert_eq!(
        requests(&mut q, 70),
        [ConnectionRequest::Open(a)],
        "and will for long: the second message wants another"
    );
    done(&mut q, &slow, Disposition::Delivered, 80);
}

#[test]
fn all_jobs_of_an_undeliverable_destination_are_leased_at_once() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for id in 0..3 {
        put(&mut q, id, &[a], 100, 0);
    }
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let until = q.fail(a, 0).unwrap();
    q.connection_closed(a, true, 0);
    q.advance(until);
    assert_eq!(requests(&mut q, until), [ConnectionRequest::Open(a)]);
    q.connection_used(a);
    q.mark_undeliverable(a);
    assert_eq!(std::iter::from_fn(|| q.lease(a, until)).count(), 3);
    q.connection_closed(a, true, until);
    assert_eq!(requests(&mut q, until), []);
}

#[test]
fn a_connection_that_is_closed_unused_does_not_count_beside_a_slow_one() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let slow = q.lease(a, 0).unwrap();
    put(&mut q, 2, &[a], 100, 0);
    q.advance(60);
    assert_eq!(requests(&mut q, 60), [ConnectionRequest::Open(a)]);
    // The second message is gone before the second connection can take it.
    assert_eq!(q.hold(QueueId(2)), CommandResult::Changed);
    assert_eq!(q.lease(a, 60), None);
    q.connection_closed(a, false, 62);
    put(&mut q, 3, &[a], 100, 63);
    q.advance(120);
    assert_eq!(
        requests(&mut q, 120),
        [ConnectionRequest::Open(a)],
        "the slow connection holds up the third message"
    );
    done(&mut q, &slow, Disposition::Delivered, 121);
}

/// Destinations of 1,000 domains whose servers accept connections and say nothing.
fn with_silent_ones(q: &mut Queue) -> usize {
    let mut count = 0;
    for number in 0..1000 {
        let to = q.destination(&domain(&format!("silent{number}")));
        for message in 0..20 {
            put(q, number * 20 + message, &[to], 100, 0);
        }
        count += requests(q, 0).len();
    }
    count
}

#[test]
fn destinations_that_have_taken_no_mail_use_up_only_their_share() {
    let mut q = new();
    let good = q.destination(&domain("good"));
    put(&mut q, 100_001, &[good], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(good)]);
    let lease = q.lease(good, 0).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 0);
    q.connection_closed(good, true, 0);

    let silent = with_silent_ones(&mut q);
    let used = |q: &Queue| q.shares().map(|share| (share.share.as_str(), share.used, share.max));
    assert_eq!(silent, 500);
    assert_eq!(
        used(&q),
        [("local", 0, 1000), ("routes", 0, 750), ("remote", 0, 750), ("newcomers", 500, 500)]
    );
    // The first began with three connections each, and when half were in use, each of the others with one.
    let counts = q.destinations().iter().map(|one| one.connection_count).collect::<Vec<_>>();
    assert_eq!([3, 1, 0].map(|n| counts.iter().filter(|count| **count == n).count()), [83, 251, 666]);
    assert_eq!(q.shares()[3].waiting, 666);
    q.check_invariants();

    // What has taken mail, what the operator's routes name, and this machine's mailboxes are not affected.
    let host = HostPort { host: "lmtp.test".to_owned(), port: 24 };
    let route = q.destination(&Destination::new(NextHop::Lmtp(LmtpServer::Tcp(host).into()), TlsMode::Off));
    let mailbox = q.destination(&Destination::new(NextHop::Maildir("{local}".into()), TlsMode::Off));
    for (id, to) in [(100_002, good), (100_003, route), (100_004, mailbox)] {
        put(&mut q, id, &[to], 100, 1);
        assert_eq!(requests(&mut q, 1), [ConnectionRequest::Open(to)]);
    }
    // A connection that ends makes room for one that waits.
    q.connection_closed(DestinationId(1), false, 2);
    assert!(matches!(requests(&mut q, 2)[..], [ConnectionRequest::Open(_)]));
    q.check_invariants();
}

#[test]
fn one_mail_exchanger_leaves_connections_to_others_though_its_domains_have_taken_mail() {
    let mut q = Queue::new(QueueSettings { connections_max: 40, ..QueueSettings::default() }, 7, 0);
    let own = |n: u64| [format!("192.0.2.{n}").into(), format!("mx{n}.test").into()];
    let all: Vec<DestinationId> = (0..41).map(|n| q.destination(&domain(&format!("d{n}")))).collect();
    for (n, to) in (0..).zip(&all) {
        put(&mut q, n, &[*to], 100, 0);
        assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(*to)]);
        q.connected_to(*to, own(if n == 40 { 2 } else { 1 }));
        let lease = q.lease(*to, 0).unwrap();
        done(&mut q, &lease, Disposition::Delivered, 0);
        q.connection_closed(*to, true, 0);
    }
    for (n, to) in (0..40).zip(&all) {
        put(&mut q, 100 + n, &[*to], 100, 0);
    }
    assert_eq!(requests(&mut q, 0).len(), 23, "three quarters of those of remote mail");
    let view = q.busiest_exchanger().unwrap();
    assert_eq!((&*view.name, view.used, view.waiting), ("192.0.2.1", 23, 17));
    assert!(q.are_shares_short() && q.is_contended(all[0]) && !q.is_contended(all[40]));
    put(&mut q, 200, &[all[40]], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(all[40])]);
    q.check_invariants();
    // One that ends makes room for the next, and one that is idle does so on request.
    let lease = q.lease(all[0], 0).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 0);
    q.connection_closed(all[0], true, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(all[23])]);
    let lease = q.lease(all[1], 0).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 0);
    assert!(q.enter_idle(all[1]));
    put(&mut q, 300, &[all[0]], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Evict(all[1])]);
    q.eviction_ended();
    q.connection_closed(all[1], true, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(all[24])]);
    q.check_invariants();
    // The server moves elsewhere: nothing is left behind.
    for to in &all[2..25] {
        q.connected_to(*to, own(3 + u64::from(to.0)));
    }
    assert!(requests(&mut q, 0).len() > 5);
    q.check_invariants();
}

#[test]
fn destinations_that_were_never_tried_go_ahead_of_those_that_were_given_up() {
    let mut q = Queue::new(QueueSettings { connections_max: 40, ..QueueSettings::default() }, 7, 0);
    let mut number = 0;
    let mut add = |q: &mut Queue, name: &str, now| {
        number += 1;
        let to = q.destination(&domain(&format!("{name}{number}")));
        put(q, number, &[to], 100, now);
        to
    };
    let failed: Vec<DestinationId> = (0..20).map(|_| add(&mut q, "failed", 0)).collect();
    assert_eq!(requests(&mut q, 0).len(), 20);
    let fail = |q: &mut Queue, to, now| {
        q.connection_used(to);
        q.unreachable(to, Outcome::deferred(Enhanced(4, 4, 1), "no answer"), now);
        q.connection_closed(to, true, now);
    };
    failed.iter().for_each(|to| fail(&mut q, *to, 0));
    let holders: Vec<DestinationId> = (0..20).map(|_| add(&mut q, "holder", 1)).collect();
    assert_eq!(requests(&mut q, 1).len(), 20);
    let later = 3_600_000;
    q.advance(later);
    assert_eq!(requests(&mut q, later), [], "they wait to be tried again");
    let fresh: Vec<DestinationId> = (0..9).map(|_| add(&mut q, "fresh", later)).collect();
    assert_eq!(requests(&mut q, later), []);
    let mut order = Vec::new();
    for to in &holders[..12] {
        fail(&mut q, *to, later);
        let opened = requests(&mut q, later);
        let [ConnectionRequest::Open(next)] = opened[..] else { panic!("{opened:?}") };
        order.push(next);
    }
    let (retried, first): (Vec<DestinationId>, Vec<DestinationId>) =
        order.iter().partition(|id| failed.contains(id));
    assert_eq!(retried.len(), 3, "each fourth is tried again: {order:?}");
    // The second of each four is the newest: what comes behind a burst does not wait for all of it.
    assert_eq!(first, [0, 8, 1, 2, 7, 3, 4, 6, 5].map(|at| fresh[at]));
    q.check_invariants();
}

#[test]
fn remote_mail_and_routes_leave_a_quarter_of_the_connections_to_each_other() {
    let server = |number: u64| {
        let host = HostPort { host: format!("hub{number}.test"), port: 25 };
        Destination::new(NextHop::Smarthost(host.into()), TlsMode::Off)
    };
    let mut q = Queue::new(QueueSettings { connections_max: 40, ..QueueSettings::default() }, 7, 0);
    for number in 0..100 {
        let to = q.destination(&server(number));
        put(&mut q, number, &[to], 100, 0);
    }
    assert_eq!(requests(&mut q, 0).len(), 30);
    for number in 0..100 {
        let to = q.destination(&domain(&format!("d{number}")));
        put(&mut q, 1000 + number, &[to], 100, 0);
    }
    assert_eq!(requests(&mut q, 0).len(), 10);
    assert_eq!(q.connection_count(), 40);
    // An idle connection of a route makes room for remote mail, which has fewer than its share.
    let lease = q.lease(DestinationId(0), 0).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 0);
    assert!(q.enter_idle(DestinationId(0)));
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Evict(DestinationId(0))]);
    q.check_invariants();
    q.eviction_ended();
    q.connection_closed(DestinationId(0), true, 1);
    assert!(matches!(requests(&mut q, 1)[..], [ConnectionRequest::Open(_)]));
}

#[test]
fn nothing_is_probed_for_mail_that_is_held() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let until = q.fail(a, 7).unwrap();
    q.connection_closed(a, true, 7);
    q.hold(QueueId(1));
    assert_eq!(q.down_since(a), Some(7), "it is down all the same");
    q.advance(until);
    assert_eq!((requests(&mut q, until), q.down_since(a)), (vec![], Some(7)), "and nobody looks");
    q.check_invariants();
    // And a probe whose mail is held before it begins.
    q.release(QueueId(1), until);
    assert_eq!(requests(&mut q, until), [ConnectionRequest::Open(a)]);
    let until = q.fail(a, until).unwrap();
    q.connection_closed(a, true, until - 1);
    q.advance(until);
    assert!(q.destinations()[0].suspended.is_some());
    q.hold(QueueId(1));
    assert_eq!(requests(&mut q, until), []);
    q.check_invariants();
    // One connection is tried for what is released, and not as many as for a destination that works.
    q.release(QueueId(1), until);
    put(&mut q, 2, &[a], 100, until);
    put(&mut q, 3, &[a], 100, until);
    assert_eq!(requests(&mut q, until), [ConnectionRequest::Open(a)]);
    assert!(matches!(&q.destinations()[0].suspended, Some((None, why)) if *why == down()));
    // The connection finds its mail held.
    (1..=3).for_each(|id| _ = q.hold(QueueId(id)));
    q.connection_closed(a, false, until);
    assert_eq!(q.down_since(a), Some(7));
    q.release(QueueId(2), until);
    assert_eq!(requests(&mut q, until), [ConnectionRequest::Open(a)]);
    q.check_invariants();
}

#[test]
fn a_destination_keeps_its_reason_and_the_start_of_its_outage_while_it_is_probed() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    assert_eq!(requests(&mut q, 0), [ConnectionRequest::Open(a)]);
    let until = q.fail(a, 7).unwrap();
    q.connection_closed(a, true, 7);
    let status = |q: &Queue| q.message(QueueId(1)).unwrap().jobs[0].status.clone();
    assert_eq!(status(&q), JobStatus::Suspended(Some(until), down()));
    q.advance(until);
    assert_eq!(requests(&mut q, until), [ConnectionRequest::Open(a)]);
    assert_eq!(status(&q), JobStatus::Suspended(None, down()));
    let view = &q.destinations()[0];
    assert_eq!((view.suspended.clone(), view.down_since), (Some((None, down())), Some(7)));
    let lease = q.lease(a, until).unwrap();
    assert_eq!((status(&q), q.down_reason(a)), (JobStatus::InFlight, Some(&down())));
    done(&mut q, &lease, Disposition::Delivered, until + 1);
    assert_eq!(q.down_since(a), None);
}

/// A destination with a hundred ready messages and the five connections that are being opened.
fn with_five_pending() -> (Queue, DestinationId) {
    let mut q = new();
    let a = q.destination(&domain("a"));
    for id in 1..=100 {
        put(&mut q, id, &[a], 100, 0);
    }
    let pending = requests(&mut q, 0).len() + requests(&mut q, 5_000).len();
    assert_eq!(pending, 5);
    (q, a)
}

#[test]
fn a_destination_is_suspended_when_all_connections_have_failed_and_none_takes_the_place_of_another() {
    let (mut q, a) = with_five_pending();
    for number in 1..=5 {
        assert!(q.is_up(a), "{number}");
        let until = q.fail(a, 60_000);
        q.connection_closed(a, true, 60_000);
        assert_eq!(until.is_some(), number == 5, "{number}");
        assert_eq!(requests(&mut q, 60_000), [], "{number}");
    }
    assert_eq!(q.down_reason(a), Some(&down()));
}

#[test]
fn a_destination_of_which_some_connections_work_is_used_with_more_again_after_a_delivery() {
    let (mut q, a) = with_five_pending();
    for _ in 0..3 {
        assert_eq!(q.fail(a, 6_000), None);
        q.connection_closed(a, true, 6_000);
    }
    assert_eq!(requests(&mut q, 20_000), [], "those under way have yet to show whether it can be reached");
    let lease = q.lease(a, 20_000).unwrap();
    done(&mut q, &lease, Disposition::Delivered, 20_001);
    assert!(!requests(&mut q, 20_002).is_empty());
    assert!(q.is_up(a));
    q.check_invariants();
}
