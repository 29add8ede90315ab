//! Reads the log from its beginning and says what is in it.
//!
//! Batches carry consecutive numbers. One that cannot be read ends a segment: nothing behind it was
//! acknowledged, unless a later number turns up, which makes it corruption and not a torn tail. The
//! very last batch is written but perhaps not synced; whoever goes on writing writes it again first.

use super::{
    Source,
    digest::{self, Envelopes},
    index::{Index, Location, Segment, chunks_of},
    patient::Patient,
    pool::UNFINISHED,
    read_record,
    stretch::{Desk, Kept, Read, Row, Stretch, stretches},
    window::Window,
};
use crate::{
    Mutation, RecoveryReport, SpoolFailure,
    disk::{Disk, File},
    format::{
        block::{
            ALIGN, BATCH_HEAD_BYTES, BadHeader, FIRST_BATCH, SegmentHeader, VERSION, read_batch, read_head,
        },
        record::Kind,
    },
    parallel::in_order,
};
use std::{
    collections::{HashMap, HashSet},
    io,
};

/// How to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// With one, segment after segment from front to back, and nothing is kept.
    pub(crate) threads: usize,
    /// What a thread reads at a time.
    pub(crate) stretch_bytes: u64,
    /// Segments that have a digest need not be read.
    pub(crate) digests: bool,
}

impl Reading {
    /// Several stretches a segment, so that threads end at about the same time.
    pub(crate) fn on(threads: usize) -> Self {
        Self { threads, stretch_bytes: 8 * 1024 * 1024, digests: true }
    }
}

/// A record that was in the unproven batch.
pub(crate) struct Unproven {
    pub(crate) kind: Kind,
    pub(crate) name: u64,
    pub(crate) body: Vec<u8>,
}

/// The last batch: written, and perhaps not synced.
pub(crate) struct Last {
    pub(crate) sequence: u64,
    segment: u32,
    /// Not in the index.
    rows: Vec<Row>,
    /// Their bodies, unless they must be read again.
    bodies: Option<Vec<Vec<u8>>>,
}

impl Last {
    pub(crate) fn into_records(self) -> Vec<Unproven> {
        let bodies = self.bodies.unwrap_or_default();
        let rows = self.rows.into_iter().zip(bodies);
        rows.map(|(row, body)| Unproven { kind: row.kind, name: row.name, body }).collect()
    }
}

/// What the log says.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) index: Index,
    /// Segments without a batch: to be used again.
    pub(crate) empty: Vec<Segment>,
    /// Names of segments nobody finished making, and of digests whose segments are gone.
    pub(crate) unfinished: Vec<String>,
    pub(crate) last: Option<Last>,
    /// Envelopes that need not be read again, by segment.
    pub(crate) kept: HashMap<u32, Vec<Kept>>,
    /// Where else they are, by segment.
    pub(crate) envelopes: HashMap<u32, Envelopes>,
    /// The number of the first batch that could be read.
    first: Option<u64>,
    /// Segments whose first batch was written and cannot be read: the segment's number and the batch's.
    unread: Vec<(u64, u64)>,
    /// Segments with the last batch, which was written again since. Who did that may have been killed
    /// before the sync: until it is written once more, these may be the only ones the disk has.
    copies: Vec<u32>,
    /// Segments that hold nothing but the last batch.
    alone: Vec<u32>,
    /// Segments that hold nothing but a batch that was written again since.
    superseded: Vec<u32>,
    pub(crate) next_sequence: u64,
    pub(crate) next_chunk: u64,
    pub(crate) segment_count: u64,
    pub(crate) report: RecoveryReport,
    mutation: Mutation,
}

pub(crate) fn scan(disk: &dyn Disk, mutation: Mutation, reading: Reading) -> Result<Found, SpoolFailure> {
    let mut found = Found { mutation, ..Found::default() };
    let mut segments = open_segments(disk, &mut found)?;
    segments.sort_by_key(|s| s.header.sequence);
    for segment in &segments {
        found.next_sequence = found.next_sequence.max(segment.header.sequence + 1);
        found.segment_count += 1;
    }
    let whole = mutation != Mutation::IgnoreBatchEnd;
    if reading.threads > 1 {
        scan_stretches(disk, segments, &mut found, whole, reading)?;
    } else {
        let mut buffer = Vec::new();
        for segment in segments {
            let has_digest = reading.digests && segment.is_digested;
            let read = if has_digest { digest::read(disk, &segment) } else { None };
            buffer = scan_segment(segment, &mut found, whole, buffer, read.into_iter().collect())?;
        }
    }
    found.read_last()?;
    found.mark_lost_beginning();
    Ok(found)
}

