//! For fuzzing only: the format's readers on arbitrary bytes, and segments whose checksums are right
//! whatever is in them, so that what stands behind the checksums is reached as well.

use crate::format::{
    block::{ALIGN, Chain, FIRST_BATCH, HeaderPlace, SegmentHeader, begin_batch, end_batch, read_batch},
    message::{read_message, read_results, read_totals, write_message_again, write_results, write_totals},
    record::{self, Kind},
};
use mail::QueueId;

const KINDS: [Kind; 6] =
    [Kind::Message, Kind::Outcome, Kind::Tombstone, Kind::Hold, Kind::Chunk, Kind::Totals];

/// The segment header, batches and records: whatever is read lies within what was there.
pub fn framing(bytes: &[u8], position: u64, seed: u64) {
    let _ =
        (SegmentHeader::decode(bytes, HeaderPlace::First), SegmentHeader::decode(bytes, HeaderPlace::Last));
    for whole in [true, false] {
        if let Ok((head, records)) = read_batch(bytes, position, seed, whole) {
            assert!(head.length <= bytes.len());
            assert!(
                records
                    .iter()
                    .all(|(_, length, r)| *length as usize == r.body.len() + record::OVERHEAD_BYTES)
            );
        }
    }
}

/// A batch's records are read as they were written, whatever they say.
pub fn batch(records: &[(u8, u64, &[u8])], position: u64, seed: u64) {
    let bytes = sealed(records, position, seed, 1);
    let (head, read) = read_batch(&bytes, position, seed, true).expect("it was just written");
    assert!(head.count as usize == records.len() && bytes.len().is_multiple_of(ALIGN));
    for ((kind, name, body), (_, _, record)) in records.iter().zip(read) {
        assert_eq!((record.kind, record.name, record.body), (kind_of(*kind), *name, *body));
    }
}

/// The bodies of records: what is read is written as the same, and read as the same again.
pub fn bodies(body: &[u8]) {
    if let Ok(stored) = read_message(QueueId(1), body, true) {
        let mut out = Vec::new();
        write_message_again(
            &mut out,
            &stored.message,
            stored.states.as_deref().map(|states| (states, stored.held.as_deref())),
            &stored.unknown,
        );
        let again = read_message(QueueId(1), &out, true).expect("it was just written");
        assert_eq!((again.message, again.unknown), (stored.message, stored.unknown));
        assert_eq!(again.states.map(|s| s.len()), stored.states.map(|s| s.len()));
    }
    if let Ok(totals) = read_totals(body) {
        let mut out = Vec::new();
        write_totals(&mut out, &totals);
        assert_eq!(out, body);
    }
    if let Ok((at, results)) = read_results(body) {
        let mut out = Vec::new();
        write_results(&mut out, at, &results);
        let (when, again) = read_results(&out).expect("it was just written");
        assert_eq!((when, again.len()), (at, results.len()));
    }
}

/// Reads an envelope file of a queue directory.
pub fn directory_envelope(bytes: &[u8]) {
    crate::dirs::fuzz::envelope(bytes);
}

/// Reads an intent file of a queue directory.
pub fn directory_intent(bytes: &[u8]) {
    crate::dirs::fuzz::intent(bytes);
}

/// Reads the totals file of a queue directory.
pub fn directory_totals(text: &str) {
    crate::dirs::totals::fuzz(text);
}

/// Reads a segment's index file with so many batches and rows.
pub fn index_file(bytes: &[u8], batches: u32, rows: u32) {
    crate::log::segment_index::fuzz(bytes, batches, rows);
}

/// A segment with these batches of records in it, for recovery to read.
pub fn segment(batches: &[Vec<(u8, u64, &[u8])>], sequence: u64, size_bytes: usize) -> Vec<u8> {
    let header = SegmentHeader::new(sequence, sequence, size_bytes as u64);
    let mut out = header.encode(HeaderPlace::First);
    for (number, records) in (1..).zip(batches) {
        let batch = sealed(records, out.len() as u64, header.seed, sequence * 1000 + number);
        if (out.len() + batch.len()) as u64 > header.end() {
            break;
        }
        out.extend(batch);
    }
    debug_assert!(out.len() >= FIRST_BATCH as usize);
    out.resize(size_bytes, 0);
    let copy = HeaderPlace::Last.offset(size_bytes as u64) as usize;
    if copy >= FIRST_BATCH as usize {
        out[copy..copy + ALIGN].copy_from_slice(&header.encode(HeaderPlace::Last));
    }
    out
}

fn kind_of(byte: u8) -> Kind {
    KINDS[usize::from(byte) % KINDS.len()]
}

fn sealed(records: &[(u8, u64, &[u8])], position: u64, seed: u64, sequence: u64) -> Vec<u8> {
    let (mut out, mut chain) = (Vec::new(), Chain::default());
    begin_batch(&mut out);
    for (kind, name, body) in records {
        let write = |out: &mut Vec<u8>| out.extend_from_slice(body);
        chain.add(record::append(&mut out, position, seed, kind_of(*kind), *name, write));
    }
    end_batch(&mut out, position, seed, sequence, chain);
    out
}
