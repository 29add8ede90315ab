//! The layout of a disk, byte by byte, as docs/spool-format.md and docs/spool-directories.md say, and the owner of
//! each
//! byte. It reads what is sound: damage comes later.

use crate::disk::{PAGE, SimDisk};
use mail::QueueId;
use std::{collections::BTreeSet, ops::Range};

/// What the bytes at a place of the disk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// The first block of a segment.
    SegmentHeader,
    /// The copy of the header in the last block.
    HeaderCopy,
    /// Head or end of a batch, without its records.
    BatchFrame,
    /// Length, kind and name of a record.
    RecordHead,
    /// The record without its head.
    RecordBody,
    /// Anything in the newest batch of all.
    LastBatch,
    /// The index file of a segment.
    SegmentIndex,
    /// An envelope file.
    Envelope,
    /// A content file.
    Content,
    /// A chunk's file.
    Chunk,
    /// The steps that shall happen to several messages.
    Intent,
}

/// The message or intent that bytes on the disk belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// The message with this queue id.
    Message(u64),
    /// Whichever message names this chunk.
    Chunk(u64),
}

/// Bytes of a file.
#[derive(Debug, Clone)]
pub struct Spot {
    /// Path of the file on the simulated disk.
    pub file: String,
    /// Offsets in the file.
    pub bytes: Range<usize>,
    /// Tells what is lost with these bytes.
    pub what: What,
}

/// A whole batch, found by parsing the segment.
struct Batch {
    sequence: u64,
    /// Without its padding.
    bytes: Range<usize>,
    records: Vec<Record>,
}

struct Record {
    bytes: Range<usize>,
    owner: Owner,
}

/// Number of bytes before the records of a batch, and behind them.
const BATCH_HEAD: usize = 24;
const BATCH_END: usize = 8;
/// Number of bytes before a record's body.
const RECORD_HEAD: usize = 13;
const CHUNK: u8 = 5;
const SEGMENT_HEADER: usize = 44;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field: [u8; N] = bytes.get(at..at + N)?.try_into().ok()?;
    Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

/// Returns everything that looks like a batch, of earlier generations of the segment, too.
fn all_batches(bytes: &[u8]) -> impl Iterator<Item = Batch> {
    (PAGE..bytes.len()).step_by(PAGE).filter_map(|at| batch(bytes, at))
}

/// The batches of a segment's present generation: their numbers grow.
fn batches(bytes: &[u8]) -> Vec<Batch> {
    let mut all: Vec<Batch> = Vec::new();
    for batch in all_batches(bytes) {
        let is_behind = |last: &Batch| last.bytes.end <= batch.bytes.start && last.sequence < batch.sequence;
        if all.last().is_none_or(is_behind) {
            all.push(batch);
        }
    }
    all
}

fn batch(bytes: &[u8], at: usize) -> Option<Batch> {
    if bytes.get(at..at + 4)? != b"PBAT" {
        return None;
    }
    let end = at + number::<4>(bytes, at + 4)? as usize;
    let (sequence, mut from, mut records) = (number::<8>(bytes, at + 8)?, at + BATCH_HEAD, Vec::new());
    while from < end.checked_sub(BATCH_END)? {
        let to = from + number::<4>(bytes, from)? as usize;
        let name = number::<8>(bytes, from + 5)?;
        let owner = if *bytes.get(from + 4)? == CHUNK { Owner::Chunk(name) } else { Owner::Message(name) };
        if to <= from + RECORD_HEAD || to > end {
            return None;
        }
        records.push(Record { bytes: from..to, owner });
        from = to;
    }
    Some(Batch { sequence, bytes: at..end, records })
}

fn stem_and_kind(file: &str) -> Option<(&str, &str)> {
    file.rsplit('/').next()?.rsplit_once('.')
}

