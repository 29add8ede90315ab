//! `postrider spool check`: every record verified, and what they come to.

use console::Ending;
use control::Exit;
use serde::Serialize;
use spool::{LogItem, RecordBody, RecoveryReport, Totals, dump_batches, inspect_all};
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
    let Reading { written, live, recovery, imbalances } = lasting(|| Reading::of(dir))?;
    let is_damaged = written.as_ref().is_some_and(|written| !written.damage.is_empty());
    let unread = match &written {
        Some(written) => written.unread.clone(),
        None => recovery.unread.clone(),
    };
    let RecoveryReport { corrupt, quarantined, totals, .. } = recovery;
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

/// How often a spool is read whose faults change from one time to the next.
const READINGS_MAX: usize = 6;

/// What was found when the spool was read once.
#[derive(Debug, Default)]
struct Reading {
    /// `None` for queue directories.
    written: Option<Count>,
    live: Live,
    recovery: RecoveryReport,
    imbalances: Vec<String>,
}

impl Reading {
    fn of(dir: &Path) -> Result<Self, super::CliError> {
        let written = if spool::has_queue_directories(dir) { None } else { Some(count(dir)?) };
        let (live, recovery) = live(dir)?;
        let imbalances = recovery.imbalances.iter().map(ToString::to_string).collect();
        Ok(Self { written, live, recovery, imbalances })
    }

    /// The lists of faults, in an order of their own.
    fn faults(&mut self) -> impl Iterator<Item = &mut Vec<String>> {
        let of_count = self.written.iter_mut().flat_map(|count| [&mut count.damage, &mut count.unread]);
        let RecoveryReport { corrupt, unread, .. } = &mut self.recovery;
        of_count.chain([corrupt, unread])
    }

    fn is_sound(&mut self) -> bool {
        self.imbalances.is_empty() && self.faults().all(|list| list.is_empty())
    }

    /// Keeps the faults that an earlier reading had, too. Returns false if there were others: what they hid may be what is
    /// missing in the totals.
    fn keep_common(&mut self, earlier: &mut Self) -> bool {
        let mut is_calm = true;
        for (list, before) in self.faults().zip(earlier.faults()) {
            let count = list.len();
            list.retain(|fault| before.contains(fault));
            is_calm &= list.len() == count;
        }
        if !is_calm {
            self.imbalances.clear();
        }
        is_calm
    }
}

/// Reads a spool again as long as its faults change. What a daemon writes while the spool is read can look like damage,
/// such as a batch that is missing before the next one; the next reading finds it whole. Damage is in every reading. The
/// numbers in a difference of the totals change with the mail, so it counts when two readings without anything new have one.
fn lasting(mut read: impl FnMut() -> Result<Reading, super::CliError>) -> Result<Reading, super::CliError> {
    let (mut last, mut was_calm) = (read(), false);
    if last.as_mut().is_ok_and(Reading::is_sound) {
        return last;
    }
    for _ in 1..READINGS_MAX {
        let mut next = read();
        let is_settled = match (&mut last, &mut next) {
            (Ok(last), Ok(next)) => {
                let is_calm = next.keep_common(last);
                let is_known = was_calm && !last.imbalances.is_empty() || next.imbalances == last.imbalances;
                was_calm = is_calm;
                is_calm && (is_known || next.imbalances.is_empty())
            }
            (Err(last), Err(next)) => last.text == next.text,
            (Err(_), Ok(next)) => next.is_sound(),
            (Ok(_), Err(_)) => false,
        };
        last = next;
        if is_settled {
            break;
        }
    }
    last
}

fn count(dir: &Path) -> Result<Count, super::CliError> {
    let mut count = Count::default();
    let mut segment = String::new();
    let item = dump_batches(dir, &mut |item| match item {
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

#[cfg(test)]
mod tests {
    use super::*;
    use console::CliError;
    use control::Exit;

    /// A reading with these damaged places, and differences of the totals.
    fn reading(damage: &[&str], imbalances: &[&str]) -> Reading {
        let list = |list: &[&str]| list.iter().map(|&fault| fault.to_owned()).collect();
        let written = Some(Count { damage: list(damage), ..Count::default() });
        Reading { written, imbalances: list(imbalances), ..Reading::default() }
    }

    /// What is left of these readings: damage, differences, and how many of them were needed.
    fn left(readings: Vec<Reading>) -> (Vec<String>, Vec<String>, usize) {
        let (mut all, mut count) = (readings.into_iter(), 0);
        let left = lasting(|| {
            count += 1;
            Ok(all.next().expect("no more readings are needed"))
        });
        let left = left.unwrap();
        (left.written.unwrap().damage, left.imbalances, count)
    }

    #[test]
    fn a_spool_without_a_fault_is_read_once_and_one_at_rest_twice() {
        assert_eq!(left(vec![reading(&[], &[])]), (vec![], vec![], 1));
        let damaged = || reading(&["a", "b"], &["2 are left, 3 were found"]);
        let found = vec!["2 are left, 3 were found".to_owned()];
        assert_eq!(left(vec![damaged(), damaged()]), (vec!["a".to_owned(), "b".to_owned()], found, 2));
    }

    #[test]
    fn a_fault_that_the_next_reading_does_not_have_was_a_write_under_way() {
        assert_eq!(left(vec![reading(&["a"], &["x"]), reading(&[], &[])]), (vec![], vec![], 2));
        assert_eq!(left(vec![reading(&["a"], &["x"]), reading(&["b"], &["y"]), reading(&[], &[])]).2, 3);
        let lasting = |fault: &'static str| reading(&["real", fault], &[fault]);
        let real = |count| (vec!["real".to_owned()], vec![], count);
        assert_eq!(left(["a", "b", "c", "d", "e", "f"].map(lasting).into()), real(READINGS_MAX));
        assert_eq!(left(vec![lasting("a"), reading(&["real"], &[])]), real(2));
    }

    #[test]
    fn a_difference_of_the_totals_counts_when_two_readings_without_anything_new_have_one() {
        let differs = |imbalance: &'static str| reading(&[], &[imbalance]);
        assert_eq!(left(["x", "y", "z"].map(differs).into()), (vec![], vec!["z".to_owned()], 3));
        assert_eq!(left(vec![differs("x"), differs("y"), reading(&[], &[])]), (vec![], vec![], 3));
        let disturbed = reading(&["a"], &["z"]);
        let all = vec![differs("x"), differs("y"), disturbed, reading(&[], &[])];
        assert_eq!(left(all), (vec![], vec![], 4));
    }

    #[test]
    fn a_spool_that_changes_faster_than_it_is_read_is_not_read_for_ever() {
        let mut count = 0;
        let left = lasting(|| {
            count += 1;
            let name = format!("{count}");
            if count % 2 == 0 { Err(CliError::new(Exit::IoErr, name)) } else { Ok(reading(&[&name], &[])) }
        });
        assert!(left.is_err() && count == READINGS_MAX);
    }

    #[test]
    fn an_error_that_stays_is_told_and_one_that_goes_is_not() {
        let denied = || Err(CliError::new(Exit::IoErr, "denied"));
        assert_eq!(lasting(denied).unwrap_err().text, "denied");
        let mut all = vec![Ok(reading(&[], &[])), denied()];
        assert_eq!(lasting(|| all.pop().unwrap()).unwrap().imbalances.len(), 0);
    }
}
