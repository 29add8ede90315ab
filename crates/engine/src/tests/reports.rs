//! Recipients of reports.

use super::*;
use mail::{Cause, Origin, ReplyStage, ReplyTo, ReturnPath};

fn unknown() -> Outcome {
    Outcome { from_remote: true, ..Outcome::failed(Enhanced(5, 1, 1), "550 no such user") }
}

/// Fails the next job as a whole.
fn fail(bench: &mut Bench, cause: Cause) {
    let leased = bench.lease();
    let results = leased.1.recipients.as_slice().iter().map(|index| (*index, unknown().because(cause)));
    let results = results.collect();
    bench.finish(leased, results);
}

#[test]
fn each_reverse_path_of_a_message_gets_a_report_of_its_own() {
    let mut bench = bench();
    let mut mixed = (*message(1, 0, 4)).clone();
    let owner = ReversePath::parse("owner-list@mx.test", false).unwrap();
    for at in [0, 2] {
        let owner = ReturnPath { path: owner.clone(), is_list: true };
        mixed.envelope.recipients[at].set_return_path(owner);
    }
    bench.accept(&SharedMessage::new(mixed));
    bench.handle(Event::Started);
    bench.cancel(1, CancelAs::Bounce);
    let to = |report: &SharedMessage| report.envelope.recipients[0].path.to_string();
    let mut addresses: Vec<String> = bench.reports.iter().map(to).collect();
    addresses.sort();
    assert_eq!(addresses, ["a@sender.test", "owner-list@mx.test"]);
    let stored = &bench.stored[..];
    assert!(
        matches!(stored, [all] if matches!(&all[..], [Entry::Outcome { .. }, Entry::Accept(_), Entry::Accept(_)]))
    );
    let text =
        |at: usize| String::from_utf8(bench.reports[at].content.in_memory().unwrap().to_vec()).unwrap();
    assert_eq!(
        (text(0).matches("Action: failed").count(), text(1).matches("Action: failed").count()),
        (2, 2)
    );
}

#[test]
fn a_report_that_fails_goes_to_the_postmaster_and_nothing_follows_when_that_fails() {
    let mut bench = bench();
    bench.accept(&message(1, 0, 1));
    bench.handle(Event::Started);
    for (count, to, origin) in
        [(1, "a@sender.test", Origin::Dsn), (2, "postmaster@mx.test", Origin::DoubleBounce)]
    {
        fail(&mut bench, Cause::default());
        assert_eq!(bench.reports.len(), count);
        let report = bench.reports.last().unwrap();
        assert_eq!((report.envelope.recipients[0].path.as_str(), &report.origin), (to, &origin));
        assert!(report.envelope.reverse_path.is_null());
    }
    fail(&mut bench, Cause::default());
    let all = bench.engine.counters();
    assert_eq!((all.bounced, all.accepted, all.queued, bench.reports.len()), (3, 3, 0, 2));
}

#[test]
fn mail_for_a_postmaster_whom_the_next_hop_does_not_have_waits() {
    let reply = |stage| Cause::Reply(ReplyTo { stage, code: 550, enhanced: None });
    let outcome = |status, cause| Outcome::failed(status, "550 no").because(cause);
    let unknown = |status| outcome(status, reply(ReplyStage::Rcpt));
    for (to, origin, outcome, queued) in [
        ("postmaster@mx.test", "test".into(), unknown(Enhanced(5, 1, 1)), 1),
        ("Postmaster@mx.test", "test".into(), unknown(Enhanced(5, 0, 0)), 1),
        ("postmaster@mx.test", "test".into(), outcome(Enhanced(5, 1, 1), Cause::Local), 1),
        ("postmaster@mx.test", "test".into(), unknown(Enhanced(5, 7, 1)), 0),
        ("postmaster@mx.test", "test".into(), outcome(Enhanced(5, 0, 0), reply(ReplyStage::Content)), 0),
        ("postmaster@mx.test", Origin::DoubleBounce, unknown(Enhanced(5, 1, 1)), 0),
        ("joe@mx.test", "test".into(), unknown(Enhanced(5, 1, 1)), 0),
    ] {
        let mut bench = bench();
        let mut mail = (*message(1, 0, 1)).clone();
        mail.envelope.recipients[0].path = ForwardPath::parse(to, false).unwrap();
        mail.envelope.reverse_path = ReversePath::Null;
        mail.origin = origin;
        bench.accept(&SharedMessage::new(mail));
        bench.handle(Event::Started);
        let leased = bench.lease();
        bench.finish(leased, vec![(0, outcome.clone())]);
        assert_eq!(bench.engine.counters().queued, queued, "{to}: {outcome:?}");
    }
}

