//! A segment's index file: what stands where in it, and its envelopes, so that a start need not read the
//! content between them. It lies beside a segment that is complete, and is never synced,
//! for nothing depends on it: one that is missing, torn, or of another life of the segment is as if
//! it had not been made. docs/spool-format.md has its bytes.

use super::{
    Shared,
    index::Segment,
    read_ahead::ReadAhead,
    scan_range::{Batch, ReadContext, RecordRef, ScanResult, split_segment},
    segment_allocator::done_before,
};
use crate::{
    disk::{Disk, File},
    format::{
        block::{BATCH_HEAD_BYTES, FIRST_BATCH, SegmentHeader, read_batch},
        record::{Kind, OVERHEAD_BYTES},
        wire::{Malformed, Reader, put_u32, put_u64},
    },
};
use std::{io, sync::Arc};

const MAGIC: &[u8; 8] = b"PRDIGEST";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 72;
/// Ending of the file's name, which begins as its segment's.
pub(super) const ENDING: &str = ".idx";
/// Segments at the end of the log that have none: most of what is in them may be delivered soon.
const YOUNG: usize = 2;
/// Digested while the log is open: segments of which at least one part in so many lives.
const OPEN_SHARE: u64 = 2;
/// Digested when the log is closed, which prepares most starts: segments of which at least one part in so many lives.
const CLOSED_SHARE: u64 = 64;
/// Any part, however small.
const ANY_SHARE: u64 = 1 << 32;
/// Bytes of an envelope table that are read at once.
const READ_BYTES: usize = 256 * 1024;

/// The index file of a segment by the segment's name.
pub(super) fn name_of(segment: &str) -> String {
    segment.replace(".seg", ENDING)
}

/// The segment of an index file, if it is one.
pub(super) fn segment_of(name: &str) -> Option<String> {
    name.strip_suffix(ENDING).map(|stem| format!("{stem}.seg"))
}

/// The head of an index file, before the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexHeader {
    batches: u32,
    rows: u32,
    sequence: u64,
    seed: u64,
    /// Behind the segment's last batch.
    end: u64,
    torn_bytes: u64,
    table_bytes: u64,
    table_sum: u32,
}

impl IndexHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put_u32(&mut out, VERSION);
        put_u32(&mut out, self.batches);
        put_u32(&mut out, self.rows);
        for number in [self.sequence, self.seed, self.end, self.torn_bytes, self.table_bytes] {
            put_u64(&mut out, number);
        }
        put_u32(&mut out, self.table_sum);
        put_u32(&mut out, 0);
        let sum = crc32c::crc32c(&out);
        put_u32(&mut out, sum);
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut r = Reader(bytes);
        if r.bytes(8)? != MAGIC || r.u32()? != VERSION {
            return Err(Malformed("index_file magic or version"));
        }
        let (batches, rows) = (r.u32()?, r.u32()?);
        let (sequence, seed, end, torn_bytes) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        let head = Self {
            batches,
            rows,
            sequence,
            seed,
            end,
            torn_bytes,
            table_bytes: r.u64()?,
            table_sum: r.u32()?,
        };
        let reserved = r.u32()?;
        if r.u32()? != crc32c::crc32c(&bytes[..HEAD_BYTES - 4]) || reserved != 0 {
            Err(Malformed("index_file head"))
        } else {
            Ok(head)
        }
    }
}

/// The places of a segment's envelopes in its index file.
pub(crate) struct EnvelopeTable {
    file: Arc<dyn File>,
    /// The offset in the index file at which the table ends.
    base: u64,
    begins: Vec<Begin>,
}

/// Where an index file has the envelope of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Begin {
    /// The offset of the message's record in the segment.
    record: u32,
    /// The offset of the envelope, counted from the end of the table.
    from: u32,
    length: u32,
    sum: u32,
}

impl EnvelopeTable {
    pub(super) fn open(&self, buffer: Vec<u8>) -> Opened<'_> {
        Opened { envelopes: self, next: 0, window: ReadAhead::new(self.file.clone(), u64::MAX, buffer) }
    }

    fn find(&self, record: u32) -> Option<usize> {
        self.begins.binary_search_by_key(&record, |begin| begin.record).ok()
    }
}

/// An index file whose envelopes are being read.
pub(super) struct Opened<'a> {
    envelopes: &'a EnvelopeTable,
    /// Behind the one that was asked for last: mostly the next that is.
    next: usize,
    window: ReadAhead,
}