pub(crate) fn is_hit(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

/// All that can be damaged, whether the log's newest batch is included.
pub fn spots(disk: &SimDisk) -> Vec<Spot> {
    let (mut all, mut last) = (Vec::new(), None);
    for file in disk.file_names() {
        let Some((_, kind)) = stem_and_kind(&file) else { continue };
        let bytes = disk.synced(&file);
        let mut spot = |what, bytes: Range<usize>| {
            if !bytes.is_empty() {
                all.push(Spot { file: file.clone(), bytes, what });
            }
        };
        match kind {
            "seg" if bytes.starts_with(b"PRSPOOL\0") => {
                spot(What::SegmentHeader, 0..SEGMENT_HEADER);
                let copy = bytes.len() / PAGE * PAGE - PAGE;
                spot(What::HeaderCopy, copy..copy + SEGMENT_HEADER);
                for Batch { sequence, bytes, records } in batches(&bytes) {
                    spot(What::BatchFrame, bytes.start..bytes.start + BATCH_HEAD);
                    spot(What::BatchFrame, bytes.end - BATCH_END..bytes.end);
                    for Record { bytes, .. } in records {
                        spot(What::RecordHead, bytes.start..bytes.start + RECORD_HEAD);
                        spot(What::RecordBody, bytes.start + RECORD_HEAD..bytes.end);
                    }
                    last = last.max(Some((sequence, file.clone(), bytes.start, bytes.end)));
                }
            }
            "idx" => spot(What::SegmentIndex, 0..bytes.len()),
            "env" => spot(What::Envelope, 0..bytes.len()),
            "msg" => spot(What::Content, 0..bytes.len()),
            "chunk" => spot(What::Chunk, 0..bytes.len()),
            "intent" => spot(What::Intent, 0..bytes.len()),
            _ => {}
        }
    }
    all.extend(last.map(|(_, file, from, to)| Spot { file, bytes: from..to, what: What::LastBatch }));
    all
}

/// Numbers of the batches of a segment that bytes belong to.
pub fn numbers_hit(content: &[u8], lost: &Range<usize>) -> Vec<u64> {
    batches(content).iter().filter(|batch| is_hit(&batch.bytes, lost)).map(|batch| batch.sequence).collect()
}

/// The seed in the first sound header of a segment, or in its copy.
fn seed(bytes: &[u8]) -> Option<u64> {
    let copy = bytes.len() / PAGE * PAGE;
    let headers = [Some(0), copy.checked_sub(PAGE)].into_iter().flatten();
    let is_sound = |at: usize| {
        let sum = bytes.get(at..at + SEGMENT_HEADER - 4).map(crc32c::crc32c);
        sum.is_some_and(|sum| number::<4>(bytes, at + SEGMENT_HEADER - 4) == Some(sum.into()))
    };
    headers.into_iter().find(|at| is_sound(*at)).and_then(|at| number::<8>(bytes, at + 24))
}

/// Is the head of a batch one of the generation with this seed?
fn is_of_generation(bytes: &[u8], batch: &Batch, seed: u64) -> bool {
    let at = batch.bytes.start;
    let salt = [seed.to_le_bytes(), (at as u64).to_le_bytes()].concat();
    let sum = bytes.get(at..at + 20).map(|head| crc32c::crc32c_append(crc32c::crc32c(&salt), head));
    sum.is_some_and(|sum| number::<4>(bytes, at + 20) == Some(sum.into()))
}

/// The batches that a reader finds in a segment: the headers tell which are of its generation.
fn found_batches(bytes: &[u8]) -> Vec<Batch> {
    let Some(seed) = seed(bytes) else { return batches(bytes) };
    all_batches(bytes).filter(|batch| is_of_generation(bytes, batch, seed)).collect()
}

/// The lowest and the highest number of all batches of the log; `None` when there is no batch.
pub fn number_range(disk: &SimDisk) -> Option<(u64, u64)> {
    let segments = disk.file_names().into_iter().filter(|name| name.ends_with(".seg"));
    let numbers: Vec<u64> = segments
        .map(|name| disk.synced(&name))
        .filter(|bytes| bytes.starts_with(b"PRSPOOL\0"))
        .map(|bytes| found_batches(&bytes))
        // Where no first batch is, the others are of an earlier generation.
        .filter(|batches| batches.first().is_some_and(|first| first.bytes.start == PAGE))
        .flat_map(|batches| batches.into_iter().map(|batch| batch.sequence))
        .collect();
    Some((*numbers.iter().min()?, *numbers.iter().max()?))
}

/// Returns the owners of all records in a segment.
pub fn all_owners(content: &[u8]) -> BTreeSet<Owner> {
    all_batches(content).flat_map(|batch| batch.records).map(|record| record.owner).collect()
}

/// Returns the owners whose records may be lost when bytes of a file are: a batch is read whole or not at all.
pub fn owners(file: &str, content: &[u8], lost: &Range<usize>) -> BTreeSet<Owner> {
    let Some((stem, kind)) = stem_and_kind(file) else { return BTreeSet::new() };
    match kind {
        "seg" => {
            // Without its headers a segment is read by what its batches tell.
            let hit = batches(content).into_iter().filter(|batch| is_hit(&batch.bytes, lost));
            hit.into_iter().flat_map(|batch| batch.records).map(|record| record.owner).collect()
        }
        "env" | "msg" => stem.parse::<QueueId>().map(|id| Owner::Message(id.0)).into_iter().collect(),
        "chunk" => u64::from_str_radix(stem, 16).map(Owner::Chunk).into_iter().collect(),
        "intent" => {
            let text = String::from_utf8_lossy(content);
            let steps = text.lines().filter_map(|line| line.split(' ').nth(1)?.parse::<QueueId>().ok());
            steps.map(|id| Owner::Message(id.0)).collect()
        }
        _ => BTreeSet::new(),
    }
}
