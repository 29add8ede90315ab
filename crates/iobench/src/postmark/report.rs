//! PostMark's report, in its words; only that seconds have fractions here, as a run today is over before
//! a whole one has passed.

use super::{config::scaled, work::Done};
use std::{fmt::Write as _, time::Duration};

fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-6)
}

/// For people.
pub(crate) fn verbose(done: &Done) -> String {
    let c = &done.counts;
    let mut out = String::new();
    let mut line = |tabs: usize, text: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}{text}", "\t".repeat(tabs));
    };
    let rate = |count: u64, time: Duration| format!("{:.0} per second", per_second(count, time));
    let files = |count: u64, time: Duration| format!("{count} files ({})", rate(count, time));
    let (total, middle) = (done.total, done.transacting);
    line(0, "Time:".into());
    line(1, format!("{:.2} seconds total", total.as_secs_f64()));
    line(
        1,
        format!("{:.2} seconds of transactions ({})", middle.as_secs_f64(), rate(c.transactions, middle)),
    );
    line(0, "\nFiles:".into());
    line(1, format!("{} created ({})", c.created, rate(c.created, total)));
    line(2, format!("Creation alone: {}", files(c.created_alone, done.creating)));
    line(2, format!("Mixed with transactions: {}", files(c.created - c.created_alone, middle)));
    line(1, format!("{} read ({})", c.read, rate(c.read, middle)));
    line(1, format!("{} appended ({})", c.appended, rate(c.appended, middle)));
    line(1, format!("{} deleted ({})", c.deleted, rate(c.deleted, total)));
    line(2, format!("Deletion alone: {}", files(c.deleted_alone, done.deleting)));
    line(2, format!("Mixed with transactions: {}", files(c.deleted - c.deleted_alone, middle)));
    line(0, "\nData:".into());
    for (bytes, verb) in [(c.bytes_read, "read"), (c.bytes_written, "written")] {
        let each = bytes as f64 / total.as_secs_f64().max(1e-6);
        line(1, format!("{} {verb} ({} per second)", scaled(bytes as f64), scaled(each)));
    }
    out
}

/// For programs: PostMark's order of columns.
pub(crate) fn terse(done: &Done) -> String {
    let c = &done.counts;
    let (total, middle) = (done.total, done.transacting);
    let columns = [
        total.as_secs_f64(),
        middle.as_secs_f64(),
        per_second(c.transactions, middle),
        per_second(c.created, total),
        per_second(c.created_alone, done.creating),
        per_second(c.created - c.created_alone, middle),
        per_second(c.read, middle),
        per_second(c.appended, middle),
        per_second(c.deleted, total),
        per_second(c.deleted_alone, done.deleting),
        per_second(c.deleted - c.deleted_alone, middle),
        c.bytes_read as f64 / total.as_secs_f64().max(1e-6),
        c.bytes_written as f64 / total.as_secs_f64().max(1e-6),
    ];
    columns.map(|n| format!("{n:.2}")).join(" ") + "\n"
}