/// What a thread reads.
enum Piece {
    /// Of this segment, whose number among all is this.
    Digest(usize, Segment),
    Stretch(Stretch),
}

/// Threads read digests and stretches; here they are put together, segment by segment.
fn scan_stretches(
    disk: &dyn Disk,
    segments: Vec<Segment>,
    found: &mut Found,
    whole: bool,
    reading: Reading,
) -> Result<(), SpoolFailure> {
    let desk = Desk::default();
    let mut all = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        if reading.digests && segment.is_digested {
            all.push(Piece::Digest(number, segment.clone()));
        } else {
            let more = stretches(number, segment, reading.stretch_bytes);
            all.extend(
                more.map_err(|e| io_error("read", &segment.name, &e))?.into_iter().map(Piece::Stretch),
            );
        }
    }
    let (mut segments, mut buffer) = (segments.into_iter(), Vec::new());
    let (mut reads, mut number): (Vec<Read>, usize) = (Vec::new(), 0);
    let mut put_together = |reads: &mut Vec<Read>| {
        let Some(segment) = segments.next() else { return Ok(()) };
        buffer = scan_segment(segment, found, whole, std::mem::take(&mut buffer), std::mem::take(reads))?;
        Ok::<(), SpoolFailure>(())
    };
    let read = |piece: &Piece| match piece {
        // One that is not believed is as if nobody had read: the segment is.
        Piece::Digest(number, segment) => (*number, Ok(digest::read(disk, segment).unwrap_or_default())),
        Piece::Stretch(stretch) => {
            let read = stretch.read(&desk, whole);
            (stretch.segment, read.map_err(|e| io_error("read", stretch.name(), &e)))
        }
    };
    in_order(reading.threads, &all, read, |(of, read)| {
        if of != number {
            put_together(&mut reads)?;
            number = of;
        }
        reads.push(read?);
        Ok(())
    })?;
    put_together(&mut reads)
}

fn io_error(what: &str, name: &str, e: &io::Error) -> SpoolFailure {
    SpoolFailure::Io(format!("{what} {name}: {e}"))
}

fn open_segments(disk: &dyn Disk, found: &mut Found) -> Result<Vec<Segment>, SpoolFailure> {
    let mut segments = Vec::new();
    let names = disk.list().map_err(|e| io_error("list", "the spool", &e))?;
    found.unfinished = names.iter().filter(|n| n.ends_with(UNFINISHED)).cloned().collect();
    let there: HashSet<&String> = names.iter().collect();
    let digests = names.iter().filter_map(|name| digest::segment_of(name));
    // In the order of the names: what is removed first must not be chance.
    let (digested, orphans): (Vec<String>, Vec<_>) = digests.partition(|segment| there.contains(segment));
    let digested: HashSet<String> = digested.into_iter().collect();
    found.unfinished.extend(orphans.iter().map(|segment| digest::name_of(segment)));
    for name in names.into_iter().filter(|n| n.ends_with(".seg")) {
        // A new segment is named after its number, and must not take the name of one that is there.
        let made_as = u64::from_str_radix(name.trim_end_matches(".seg"), 16).unwrap_or(0);
        found.next_sequence = found.next_sequence.max(made_as.saturating_add(1));
        let file = disk.open(&name).map_err(|e| io_error("open", &name, &e))?;
        let file = if found.mutation == Mutation::StopAtDamage { file } else { Patient::over(file) };
        let mut head = vec![0; ALIGN];
        let length = file.read_at(0, &mut head).map_err(|e| io_error("read", &name, &e))?;
        let is_digested = digested.contains(&name);
        match SegmentHeader::decode(&head[..length]) {
            Ok(header) => {
                segments.push(Segment { name, header, file, live_bytes: 0, is_damaged: false, is_digested });
            }
            Err(BadHeader::Version(other)) => {
                let text = format!("{name}: format {other}; this version reads and writes {VERSION}");
                return Err(SpoolFailure::Unusable(text));
            }
            Err(BadHeader::Unreadable) => {
                let size_bytes = file.len().map_err(|e| io_error("read", &name, &e))?;
                if has_data(&*file, size_bytes) {
                    found.report.corrupt.push(format!("{name}: its header cannot be read"));
                    continue;
                }
                // Never finished being made, or about to be removed.
                found.segment_count += 1;
                let header = SegmentHeader { sequence: 0, seed: 0, size_bytes };
                found.empty.push(Segment {
                    name,
                    header,
                    file,
                    live_bytes: 0,
                    is_damaged: false,
                    is_digested,
                });
            }
        }
    }
    Ok(segments)
}

