//! Opens the segments of a log for recovery, and finds their order.

use super::{
    epoch,
    header::{FoundHeader, find_header},
    index::Segment,
    missing::Orphan,
    recover::{Found, io_error},
    segment_allocator::{Mark, is_quarantined, is_unfinished, parse_mark, quarantined_names},
    segment_index,
    tolerant::{FaultTolerantFile, with_retries},
};
use crate::{
    SpoolFailure,
    disk::{Disk, File},
    format::block::{BATCH_HEAD_BYTES, FIRST_BATCH, SegmentHeader, VERSION, read_head},
    mutant::Mutant,
};
use std::{collections::HashSet, sync::Arc};

/// Ending of the names of segment index files in builds before 0.1.0.
const OLD_INDEX: &str = ".dig";

/// Opens all segments, in their order.
///
/// # Errors
/// When the directory cannot be read, or another version of this program wrote a segment.
pub(super) fn open_segments(disk: &dyn Disk, found: &mut Found) -> Result<Vec<Segment>, SpoolFailure> {
    let names = with_retries(|| disk.list()).map_err(|e| io_error("list", "the spool", &e))?;
    let is_leftover = |name: &&String| is_unfinished(name) || name.ends_with(OLD_INDEX);
    found.unfinished = names.iter().filter(is_leftover).cloned().collect();
    found.markers = names.iter().filter(|name| epoch::of_marker(name).is_some()).cloned().collect();
    found.epoch = found.markers.iter().filter_map(|name| epoch::of_marker(name)).max().unwrap_or(0);
    let current = epoch::marker(found.epoch);
    found.unfinished.extend(found.markers.iter().filter(|name| **name != current).cloned());
    found.markers.retain(|name| *name == current);
    found.report.quarantined = names.iter().filter(|name| is_quarantined(name)).cloned().collect();
    let there: HashSet<&String> = names.iter().collect();
    let indexes = names.iter().filter_map(|name| segment_index::segment_of(name));
    // In the order of the names: what is removed first must not be chance.
    let (indexed, orphans): (Vec<String>, Vec<_>) = indexes.partition(|segment| there.contains(segment));
    let indexed: HashSet<String> = indexed.into_iter().collect();
    for segment in orphans {
        match Orphan::read(disk, &segment, &there) {
            Some(orphan) => found.missing.push(orphan),
            None => found.unfinished.push(segment_index::name_of(&segment)),
        }
    }
    let marks = names.iter().filter_map(|name| Some((name, parse_mark(name)?)));
    let has_segment = |stem: &str| {
        let segment = format!("{stem}.seg");
        quarantined_names(&segment).iter().any(|name| there.contains(name))
            || there.contains(&segment_index::name_of(&segment))
            || there.contains(&segment)
    };
    let orphans = marks.clone().filter(|(_, (stem, _))| !has_segment(stem));
    found.unfinished.extend(orphans.map(|(name, _)| name.clone()));
    let marked: HashSet<(String, Mark)> = marks.map(|(_, (stem, why))| (stem.to_owned(), why)).collect();
    let (mut opened, mut headless) = (Vec::new(), Vec::new());
    for name in names.into_iter().filter(|n| n.ends_with(".seg")) {
        // A new segment is named after its number, and must not take the name of one that is there.
        let made_as = u64::from_str_radix(name.trim_end_matches(".seg"), 16).unwrap_or(0);
        found.next_sequence = found.next_sequence.max(made_as.saturating_add(1));
        found.segment_count += 1;
        let is_indexed = indexed.contains(&name);
        let marks = [Mark::Unread, Mark::Damaged]
            .map(|why| marked.contains(&(name.trim_end_matches(".seg").to_owned(), why)));
        match open_segment(disk, &name, is_indexed, marks, found)? {
            Some((segment, reader, None)) => opened.push((segment, reader)),
            Some((segment, reader, Some(first_batch))) => headless.push((segment, reader, first_batch)),
            None => {}
        }
    }
    opened.sort_by_key(|(segment, _)| segment.header.sequence);
    for (segment, reader, first_batch) in headless {
        let at = opened.iter().position(|(other, _)| first_batch_of(other) > Some(first_batch));
        opened.insert(at.unwrap_or(opened.len()), (segment, reader));
    }
    for (segment, _) in &opened {
        found.next_sequence = found.next_sequence.max(segment.header.sequence + 1);
    }
    found.epoch = found.epoch.max(epoch::of(found.next_sequence));
    let numbered = (1..).zip(opened).map(|(number, (segment, reader))| {
        found.readers.insert(number, reader);
        Segment { number, ..segment }
    });
    let segments: Vec<Segment> = numbered.collect();
    found.next_number = segments.len() as u32 + 1;
    Ok(segments)
}

