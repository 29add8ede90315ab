//! `postrider spool check`: every record verified, and what they come to.

use console::Ending;
use control::Exit;
use serde::Serialize;
use spool::{LogItem, RecordBody, RecoveryReport, Totals, dump_log, inspect_all};
use std::{
    io::{self, Write},
    path::Path,
};

#[derive(Debug, Default, Serialize)]
struct Count {
    segments: u64,
    empty_segments: u64,
    quarantined_segments: u64,
    batches: u64,
    messages: u64,
    outcomes: u64,
    tombstones: u64,
    holds: u64,
    chunks: u64,
    totals: u64,
    torn_bytes: u64,
    damage: Vec<String>,
    #[serde(skip)]
    unread: Vec<String>,
}

impl Count {
    fn records(&self) -> u64 {
        self.messages + self.outcomes + self.tombstones + self.holds + self.chunks + self.totals
    }
}

#[derive(Debug, Default, Serialize)]
struct Live {
    messages: u64,
    bytes: u64,
    recipients: u64,
    recipients_left: u64,
    held_messages: u64,
    deferred_recipients: u64,
}

/// The totals as JSON.
#[derive(Debug, Serialize)]
struct TotalsReport {
    accepted: u64,
    delivered: u64,
    bounced: u64,
    expired: u64,
    deleted: u64,
    moved: u64,
}

