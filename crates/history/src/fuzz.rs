//! For fuzzing only: segments whose checksums are right whatever is in them, so that what stands behind the checksums is reached.

use crate::{
    Addresses, block, index, plain,
    privacy::{Concealer, KEY_BYTES},
    segment::{self, ROW_BYTES, Row, SEGMENT_HEAD_BYTES},
};
use report::UnixMicros;

/// Returns a segment with one block whose frames and hashes of keys are these bytes. `is_sealed`: with an index, whose entries
/// name blocks that may not exist.
pub fn segment(frames: &[u8], keys: &[u64], is_sealed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    segment::write_head(&Concealer::new(Addresses::Hashed, [1; KEY_BYTES]), UnixMicros(7), &mut out);
    let mut builder = block::Builder::default();
    builder.push_raw(frames);
    keys.iter().for_each(|hash| builder.push_hash(*hash));
    builder.finish(&mut block::compressor(), &mut out);
    if is_sealed {
        let entries = keys.iter().map(|hash| index::entry(*hash, *hash as u16 % 3)).collect();
        let offset = out.len() as u64;
        let (entry_count, bucket_count) = index::write(entries, &mut out);
        let place = index::Place { offset, entry_count, bucket_count };
        let (first, last) = (UnixMicros(0), UnixMicros(u64::MAX));
        segment::write_table(&[Row { offset: SEGMENT_HEAD_BYTES, first, last, checksum: 0 }], &mut out);
        let table = out[out.len() - ROW_BYTES..].to_vec();
        segment::write_trailer(place, &table, &mut out);
    }
    out
}

/// Returns a piece of plain frames that are these bytes, of a block.
pub fn plain(block: u32, frames: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    plain::write(block, UnixMicros(7), frames, &mut out);
    out
}