/// A segment, its file, and the number of its first batch where both of its headers are lost.
type Opened = (Segment, Arc<FaultTolerantFile>, Option<u64>);

/// Opens one segment; `None` when there is nothing to read in it, or it cannot be read.
fn open_segment(
    disk: &dyn Disk,
    name: &str,
    is_indexed: bool,
    [is_unread, is_damaged]: [bool; 2],
    found: &mut Found,
) -> Result<Option<Opened>, SpoolFailure> {
    let opened = with_retries(|| disk.open(name)).and_then(|file| {
        let size_bytes = with_retries(|| file.len())?;
        Ok((file, size_bytes))
    });
    let (file, size_bytes) = match opened {
        Ok(opened) => opened,
        Err(e) if found.mutant.is(Mutant::StopAtDamage) => return Err(io_error("open", name, &e)),
        Err(e) => {
            found.report.unread.push(format!("{name}: it cannot be opened: {e}"));
            found.unopened.push(name.to_owned());
            return Ok(None);
        }
    };
    let reader = FaultTolerantFile::over(file.clone());
    let header = find_header(&reader, size_bytes, found.mutant).map_err(|other| {
        SpoolFailure::Unusable(format!(
            "{name}: format {other}; this version writes {VERSION} and reads what is older"
        ))
    })?;
    let is_strict = found.mutant.is(Mutant::StopAtDamage);
    let read_by: Arc<dyn File> = if is_strict { file.clone() } else { reader.clone() };
    let segment = |header: SegmentHeader| Segment {
        is_damaged,
        is_indexed,
        is_marked: is_unread || is_damaged,
        ..Segment::new(0, name.to_owned(), header, read_by.clone())
    };
    let damaged = |header| Segment { is_damaged: true, ..segment(header) };
    let first_block_is_unread = reader.unread().is_some();
    if is_damaged {
        found.report.corrupt.push(format!("{name}: it is damaged, as was found before"));
    }
    Ok(match header {
        FoundHeader::Sound(header) if size_bytes < header.size_bytes => {
            let whole = header.size_bytes;
            found.report.corrupt.push(format!("{name}: only {size_bytes} of its {whole} bytes are there"));
            Some((damaged(header), reader, None))
        }
        FoundHeader::Sound(header) => Some((segment(header), reader, None)),
        FoundHeader::Copied(header) if first_block_is_unread => Some((segment(header), reader, None)),
        FoundHeader::Copied(header) => {
            found.report.corrupt.push(format!("{name}: its header is damaged; the copy of it is used"));
            Some((damaged(header), reader, None))
        }
        FoundHeader::Lost { header, first_batch } if first_block_is_unread => {
            Some((segment(header), reader, Some(first_batch)))
        }
        FoundHeader::Lost { header, first_batch } => {
            found.report.corrupt.push(format!("{name}: its header is lost; its batches are read without it"));
            Some((damaged(header), reader, Some(first_batch)))
        }
        FoundHeader::Free(header) => {
            // Freed and about to be removed, or never finished. The header stays: it tells the generation of the batches.
            found.empty.push(Segment { file, ..segment(header) });
            None
        }
        FoundHeader::Nothing => {
            found.report.corrupt.push(format!("{name}: neither its headers nor its first batch can be read"));
            None
        }
        FoundHeader::Unread => {
            let why = reader.unread().unwrap_or_default();
            found.report.unread.push(format!("{name}: {why}"));
            found.unopened.push(name.to_owned());
            None
        }
    })
}

/// The number of a segment's first batch, if it can be read.
fn first_batch_of(segment: &Segment) -> Option<u64> {
    let mut head = [0; BATCH_HEAD_BYTES];
    let length = segment.file.read_at(FIRST_BATCH, &mut head).ok()?;
    read_head(&head[..length], FIRST_BATCH, segment.header.seed).ok().map(|head| head.sequence)
}
