//! The frames of records: a segment's header, and batches, which are read whole or not at all.

use super::wire::{Malformed, Reader, put_u32, put_u64};

/// Every batch begins and ends at a multiple of this, so that no sector with acknowledged bytes is
/// written twice.
pub(crate) const ALIGN: usize = 4096;
/// The version that is written. Version 2, which has neither extensions nor totals, and version 1, which has no copy of
/// the header either, are read too; others are refused.
pub(crate) const VERSION: u32 = 3;
/// Offset of a segment's first batch.
pub(crate) const FIRST_BATCH: u64 = ALIGN as u64;

const SEGMENT_MAGIC: &[u8; 8] = b"PRSPOOL\0";
const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"PBAT");
const END_MAGIC: u32 = u32::from_le_bytes(*b"PEND");

/// The segment is freed: nothing in it is needed.
const FREED: u32 = 1;
/// The header is the copy in the segment's last block.
const COPY: u32 = 2;
/// Number of bytes of a header that are written.
const HEADER_BYTES: usize = 44;

/// The header of a segment: one generation, from its preparation until its blocks are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Of the format: 1 to 3.
    pub(crate) version: u32,
    /// Nothing in the segment is needed: its file is about to be removed.
    pub(crate) is_freed: bool,
    /// Segments are read in this order.
    pub(crate) sequence: u64,
    /// Part of every checksum in the segment: 64 random bits, so that no content can imitate a record.
    pub(crate) seed: u64,
    /// Of the whole segment, in bytes.
    pub(crate) size_bytes: u64,
}

/// The place of one of a segment's two headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderPlace {
    /// The first block.
    First,
    /// The copy in the last block, since version 2.
    Last,
}

impl HeaderPlace {
    /// Returns the offset of the header in a segment of so many bytes.
    pub(crate) fn offset(self, size_bytes: u64) -> u64 {
        match self {
            Self::First => 0,
            Self::Last => size_bytes.saturating_sub(ALIGN as u64) / ALIGN as u64 * ALIGN as u64,
        }
    }
}

/// The reason why a segment's header is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// No header: the segment was never finished, is not ours, or is damaged.
    Unreadable,
    /// Another version of this program wrote the header.
    Version(u32),
}

impl SegmentHeader {
    /// Returns a header of the newest version.
    pub(crate) fn new(sequence: u64, seed: u64, size_bytes: u64) -> Self {
        Self { version: VERSION, is_freed: false, sequence, seed, size_bytes }
    }

    /// Returns the same header with the mark of a freed segment.
    pub(crate) fn freed(self) -> Self {
        Self { version: VERSION, is_freed: true, ..self }
    }

    /// Returns the offset at which batches end: the last block is the header's copy.
    pub(crate) fn end(&self) -> u64 {
        if self.version == 1 { self.size_bytes } else { HeaderPlace::Last.offset(self.size_bytes) }
    }

    /// Encodes the header into a block of its own, with its checksum.
    pub(crate) fn encode(&self, place: HeaderPlace) -> Vec<u8> {
        let mut out = SEGMENT_MAGIC.to_vec();
        put_u32(&mut out, self.version);
        let copy = if place == HeaderPlace::Last { COPY } else { 0 };
        put_u32(&mut out, if self.is_freed { FREED | copy } else { copy });
        put_u64(&mut out, self.sequence);
        put_u64(&mut out, self.seed);
        put_u64(&mut out, self.size_bytes);
        let sum = crc32c::crc32c(&out);
        put_u32(&mut out, sum);
        out.resize(ALIGN, 0);
        out
    }

    /// Reads what [`SegmentHeader::encode`] wrote for this place.
    pub(crate) fn decode(bytes: &[u8], place: HeaderPlace) -> Result<Self, BadHeader> {
        let parse = || -> Result<(u32, Self), Malformed> {
            let mut r = Reader(bytes);
            if r.bytes(8)? != SEGMENT_MAGIC {
                return Err(Malformed("segment magic"));
            }
            let (version, flags) = (r.u32()?, r.u32()?);
            let is_freed = flags & FREED != 0;
            let header = Self { version, is_freed, sequence: r.u64()?, seed: r.u64()?, size_bytes: r.u64()? };
            // In every version: otherwise one flipped bit would look like another version and end the start.
            if r.u32()? != crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) {
                return Err(Malformed("segment header checksum"));
            }
            Ok((flags, header))
        };
        match parse() {
            Ok((0, header)) if header.version == 1 && place == HeaderPlace::First => Ok(header),
            Ok((flags, header)) if (2..=VERSION).contains(&header.version) => {
                let found = if flags & COPY == 0 { HeaderPlace::First } else { HeaderPlace::Last };
                if found == place { Ok(header) } else { Err(BadHeader::Unreadable) }
            }
            Ok((_, header)) if header.version > VERSION && place == HeaderPlace::First => {
                Err(BadHeader::Version(header.version))
            }
            Ok(_) | Err(_) => Err(BadHeader::Unreadable),
        }
    }
}

/// Magic, length, sequence, count, checksum.
pub(crate) const BATCH_HEAD_BYTES: usize = 4 + 4 + 8 + 4 + 4;
/// Magic, chained checksum.
pub(crate) const BATCH_END_BYTES: usize = 4 + 4;

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

/// The header of a batch whose checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchHead {
    /// With header and end, without padding.
    pub(crate) length: usize,
    pub(crate) sequence: u64,
    pub(crate) count: u32,
}