impl From<Totals> for TotalsReport {
    fn from(totals: Totals) -> Self {
        let Totals { accepted, delivered, bounced, expired, deleted, moved } = totals;
        Self { accepted, delivered, bounced, expired, deleted, moved }
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    path: &'a Path,
    /// Records in the files of the log; `None` for queue directories.
    #[serde(skip_serializing_if = "Option::is_none")]
    written: Option<Count>,
    live: Live,
    totals: TotalsReport,
    /// Differences between the totals and the recipients that are left.
    imbalances: Vec<String>,
    corrupt: Vec<String>,
    /// Places that the disk does not give back now.
    unread: Vec<String>,
    /// Damaged files that were taken out of the log.
    quarantined: Vec<String>,
    is_sound: bool,
}

pub(super) fn run(dir: &Path, json: bool, out: &mut dyn Write) -> Ending {
    let written = if spool::has_queue_directories(dir) { None } else { Some(count(dir)?) };
    let (live, recovery) = live(dir)?;
    let is_damaged = written.as_ref().is_some_and(|written| !written.damage.is_empty());
    let unread = match &written {
        Some(written) => written.unread.clone(),
        None => recovery.unread.clone(),
    };
    let RecoveryReport { corrupt, quarantined, totals, imbalances, .. } = recovery;
    let imbalances: Vec<String> = imbalances.iter().map(ToString::to_string).collect();
    let is_sound =
        !is_damaged && [&corrupt, &unread, &quarantined, &imbalances].into_iter().all(Vec::is_empty);
    let text = super::totals_text(&totals);
    let totals = totals.into();
    let report =
        Report { path: dir, written, live, totals, imbalances, corrupt, unread, quarantined, is_sound };
    if json {
        serde_json::to_writer(&mut *out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print(&report, &text, out)?;
    }
    Ok(if is_sound { Exit::Ok } else { Exit::DataErr })
}

fn count(dir: &Path) -> Result<Count, super::CliError> {
    let mut count = Count::default();
    let mut segment = String::new();
    let item = dump_log(dir, &mut |item| match item {
        LogItem::Segment { name, .. } => {
            name.clone_into(&mut segment);
            count.segments += 1;
            count.quarantined_segments += u64::from(!name.ends_with(".seg"));
        }
        LogItem::Empty { .. } => count.empty_segments += 1,
        LogItem::Batch { .. } => count.batches += 1,
        LogItem::Unread { name, why } => count.unread.push(format!("{name}: {why}")),
        LogItem::Torn { length, .. } => count.torn_bytes += length,
        LogItem::Damage { from, to, why } => {
            count.damage.push(format!("{segment}: bytes {from} to {to}: {why}"));
        }
        LogItem::Record { is_loose: true, .. } => {}
        LogItem::Record { body, offset, .. } => match body {
            RecordBody::Message { .. } => count.messages += 1,
            RecordBody::Outcome { .. } => count.outcomes += 1,
            RecordBody::Tombstone { .. } => count.tombstones += 1,
            RecordBody::Hold { .. } => count.holds += 1,
            // A part of the hold behind it.
            RecordBody::HoldReason { .. } => {}
            RecordBody::Chunk { .. } => count.chunks += 1,
            RecordBody::Totals { .. } => count.totals += 1,
            RecordBody::Nonsense { why } => {
                count.damage.push(format!("{segment}: record at {offset}: {why}"));
            }
        },
    });
    item.map_err(|failure| super::spool_error(&failure))?;
    Ok(count)
}

fn live(dir: &Path) -> Result<(Live, RecoveryReport), super::CliError> {
    let mut live = Live::default();
    let report = inspect_all(dir, &mut |found| {
        live.messages += 1;
        live.bytes += found.message.content.size_bytes();
        live.recipients += found.recipients.len() as u64;
        live.held_messages += u64::from(found.held.is_some());
        let left = found.recipients.iter().filter(|r| !r.settled);
        live.recipients_left += left.clone().count() as u64;
        live.deferred_recipients += left.filter(|r| r.attempt_count > 0).count() as u64;
    });
    Ok((live, report.map_err(|failure| super::spool_error(&failure))?))
}

fn print(report: &Report<'_>, totals: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", report.path.display())?;
    if let Some(written) = &report.written {
        print_written(written, out)?;
    }
    let l = &report.live;
    writeln!(out, "  live messages  {:>12}   ({} bytes, {} held)", l.messages, l.bytes, l.held_messages)?;
    let (left, tried) = (l.recipients_left, l.deferred_recipients);
    writeln!(out, "    recipients   {:>12}   ({left} left, {tried} of them tried)", l.recipients)?;
    writeln!(out, "  totals         {totals}")?;
    report.imbalances.iter().try_for_each(|what| writeln!(out, "not accounted for: {what}"))?;
    let damage = report.written.iter().flat_map(|written| &written.damage);
    damage.into_iter().try_for_each(|what| writeln!(out, "damaged: {what}"))?;
    report.corrupt.iter().try_for_each(|what| writeln!(out, "corrupt: {what}"))?;
    report.unread.iter().try_for_each(|what| writeln!(out, "cannot be read: {what}"))?;
    report.quarantined.iter().try_for_each(|name| writeln!(out, "quarantined: {name}"))?;
    if report.is_sound {
        writeln!(out, "sound: every record is what was written")
    } else {
        writeln!(out, "not sound: see `postrider spool salvage`")
    }
}

fn print_written(w: &Count, out: &mut dyn Write) -> io::Result<()> {
    let (empty, quarantined) = (w.empty_segments, w.quarantined_segments);
    writeln!(out, "  segments       {:>12}   ({empty} empty, {quarantined} quarantined)", w.segments)?;
    writeln!(out, "  batches        {:>12}", w.batches)?;
    writeln!(out, "  records        {:>12}", w.records())?;
    writeln!(out, "    messages     {:>12}", w.messages)?;
    writeln!(out, "    outcomes     {:>12}", w.outcomes)?;
    writeln!(out, "    tombstones   {:>12}", w.tombstones)?;
    writeln!(out, "    holds        {:>12}", w.holds)?;
    writeln!(out, "    chunks       {:>12}", w.chunks)?;
    writeln!(out, "    totals       {:>12}", w.totals)?;
    let note = "(behind the last batch: nothing acknowledged was in them)";
    writeln!(out, "  torn bytes     {:>12}   {note}", w.torn_bytes)
}
