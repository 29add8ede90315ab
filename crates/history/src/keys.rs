//! Hashes of the keys of a segment that is not sealed: a file beside it, with a record for each block. So the writer does not
//! have them in memory, and a segment is sealed without reading its events again.

use crate::{ReadAt, index, segment::Row};
use crc32c::crc32c;
use std::io;

/// The length of the header of a record: the name of the block, the number of hashes, the checksum of the hashes, that of the
/// header.
const HEAD_BYTES: usize = 20;
/// Octets of a hash that are stored: the index uses no more.
const HASH_BYTES: usize = 6;
/// The most hashes of a record: a block has fewer bytes.
const HASHES_MAX: u32 = 1 << 20;
/// Hashes of a block that are read at once. The first part of an index reads them of each block of the segment.
const READ_HASHES: usize = 256;

/// Appends the record of a block. `hashes` ascend.
pub(crate) fn write(row: &Row, hashes: &[u64], out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + HEAD_BYTES + hashes.len() * HASH_BYTES, 0);
    let (places, _) = out[begin + HEAD_BYTES..].as_chunks_mut::<HASH_BYTES>();
    for (place, hash) in places.iter_mut().zip(hashes) {
        let [_, _, a, b, c, d, e, f] = hash.to_le_bytes();
        *place = [a, b, c, d, e, f];
    }
    let checksum = crc32c(&out[begin + HEAD_BYTES..]);
    let head = &mut out[begin..begin + HEAD_BYTES];
    head[..8].copy_from_slice(&row.name().to_le_bytes());
    head[8..12].copy_from_slice(&(hashes.len() as u32).to_le_bytes());
    head[12..16].copy_from_slice(&checksum.to_le_bytes());
    let checksum = crc32c(&head[..16]);
    head[16..].copy_from_slice(&checksum.to_le_bytes());
}

/// The hashes of a block in the file, from the smallest to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Offset of the next hash in the file.
    offset: u64,
    /// Hashes from there on.
    count: u32,
}

impl Run {
    pub(crate) fn count(self) -> usize {
        self.count as usize
    }

    /// Returns the run of a record that was written at this place.
    pub(crate) fn of_record(place: u64, count: usize) -> Self {
        Self { offset: place + HEAD_BYTES as u64, count: count as u32 }
    }
}

/// Reads a run in the order of its hashes.
#[derive(Debug)]
pub(crate) struct RunReader {
    rest: Run,
    /// Hashes that were read, from `at` on.
    buffer: Vec<u8>,
    at: usize,
}

impl RunReader {
    pub(crate) fn new(run: Run) -> Self {
        Self { rest: run, buffer: Vec::new(), at: 0 }
    }

    /// Adds the hashes of the buckets before `end` as entries of an index, and steps over them.
    pub(crate) fn take(
        &mut self,
        file: &dyn ReadAt,
        (end, bucket_count): (u32, u32),
        block: u16,
        entries: &mut Vec<u64>,
    ) -> io::Result<()> {
        let limit = index::first_hash_of(end, bucket_count);
        loop {
            let hashes = self.buffer[self.at..].as_chunks::<HASH_BYTES>().0;
            let own = hashes.iter().map(|hash| hash_of(*hash)).take_while(|hash| *hash < limit);
            let before = entries.len();
            entries.extend(own.map(|hash| index::entry(hash, block)));
            let count = entries.len() - before;
            self.at += count * HASH_BYTES;
            if count < hashes.len() {
                return Ok(());
            }
            let count = self.rest.count().min(READ_HASHES);
            if count == 0 {
                return Ok(());
            }
            self.buffer.resize(count * HASH_BYTES, 0);
            file.read_at(self.rest.offset, &mut self.buffer)?;
            self.at = 0;
            self.rest.offset += self.buffer.len() as u64;
            self.rest.count -= count as u32;
        }
    }
}

fn hash_of([a, b, c, d, e, f]: [u8; HASH_BYTES]) -> u64 {
    u64::from_le_bytes([0, 0, a, b, c, d, e, f])
}

/// The hashes of one block, as the file of keys has them.
pub(crate) struct Record {
    /// The name of the block.
    pub(crate) name: u64,
    /// `None` if the record is damaged.
    pub(crate) run: Option<Run>,
    /// Offset behind the record.
    pub(crate) end: u64,
}

/// Reads the record at this place; `None` behind the last one.
pub(crate) fn read(file: &dyn ReadAt, offset: u64) -> io::Result<Option<Record>> {
    let length = file.length()?;
    let mut head = [0; HEAD_BYTES];
    if offset + HEAD_BYTES as u64 > length {
        return Ok(None);
    }
    file.read_at(offset, &mut head)?;
    let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (name, count) = (u64::from(u32_at(0)) | u64::from(u32_at(4)) << 32, u32_at(8));
    let run = Run::of_record(offset, count as usize);
    let end = run.offset + u64::from(count) * HASH_BYTES as u64;
    if crc32c(&head[..16]) != u32_at(16) || count > HASHES_MAX || end > length {
        return Ok(None);
    }
    let mut bytes = vec![0; count as usize * HASH_BYTES];
    file.read_at(run.offset, &mut bytes)?;
    let is_sound = crc32c(&bytes) == u32_at(12);
    Ok(Some(Record { name, run: is_sound.then_some(run), end }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;
    use report::UnixMicros;

    fn row(offset: u64) -> Row {
        Row { offset, first: UnixMicros(0), last: UnixMicros(0), checksum: offset as u32 ^ 77 }
    }

    fn hashes(count: u32) -> Vec<u64> {
        let mut hashes: Vec<u64> = (0..count).map(|n| key::hash_of(1, &n.to_le_bytes())).collect();
        hashes.sort_unstable();
        hashes
    }

    #[test]
    fn records_are_read_as_they_were_written_and_a_torn_one_is_the_end() {
        let mut file = Vec::new();
        for (offset, count) in [(64, 3000), (90, 0), (700, 5)] {
            write(&row(offset), &hashes(count), &mut file);
        }
        let read_all = |file: &Vec<u8>| {
            let (mut records, mut offset) = (Vec::new(), 0);
            while let Some(record) = read(file, offset).unwrap() {
                records.push((record.name, record.run.map(Run::count)));
                offset = record.end;
            }
            records
        };
        let whole = [(row(64).name(), Some(3000)), (row(90).name(), Some(0)), (row(700).name(), Some(5))];
        assert_eq!(read_all(&file), whole);
        assert_eq!(read_all(&file[..file.len() - 1].to_vec()), whole[..2]);
        file[5000] ^= 1;
        assert_eq!(read_all(&file)[0], (row(64).name(), None));
        file[3] ^= 1;
        assert!(read_all(&file).is_empty());
    }

    #[test]
    fn a_run_gives_all_its_hashes_in_parts() {
        let (mut file, all) = (Vec::new(), hashes(3000));
        write(&row(64), &all, &mut file);
        // As many hashes again are in other blocks.
        let mut index = index::Builder::new(6000);
        let mut run = RunReader::new(read(&file, 0).unwrap().unwrap().run.unwrap());
        let mut found = Vec::new();
        while !index.is_complete() {
            let end = index.end_of_part(500);
            let mut part = Vec::new();
            run.take(&file, (end, index.bucket_count()), 7, &mut part).unwrap();
            assert!(part.len() < 500);
            found.extend_from_slice(&part);
            index.push_buckets(end, &mut part, &mut Vec::new());
        }
        assert!(found.iter().copied().eq(all.iter().map(|hash| index::entry(*hash, 7))));
        assert_eq!(run.rest.count(), 0);
    }
}