/// A zeroed header stands for a segment that is given up; damage rarely writes zeros only.
fn has_data(file: &dyn File, size_bytes: u64) -> bool {
    let mut head = vec![0; ALIGN];
    let read = file.read_at(0, &mut head).unwrap_or(0);
    size_bytes > 0 && head[..read].iter().any(|b| *b != 0)
}

fn scan_segment(
    segment: Segment,
    found: &mut Found,
    whole: bool,
    buffer: Vec<u8>,
    reads: Vec<Read>,
) -> Result<Vec<u8>, SpoolFailure> {
    let length = segment.file.len().map_err(|e| io_error("read", &segment.name, &e))?;
    let end = segment.header.size_bytes.min(length);
    let mut window = Window::new(segment.file.clone(), end, buffer);
    let (number, seed, name) = (segment.header.sequence as u32, segment.header.seed, segment.name.clone());
    let failed = |e: io::Error| io_error("read", &name, &e);
    found.index.segments.insert(number, segment);
    let (mut at, mut batches) = (FIRST_BATCH, 0u64);
    let mut reads = reads.into_iter().peekable();
    while at < end {
        // What was read from exactly here on is what would be read now.
        while reads.next_if(|read| read.start < at).is_some() {}
        if let Some(read) = reads.next_if(|read| read.start == at && read.says_something()) {
            at = read.end;
            batches += read.batches.len() as u64;
            let torn_bytes = read.torn_bytes;
            take_read(found, &name, number, read);
            let Some(torn_bytes) = torn_bytes else { continue };
            found.report.torn_bytes += torn_bytes;
            break;
        }
        let length = read_head(window.slice(at, BATCH_HEAD_BYTES).map_err(failed)?, at, seed)
            .map_or(BATCH_HEAD_BYTES, |head| head.length);
        match read_batch(window.slice(at, length).map_err(failed)?, at, seed, whole) {
            Ok((head, records)) => {
                batches += 1;
                let rows = records.iter().map(|placed| Row::new(placed, chunks_of(&placed.2)));
                let bodies = records.iter().map(|placed| placed.2.body.to_vec()).collect();
                take_batch(found, &name, head.sequence, number, rows, Some(bodies));
                at += head.padded();
            }
            Err(why) => {
                let last = found.last.as_ref().map_or(0, |last| last.sequence);
                let Some(next) = next_in(&mut window, at, seed, last).map_err(failed)? else {
                    found.report.torn_bytes += torn_bytes(&mut window, at).map_err(failed)?;
                    break;
                };
                found.report.corrupt.push(format!("{name}: bytes {at} to {next}: {}", why.0));
                found.mark_damaged(number);
                at = next;
            }
        }
    }
    match batches {
        0 => {
            let head = || BATCH_HEAD_BYTES;
            let first = window.slice_ahead(FIRST_BATCH, BATCH_HEAD_BYTES, head).map_err(failed)?;
            let written = read_head(first, FIRST_BATCH, seed);
            found.unread.extend(written.map(|head| (u64::from(number), head.sequence)));
            found.empty.extend(found.index.segments.remove(&number));
        }
        1 if found.last_segment() == Some(number) => found.alone.push(number),
        _ => {}
    }
    Ok(window.into_buffer())
}