impl Opened<'_> {
    /// The abridged envelope of the message whose record is there; none where it must be read from the
    /// segment. `last` is the record of the last one that will be asked for.
    pub(super) fn get(&mut self, record: u32, last: u32) -> Option<&[u8]> {
        let begins = &self.envelopes.begins;
        let is_next = begins.get(self.next).is_some_and(|begin| begin.record == record);
        let found = if is_next { self.next } else { self.envelopes.find(record)? };
        self.next = found + 1;
        let begin = &begins[found];
        let ahead = || {
            let last = self.envelopes.find(last).map_or(begin, |last| &begins[last]);
            let end = u64::from(last.from) + u64::from(last.length);
            usize::try_from(end.saturating_sub(u64::from(begin.from))).unwrap_or(usize::MAX).min(READ_BYTES)
        };
        let at = self.envelopes.base + u64::from(begin.from);
        let bytes = self.window.slice_ahead(at, begin.length as usize, ahead).ok()?;
        (bytes.len() == begin.length as usize && crc32c::crc32c(bytes) == begin.sum).then_some(bytes)
    }

    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.window.into_buffer()
    }
}

/// Encodes the scan of a whole segment as an index file. `None` when the segment is damaged or has no batch.
fn encode(header: &SegmentHeader, read: &ScanResult) -> Option<Vec<u8>> {
    let torn_bytes = read.torn_bytes?;
    let (mut table, mut envelopes) = (Vec::new(), Vec::new());
    for batch in &read.batches {
        put_u64(&mut table, batch.sequence);
        put_u32(&mut table, batch.count as u32);
    }
    for row in &read.rows {
        table.push(row.kind as u8);
        put_u64(&mut table, row.name);
        put_u32(&mut table, row.offset);
        put_u32(&mut table, row.length);
        if row.kind == Kind::Message {
            put_u32(&mut table, row.chunks.len() as u32);
            row.chunks.iter().for_each(|chunk_id| put_u64(&mut table, *chunk_id));
            let envelope = read.kept.get(row.offset).unwrap_or_default();
            put_u32(&mut table, envelope.len() as u32);
            put_u32(&mut table, crc32c::crc32c(envelope));
            envelopes.extend_from_slice(envelope);
        }
    }
    let head = IndexHeader {
        batches: u32::try_from(read.batches.len()).ok().filter(|count| *count > 0)?,
        rows: u32::try_from(read.rows.len()).ok()?,
        sequence: header.sequence,
        seed: header.seed,
        end: read.end,
        torn_bytes,
        table_bytes: table.len() as u64,
        table_sum: crc32c::crc32c(&table),
    };
    let mut out = head.encode();
    out.extend(table);
    out.extend(envelopes);
    Some(out)
}

/// Decodes the table of an index file. No place in the result lies outside of the segment.
fn decode(head: &IndexHeader, table: &[u8]) -> Result<(ScanResult, Vec<Begin>), Malformed> {
    if table.len() as u64 != head.table_bytes || crc32c::crc32c(table) != head.table_sum {
        return Err(Malformed("index_file table"));
    }
    let mut r = Reader(table);
    // No count is believed beyond what is there.
    let fits = |count: u32, size: usize| (count as usize).saturating_mul(size) <= table.len();
    if !fits(head.batches, 12) || !fits(head.rows, OVERHEAD_BYTES) {
        return Err(Malformed("index_file counts"));
    }
    let mut read = ScanResult {
        start: FIRST_BATCH,
        end: head.end,
        torn_bytes: Some(head.torn_bytes),
        ..ScanResult::default()
    };
    read.batches.reserve(head.batches as usize);
    for _ in 0..head.batches {
        read.batches.push(Batch { sequence: r.u64()?, count: r.u32()? as usize });
    }
    // Growing step by step would touch twice the memory.
    let (mut begins, mut from) = (Vec::with_capacity(head.rows as usize), 0u32);
    read.rows.reserve(head.rows as usize);
    for _ in 0..head.rows {
        let kind = Kind::from_u8(r.u8()?).ok_or(Malformed("index_file kind"))?;
        let (name, offset, length) = (r.u64()?, r.u32()?, r.u32()?);
        let end = u64::from(offset) + u64::from(length);
        if u64::from(offset) < FIRST_BATCH || (length as usize) < OVERHEAD_BYTES || end > head.end {
            return Err(Malformed("index_file place"));
        }
        let mut chunks = Vec::new();
        if kind == Kind::Message {
            for _ in 0..r.count(8)? {
                chunks.push(r.u64()?);
            }
            let (length, sum) = (r.u32()?, r.u32()?);
            if length > 0 {
                begins.push(Begin { record: offset, from, length, sum });
            }
            from = from.checked_add(length).ok_or(Malformed("index_file envelopes"))?;
        }
        read.rows.push(RecordRef { kind, name, offset, length, chunks });
    }
    let counted = read.batches.iter().try_fold(0usize, |sum, batch| sum.checked_add(batch.count));
    let is_sorted = begins.is_sorted_by_key(|begin| begin.record);
    if !r.0.is_empty() || counted != Some(read.rows.len()) || !is_sorted {
        return Err(Malformed("index_file rows"));
    }
    Ok((read, begins))
}

