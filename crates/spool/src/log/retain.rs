//! Keeps what ended messages that may come back. As long as a segment cannot be read, or lies in quarantine, the
//! records that end or change its messages are as live as messages are: a later start that reads the segment again
//! needs them, or it would deliver those messages once more.

use super::{
    Shared,
    header::{FoundHeader, find_header},
    index::{Index, Location, NOWHERE, RetainedRecords, Segment},
    recover::{is_zero, next_batch},
    segment_allocator::Mark,
    tolerant::FaultTolerantFile,
};
use crate::{
    RecoveryReport, SpoolFailure,
    disk::Disk,
    format::{
        block::{ALIGN, FIRST_BATCH, read_batch},
        record::Kind,
    },
    mutant::{ActiveMutant, Mutant},
};
use std::collections::HashSet;

/// A record, with its place and the batch that it was in.
pub(super) struct Placed {
    pub(super) kind: Kind,
    pub(super) name: u64,
    pub(super) at: Location,
    /// Sequence number of its batch.
    pub(super) batch: u64,
    /// Checksum of an outcome's body: equal outcomes are kept once. Zero for other kinds.
    pub(super) sum: u32,
}

/// Reads all records of whole batches in a segment.
///
/// # Errors
/// When the disk does not give the segment back.
pub(super) fn each_record(segment: &Segment, mut each: impl FnMut(Placed)) -> Result<(), SpoolFailure> {
    let Segment { number, header, file, name, .. } = segment;
    let mut bytes = vec![0; header.end() as usize];
    let length = file.read_at(0, &mut bytes);
    let length = length.map_err(|e| SpoolFailure::Io(format!("read {name}: {e}")))?;
    bytes.truncate(length);
    let (mut at, mut last, mut is_read_again) = (FIRST_BATCH as usize, 0, false);
    while at < bytes.len() {
        let Ok((head, found)) = read_batch(&bytes[at..], at as u64, header.seed, true) else {
            let block = &bytes[at..bytes.len().min(at + ALIGN)];
            if !is_read_again && !is_zero(block) {
                // Perhaps only memory has it wrong.
                is_read_again = true;
                let length = file.read_uncached(0, &mut bytes);
                length.map_err(|e| SpoolFailure::Io(format!("read {name}: {e}")))?;
                continue;
            }
            // What stands behind damage counts, too.
            at = next_batch(&bytes, at, header.seed, last).unwrap_or(bytes.len());
            continue;
        };
        last = head.sequence;
        for (offset, length, record) in found {
            let at = Location { segment: *number, offset: offset as u32, length };
            let sum = match record.kind {
                Kind::Outcome => crc32c::crc32c(record.body),
                Kind::Message | Kind::Tombstone | Kind::Hold | Kind::Chunk | Kind::Totals => 0,
            };
            each(Placed { kind: record.kind, name: record.name, at, batch: head.sequence, sum });
        }
        at += head.padded() as usize;
    }
    Ok(())
}

/// Returns the ids of the messages in a segment. What cannot be read in the segment is left out.
fn message_ids(segment: &Segment) -> HashSet<u64> {
    let mut ids = HashSet::new();
    let _ = each_record(segment, |record| {
        if record.kind == Kind::Message {
            ids.insert(record.name);
        }
    });
    ids
}

/// Returns the ids of the messages in the whole batches of a quarantined file.
fn ids_in_quarantine(disk: &dyn Disk, name: &str) -> HashSet<u64> {
    let opened = disk.open(name).and_then(|file| Ok((file.len()?, FaultTolerantFile::over(file))));
    // What cannot be read of the file cannot be brought back either.
    let Ok((size_bytes, file)) = opened else { return HashSet::new() };
    match find_header(&file, size_bytes, ActiveMutant::default()) {
        Ok(FoundHeader::Sound(header) | FoundHeader::Copied(header) | FoundHeader::Lost { header, .. }) => {
            message_ids(&Segment::new(NOWHERE, name.to_owned(), header, file))
        }
        // A start does not find any message in such a file either.
        Ok(FoundHeader::Free(_) | FoundHeader::Nothing | FoundHeader::Unread) | Err(_) => HashSet::new(),
    }
}