/// The batches of a stretch.
fn take_read(found: &mut Found, name: &str, number: u32, read: Read) {
    // Growing step by step would touch twice the memory.
    found.index.messages.reserve(read.rows.iter().filter(|row| row.kind == Kind::Message).count());
    let (mut rows, mut bodies) = (read.rows.into_iter(), read.bodies);
    let count = read.batches.len();
    for (index, batch) in read.batches.into_iter().enumerate() {
        let bodies = if index + 1 == count { bodies.take() } else { None };
        take_batch(found, name, batch.sequence, number, rows.by_ref().take(batch.count), bodies);
    }
    match read.envelopes {
        Some(envelopes) => drop(found.envelopes.insert(number, envelopes)),
        None => found.kept.entry(number).or_default().push(read.kept),
    }
}

/// Zeros up to here are blocks that were never used: batches stand close together, and one that is
/// longer than this is rare. What was zeroed otherwise shows as batches that are missing before the
/// next segment, and to `spool check`, which looks at every block.
pub(super) const UNUSED_BYTES: u64 = 512 * 1024;

/// A batch is shorter than this, with what its last transaction may add. What stands farther behind
/// damage was never written in this life of the segment, or more than one batch is lost; the rest of a
/// segment that was used before is not zeros, and reading all of it for that would cost every start.
const DAMAGE_BYTES: u64 = 5 * 1024 * 1024;

/// A batch of a later number behind damage.
pub(super) fn next_in(window: &mut Window, from: u64, seed: u64, last: u64) -> io::Result<Option<u64>> {
    let mut unused = is_zero(window.slice(from, ALIGN)?);
    let mut at = from + ALIGN as u64;
    while at < window.end().min(from + DAMAGE_BYTES) {
        let block = window.slice(at, ALIGN)?;
        if read_head(block, at, seed).is_ok_and(|head| head.sequence > last) {
            return Ok(Some(at));
        }
        unused = unused && is_zero(block);
        at += ALIGN as u64;
        if unused && at - from >= UNUSED_BYTES {
            break;
        }
    }
    Ok(None)
}

pub(super) fn is_zero(block: &[u8]) -> bool {
    // Without a branch for each byte this is as fast as memory.
    block.chunks(64).all(|piece| piece.iter().fold(0, |sum, byte| sum | byte) == 0)
}

/// The same in memory.
pub(crate) fn next_batch(bytes: &[u8], from: usize, seed: u64, last: u64) -> Option<usize> {
    let blocks = (from + ALIGN..bytes.len()).step_by(ALIGN);
    blocks
        .into_iter()
        .find(|at| read_head(&bytes[*at..], *at as u64, seed).is_ok_and(|head| head.sequence > last))
}

/// What a torn tail left, zeros behind it not counted; and no more than a batch mostly has, since in a
/// segment that was used before other things stand behind it.
pub(super) fn torn_bytes(window: &mut Window, from: u64) -> io::Result<u64> {
    let mut at = from;
    while at < window.end().min(from + UNUSED_BYTES) {
        let block = window.slice(at, ALIGN)?;
        if is_zero(block) {
            break;
        }
        at += block.len() as u64;
    }
    Ok(at - from)
}

/// The batch before this one is proven: its sync returned before this one was written. Rows that are
/// not taken are thrown away by the caller.
fn take_batch(
    found: &mut Found,
    name: &str,
    sequence: u64,
    segment: u32,
    rows: impl Iterator<Item = Row>,
    bodies: Option<Vec<Vec<u8>>>,
) {
    if let Some(last) = found.last.as_ref().map(|last| last.sequence) {
        if sequence < last {
            rows.for_each(drop);
            return; // written again after a crash: read already
        }
        if sequence > last + 1 {
            found.report.corrupt.push(format!(
                "{name}: batches {} to {} are missing before it",
                last + 1,
                sequence - 1
            ));
            found.mark_gap(segment);
        }
        if sequence > last {
            settle_last(found);
            found.alone.clear();
            found.copies.clear();
        } else {
            found.copies.extend(found.last_segment());
        }
        found.superseded.append(&mut found.alone);
    }
    found.first.get_or_insert(sequence);
    found.report.batch_count += 1;
    // The vector of the one before is used again.
    let mut own = found.last.take().map_or(Vec::new(), |last| last.rows);
    own.clear();
    own.extend(rows);
    // Those that messages name, too: a chunk that is lost must not become another message's.
    let named =
        |row: &Row| if found.mutation == Mutation::GiveAgain { Vec::new() } else { row.chunks.clone() };
    let chunks = own
        .iter()
        .flat_map(|row| named(row).into_iter().chain((row.kind == Kind::Chunk).then_some(row.name)));
    let behind = chunks.map(|place| place.saturating_add(1)).max();
    found.next_chunk = found.next_chunk.max(behind.unwrap_or(0));
    found.last = Some(Last { sequence, segment, rows: own, bodies });
}