#[test]
fn the_postmaster_gets_no_report_where_nobody_wants_one() {
    for (is_wanted, origin, cause) in [
        (false, Origin::Dsn, Cause::default()),
        (true, Origin::Dsn, Cause::Returned),
        (true, Origin::Dsn, Cause::Deleted),
        (true, "client=[192.0.2.1] helo=x proto=ESMTP".into(), Cause::default()),
    ] {
        let mut bench = bench();
        bench.engine.settings.reports.double_bounces = is_wanted;
        let mut report = (*message(1, 0, 1)).clone();
        report.envelope.reverse_path = ReversePath::Null;
        report.origin = origin;
        bench.accept(&SharedMessage::new(report));
        bench.handle(Event::Started);
        fail(&mut bench, cause);
        assert_eq!((bench.reports.len(), bench.engine.counters().queued), (0, 0), "{cause:?}");
    }
}

/// Fails a notification of this server for its only recipient.
fn fail_notification(bench: &mut Bench, id: u64) {
    let mut notification = (*message(id, bench.now, 1)).clone();
    notification.envelope.reverse_path = ReversePath::Null;
    notification.origin = Origin::Dsn;
    // A destination of its own: none of them waits for a connection of another.
    let to = format!("c@n{id}.test");
    notification.envelope.recipients[0].path = ForwardPath::parse(&to, false).unwrap();
    bench.accept(&SharedMessage::new(notification));
    fail(bench, Cause::default());
}

fn not_mailed_count(bench: &Bench) -> usize {
    bench.log.iter().filter(|event| matches!(event, LogEvent::NotMailed { .. })).count()
}

#[test]
fn failed_notifications_beyond_the_limit_are_logged_and_told_in_one_summary_when_an_hour_is_over() {
    let mut bench = bench();
    bench.engine.settings.reports.max_double_bounces_per_hour = 2;
    bench.handle(Event::Started);
    for id in 1..=5 {
        fail_notification(&mut bench, id);
    }
    assert_eq!((bench.reports.len(), not_mailed_count(&bench)), (2, 3));
    assert_eq!((bench.engine.unsummarized_count(), bench.engine.unstored_count()), (3, 0));
    bench.now = HOUR - 1;
    bench.handle(Event::Tick);
    assert_eq!(bench.reports.len(), 2);
    bench.now = HOUR;
    bench.handle(Event::Tick);
    assert_eq!((bench.reports.len(), bench.engine.unsummarized_count()), (3, 0));
    let text = String::from_utf8(bench.reports[2].content.in_memory().unwrap().to_vec()).unwrap();
    assert!(text.contains("Subject: 3 notifications could not be delivered\r\n"), "{text}");
    for to in ["<c@n3.test>", "<c@n4.test>", "<c@n5.test>"] {
        assert!(text.contains(to), "{to}: {text}");
    }
    assert!(
        matches!(&bench.stored.last().unwrap()[..], [Entry::Accept(report)] if report.id == bench.reports[2].id)
    );
    bench.now = 5 * HOUR;
    bench.handle(Event::Tick);
    assert_eq!(bench.reports.len(), 3, "there is nothing new to tell");
}

#[test]
fn a_shutdown_stores_the_summary_first() {
    let mut bench = bench();
    bench.engine.settings.reports.max_double_bounces_per_hour = 1;
    bench.handle(Event::Started);
    for id in 1..=3 {
        fail_notification(&mut bench, id);
    }
    bench.is_busy = true;
    bench.handle(Event::Shutdown);
    assert!(bench.engine.unstored_count() > 0, "the process must not end yet");
    bench.is_busy = false;
    while bench.engine.unstored_count() > 0 {
        bench.now += 100;
        bench.handle(Event::Tick);
    }
    let last = bench.stored.last().unwrap();
    assert!(
        matches!(&last[..], [Entry::Accept(report)] if report.origin == Origin::DoubleBounce),
        "{last:?}"
    );
    assert_eq!(bench.engine.unsummarized_count(), 0);
}

#[test]
fn a_limit_of_zero_mails_and_summarizes_nothing_and_logs_each_failure() {
    let mut bench = bench();
    bench.engine.settings.reports.max_double_bounces_per_hour = 0;
    bench.handle(Event::Started);
    fail_notification(&mut bench, 1);
    bench.now = 2 * HOUR;
    bench.handle(Event::Tick);
    assert_eq!((bench.reports.len(), not_mailed_count(&bench), bench.engine.counters().queued), (0, 1, 0));
}

/// A message whose recipients have reverse-paths of their own.
fn verp(id: u64, arrived: Millis, recipient_count: u32) -> SharedMessage {
    let mut message = (*message(id, arrived, recipient_count)).clone();
    for (at, recipient) in (0..).zip(&mut message.envelope.recipients) {
        let path = ReversePath::parse(&format!("news+{at}@sender.test"), false).unwrap();
        recipient.set_return_path(ReturnPath { path, is_list: false });
    }
    SharedMessage::new(message)
}

