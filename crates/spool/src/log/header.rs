//! Finds the header of a segment: the first block, its copy in the last block, or what any whole batch tells.

use super::tolerant::FaultTolerantFile;
use crate::{
    disk::File as _,
    format::block::{
        ALIGN, BATCH_HEAD_BYTES, BadHeader, FIRST_BATCH, HeaderPlace, SegmentHeader, find_seed, find_seed_at,
        read_batch, read_head,
    },
    mutant::{ActiveMutant, Mutant},
};

/// The result of reading the headers of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FoundHeader {
    /// The first block is whole.
    Sound(SegmentHeader),
    /// The first block is damaged or cannot be read; this is the copy.
    Copied(SegmentHeader),
    /// Both are lost. The seed comes from a batch; the segment's place in the log is the one of its first batch.
    Lost {
        /// With a sequence of 0.
        header: SegmentHeader,
        /// The number of the first batch that can be read.
        first_batch: u64,
    },
    /// Nothing in the file is needed: it was freed, or never finished. The header is the one that says so.
    Free(SegmentHeader),
    /// Neither a header nor a batch, and the file is not empty.
    Nothing,
    /// The disk did not give back what would tell.
    Unread,
}

/// Reads the headers of a segment of so many bytes.
///
/// # Errors
/// The number of a version that this program does not support.
pub(super) fn find_header(
    file: &FaultTolerantFile,
    size_bytes: u64,
    mutant: ActiveMutant,
) -> Result<FoundHeader, u32> {
    if mutant.is(Mutant::TrustZeroHeader) && is_first_block_zero(file) {
        return Ok(FoundHeader::Free(SegmentHeader::new(0, 0, size_bytes)));
    }
    let first = match decode(file, HeaderPlace::First, size_bytes) {
        Err(BadHeader::Version(version)) => return Err(version),
        read => read.ok(),
    };
    let last = decode(file, HeaderPlace::Last, size_bytes).ok();
    let last = last.filter(|header| header.size_bytes == size_bytes && !mutant.is(Mutant::IgnoreHeaderCopy));
    let found = match (first, last) {
        (Some(one), None) | (None, Some(one)) => match later_generation(file, &one, size_bytes) {
            Some(lost) => lost,
            None if first.is_some() || one.is_freed => sound(one),
            None => FoundHeader::Copied(one),
        },
        (Some(first), Some(last)) if first.version == 1 || last.sequence < first.sequence => sound(first),
        // Written for a new generation, and the write to the first block is lost: a disk did that, or a crash
        // before anything was written to the new generation.
        (Some(first), Some(last)) if last.sequence > first.sequence => sound(last),
        (Some(first), Some(last)) => {
            if last.is_freed {
                FoundHeader::Free(last)
            } else {
                sound(first)
            }
        }
        (None, None) => without_header(file, size_bytes),
    };
    Ok(found)
}

/// Returns the header that the batches tell where the only header left is of an earlier generation: a disk that lost the
/// last write of its block gives back the one before, which may say that the segment was freed. Without a first batch
/// nothing speaks against the header: a batch that stands elsewhere may be of an earlier generation.
fn later_generation(
    file: &FaultTolerantFile,
    header: &SegmentHeader,
    size_bytes: u64,
) -> Option<FoundHeader> {
    // Written before there were copies, or by a start that knew nothing of the segment that it freed.
    if header.version == 1 || header.seed == 0 {
        return None;
    }
    let bytes = content(file, size_bytes);
    if !is_of_another_generation(&bytes, header.seed) {
        return None;
    }
    lost_header(&bytes, size_bytes)
}

fn sound(header: SegmentHeader) -> FoundHeader {
    if header.is_freed { FoundHeader::Free(header) } else { FoundHeader::Sound(header) }
}

/// A header that looks damaged is read a second time, past the page cache.
fn decode(file: &FaultTolerantFile, place: HeaderPlace, size_bytes: u64) -> Result<SegmentHeader, BadHeader> {
    let mut block = vec![0; ALIGN];
    // The file tolerates errors: what cannot be read is filled with bytes that are no header.
    let length = file.read_at(place.offset(size_bytes), &mut block).unwrap_or(0);
    let decoded = SegmentHeader::decode(&block[..length], place);
    if decoded != Err(BadHeader::Unreadable) {
        return decoded;
    }
    let length = file.read_uncached(place.offset(size_bytes), &mut block).unwrap_or(0);
    SegmentHeader::decode(&block[..length], place)
}

/// A block of zeros is what a disk leaves of a header that it lost.
fn without_header(file: &FaultTolerantFile, size_bytes: u64) -> FoundHeader {
    let bytes = content(file, size_bytes);
    match lost_header(&bytes, size_bytes) {
        Some(lost) => lost,
        None if file.unread().is_some() => FoundHeader::Unread,
        // Perhaps its first batch is lost, too: nobody knows of which generation the others are. A file gets its name
        // when its headers are synced: an empty one, or one of zeros, lost what it had.
        None => FoundHeader::Nothing,
    }
}

fn is_first_block_zero(file: &FaultTolerantFile) -> bool {
    let mut block = vec![0; ALIGN];
    let length = file.read_at(0, &mut block).unwrap_or(0);
    block[..length].iter().all(|byte| *byte == 0)
}

/// Reads all bytes of a segment.
fn content(file: &FaultTolerantFile, size_bytes: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size_bytes).unwrap_or(0)];
    let length = file.read_at(0, &mut bytes).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

/// Is the first batch whole, and written with another seed? One flipped bit at the end of a batch makes another seed fit
/// the whole batch, but the head still fits the right one.
fn is_of_another_generation(bytes: &[u8], seed: u64) -> bool {
    let at = FIRST_BATCH as usize;
    let fits =
        bytes.get(at..at + BATCH_HEAD_BYTES).is_some_and(|head| read_head(head, FIRST_BATCH, seed).is_ok());
    !fits && find_seed_at(bytes, at).is_some()
}

/// Derives the header of a segment from the batches. `None` when there is no first batch: batches behind it may be
/// of an earlier generation, since a new generation begins with zeros where its first batch will be.
fn lost_header(bytes: &[u8], size_bytes: u64) -> Option<FoundHeader> {
    let first = bytes.get(FIRST_BATCH as usize..)?;
    if first.get(..ALIGN)?.iter().all(|byte| *byte == 0) {
        return None;
    }
    let seed = find_seed(bytes)?;
    let blocks = (FIRST_BATCH as usize..bytes.len()).step_by(ALIGN);
    let heads = blocks.filter_map(|at| {
        let head = read_head(bytes.get(at..at + BATCH_HEAD_BYTES)?, at as u64, seed).ok()?;
        read_batch(&bytes[at..], at as u64, seed, true).is_ok().then_some(head.sequence)
    });
    let first_batch = heads.min()?;
    let header = SegmentHeader { version: 1, ..SegmentHeader::new(0, seed, size_bytes) };
    Some(FoundHeader::Lost { header, first_batch })
}