#[cfg(test)]
impl Found {
    /// What only this file knows of it.
    pub(crate) fn told(&self) -> String {
        let last = self.last.as_ref().map(|l| (l.sequence, l.segment, &l.rows, &l.bodies));
        let Self { first, copies, alone, superseded, unfinished, .. } = self;
        let numbers = (self.next_sequence, self.next_chunk, self.segment_count);
        format!("{last:?} {first:?} {copies:?} {alone:?} {superseded:?} {unfinished:?} {numbers:?}")
    }
}

impl Found {
    /// The segment of the last batch.
    fn last_segment(&self) -> Option<u32> {
        self.last.as_ref().filter(|last| !last.rows.is_empty()).map(|last| last.segment)
    }

    /// The bodies of the last batch, where they were not kept.
    fn read_last(&mut self) -> Result<(), SpoolFailure> {
        let Some(last) = self.last.as_mut().filter(|last| last.bodies.is_none()) else { return Ok(()) };
        let Some(segment) = self.index.segments.get(&last.segment) else { return Ok(()) };
        let read = |row: &Row| {
            let at = Location { segment: last.segment, offset: row.offset, length: row.length };
            read_record(
                Source::Disk,
                &*segment.file,
                segment.header.seed,
                &segment.name,
                at,
                row.kind,
                row.name,
            )
        };
        last.bodies = Some(last.rows.iter().map(read).collect::<Result<_, _>>()?);
        Ok(())
    }

    fn mark_damaged(&mut self, number: u32) {
        if let Some(segment) = self.index.segments.get_mut(&number) {
            segment.is_damaged = true;
        }
    }

    /// A batch that cannot be read and is older than all that can was not torn: it was proven by those.
    fn mark_lost_beginning(&mut self) {
        for (number, batch) in std::mem::take(&mut self.unread) {
            if self.first.is_some_and(|first| batch < first) {
                for segment in self.empty.iter_mut().filter(|s| s.header.sequence == number) {
                    segment.is_damaged = true;
                    self.report.corrupt.push(format!("{}: batch {batch} cannot be read", segment.name));
                }
            }
        }
    }

    /// Batches are missing: they were in what looked like the torn tail behind the last one, or in
    /// segments that looked empty.
    fn mark_gap(&mut self, before: u32) {
        if self.index.segments.get(&before).is_some_and(|segment| segment.is_damaged) {
            return; // they were in this one
        }
        let from = self.last_segment().unwrap_or(0);
        self.mark_damaged(from);
        let between = |s: &&mut Segment| (u64::from(from)..u64::from(before)).contains(&s.header.sequence);
        self.empty.iter_mut().filter(between).for_each(|segment| segment.is_damaged = true);
    }

    /// Segments nobody needs any more when the last batch was not the only one: what they hold was ended
    /// by batches that are proven.
    pub(crate) fn take_dead(&mut self, index: &mut Index) -> Vec<Segment> {
        let first_needed = self.copies.iter().copied().chain(self.last_segment()).min();
        first_needed.map(|number| index.take_dead_before(number)).unwrap_or_default()
    }

    /// Segments nobody needs any more once the last batch was written again. Without this every restart
    /// would cost a segment for as long as an older one has a message in it.
    pub(crate) fn take_superseded(&mut self, index: &mut Index) -> Vec<Segment> {
        self.superseded.append(&mut self.alone);
        self.superseded.drain(..).filter_map(|number| index.segments.remove(&number)).collect()
    }
}

/// Puts the last batch's records into the index where they stand.
pub(crate) fn settle_last(found: &mut Found) {
    let Some(last) = &found.last else { return };
    for row in &last.rows {
        let at = Location { segment: last.segment, offset: row.offset, length: row.length };
        found.index.apply(row.kind, row.name, at, &row.chunks);
    }
}
