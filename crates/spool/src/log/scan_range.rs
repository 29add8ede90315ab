//! Scans a range of a segment by itself, so that several threads can read a log at once. The result depends on the
//! bytes of the range alone. What the result means depends on the ranges before it, and is decided when the results
//! are put together in their order.

use super::{
    index::Segment,
    read_ahead::ReadAhead,
    recover::{is_zero, next_or_again, refresh, torn_bytes},
    segment_index::EnvelopeTable,
};
use crate::{
    disk::File,
    format::{
        block::{ALIGN, BATCH_HEAD_BYTES, FIRST_BATCH, Placed, read_batch, read_head},
        message::{abridge, read_places},
        record::Kind,
    },
};
use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// A range with nothing but zeros from its beginning up to here was never used: mostly that is so of
/// most of a segment, or of nothing in it.
const UNUSED_BYTES: u64 = 64 * 1024;
/// So much of envelopes is kept until they are decoded; the rest is read a second time.
const KEPT_BYTES: usize = 64 * 1024 * 1024;

/// A range of a segment that one thread scans.
pub(super) struct ScanRange {
    /// The index of the segment in the order of the log.
    pub(super) segment: usize,
    name: String,
    file: Arc<dyn File>,
    seed: u64,
    from: u64,
    to: u64,
    /// Where the segment ends.
    end: u64,
    /// A range before this one has found the end of what was written to the segment.
    is_over: Arc<AtomicBool>,
}

/// Where a record is in its segment, and what it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordRef {
    pub(super) kind: Kind,
    pub(super) name: u64,
    pub(super) offset: u32,
    pub(super) length: u32,
    /// Ids of the chunks that a message record refers to; empty for other records.
    pub(super) chunks: Vec<u64>,
}

/// A whole batch; its rows are the next so many.
pub(super) struct Batch {
    pub(super) sequence: u64,
    pub(super) count: usize,
}

/// What one range of a segment holds.
#[derive(Default)]
pub(super) struct ScanResult {
    /// Offset of the first batch; the offset at which it was looked for, when there is none.
    pub(super) start: u64,
    /// Behind its last.
    pub(super) end: u64,
    pub(super) batches: Vec<Batch>,
    pub(super) rows: Vec<RecordRef>,
    /// The bodies of the last batch's records, unless they must be read again: perhaps it is the log's
    /// last.
    pub(super) bodies: Option<Vec<Vec<u8>>>,
    /// Nothing follows but so many torn bytes.
    pub(super) torn_bytes: Option<u64>,
    pub(super) kept: CachedEnvelopes,
    /// In place of what is kept: where it can be read.
    pub(super) envelopes: Option<EnvelopeTable>,
}

/// Abridged envelopes of a range.
#[derive(Default)]
pub(crate) struct CachedEnvelopes {
    bytes: Vec<u8>,
    /// By offset of the message's record in the segment: where its envelope begins. They end where the
    /// next begins.
    begins: Vec<(u32, u32)>,
}

impl CachedEnvelopes {
    /// Returns the envelope of the record at this offset; `None` if it is not in memory.
    pub(super) fn get(&self, offset: u32) -> Option<&[u8]> {
        if self.begins.last()?.0 < offset {
            return None;
        }
        let at = self.begins.binary_search_by_key(&offset, |begin| begin.0).ok()?;
        let end = self.begins.get(at + 1).map_or(self.bytes.len(), |next| next.1 as usize);
        self.bytes.get(self.begins[at].1 as usize..end)
    }
}

/// State that the threads of a scan share: buffers, and a count of the bytes that are kept.
#[derive(Default)]
pub(super) struct ReadContext {
    kept_bytes: AtomicUsize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl ReadContext {
    /// Returns a used buffer, or an empty one: fresh memory costs as much as reading into it.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn return_buffer(&self, buffer: Vec<u8>) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
}

/// Splits a segment into ranges of about so many bytes, from front to back.
pub(super) fn split_segment(
    number: usize,
    segment: &Segment,
    length_bytes: u64,
) -> io::Result<Vec<ScanRange>> {
    let end = segment.header.end().min(segment.file.len()?);
    let is_over = Arc::new(AtomicBool::new(false));
    let one = |from: u64| ScanRange {
        segment: number,
        name: segment.name.clone(),
        file: segment.file.clone(),
        seed: segment.header.seed,
        from,
        to: end.min((from / length_bytes + 1) * length_bytes),
        end,
        is_over: is_over.clone(),
    };
    let mut all = vec![one(FIRST_BATCH)];
    while let Some(last) = all.last().filter(|last| last.to < end) {
        let next = one(last.to);
        all.push(next);
    }
    Ok(all)
}

impl ScanRange {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Scans from the first batch of the range up to a batch that begins behind the range, or cannot be read.
    /// Bytes that look damaged are read a second time, past the page cache.
    pub(super) fn read(&self, context: &ReadContext, whole: bool) -> io::Result<ScanResult> {
        let mut window = ReadAhead::new(self.file.clone(), self.end, context.buffer());
        let mut read = ScanResult { start: self.from, end: self.from, ..ScanResult::default() };
        if let Some(start) = self.first(&mut window)? {
            (read.start, read.end) = (start, start);
            self.fill(&mut read, &mut window, context, whole)?;
            // Nobody asks for what stands behind.
            self.is_over.fetch_or(read.torn_bytes.is_some(), Ordering::Relaxed);
        }
        context.return_buffer(window.into_buffer());
        Ok(read)
    }