/// The records that must be kept, from all segments but the parked ones, whose own records stay where they are.
///
/// # Errors
/// With the number of the segment that cannot be read.
fn collect(
    index: &Index,
    segments: &[Segment],
    tail: Option<u64>,
) -> Result<Vec<Placed>, (u32, SpoolFailure)> {
    let mut collected = Vec::new();
    for segment in segments {
        each_record(segment, |record| {
            let is_kept = match record.kind {
                Kind::Tombstone | Kind::Outcome | Kind::Hold => {
                    index.retention.covers_beside(record.name, segment.number)
                }
                Kind::Message | Kind::Chunk | Kind::Totals => false,
            };
            // The batch at the tail is written once more, and what is in it is kept there.
            if is_kept && Some(record.batch) != tail {
                collected.push(record);
            }
        })
        .map_err(|failure| (segment.number, failure))?;
    }
    Ok(collected)
}

fn segment_name(index: &Index, number: u32) -> Option<String> {
    index.segment(number).map(|segment| segment.name.clone())
}

/// Of records that say the same of a message only the last: the others were written again.
fn latest(mut collected: Vec<Placed>) -> Vec<Placed> {
    let mut seen = HashSet::new();
    collected.reverse();
    collected.retain(|record| seen.insert((record.kind, record.name, record.sum)));
    collected.reverse();
    collected
}

/// Puts records that were collected into the index, before those that came while they were looked for.
fn keep(index: &mut Index, collected: Vec<Placed>) {
    let collected = latest(collected);
    let mut later = std::mem::take(&mut index.retention.kept);
    for Placed { kind, name, at, .. } in collected {
        let is_known = |kept: &RetainedRecords| {
            kept.done == Some(at) || kept.notes.iter().any(|(_, known)| *known == at)
        };
        if index.segments.contains_key(&at.segment)
            && !index.messages.contains_key(&name)
            && !later.get(&name).is_some_and(is_known)
            && !index.retention.kept.get(&name).is_some_and(is_known)
        {
            index.retain(kind, name, at);
        }
    }
    for (name, kept) in later.drain() {
        let own = index.retention.kept.entry(name).or_default();
        own.notes.extend(kept.notes);
        // Counted as live when it came; so is one that was collected, and is let go of.
        let replaced = if kept.done.is_some() { std::mem::replace(&mut own.done, kept.done) } else { None };
        replaced.into_iter().for_each(|at| index.release(at));
    }
}

/// Begins to keep what ended messages that may come back, at a start. `tail` is the number of the last batch.
pub(super) fn begin_at_start(
    disk: &dyn Disk,
    index: &mut Index,
    report: &mut RecoveryReport,
    tail: Option<u64>,
) {
    for name in &report.quarantined {
        ids_in_quarantine(disk, name).into_iter().for_each(|id| index.retention.add(id, NOWHERE));
    }
    let damaged: Vec<Segment> = index.segments.values().filter(|s| s.is_damaged).cloned().collect();
    for segment in damaged {
        // What cannot be read now is found when all records are looked through.
        message_ids(&segment).into_iter().for_each(|id| index.retention.add(id, segment.number));
    }
    if !report.unread.is_empty() {
        index.retention.up_to = index.highest_id;
    }
    // Each turn parks a segment, or is the last.
    while index.retention.is_on() {
        let segments: Vec<Segment> = index.segments.values().cloned().collect();
        match collect(index, &segments, tail) {
            Ok(collected) => return keep(index, collected),
            Err((number, failure)) => {
                report.unread.push(failure.to_string());
                index.retention.up_to = index.highest_id;
                index.park(number);
            }
        }
    }
}

impl Shared {
    /// Parks the oldest segment of a running log, and keeps what ended its messages.
    ///
    /// # Errors
    /// When a later segment cannot be read: then nothing has changed.
    pub(super) fn park_oldest(&self, number: u32) -> Result<(), SpoolFailure> {
        let segments: Vec<Segment> = {
            let mut index = self.index();
            index.retention.up_to = index.highest_id;
            index.segments.range(number + 1..).map(|(_, segment)| segment.clone()).collect()
        };
        // What is committed meanwhile is kept by the index itself.
        let mut collected = Vec::new();
        for segment in &segments {
            each_record(segment, |record| {
                if matches!(record.kind, Kind::Tombstone | Kind::Outcome | Kind::Hold) {
                    collected.push(record);
                }
            })?;
        }
        let name = segment_name(&self.index(), number);
        let marked = self.allocator.mark_parked(name.iter().map(String::as_str), Mark::Damaged);
        marked.map_err(|e| SpoolFailure::Io(format!("mark a segment as parked: {e}")))?;
        let mut index = self.index();
        if !self.mutant.is(Mutant::DropTombstones) {
            keep(&mut index, collected);
        }
        index.park(number);
        Ok(())
    }
}
