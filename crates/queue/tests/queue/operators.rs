//! Tests of the commands of operators.

use super::*;

fn recipients(lease: &[Lease]) -> Vec<&[u32]> {
    lease.iter().map(|lease| lease.recipients.as_slice()).collect()
}

#[test]
fn held_messages_stay_and_deleted_ones_go() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    put(&mut q, 2, &[a], 100, 0);
    assert_eq!(q.hold(QueueId(1)), CommandResult::Changed);
    assert_eq!(q.lease(a, 0).unwrap().id, QueueId(2));
    assert_eq!(q.lease(a, 0), None);
    assert_eq!(q.flushable_count(1), 0, "one is held, and one in flight");
    q.flush(1);
    assert_eq!(q.lease(a, 1), None, "a flush leaves held mail alone");
    assert_eq!(q.cancel(QueueId(2), |_| true, CancelAs::Delete, 1), Some(vec![]), "in flight");
    q.release(QueueId(1), 2);
    assert_eq!(q.lease(a, 2).unwrap().id, QueueId(1));
    assert_eq!(
        (q.cancel(QueueId(3), |_| true, CancelAs::Delete, 0), q.hold(QueueId(3)), q.release(QueueId(3), 0)),
        (None, CommandResult::Missing, CommandResult::Missing)
    );
}

#[test]
fn a_flush_counts_what_it_makes_due_and_retry_agrees() {
    let mut q = new();
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a], 100, 0);
    put(&mut q, 2, &[a, b], 100, 0);
    let first = q.lease(a, 0).unwrap();
    let _ = q.lease(a, 0).unwrap();
    assert_eq!(q.flushable_count(1), 1, "the job of the second message that is not in flight");
    let retried = [1, 2].map(|id| q.retry(QueueId(id), 1));
    assert_eq!(retried, [CommandResult::Unchanged, CommandResult::Changed]);
    done(&mut q, &first, Disposition::Deferred, 2);
    assert_eq!(q.flushable_count(3), 2, "what waits for its next attempt");
}

#[test]
fn an_operator_can_mean_some_recipients_of_a_message_and_the_others_are_tried_as_before() {
    let mut q = new();
    let (a, b) = (q.destination(&domain("a")), q.destination(&domain("b")));
    put(&mut q, 1, &[a, a, a, b], 100, 0);
    let cancelled = q.cancel(QueueId(1), |index| index == 1 || index == 3, CancelAs::Delete, 1).unwrap();
    assert_eq!(recipients(&cancelled), [&[3], &[1][..]]);
    assert!(cancelled.iter().all(|lease| !done(&mut q, lease, Disposition::Failed, 2).last));
    let left = q.lease(a, 3).unwrap();
    assert_eq!(left.recipients.as_slice(), [0, 2]);
    assert_eq!((q.lease(a, 3), q.lease(b, 3)), (None, None));
    assert!(done(&mut q, &left, Disposition::Delivered, 4).last);
}

#[test]
fn what_lost_some_recipients_while_it_was_ready_is_found_again_in_every_order() {
    for (order, name) in SortOrder::all() {
        let mut q = Queue::new(grouped([Group { order, ..Group::default() }]), 7, 0);
        let a = q.destination_in(&domain("a"), GroupId(1));
        put(&mut q, 1, &[a, a, a], 100, 0);
        let gone = q.cancel(QueueId(1), |index| index == 1, CancelAs::Delete, 0).unwrap();
        assert_eq!(q.hold(QueueId(1)), CommandResult::Changed, "{name}");
        assert!(q.lease(a, 0).is_none(), "{name}");
        assert!(!done(&mut q, &gone[0], Disposition::Failed, 0).last);
        q.release(QueueId(1), 1);
        let enter_idle = q.lease(a, 1).unwrap();
        assert_eq!((enter_idle.recipients.as_slice(), q.lease(a, 1)), (&[0, 2][..], None), "{name}");
        assert!(done(&mut q, &enter_idle, Disposition::Delivered, 1).last);
    }
}