#[test]
fn many_reports_are_several_transactions_each_with_its_outcomes() {
    const COUNT: u32 = 500;
    let mut bench = bench();
    bench.accept(&verp(1, 0, COUNT));
    bench.handle(Event::Started);
    bench.cancel(1, CancelAs::Bounce);
    assert_eq!((bench.reports.len(), bench.stored.len()), (COUNT as usize, 1));
    // A later decision on the message keeps its place.
    assert!(bench.engine.unstored_count() > 0);
    while bench.answers.is_empty() {
        bench.now += 100;
        bench.handle(Event::Tick);
    }
    assert!(bench.stored.len() > 2, "{}", bench.stored.len());
    let mut all = Vec::new();
    for (number, transaction) in (1..).zip(&bench.stored) {
        let [Entry::Outcome { results, last, .. }, reports @ ..] = &transaction[..] else { panic!() };
        assert_eq!(*last, number == bench.stored.len());
        let named = reports.iter().map(|entry| match entry {
            Entry::Accept(report) => report.envelope.recipients[0].path.to_string(),
            other => panic!("{other:?}"),
        });
        let ended = results.iter().map(|(index, _)| format!("news+{index}@sender.test"));
        let (mut named, mut ended): (Vec<_>, Vec<_>) = (named.collect(), ended.collect());
        named.sort();
        ended.sort();
        assert_eq!(named, ended);
        all.extend(ended);
    }
    all.sort();
    all.dedup();
    assert_eq!((all.len(), bench.engine.unstored_count()), (COUNT as usize, 0));
    let counters = bench.engine.counters();
    assert_eq!((counters.bounced, counters.queued), (u64::from(COUNT), u64::from(COUNT)));
}

#[test]
fn the_parts_of_a_result_keep_their_order_while_the_spool_is_busy() {
    let mut bench = bench();
    bench.accept(&verp(1, 0, 500));
    bench.handle(Event::Started);
    bench.is_busy = true;
    bench.cancel(1, CancelAs::Bounce);
    for _ in 0..3 {
        bench.now += 100;
        bench.handle(Event::Tick);
    }
    assert!(bench.stored.is_empty());
    bench.is_busy = false;
    while bench.answers.is_empty() {
        bench.now += 100;
        bench.handle(Event::Tick);
    }
    let is_last = |transaction: &Transaction| matches!(transaction[0], Entry::Outcome { last: true, .. });
    let places: Vec<usize> = (0..bench.stored.len()).filter(|at| is_last(&bench.stored[*at])).collect();
    assert_eq!(places, [bench.stored.len() - 1]);
}

#[test]
fn many_warnings_are_several_transactions() {
    let mut bench = bench();
    bench.accept(&verp(1, 0, 500));
    bench.handle(Event::Started);
    bench.now = 5 * HOUR;
    bench.handle(Event::Tick);
    assert_eq!(bench.reports.len(), 500);
    assert!(bench.stored.len() > 2 && bench.stored.iter().all(|transaction| transaction.len() < 250));
    let counters = bench.engine.counters();
    assert_eq!((counters.accepted, counters.queued), (1000, 1000));
}

#[test]
fn each_recipient_of_an_expired_or_delayed_message_is_told_its_own_last_answer_and_server() {
    for is_expired in [false, true] {
        let mut bench = bench();
        bench.accept(&with_two_at_one_destination(1, 0));
        bench.handle(Event::Started);
        let leased = bench.lease();
        let said = |status, text: &str| Outcome { from_remote: true, ..Outcome::deferred(status, text) };
        let (full, greylisted) = (Enhanced(4, 2, 2), Enhanced(4, 7, 1));
        bench.finish(leased, vec![(0, said(full, "452 full")), (1, said(greylisted, "451 greylisted"))]);
        bench.now = if is_expired { 10 * DAY } else { 5 * HOUR };
        bench.handle(Event::Tick);
        let report = bench.reports.pop().unwrap();
        let text = String::from_utf8(report.content.in_memory().unwrap().to_vec()).unwrap();
        for said in ["452 full", "451 greylisted"] {
            let told = format!("mx.d.test[192.0.2.1]:25 replied: {said}\r\n");
            let field = format!("Remote-MTA: dns; mx.d.test\r\nDiagnostic-Code: smtp; {said}\r\n");
            assert!(text.matches(&told).count() == 1 && text.matches(&field).count() == 1, "{text}");
        }
        assert!(!text.contains("Remark"), "{text}");
    }
}
