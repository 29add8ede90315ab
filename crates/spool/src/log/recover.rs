//! Reads the log from its beginning and says what is in it.
//!
//! Batches carry consecutive numbers. One that cannot be read ends a segment: nothing behind it was
//! acknowledged, unless a later number turns up, which makes it corruption and not a torn tail. The
//! very last batch is written but perhaps not synced; whoever goes on writing writes it again first.

use super::{
    epoch,
    index::{Index, Location, Segment, chunks_of},
    missing::Orphan,
    newest,
    open::open_segments,
    read::{Source, read_record},
    read_ahead::ReadAhead,
    scan_range::{CachedEnvelopes, ReadContext, RecordRef, ScanRange, ScanResult, split_segment},
    segment_index::{self, EnvelopeTable},
    tolerant::FaultTolerantFile,
};
use crate::{
    RecoveryReport, SpoolFailure,
    disk::Disk,
    format::{
        block::{ALIGN, BATCH_END_BYTES, BATCH_HEAD_BYTES, FIRST_BATCH, read_batch, read_head},
        record::Kind,
        wire::Malformed,
    },
    mutant::{ActiveMutant, Mutant},
    parallel::in_order,
};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

/// How the log is read at a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// With one, segment after segment from front to back, and nothing is kept.
    pub(crate) threads: usize,
    /// Bytes of a segment that one thread scans at a time.
    pub(crate) range_bytes: u64,
    /// Segments that have an index file need not be read.
    pub(crate) indexes: bool,
}

impl Reading {
    /// Several ranges a segment, so that threads end at about the same time.
    pub(crate) fn on(threads: usize) -> Self {
        Self { threads, range_bytes: 8 * 1024 * 1024, indexes: true }
    }
}

/// A record of the last batch, which perhaps was not synced: it is written again.
pub(crate) struct UnsyncedRecord {
    pub(crate) kind: Kind,
    pub(crate) name: u64,
    pub(crate) body: Vec<u8>,
}

/// The last batch: written, and perhaps not synced.
pub(crate) struct TailBatch {
    pub(crate) sequence: u64,
    segment: u32,
    /// Not in the index.
    rows: Vec<RecordRef>,
    /// The bodies of the records, unless they must be read again.
    bodies: Option<Vec<Vec<u8>>>,
}

impl TailBatch {
    /// Returns the bytes of its records together.
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.length)).sum()
    }

    pub(crate) fn into_records(self) -> Vec<UnsyncedRecord> {
        let bodies = self.bodies.unwrap_or_default();
        let rows = self.rows.into_iter().zip(bodies);
        rows.map(|(row, body)| UnsyncedRecord { kind: row.kind, name: row.name, body }).collect()
    }
}

/// What a scan of the log has found.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) index: Index,
    /// Segments without a batch: to be used again.
    pub(crate) empty: Vec<Segment>,
    /// Names of segments that were not finished, and of indexes whose segments are gone.
    pub(crate) unfinished: Vec<String>,
    pub(crate) last: Option<TailBatch>,
    /// Envelopes that need not be read again, by segment.
    pub(crate) kept: HashMap<u32, Vec<CachedEnvelopes>>,
    /// Envelopes in index files, by segment.
    pub(crate) envelopes: HashMap<u32, EnvelopeTable>,
    /// The number of the first batch that could be read.
    first: Option<u64>,
    /// Segments whose first batch was written and is damaged: the segment's number and the batch's.
    lost_first: Vec<(u32, u64)>,
    /// Batches that are missing, to be judged when all segments were read.
    gaps: Vec<Gap>,
    /// Numbers of the batches that were read, as ranges.
    numbers: Vec<(u64, u64)>,
    /// Digests without a segment; after the scan those whose segments are missing.
    pub(super) missing: Vec<Orphan>,
    /// By segment: what could not be read of it.
    pub(super) readers: HashMap<u32, Arc<FaultTolerantFile>>,
    /// Messages whose tombstones were read, where that may matter.
    ended: HashSet<u64>,
    /// The highest epoch that anything in the log belongs to.
    pub(crate) epoch: u64,
    /// True if this start begins an epoch.
    pub(crate) begins_epoch: bool,
    /// Segments of which nothing could be read.
    pub(crate) unopened: Vec<String>,
    /// Files whose names say which epoch is in use.
    pub(crate) markers: Vec<String>,
    /// Segments with copies of the last batch. A start writes the last batch again, because it cannot know whether the
    /// batch was synced. A start that was killed before its own sync leaves a further copy. Until the next rewrite is
    /// synced, any of these copies may be the only one on the disk.
    tail_copies: Vec<u32>,
    /// Segments that hold only the last batch.
    tail_only: Vec<u32>,
    /// Segments that hold only a copy of the last batch that a later start wrote again.
    rewritten_tails: Vec<u32>,
    pub(crate) next_sequence: u64,
    /// For the next segment: see [`Segment::number`].
    pub(crate) next_number: u32,
    pub(crate) next_chunk: u64,
    pub(crate) segment_count: u64,
    pub(crate) report: RecoveryReport,
    pub(super) mutant: ActiveMutant,
}