#[test]
fn a_cancelled_recipient_in_flight_is_not_tried_again() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a, a, a, a], 100, 0);
    let lease = q.lease(a, 0).unwrap();
    assert_eq!(q.cancel(QueueId(1), |index| index == 2, CancelAs::Bounce, 1), Some(vec![]));
    assert_eq!(q.cancel(QueueId(1), |index| index < 2, CancelAs::Bounce, 1), Some(vec![]));
    assert_eq!(q.cancel(QueueId(1), |index| index == 1, CancelAs::Delete, 1), Some(vec![]));
    let dispositions = [
        (0, Disposition::Delivered),
        (1, Disposition::Deferred),
        (2, Disposition::Deferred),
        (3, Disposition::Deferred),
    ];
    let settled = q.complete(lease.job, &dispositions, true, 2);
    let (cancelled, cancellations): (Vec<Lease>, Vec<CancelAs>) = settled.cancelled.into_iter().unzip();
    assert_eq!(recipients(&cancelled), [&[2], &[1][..]]);
    assert_eq!(cancellations, [CancelAs::Bounce, CancelAs::Delete]);
    assert!(!settled.last && settled.retry_at.is_some());
    assert!(cancelled.iter().all(|lease| !done(&mut q, lease, Disposition::Failed, 2).last));
    assert_eq!(q.message(QueueId(1)).unwrap().jobs[0].recipients, [3]);
}

#[test]
fn what_was_deleted_in_flight_and_never_tried_does_not_go_again() {
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    let lease = q.lease(a, 0).unwrap();
    q.cancel(QueueId(1), |_| true, CancelAs::Delete, 1);
    let cancelled = q.return_lease(lease.job, 2);
    assert_eq!((cancelled.len(), q.lease(a, 2)), (1, None));
    assert!(done(&mut q, &cancelled[0].0, Disposition::Failed, 2).last && q.is_empty());
    put(&mut q, 2, &[a], 100, 3);
    let lease = q.lease(a, 3).unwrap();
    assert_eq!(q.return_lease(lease.job, 3), [], "a cancellation ends with its job");
}

#[test]
fn what_is_held_while_it_is_in_flight_is_held_when_it_comes_back() {
    for is_tried in [false, true] {
        let mut q = new();
        let a = q.destination(&domain("a"));
        put(&mut q, 1, &[a], 100, 0);
        requests(&mut q, 0);
        let lease = q.lease(a, 0).unwrap();
        assert_eq!(q.hold(QueueId(1)), CommandResult::Changed);
        assert_eq!(q.message(QueueId(1)).unwrap().jobs[0].status, JobStatus::InFlight);
        if is_tried {
            let settlement = done(&mut q, &lease, Disposition::Deferred, 1);
            assert_eq!((settlement.last, settlement.retry_at), (false, None));
        } else {
            assert_eq!(q.return_lease(lease.job, 1), []);
        }
        assert_eq!(q.message(QueueId(1)).unwrap().jobs[0].status, JobStatus::Held);
        q.flush(2);
        q.advance(1_000_000);
        assert_eq!(q.lease(a, 1_000_000), None);
        assert_eq!(q.release(QueueId(1), 1_000_000), CommandResult::Changed);
        assert_eq!(q.lease(a, 1_000_000).unwrap().attempt_count, u16::from(is_tried));
    }
}

#[test]
fn a_command_says_whether_it_changed_the_message() {
    use CommandResult::{Changed, Missing, Unchanged};
    let mut q = new();
    let a = q.destination(&domain("a"));
    put(&mut q, 1, &[a], 100, 0);
    let (id, gone) = (QueueId(1), QueueId(2));
    assert_eq!((q.hold(gone), q.release(gone, 0), q.retry(gone, 0)), (Missing, Missing, Missing));
    assert_eq!((q.release(id, 0), q.retry(id, 0), q.hold(id)), (Unchanged, Changed, Changed));
    assert_eq!((q.hold(id), q.retry(id, 0), q.release(id, 0)), (Unchanged, Unchanged, Changed));
    requests(&mut q, 0);
    q.lease(a, 0).unwrap();
    assert_eq!(q.retry(id, 1), Unchanged, "its only job is in flight");
}

#[test]
fn what_was_held_when_its_time_was_over_expires_once_it_is_released() {
    let mut q = Queue::new(brief(), 7, 0);
    let a = q.destination(&domain("a"));
    (1..=2).for_each(|id| put(&mut q, id, &[a], 100, 0));
    assert_eq!(q.hold(QueueId(1)), CommandResult::Changed);
    assert_eq!(aged(&mut q, 100_000).len(), 1, "the other one expires");
    put(&mut q, 3, &[a], 100, 155_000);
    assert_eq!(q.release(QueueId(1), 160_000), CommandResult::Changed);
    assert_eq!(q.wake_hint(), Some(160_000));
    let [Overdue::Expired(jobs)] = &aged(&mut q, 160_000)[..] else { panic!() };
    assert_eq!(jobs[0].id, QueueId(1));
}