    /// Finds where the first batch of the range begins.
    fn first(&self, window: &mut ReadAhead) -> io::Result<Option<u64>> {
        if self.from == FIRST_BATCH {
            return Ok(Some(FIRST_BATCH));
        }
        let (mut at, mut is_unused) = (self.from, true);
        while at < self.to
            && !(is_unused && at - self.from >= UNUSED_BYTES)
            && !self.is_over.load(Ordering::Relaxed)
        {
            let block = window.slice_ahead(at, ALIGN, || UNUSED_BYTES as usize)?;
            if read_head(block, at, self.seed).is_ok() {
                return Ok(Some(at));
            }
            is_unused = is_unused && is_zero(block);
            at += ALIGN as u64;
        }
        Ok(None)
    }

    fn fill(
        &self,
        read: &mut ScanResult,
        window: &mut ReadAhead,
        context: &ReadContext,
        whole: bool,
    ) -> io::Result<()> {
        let (mut last, mut last_at, mut refreshed) = (0, None, None);
        while read.end < self.to {
            let at = read.end;
            let length = read_head(window.slice(at, BATCH_HEAD_BYTES)?, at, self.seed)
                .map_or(BATCH_HEAD_BYTES, |head| head.length);
            let Ok((head, records)) = read_batch(window.slice(at, length)?, at, self.seed, whole) else {
                if refreshed != Some(at) {
                    refreshed = Some(at);
                    refresh(window, at, self.seed)?;
                    continue;
                }
                // Were more known of what stands before it, still less would count as later.
                let is_end = next_or_again(window, at, self.seed, last)?.is_none();
                read.torn_bytes = if is_end { Some(torn_bytes(window, at)?) } else { None };
                break;
            };
            if last_at.is_none() {
                self.file.will_read(at, self.to.saturating_sub(at));
            }
            (last, last_at) = (last.max(head.sequence), Some((at, length)));
            read.batches.push(Batch { sequence: head.sequence, count: records.len() });
            read.take(&records, context);
            read.end += head.padded();
        }
        if read.end >= self.end {
            read.torn_bytes = Some(0); // full to the last block
        }
        if let Some((at, length)) = last_at {
            let again = read_batch(window.slice(at, length)?, at, self.seed, whole);
            let records = again.map_or(Vec::new(), |(_, records)| records);
            read.bodies = Some(records.iter().map(|(_, _, record)| record.body.to_vec()).collect());
        }
        Ok(())
    }
}

impl ScanResult {
    /// Does the result have batches, or the end of the segment?
    pub(super) fn says_something(&self) -> bool {
        !self.batches.is_empty() || self.torn_bytes.is_some()
    }

    fn take(&mut self, records: &[Placed<'_>], context: &ReadContext) {
        let keeps = context.kept_bytes.load(Ordering::Relaxed) < KEPT_BYTES;
        let before = self.kept.bytes.len();
        for placed in records {
            let (offset, _, record) = placed;
            let chunks = if record.kind != Kind::Message {
                Vec::new()
            } else if keeps {
                self.kept.add(*offset as u32, record.body)
            } else {
                read_places(record.body).unwrap_or_default()
            };
            self.rows.push(RecordRef::new(placed, chunks));
        }
        context.kept_bytes.fetch_add(self.kept.bytes.len() - before, Ordering::Relaxed);
    }
}

impl CachedEnvelopes {
    /// The ids of its chunks; none when it makes no sense, which is reported when it is visited.
    fn add(&mut self, offset: u32, body: &[u8]) -> Vec<u64> {
        let begin = self.bytes.len();
        let chunk_ids = abridge(body, &mut self.bytes);
        match chunk_ids {
            Ok(chunk_ids) => {
                self.begins.push((offset, begin as u32));
                chunk_ids
            }
            Err(_) => {
                self.bytes.truncate(begin);
                Vec::new()
            }
        }
    }
}

impl RecordRef {
    pub(super) fn new((offset, length, record): &Placed<'_>, chunks: Vec<u64>) -> Self {
        Self { kind: record.kind, name: record.name, offset: *offset as u32, length: *length, chunks }
    }
}