/// Batches that are missing between two that were read.
struct Gap {
    /// The segment that was read when they were missed.
    name: String,
    /// First and last number of the batches that are missing.
    from: u64,
    to: u64,
    /// The segments of the batches before and behind.
    segments: (u32, u32),
}

pub(crate) fn scan(disk: &dyn Disk, mutant: ActiveMutant, reading: Reading) -> Result<Found, SpoolFailure> {
    let mut found = Found { mutant, ..Found::default() };
    let segments = open_segments(disk, &mut found)?;
    let whole = !mutant.is(Mutant::IgnoreBatchEnd);
    if reading.threads > 1 {
        scan_ranges(disk, segments, &mut found, whole, reading)?;
    } else {
        let mut buffer = Vec::new();
        for segment in segments {
            let reads_index = reading.indexes && segment.is_indexed;
            let read = if reads_index { segment_index::read(disk, &segment) } else { None };
            buffer = scan_segment(segment, &mut found, whole, buffer, read.into_iter().collect())?;
        }
    }
    newest::scan_rest(&mut found, whole)?;
    found.note_unread();
    found.read_last()?;
    found.judge_gaps();
    found.judge_missing();
    found.mark_lost_beginning();
    if found.first.is_none() && !found.report.unread.is_empty() {
        let why = found.report.unread.join("; ");
        return Err(SpoolFailure::Io(format!("nothing of the log can be read: {why}")));
    }
    Ok(found)
}

/// One part of the scan, for one thread.
enum Piece {
    /// Of this segment, whose number among all is this.
    SegmentIndex(usize, Segment),
    ScanRange(ScanRange),
}