/// Reads the head of an index file. `None` when the head cannot be believed.
fn read_head_of(file: &dyn File) -> Option<IndexHeader> {
    let mut head = [0; HEAD_BYTES];
    let length = file.read_at(0, &mut head).ok()?;
    IndexHeader::decode(&head[..length]).ok()
}

/// Reads the table of an index file. `None` when the table cannot be believed.
fn read_table(file: &dyn File, head: &IndexHeader) -> Option<(ScanResult, Vec<Begin>)> {
    let length = file.len().ok()?.checked_sub(HEAD_BYTES as u64).filter(|left| head.table_bytes <= *left)?;
    file.will_read(HEAD_BYTES as u64, length);
    let mut table = vec![0; usize::try_from(head.table_bytes).ok()?];
    let read = file.read_at(HEAD_BYTES as u64, &mut table).ok()?;
    decode(head, &table[..read]).ok()
}

/// Reads the index file of a segment whose file is not there. `None` when the index file cannot be believed.
pub(super) fn read_without_segment(disk: &dyn Disk, segment: &str) -> Option<ScanResult> {
    let file = disk.open(&name_of(segment)).ok()?;
    let (read, _) = read_table(&*file, &read_head_of(&*file)?)?;
    Some(read)
}

/// Reads the index file of a segment. `None` when there is no index file, or the index file cannot be believed. Damage in the
/// segment is found when the damaged bytes are read.
pub(super) fn read(disk: &dyn Disk, segment: &Segment) -> Option<ScanResult> {
    let file = disk.open(&name_of(&segment.name)).ok()?;
    let head = read_head_of(&*file)?;
    let header = &segment.header;
    if (head.sequence, head.seed) != (header.sequence, header.seed) || head.end > header.size_bytes {
        return None;
    }
    let (mut read, begins) = read_table(&*file, &head)?;
    // Its last batch is where it was: else this is an index file of other bytes.
    let (count, sequence) = read.batches.last().map(|batch| (batch.count, batch.sequence))?;
    let first = read.rows.len().checked_sub(count).and_then(|first| read.rows.get(first))?;
    let at = u64::from(first.offset).checked_sub(BATCH_HEAD_BYTES as u64)?;
    let mut bytes = vec![0; usize::try_from(head.end.checked_sub(at)?).ok()?];
    let length = segment.file.read_at(at, &mut bytes).ok()?;
    let (found, _) = read_batch(&bytes[..length], at, header.seed, true).ok()?;
    let is_same = (found.sequence, found.count as usize, at + found.padded()) == (sequence, count, head.end);
    read.envelopes = Some(EnvelopeTable { file, base: HEAD_BYTES as u64 + head.table_bytes, begins });
    is_same.then_some(read)
}

/// Writes the index file of a segment; `false` when it can have none.
fn write(disk: &dyn Disk, segment: &Segment) -> io::Result<bool> {
    let context = ReadContext::default();
    let Some(range) = split_segment(0, segment, u64::MAX)?.into_iter().next() else { return Ok(false) };
    let Some(bytes) = encode(&segment.header, &range.read(&context, true)?) else { return Ok(false) };
    let name = name_of(&segment.name);
    done_before(disk.remove(&name))?;
    let written = disk.create(&name)?.write_at(0, &bytes);
    if written.is_err() {
        let _ = disk.remove(&name); // no index file is better than half of one
    }
    written.map(|()| true)
}

/// The oldest segment that is worth an index file and has none, but for so many young ones.
fn due(shared: &Shared, young: usize, share: u64) -> Option<(u32, Segment)> {
    let index = shared.index();
    let old = index.segments.len().saturating_sub(young);
    let mut old = index.segments.iter().take(old);
    let is_worth_it = |s: &Segment| s.live_bytes > 0 && s.live_bytes * share >= s.header.size_bytes;
    old.find(|(_, s)| !s.is_indexed && !s.is_damaged && is_worth_it(s)).map(|(n, s)| (*n, s.clone()))
}

pub(super) fn is_due(shared: &Shared) -> bool {
    due(shared, YOUNG, OPEN_SHARE).is_some()
}

