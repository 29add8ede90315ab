//! Recipients of reports.

use super::*;
use mail::{Cause, Origin, ReturnPath};

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
        mixed.envelope.recipients[at].return_path = Some(Box::new(owner));
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
