//! What frames records: a segment's header, and batches, which are read whole or not at all.

use super::wire::{Malformed, Reader, put_u32, put_u64};

/// Every batch begins and ends at a multiple of this, so that no sector with acknowledged bytes is
/// written twice.
pub(crate) const ALIGN: usize = 4096;
/// The version we write. Others are refused.
pub(crate) const VERSION: u32 = 1;
/// Where a segment's first batch begins.
pub(crate) const FIRST_BATCH: u64 = ALIGN as u64;

const SEGMENT_MAGIC: &[u8; 8] = b"PRSPOOL\0";
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"PBAT");
const END_MAGIC: u32 = u32::from_le_bytes(*b"PEND");

/// A segment's life: from its preparation until its blocks are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Segments are read in this order.
    pub(crate) sequence: u64,
    /// Part of every checksum in it.
    pub(crate) seed: u64,
    /// Its length in bytes.
    pub(crate) size_bytes: u64,
}

/// Why a segment's header is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// No header: never finished being made, or not ours.
    Unreadable,
    /// Written by another version of this program.
    Version(u32),
}

impl SegmentHeader {
    /// One block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = SEGMENT_MAGIC.to_vec();
        put_u32(&mut out, VERSION);
        put_u32(&mut out, 0);
        put_u64(&mut out, self.sequence);
        put_u64(&mut out, self.seed);
        put_u64(&mut out, self.size_bytes);
        let sum = crc32c::crc32c(&out);
        put_u32(&mut out, sum);
        out.resize(ALIGN, 0);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let parse = || -> Result<(u32, Self), Malformed> {
            let mut r = Reader(bytes);
            if r.bytes(8)? != SEGMENT_MAGIC {
                return Err(Malformed("segment magic"));
            }
            let version = r.u32()?;
            r.u32()?;
            let header = Self { sequence: r.u64()?, seed: r.u64()?, size_bytes: r.u64()? };
            if version == VERSION && r.u32()? != crc32c::crc32c(&bytes[..40]) {
                return Err(Malformed("segment header checksum"));
            }
            Ok((version, header))
        };
        match parse() {
            Ok((VERSION, header)) => Ok(header),
            Ok((other, _)) => Err(BadHeader::Version(other)),
            Err(_) => Err(BadHeader::Unreadable),
        }
    }
}

/// Magic, length, sequence, count, checksum.
pub(crate) const BATCH_HEAD_BYTES: usize = 4 + 4 + 8 + 4 + 4;
/// Magic, chained checksum.
const BATCH_END_BYTES: usize = 4 + 4;

/// Begins a batch in `out`, which must be empty; records follow.
pub(crate) fn begin_batch(out: &mut Vec<u8>) {
    debug_assert!(out.is_empty());
    out.resize(BATCH_HEAD_BYTES, 0);
}

/// The checksums of a batch's records, chained: a batch with one missing, added or moved is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chain {
    sum: u32,
    pub(crate) count: u32,
}

impl Chain {
    pub(crate) fn add(&mut self, record_sum: u32) {
        self.sum = crc32c::crc32c_append(self.sum, &record_sum.to_le_bytes());
        self.count += 1;
    }
}

fn head_sum(head: &[u8], seed: u64, position: u64) -> u32 {
    let mut salt = [0; 16];
    salt[..8].copy_from_slice(&seed.to_le_bytes());
    salt[8..].copy_from_slice(&position.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&salt), head)
}

/// Ends the batch: end record, padding, and the header in front.
pub(crate) fn end_batch(out: &mut Vec<u8>, position: u64, seed: u64, sequence: u64, chain: Chain) {
    put_u32(out, END_MAGIC);
    put_u32(out, chain.sum ^ seed as u32);
    let length = u32::try_from(out.len()).expect("a batch is far below 4 GiB");
    let mut head = Vec::with_capacity(BATCH_HEAD_BYTES);
    put_u32(&mut head, BATCH_MAGIC);
    put_u32(&mut head, length);
    put_u64(&mut head, sequence);
    put_u32(&mut head, chain.count);
    let sum = head_sum(&head, seed, position);
    put_u32(&mut head, sum);
    out[..BATCH_HEAD_BYTES].copy_from_slice(&head);
    out.resize(out.len().next_multiple_of(ALIGN), 0);
}

/// A batch's header, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// With header and end, without padding.
    pub(crate) length: usize,
    pub(crate) sequence: u64,
    pub(crate) count: u32,
}

impl BatchHead {
    /// Where the next batch begins, counted from this one.
    pub(crate) fn padded(&self) -> u64 {
        self.length.next_multiple_of(ALIGN) as u64
    }
}

pub(crate) fn read_head(bytes: &[u8], position: u64, seed: u64) -> Result<BatchHead, Malformed> {
    let mut r = Reader(bytes);
    if r.u32()? != BATCH_MAGIC {
        return Err(Malformed("batch magic"));
    }
    let head = BatchHead { length: r.u32()? as usize, sequence: r.u64()?, count: r.u32()? };
    if r.u32()? != head_sum(&bytes[..BATCH_HEAD_BYTES - 4], seed, position) {
        return Err(Malformed("batch checksum"));
    }
    if head.length < BATCH_HEAD_BYTES + BATCH_END_BYTES { Err(Malformed("batch length")) } else { Ok(head) }
}

/// A record with its position in the segment and its length.
pub(crate) type Placed<'a> = (u64, u32, super::record::Record<'a>);

/// A whole batch's records with their positions; all of them are whole, and none is missing. Only a
/// broken promise ([`crate::Mutation::IgnoreBatchEnd`]) asks for less than `whole`.
pub(crate) fn read_batch(
    bytes: &[u8],
    position: u64,
    seed: u64,
    whole: bool,
) -> Result<(BatchHead, Vec<Placed<'_>>), Malformed> {
    let head = read_head(bytes, position, seed)?;
    let body = bytes.get(..head.length).ok_or(Malformed("batch cut short"))?;
    let end = head.length - BATCH_END_BYTES;
    let (mut at, mut chain, mut records) = (BATCH_HEAD_BYTES, Chain::default(), Vec::new());
    while at < end {
        let (record, length, sum) = match super::record::read(&body[at..end], position + at as u64, seed) {
            Err(_) if !whole && !records.is_empty() => return Ok((head, records)),
            read => read?,
        };
        records.push((position + at as u64, length as u32, record));
        chain.add(sum);
        at += length;
    }
    let mut r = Reader(&body[end..]);
    if !whole {
        return Ok((head, records));
    }
    if r.u32()? != END_MAGIC || r.u32()? != chain.sum ^ seed as u32 || chain.count != head.count {
        return Err(Malformed("batch end"));
    }
    Ok((head, records))
}