/// Makes one that is due; `false` when none is. No segment of a closed log is written to,
/// and by hand whatever lives in one is worth it.
pub(super) fn make_one(shared: &Shared, is_closed: bool) -> bool {
    let (young, share) = match (is_closed, shared.allocator.is_single_stepped()) {
        (true, true) => (0, ANY_SHARE),
        (false, true) => (1, ANY_SHARE),
        (true, false) => (0, CLOSED_SHARE),
        (false, false) => (YOUNG, OPEN_SHARE),
    };
    let Some((number, segment)) = due(shared, young, share) else { return false };
    if let Err(e) = write(shared.allocator.disk(), &segment) {
        tracing::debug!("write the index file of {}: {e}; a start will read all of it", segment.name);
    }
    // Made or not, it is not tried again.
    if let Some(segment) = shared.index().segments.get_mut(&number) {
        segment.is_indexed = true;
    }
    true
}

/// For fuzzing only: a head, and a table whose checksum is right whatever it says.
pub(crate) fn fuzz(bytes: &[u8], batches: u32, rows: u32) {
    if let Ok(head) = IndexHeader::decode(bytes) {
        assert_eq!(head.encode(), bytes[..HEAD_BYTES]);
    }
    let (table_bytes, table_sum) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let head = IndexHeader {
        batches,
        rows,
        sequence: 3,
        seed: 9,
        end: 1 << 20,
        torn_bytes: 5,
        table_bytes,
        table_sum,
    };
    let Ok((read, begins)) = decode(&head, bytes) else { return };
    assert_eq!((read.batches.len(), read.rows.len()), (batches as usize, rows as usize));
    assert!(read.rows.iter().all(|row| u64::from(row.offset) + u64::from(row.length) <= head.end));
    assert!(begins.len() <= read.rows.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        disk::RealDisk,
        format::{block::HeaderPlace, golden},
    };
    use proptest::prelude::*;

    #[test]
    fn a_digest_is_read_as_it_was_written() {
        let stored = |kind, name, offset, chunks: &[u64]| RecordRef {
            kind,
            name,
            offset,
            length: 100,
            chunks: chunks.to_vec(),
        };
        let rows = vec![
            stored(Kind::Chunk, 7, 4120, &[]),
            stored(Kind::Message, 1, 4300, &[7, 8]),
            stored(Kind::Tombstone, 2, 8216, &[]),
        ];
        let batches = vec![Batch { sequence: 11, count: 2 }, Batch { sequence: 12, count: 1 }];
        let read = ScanResult {
            start: FIRST_BATCH,
            end: 12288,
            batches,
            rows,
            torn_bytes: Some(4096),
            ..ScanResult::default()
        };
        let header = SegmentHeader::new(3, 9, 1 << 20);
        let out = encode(&header, &read).unwrap();
        let head = IndexHeader::decode(&out).unwrap();
        assert_eq!(head.encode(), &out[..HEAD_BYTES]);
        let (again, begins) = decode(&head, &out[HEAD_BYTES..]).unwrap();
        assert_eq!((again.start, again.end, again.torn_bytes), (FIRST_BATCH, 12288, Some(4096)));
        assert!(again.rows == read.rows && begins.is_empty());
        let batches = |all: &[Batch]| all.iter().map(|b| (b.sequence, b.count)).collect::<Vec<_>>();
        assert_eq!(batches(&again.batches), batches(&read.batches));
        // Of what is damaged, or has no batch, there is none.
        assert_eq!(encode(&header, &ScanResult { torn_bytes: None, ..read }), None);
        assert_eq!(encode(&header, &ScanResult { torn_bytes: Some(0), ..ScanResult::default() }), None);
    }

    #[test]
    fn a_digest_is_as_documented() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(dir.path()).unwrap();
        let file = disk.create("7.seg").unwrap();
        file.write_at(0, &golden::HEADER.encode(HeaderPlace::First)).unwrap();
        file.write_at(FIRST_BATCH, &golden::batch()).unwrap();
        let (name, header) = ("7.seg".to_owned(), golden::HEADER);
        let segment = Segment::new(3, name, header, file);
        assert!(write(&disk, &segment).unwrap());
        golden::check(0x10_0000, &std::fs::read(dir.path().join("7.idx")).unwrap());
        assert!(read(&disk, &segment).is_some());
    }

    proptest! {
        #[test]
        fn arbitrary_tables_with_a_right_checksum_never_panic(table: Vec<u8>, batches in 0u32..9, rows in 0u32..9) {
            fuzz(&table, batches, rows);
        }

        #[test]
        fn a_damaged_head_is_none(at in 0..HEAD_BYTES, flip in 1u8..) {
            let head = IndexHeader {
                batches: 1, rows: 1, sequence: 3, seed: 9, end: 8192, torn_bytes: 0, table_bytes: 5, table_sum: 7,
            };
            let mut bytes = head.encode();
            prop_assert_eq!(IndexHeader::decode(&bytes), Ok(head));
            bytes[at] ^= flip;
            prop_assert!(IndexHeader::decode(&bytes).is_err());
        }
    }
}
