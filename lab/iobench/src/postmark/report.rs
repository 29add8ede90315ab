//! PostMark's report, in its words; only that seconds have fractions here, as a run today is over before
//! a whole one has passed.

use super::{config::scaled, work::Done};
use crate::table::{Cell, Column};
use std::{fmt::Write as _, time::Duration};

fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-6)
}

/// Returns the report for people, as PostMark writes it.
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

/// The rates of PostMark, in its order of columns.
fn rates(done: &Done) -> [f64; 11] {
    let c = &done.counts;
    let (total, middle) = (done.total, done.transacting);
    [
        per_second(c.transactions, middle),
        per_second(c.created, total),
        per_second(c.created_alone, done.creating),
        per_second(c.created - c.created_alone, middle),
        per_second(c.read, middle),
        per_second(c.appended, middle),
        per_second(c.deleted, total),
        per_second(c.deleted_alone, done.deleting),
        per_second(c.deleted - c.deleted_alone, middle),
        per_second(c.bytes_read, total),
        per_second(c.bytes_written, total),
    ]
}

/// For programs: PostMark's order of columns.
pub(crate) fn terse(done: &Done) -> String {
    let times = [done.total, done.transacting].map(|time| time.as_secs_f64());
    let columns = times.into_iter().chain(rates(done));
    columns.map(|n| format!("{n:.2}")).collect::<Vec<_>>().join(" ") + "\n"
}

/// Columns of the cells that [`cells`] returns.
pub(crate) const COLUMNS: [Column; 20] = [
    Column::other("s", "seconds_total"),
    Column::other("s of transactions", "seconds_of_transactions"),
    Column::other("transactions", "transactions"),
    Column::other("transactions/s", "transactions_per_second"),
    Column::other("files created", "files_created"),
    Column::other("created/s", "created_per_second"),
    Column::other("created alone/s", "created_alone_per_second"),
    Column::other("created beside transactions/s", "created_mixed_per_second"),
    Column::other("files read", "files_read"),
    Column::other("read/s", "read_per_second"),
    Column::other("files appended", "files_appended"),
    Column::other("appended/s", "appended_per_second"),
    Column::other("files deleted", "files_deleted"),
    Column::other("deleted/s", "deleted_per_second"),
    Column::other("deleted alone/s", "deleted_alone_per_second"),
    Column::other("deleted beside transactions/s", "deleted_mixed_per_second"),
    Column::other("octets read", "bytes_read"),
    Column::other("octets read/s", "bytes_read_per_second"),
    Column::other("octets written", "bytes_written"),
    Column::other("octets written/s", "bytes_written_per_second"),
];

/// Returns the figures of a run, in the order of [`COLUMNS`].
pub(crate) fn cells(done: &Done) -> [Cell; 20] {
    let c = &done.counts;
    let seconds = |time: Duration| Cell::Number(time.as_secs_f64(), 2);
    let [
        transactions,
        created,
        created_alone,
        created_mixed,
        read,
        appended,
        deleted,
        deleted_alone,
        deleted_mixed,
        bytes_read,
        bytes_written,
    ] = rates(done).map(|rate| Cell::Number(rate, 2));
    [
        seconds(done.total),
        seconds(done.transacting),
        c.transactions.into(),
        transactions,
        c.created.into(),
        created,
        created_alone,
        created_mixed,
        c.read.into(),
        read,
        c.appended.into(),
        appended,
        c.deleted.into(),
        deleted,
        deleted_alone,
        deleted_mixed,
        c.bytes_read.into(),
        bytes_read,
        c.bytes_written.into(),
        bytes_written,
    ]
}