impl BatchHead {
    /// Returns the offset of the next batch, counted from this one.
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
/// broken promise ([`crate::mutant::Mutant::IgnoreBatchEnd`]) asks for less than `whole`.
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

/// The seed of a segment whose header is lost, from any batch that is still whole: the end of a batch
/// tells its lower half, and the head's checksum, which is linear in the upper half, the rest.
pub(crate) fn find_seed(bytes: &[u8]) -> Option<u64> {
    let starts = (FIRST_BATCH as usize..bytes.len()).step_by(ALIGN);
    starts.into_iter().find_map(|at| find_seed_at(bytes, at))
}

/// Returns the seed of the batch at an offset in the segment; `None` when no whole batch stands there.
pub(crate) fn find_seed_at(bytes: &[u8], at: usize) -> Option<u64> {
    let seed = seed_of_batch(bytes.get(at..)?, at as u64)?;
    read_batch(&bytes[at..], at as u64, seed, true).is_ok().then_some(seed)
}

fn seed_of_batch(bytes: &[u8], position: u64) -> Option<u64> {
    let mut head = Reader(bytes);
    if head.u32().ok()? != BATCH_MAGIC {
        return None;
    }
    let length = head.u32().ok()? as usize;
    let sum = Reader(bytes.get(BATCH_HEAD_BYTES - 4..)?).u32().ok()?;
    let end = length.checked_sub(BATCH_END_BYTES)?;
    let (mut at, mut chain) = (BATCH_HEAD_BYTES, Chain::default());
    while at < end {
        let record = bytes.get(at..end)?;
        let length = Reader(record).u32().ok()? as usize;
        let stored = Reader(record.get(length.checked_sub(4)?..length)?).u32().ok()?;
        chain.add(stored);
        at += length.max(1);
    }
    let mut tail = Reader(bytes.get(end..)?);
    if tail.u32().ok()? != END_MAGIC {
        return None;
    }
    let lower = tail.u32().ok()? ^ chain.sum;
    let of = |upper: u32| {
        let seed = u64::from(upper) << 32 | u64::from(lower);
        head_sum(&bytes[..BATCH_HEAD_BYTES - 4], seed, position)
    };
    let zero = of(0);
    let upper = solve(std::array::from_fn(|bit| of(1 << bit) ^ zero), sum ^ zero)?;
    Some(u64::from(upper) << 32 | u64::from(lower))
}

/// Returns the columns, as a set of bits, whose sum over GF(2) is `target`.
fn solve(columns: [u32; 32], target: u32) -> Option<u32> {
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for (bit, column) in columns.into_iter().enumerate() {
        let (mut sum, mut which) = (column, 1 << bit);
        for (row, made_of) in &rows {
            if sum & (1 << row.ilog2()) != 0 {
                (sum, which) = (sum ^ row, which ^ made_of);
            }
        }
        if sum != 0 {
            rows.push((sum, which));
        }
    }
    let (mut left, mut answer) = (target, 0);
    for (row, made_of) in &rows {
        if left & (1 << row.ilog2()) != 0 {
            (left, answer) = (left ^ row, answer ^ made_of);
        }
    }
    (left == 0).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::record::{self, Kind};
    use proptest::prelude::*;

    fn batch(seed: u64, bodies: &[Vec<u8>]) -> Vec<u8> {
        let (mut out, mut chain) = (Vec::new(), Chain::default());
        begin_batch(&mut out);
        for (name, body) in bodies.iter().enumerate() {
            let write = |o: &mut Vec<u8>| o.extend_from_slice(body);
            chain.add(record::append(&mut out, FIRST_BATCH, seed, Kind::Chunk, name as u64, write));
        }
        end_batch(&mut out, FIRST_BATCH, seed, 9, chain);
        out
    }

    #[test]
    fn another_version_is_one_that_says_so_whole_and_a_bit_that_flips_is_damage() {
        let header = SegmentHeader::new(7, 8, 9);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = header.encode(HeaderPlace::First);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let decoded = SegmentHeader::decode(&bytes, HeaderPlace::First);
            assert_eq!(decoded, Err(BadHeader::Unreadable), "bit {bit}");
        }
        let newer = SegmentHeader { version: VERSION + 1, ..header }.encode(HeaderPlace::First);
        assert_eq!(SegmentHeader::decode(&newer, HeaderPlace::First), Err(BadHeader::Version(VERSION + 1)));
    }

    #[test]
    fn a_header_is_read_only_where_it_was_written() {
        let places = [HeaderPlace::First, HeaderPlace::Last];
        let old = SegmentHeader { version: 1, ..SegmentHeader::new(7, 8, 9) };
        for header in [SegmentHeader::new(7, 8, 9), SegmentHeader::new(7, 8, 9).freed()] {
            for (written, read) in places.into_iter().flat_map(|a| places.map(|b| (a, b))) {
                let decoded = SegmentHeader::decode(&header.encode(written), read);
                assert_eq!(decoded.ok(), (written == read).then_some(header), "{written:?} {read:?}");
            }
        }
        assert_eq!(SegmentHeader::decode(&old.encode(HeaderPlace::First), HeaderPlace::First), Ok(old));
        assert_eq!(old.end(), 9);
    }

    proptest! {
        #[test]
        fn a_lost_seed_is_found_from_one_whole_batch(seed: u64, bodies: Vec<Vec<u8>>) {
            let mut segment = vec![0xff; ALIGN];
            segment.extend(batch(seed, &bodies));
            prop_assert_eq!(find_seed(&segment), Some(seed));
        }

        #[test]
        fn no_seed_is_found_where_there_is_no_batch(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
            let mut bytes = bytes;
            for at in (0..bytes.len()).step_by(ALIGN).filter(|at| at + 4 <= bytes.len()).collect::<Vec<_>>() {
                bytes[at..at + 4].copy_from_slice(b"PBAT");
            }
            prop_assert_eq!(find_seed(&bytes), None);
        }
    }
}