/// Reads indexes and ranges in threads, and puts the results together, segment by segment.
fn scan_ranges(
    disk: &dyn Disk,
    segments: Vec<Segment>,
    found: &mut Found,
    whole: bool,
    reading: Reading,
) -> Result<(), SpoolFailure> {
    let context = ReadContext::default();
    let mut all = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        if reading.indexes && segment.is_indexed {
            all.push(Piece::SegmentIndex(number, segment.clone()));
        } else {
            let more = split_segment(number, segment, reading.range_bytes);
            all.extend(
                more.map_err(|e| io_error("read", &segment.name, &e))?.into_iter().map(Piece::ScanRange),
            );
        }
    }
    let (mut segments, mut buffer) = (segments.into_iter(), Vec::new());
    let (mut reads, mut number): (Vec<ScanResult>, usize) = (Vec::new(), 0);
    let mut put_together = |reads: &mut Vec<ScanResult>| {
        let Some(segment) = segments.next() else { return Ok(()) };
        buffer = scan_segment(segment, found, whole, std::mem::take(&mut buffer), std::mem::take(reads))?;
        Ok::<(), SpoolFailure>(())
    };
    let read = |piece: &Piece| match piece {
        // One that is not believed is as if nobody had read: the segment is.
        Piece::SegmentIndex(number, segment) => {
            (*number, Ok(segment_index::read(disk, segment).unwrap_or_default()))
        }
        Piece::ScanRange(range) => {
            let read = range.read(&context, whole);
            (range.segment, read.map_err(|e| io_error("read", range.name(), &e)))
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

pub(super) fn io_error(what: &str, name: &str, e: &io::Error) -> SpoolFailure {
    SpoolFailure::Io(format!("{what} {name}: {e}"))
}

/// Reads the bytes of a batch a second time, past the page cache, into the window.
pub(super) fn refresh(window: &mut ReadAhead, at: u64, seed: u64) -> io::Result<()> {
    let head = window.refresh(at, ALIGN)?;
    if let Ok(head) = read_head(head, at, seed)
        && head.length > ALIGN
    {
        window.refresh(at, head.length)?;
    }
    Ok(())
}

/// Takes the batch at an offset of a segment, which is given by its number, name and seed. Returns the offset behind the
/// batch, or why there is no batch.
///
/// # Errors
/// When the segment cannot be read.
pub(super) fn take_batch_at(
    found: &mut Found,
    window: &mut ReadAhead,
    at: u64,
    (number, name, seed): (u32, &str, u64),
    whole: bool,
) -> io::Result<Result<u64, Malformed>> {
    let length =
        read_head(window.slice(at, BATCH_HEAD_BYTES)?, at, seed).map_or(BATCH_HEAD_BYTES, |head| head.length);
    Ok(read_batch(window.slice(at, length)?, at, seed, whole).map(|(head, records)| {
        let rows = records.iter().map(|placed| RecordRef::new(placed, chunks_of(&placed.2)));
        let bodies = records.iter().map(|placed| placed.2.body.to_vec()).collect();
        take_batch(found, name, head.sequence, number, rows, Some(bodies));
        at + head.padded()
    }))
}

fn scan_segment(
    segment: Segment,
    found: &mut Found,
    whole: bool,
    buffer: Vec<u8>,
    reads: Vec<ScanResult>,
) -> Result<Vec<u8>, SpoolFailure> {
    let length = segment.file.len().map_err(|e| io_error("read", &segment.name, &e))?;
    let end = segment.header.end().min(length);
    let mut window = ReadAhead::new(segment.file.clone(), end, buffer);
    let (number, seed, name) = (segment.number, segment.header.seed, segment.name.clone());
    let failed = |e: io::Error| io_error("read", &name, &e);
    found.index.segments.insert(number, segment);
    let (mut at, mut batches) = (FIRST_BATCH, 0u64);
    let mut reads = reads.into_iter().peekable();
    let mut refreshed = None;
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
        match take_batch_at(found, &mut window, at, (number, &name, seed), whole).map_err(failed)? {
            Ok(next) => {
                batches += 1;
                at = next;
            }
            Err(_) if refreshed != Some(at) => {
                refreshed = Some(at);
                refresh(&mut window, at, seed).map_err(failed)?;
            }
            Err(why) => {
                let next = next_or_again(&mut window, at, seed, found.last_sequence()).map_err(failed)?;
                let Some(next) = next else {
                    found.report.torn_bytes += torn_bytes(&mut window, at).map_err(failed)?;
                    break;
                };
                if !found.is_unread(number, at, next) {
                    found.report.corrupt.push(format!("{name}: bytes {at} to {next}: {}", why.0));
                    found.mark_damaged(number);
                }
                at = next;
            }
        }
    }
    match batches {
        0 => {
            let head = || BATCH_HEAD_BYTES;
            let first = window.slice_ahead(FIRST_BATCH, BATCH_HEAD_BYTES, head).map_err(failed)?;
            let written = read_head(first, FIRST_BATCH, seed);
            found.lost_first.extend(written.map(|head| (number, head.sequence)));
            found.empty.extend(found.index.segments.remove(&number));
        }
        1 if found.last_segment() == Some(number) => found.tail_only.push(number),
        _ => {}
    }
    Ok(window.into_buffer())
}

/// Takes the batches of a range.
fn take_read(found: &mut Found, name: &str, number: u32, read: ScanResult) {
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

/// Looks behind damage for a batch with a later number than `last`.
pub(super) fn next_in(window: &mut ReadAhead, from: u64, seed: u64, last: u64) -> io::Result<Option<u64>> {
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

/// Looks for a later batch a second time, past the page cache, where something else than unused blocks follows.
pub(super) fn next_or_again(
    window: &mut ReadAhead,
    from: u64,
    seed: u64,
    last: u64,
) -> io::Result<Option<u64>> {
    let next = next_in(window, from, seed, last)?;
    // A batch that is found may have others before it that only memory has wrong.
    if next.is_none() && is_zero(window.slice(from, ALIGN)?) {
        return Ok(next);
    }
    window.refresh(from, DAMAGE_BYTES as usize)?;
    next_in(window, from, seed, last)
}

pub(super) fn is_zero(block: &[u8]) -> bool {
    // Without a branch for each byte this is as fast as memory.
    block.chunks(64).all(|piece| piece.iter().fold(0, |sum, byte| sum | byte) == 0)
}

/// Finds the next batch of a later number behind damage, in a segment that is in memory.
pub(crate) fn next_batch(bytes: &[u8], from: usize, seed: u64, last: u64) -> Option<usize> {
    let blocks = (from + ALIGN..bytes.len()).step_by(ALIGN);
    blocks
        .into_iter()
        .find(|at| read_head(&bytes[*at..], *at as u64, seed).is_ok_and(|head| head.sequence > last))
}

/// Counts the bytes of a torn tail, without the zeros behind it. Counts no more bytes than a batch mostly has, since
/// remains of an earlier generation may stand behind the tail.
pub(super) fn torn_bytes(window: &mut ReadAhead, from: u64) -> io::Result<u64> {
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

/// A batch whose number is not above all that were read before.
enum Again {
    /// A batch of this number was read and has the same records.
    Copy,
    /// A batch of this number was read and has other records.
    Other,
    /// No batch of this number was read.
    First,
}

/// May a batch of this number come next?
pub(super) fn follows(last: u64, sequence: u64) -> bool {
    sequence == last + 1 || epoch::of(sequence) > epoch::of(last) && epoch::is_first(sequence)
}

/// The batch before this one is proven: its sync returned before this one was written. Rows that are
/// not taken are thrown away by the caller.
fn take_batch(
    found: &mut Found,
    name: &str,
    sequence: u64,
    segment: u32,
    rows: impl Iterator<Item = RecordRef>,
    mut bodies: Option<Vec<Vec<u8>>>,
) {
    let rows: Vec<RecordRef> = match found.last.as_ref().map(|last| last.sequence) {
        Some(last) if sequence <= last => {
            let rows: Vec<RecordRef> = rows.collect();
            match found.compare_again(name, sequence, segment, &rows, &mut bodies) {
                // Written again by a start that could not read what follows the first.
                Again::Copy if sequence < last => return,
                Again::First => {
                    found.numbers.push((sequence, sequence));
                    rows.iter().for_each(|row| found.apply_late(row, segment));
                    return;
                }
                Again::Copy => {
                    found.tail_copies.extend(found.last_segment());
                    found.rewritten_tails.append(&mut found.tail_only);
                }
                // What ended a message may come before the message now: it is delivered once more then.
                Again::Other if sequence < last => {
                    rows.iter().for_each(|row| found.apply(row, segment));
                    return;
                }
                Again::Other => {
                    settle_last(found);
                    found.tail_only.clear();
                }
            }
            rows
        }
        Some(last) => {
            if !follows(last, sequence) {
                let from = found.last_segment().unwrap_or(0);
                let name = name.to_owned();
                found.gaps.push(Gap { name, from: last + 1, to: sequence - 1, segments: (from, segment) });
                found.mark_gap_end(segment);
            }
            settle_last(found);
            found.tail_only.clear();
            found.tail_copies.clear();
            // The vector of the one before is used again.
            let mut own = found.last.take().map_or(Vec::new(), |last| last.rows);
            own.clear();
            own.extend(rows);
            own
        }
        None => rows.collect(),
    };
    found.first.get_or_insert(sequence);
    found.report.batch_count += 1;
    found.note_number(sequence);
    // Those that messages name, too: a chunk that is lost must not become another message's.
    let named =
        |row: &RecordRef| if found.mutant.is(Mutant::ReuseChunkId) { Vec::new() } else { row.chunks.clone() };
    let chunks = rows
        .iter()
        .flat_map(|row| named(row).into_iter().chain((row.kind == Kind::Chunk).then_some(row.name)));
    let behind = chunks.map(|chunk_id| chunk_id.saturating_add(1)).max();
    found.next_chunk = found.next_chunk.max(behind.unwrap_or(0));
    found.epoch = found.epoch.max(epoch::of(sequence)).max(epoch::of_chunk(found.next_chunk));
    found.last = Some(TailBatch { sequence, segment, rows, bodies });
}

#[cfg(test)]
impl Found {
    /// Describes the private fields, so that tests can compare two scans.
    pub(crate) fn told(&self) -> String {
        let last = self.last.as_ref().map(|l| (l.sequence, l.segment, &l.rows, &l.bodies));
        let Self { first, tail_copies, tail_only, rewritten_tails, unfinished, numbers: ranges, .. } = self;
        let numbers = (self.next_sequence, self.next_chunk, self.segment_count);
        format!(
            "{last:?} {first:?} {tail_copies:?} {tail_only:?} {rewritten_tails:?} {unfinished:?} {numbers:?} {ranges:?}"
        )
    }
}

impl Found {
    /// The number of the last batch; 0 when there is none.
    pub(super) fn last_sequence(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.sequence)
    }

    /// The segment of the last batch, and the offset behind that batch.
    pub(super) fn end_of_last(&self) -> Option<(u32, u64)> {
        let last = self.last.as_ref()?;
        let row = last.rows.last()?;
        // The end of the batch and its padding follow the last record.
        let end = u64::from(row.offset) + u64::from(row.length) + BATCH_END_BYTES as u64;
        Some((last.segment, end.next_multiple_of(ALIGN as u64)))
    }

    /// Returns the segment with the last batch; `None` if that has no records.
    fn last_segment(&self) -> Option<u32> {
        self.last.as_ref().filter(|last| !last.rows.is_empty()).map(|last| last.segment)
    }

    /// The bodies of the last batch, where they were not kept.
    fn read_last(&mut self) -> Result<(), SpoolFailure> {
        let Some(last) = self.last.as_mut().filter(|last| last.bodies.is_none()) else { return Ok(()) };
        let Some(segment) = self.index.segment(last.segment) else { return Ok(()) };
        last.bodies = Some(bodies_of(segment, last.segment, &last.rows)?);
        Ok(())
    }

    fn apply(&mut self, row: &RecordRef, segment: u32) {
        let at = Location { segment, offset: row.offset, length: row.length };
        // Only after a start that could not read everything a batch may stand behind later ones.
        if row.kind == Kind::Tombstone && self.epoch > 0 {
            self.ended.insert(row.name);
        }
        self.missing.iter_mut().for_each(|orphan| orphan.note(row));
        self.index.apply(row.kind, row.name, at, &row.chunks);
    }

    /// Applies a record of a batch that was written again where later batches could not be read, and whose first
    /// copy is gone. What the later ones say of its messages they say with what it says.
    fn apply_late(&mut self, row: &RecordRef, segment: u32) {
        let is_known = match row.kind {
            // One that ended in a later batch stays ended.
            Kind::Message => self.index.messages.contains_key(&row.name) || self.ended.contains(&row.name),
            Kind::Chunk => self.index.chunks.contains_key(&row.name),
            Kind::Outcome | Kind::Hold => true,
            // The index keeps the newest.
            Kind::Tombstone | Kind::Totals => false,
        };
        if !is_known {
            self.apply(row, segment);
        }
    }

    pub(super) fn is_unread(&self, number: u32, from: u64, to: u64) -> bool {
        self.readers.get(&number).is_some_and(|reader| reader.has_unread_in(from, to))
    }

    /// Parks the segments that could not be read: they stay as they are, and no mail is written to them.
    fn note_unread(&mut self) {
        for (number, reader) in std::mem::take(&mut self.readers) {
            if let Some(why) = reader.unread() {
                let empty = self.empty.iter().find(|segment| segment.number == number);
                let name = self.index.segment(number).or(empty).map(|segment| segment.name.clone());
                self.report.unread.extend(name.as_ref().map(|name| format!("{name}: {why}")));
                // Of one that looked empty nothing else is known than its name.
                self.unopened.extend(name.filter(|_| self.index.segment(number).is_none()));
                self.empty.retain(|segment| segment.number != number);
                self.index.park(number);
            }
            // Errors of a running spool are told as they are.
            let file = reader.inner();
            if let Some(segment) = self.index.segment_mut(number) {
                segment.file = file;
            } else if let Some(segment) = self.empty.iter_mut().find(|segment| segment.number == number) {
                segment.file = file;
            }
        }
        self.report.unread.sort();
    }

    fn note_number(&mut self, sequence: u64) {
        match self.numbers.last_mut() {
            Some((_, to)) if *to == sequence || *to + 1 == sequence => *to = sequence,
            _ => self.numbers.push((sequence, sequence)),
        }
    }

    /// Compares a batch with the batch of the same number that was read before. A batch with other records is damage;
    /// both batches are applied.
    fn compare_again(
        &mut self,
        name: &str,
        sequence: u64,
        segment: u32,
        rows: &[RecordRef],
        bodies: &mut Option<Vec<Vec<u8>>>,
    ) -> Again {
        if !self.numbers.iter().any(|(from, to)| (*from..=*to).contains(&sequence)) {
            return Again::First;
        }
        let own = self.index.segment(segment).and_then(|own| {
            let read = bodies.take().or_else(|| bodies_of(own, segment, rows).ok())?;
            Some(bodies.insert(read).clone())
        });
        let named = |rows: &[RecordRef], bodies: Vec<Vec<u8>>| -> Vec<(Kind, u64, Vec<u8>)> {
            rows.iter().zip(bodies).map(|(row, body)| (row.kind, row.name, body)).collect()
        };
        let own = own.map(|own| named(rows, own));
        let before = match &mut self.last {
            Some(last) if last.sequence == sequence => {
                let read = || bodies_of(self.index.segment(last.segment)?, last.segment, &last.rows).ok();
                let read = last.bodies.clone().or_else(read);
                read.map(|bodies| named(&last.rows, bodies))
            }
            _ => self.find_batch(sequence, segment),
        };
        // What cannot be read now is not known to be another.
        if before.is_none() || own.is_none() || before == own {
            return Again::Copy;
        }
        self.report
            .corrupt
            .push(format!("{name}: batch {sequence} is there twice with different content: both are taken"));
        self.mark_damaged(segment);
        Again::Other
    }

    /// The records of a batch that was read before, looked for in all segments but one.
    fn find_batch(&self, sequence: u64, but: u32) -> Option<Vec<(Kind, u64, Vec<u8>)>> {
        let others = self.index.segments.iter().filter(|(number, _)| **number != but);
        others.into_iter().find_map(|(_, segment)| {
            let mut bytes = vec![0; usize::try_from(segment.header.end()).ok()?];
            let length = segment.file.read_at(0, &mut bytes).ok()?;
            let blocks = (FIRST_BATCH as usize..length).step_by(ALIGN);
            blocks.into_iter().find_map(|at| {
                let seed = segment.header.seed;
                let head = read_head(&bytes[at..length], at as u64, seed).ok()?;
                let is_it = head.sequence == sequence;
                let (_, records) =
                    is_it.then(|| read_batch(&bytes[at..length], at as u64, seed, true).ok())??;
                Some(records.iter().map(|(_, _, r)| (r.kind, r.name, r.body.to_vec())).collect())
            })
        })
    }

    pub(super) fn mark_damaged(&mut self, number: u32) {
        if let Some(segment) = self.index.segment_mut(number) {
            segment.is_damaged = true;
        }
    }

    /// A batch that cannot be read and is older than all that can was not torn: it was proven by those.
    fn mark_lost_beginning(&mut self) {
        for (number, batch) in std::mem::take(&mut self.lost_first) {
            if self.first.is_some_and(|first| batch < first) {
                for segment in self.empty.iter_mut().filter(|s| s.number == number) {
                    segment.is_damaged = true;
                    self.report.corrupt.push(format!("{}: batch {batch} cannot be read", segment.name));
                }
            }
        }
    }

    /// Sets the first segment of the last gap to a segment in which damage was found: the missing batches were there.
    fn mark_gap_end(&mut self, before: u32) {
        if self.index.segment(before).is_some_and(|segment| segment.is_damaged)
            && let Some(gap) = self.gaps.last_mut()
        {
            gap.segments.0 = before;
        }
    }

    /// Batches are missing: they were in what looked like the torn tail behind the last one, in segments that
    /// looked empty, or in what cannot be read.
    fn judge_gaps(&mut self) {
        for Gap { name, from, to, segments: (first, before) } in std::mem::take(&mut self.gaps) {
            if self.index.segment(first).is_some_and(|segment| segment.is_marked) {
                continue; // they were freed while that one was parked
            }
            // Written again by a start that could not read what follows, in a segment that comes later.
            let read_later =
                self.numbers.iter().map(|(first, last)| (to.min(*last) + 1).saturating_sub(from.max(*first)));
            if read_later.sum::<u64>() > to - from {
                continue;
            }
            let what = format!("{name}: batches {from} to {to} are missing before it");
            if !self.report.unread.is_empty() {
                self.report.unread.push(format!("{what}: they may be in what cannot be read"));
                continue;
            }
            self.report.corrupt.push(what);
            if first != before {
                self.mark_damaged(first);
                let between = |s: &&mut Segment| (first..before).contains(&s.number);
                self.empty.iter_mut().filter(between).for_each(|segment| segment.is_damaged = true);
            }
        }
    }

    /// Reports segments whose files are missing, as far as their indexes show it. The other indexes without a segment
    /// are removed at the start.
    fn judge_missing(&mut self) {
        for row in self.last.iter().flat_map(|last| &last.rows) {
            self.missing.iter_mut().for_each(|orphan| orphan.note(row));
        }
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable();
        // Batches that end the messages may be in what cannot be read, or may have been freed before that was.
        let is_uncertain =
            !self.report.unread.is_empty() || self.index.segments.values().any(|s| s.is_marked);
        for orphan in std::mem::take(&mut self.missing) {
            if orphan.is_missing(&numbers, is_uncertain) {
                self.report.corrupt.push(orphan.describe());
                self.missing.push(orphan);
            } else if self.report.unread.is_empty() {
                self.unfinished.push(segment_index::name_of(&orphan.segment));
            }
        }
    }

    /// Segments nobody needs any more when the last batch was not the only one: what they hold was ended
    /// by batches that are proven.
    pub(crate) fn take_dead(&mut self, index: &mut Index) -> Vec<Segment> {
        let first_needed = self.tail_copies.iter().copied().chain(self.last_segment()).min();
        first_needed.map(|number| index.take_dead_before(number, true)).unwrap_or_default()
    }

    /// Segments nobody needs any more once the last batch was written again. Without this every restart
    /// would cost a segment for as long as an older one has a message in it.
    pub(crate) fn take_rewritten_tails(&mut self, index: &mut Index) -> Vec<Segment> {
        self.rewritten_tails.append(&mut self.tail_only);
        let is_free = |index: &Index, number: &u32| {
            index.segments.get(number).is_some_and(|segment| !segment.is_damaged && segment.live_bytes == 0)
        };
        self.rewritten_tails.retain(|number| is_free(index, number));
        self.rewritten_tails.drain(..).filter_map(|number| index.segments.remove(&number)).collect()
    }

    /// The highest queue id in the last batch, which is not in the index yet.
    pub(crate) fn highest_id_in_tail(&self) -> u64 {
        let rows = self.last.iter().flat_map(|last| &last.rows);
        rows.filter(|row| row.kind.is_of_message()).map(|row| row.name).max().unwrap_or(0)
    }

    /// Could this start not read everything as it was written? Then no number may be used that may have been used.
    pub(crate) fn is_incomplete(&self) -> bool {
        let report = &self.report;
        !report.unread.is_empty() || !report.corrupt.is_empty() || report.torn_bytes > 0
    }
}

/// The bodies of a batch's records, read from its segment.
fn bodies_of(segment: &Segment, number: u32, rows: &[RecordRef]) -> Result<Vec<Vec<u8>>, SpoolFailure> {
    let read = |row: &RecordRef| {
        let at = Location { segment: number, offset: row.offset, length: row.length };
        let (seed, name) = (segment.header.seed, &segment.name);
        match read_record(Source::Disk, &*segment.file, seed, name, at, row.name)? {
            (kind, body) if kind == row.kind => Ok(body),
            _ => {
                Err(SpoolFailure::Corrupt(format!("{name} at {}: another record than expected", row.offset)))
            }
        }
    };
    rows.iter().map(read).collect()
}

/// Puts the last batch's records into the index where they stand.
pub(crate) fn settle_last(found: &mut Found) {
    let Some(last) = found.last.take() else { return };
    last.rows.iter().for_each(|row| found.apply(row, last.segment));
    found.last = Some(last);
}
