//! The index of a sealed segment: for each hash of a key, the blocks that have it. Hashes are sorted into buckets of about 64;
//! an entry is 12 bits of the hash and 12 bits of the number of a block. A look-up reads one bucket: 1 of 64 look-ups of other
//! keys finds a block. Each bucket has a checksum.

use crate::sort;
use crc32c::crc32c;

/// The number of entries in a bucket, on average.
const BUCKET_ENTRIES: usize = 64;
const ENTRY_BYTES: usize = 3;
/// Blocks that the entries of an index can name.
pub(crate) const BLOCKS_MAX: usize = 1 << 12;
/// An entry of the directory: the number of the bucket's first entry, and the bucket's checksum.
pub(crate) const PLACE_BYTES: usize = 8;
/// The number of bits of a hash that the index uses. The upper ones choose the bucket.
const HASH_BITS: u32 = 48;

/// Returns an entry while an index is made: 48 bits of the hash, 16 of the block. Entries sort by hash.
pub(crate) fn entry(hash: u64, block: u16) -> u64 {
    hash & !0xffff | u64::from(block)
}

/// Appends a whole index; returns the numbers of entries and of buckets.
pub(crate) fn write(mut entries: Vec<u64>, out: &mut Vec<u8>) -> (u32, u32) {
    let mut builder = Builder::new(entries.len());
    builder.push_buckets(builder.bucket_count, &mut entries, out);
    builder.finish(out)
}

/// An index that is written some buckets at a time, so that only their entries are in memory.
#[derive(Debug)]
pub(crate) struct Builder {
    bucket_count: u32,
    /// Earlier buckets are written.
    next_bucket: u32,
    entry_count: u32,
    directory: Vec<u8>,
}

impl Builder {
    /// Begins an index of about this number of entries.
    pub(crate) fn new(entry_count: usize) -> Self {
        let bucket_count = entry_count.div_ceil(BUCKET_ENTRIES).max(1) as u32;
        let directory = Vec::with_capacity((bucket_count as usize + 1) * PLACE_BYTES);
        Self { bucket_count, next_bucket: 0, entry_count: 0, directory }
    }

    /// Returns the bucket before which a part of about this number of entries ends.
    pub(crate) fn end_of_part(&self, entry_count: usize) -> u32 {
        let buckets = (entry_count / BUCKET_ENTRIES).max(1) as u32;
        self.next_bucket.saturating_add(buckets).min(self.bucket_count)
    }

    pub(crate) fn bucket_count(&self) -> u32 {
        self.bucket_count
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.next_bucket == self.bucket_count
    }

    /// Appends the buckets before `end`; `entries` are all of theirs, in any order.
    pub(crate) fn push_buckets(&mut self, end: u32, entries: &mut Vec<u64>, out: &mut Vec<u8>) {
        let (first, last) = (self.next_bucket, end.saturating_sub(self.next_bucket).saturating_sub(1));
        // Entries of another part would be an error of the caller's, not one of memory.
        let number_of = |one: u64| bucket_of(one, self.bucket_count).saturating_sub(first).min(last) as usize;
        let places = sort::into_buckets(entries, last as usize + 1, number_of);
        out.reserve(entries.len() * ENTRY_BYTES);
        for ends in places.windows(2) {
            let (own, begin) = (&entries[ends[0] as usize..ends[1] as usize], out.len());
            for one in own {
                let entry = u32::from(fingerprint_of(*one)) << 12 | (*one as u32 & 0xfff);
                out.extend_from_slice(&entry.to_le_bytes()[..ENTRY_BYTES]);
            }
            self.directory.extend_from_slice(&self.entry_count.to_le_bytes());
            self.directory.extend_from_slice(&crc32c(&out[begin..]).to_le_bytes());
            self.entry_count += own.len() as u32;
        }
        self.next_bucket = end;
    }

    /// Appends the directory; returns the numbers of entries and of buckets.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>) -> (u32, u32) {
        self.directory.extend_from_slice(&self.entry_count.to_le_bytes());
        self.directory.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.directory);
        (self.entry_count, self.bucket_count)
    }
}

/// The bucket of a hash; the lower 16 bits do not matter.
pub(crate) fn bucket_of(hash: u64, bucket_count: u32) -> u32 {
    let upper = hash >> (64 - HASH_BITS);
    ((u128::from(upper) * u128::from(bucket_count)) >> HASH_BITS) as u32
}

/// Returns the smallest hash of a bucket; a larger one than all for the bucket behind the last one.
pub(crate) fn first_hash_of(bucket: u32, bucket_count: u32) -> u64 {
    let upper = (u128::from(bucket) << HASH_BITS).div_ceil(u128::from(bucket_count));
    if upper >> HASH_BITS > 0 { u64::MAX } else { (upper as u64) << (64 - HASH_BITS) }
}

fn fingerprint_of(hash: u64) -> u16 {
    (hash >> (64 - HASH_BITS)) as u16 & 0xfff
}

/// Where an index is in its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) offset: u64,
    pub(crate) entry_count: u32,
    pub(crate) bucket_count: u32,
}

/// The index does not match its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damaged;

impl Place {
    /// Returns the length of the index in bytes.
    pub(crate) fn length(self) -> u64 {
        u64::from(self.entry_count) * ENTRY_BYTES as u64
            + (u64::from(self.bucket_count) + 1) * PLACE_BYTES as u64
    }

    /// Returns where the directory has the bucket of a hash: two entries.
    pub(crate) fn directory_offset(self, hash: u64) -> u64 {
        let directory = self.offset + u64::from(self.entry_count) * ENTRY_BYTES as u64;
        directory + u64::from(bucket_of(hash, self.bucket_count)) * PLACE_BYTES as u64
    }

    /// Returns offset and length of a bucket, and its checksum, from the two entries of the directory.
    pub(crate) fn bucket(self, places: &[u8; 2 * PLACE_BYTES]) -> Result<(u64, usize, u32), Damaged> {
        let number =
            |at: usize| u32::from_le_bytes([places[at], places[at + 1], places[at + 2], places[at + 3]]);
        let (first, checksum, next) = (number(0), number(4), number(8));
        if first > next || next > self.entry_count {
            return Err(Damaged);
        }
        let offset = self.offset + u64::from(first) * ENTRY_BYTES as u64;
        Ok((offset, (next - first) as usize * ENTRY_BYTES, checksum))
    }
}

/// Returns the blocks that a bucket has for a hash, in ascending order.
pub(crate) fn blocks_in(bucket: &[u8], checksum: u32, hash: u64) -> Result<Vec<u16>, Damaged> {
    if crc32c(bucket) != checksum {
        return Err(Damaged);
    }
    let wanted = fingerprint_of(hash);
    let (entries, _) = bucket.as_chunks::<ENTRY_BYTES>();
    let entries = entries.iter().map(|e| u32::from_le_bytes([e[0], e[1], e[2], 0]));
    let of_hash = entries.filter(|entry| entry >> 12 == u32::from(wanted));
    let mut blocks: Vec<u16> = of_hash.map(|entry| (entry & 0xfff) as u16).collect();
    blocks.sort_unstable();
    blocks.dedup();
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::hash_of;

    fn look_up(bytes: &[u8], place: Place, hash: u64) -> Result<Vec<u16>, Damaged> {
        let at = place.directory_offset(hash) as usize;
        let (offset, length, checksum) = place.bucket(bytes[at..at + 16].try_into().unwrap())?;
        blocks_in(&bytes[offset as usize..][..length], checksum, hash)
    }

    fn index(count: u32) -> (Vec<u8>, Place) {
        let entries = (0..count).map(|n| entry(hash_of(1, &(n / 2).to_le_bytes()), (n % 1000) as u16));
        let mut bytes = Vec::new();
        let (entry_count, bucket_count) = write(entries.collect(), &mut bytes);
        let place = Place { offset: 0, entry_count, bucket_count };
        assert_eq!(place.length(), bytes.len() as u64);
        (bytes, place)
    }

    #[test]
    fn each_key_is_found_with_its_blocks_and_few_others_are() {
        for count in [0, 1, 64, 50_000] {
            let (bytes, place) = index(count);
            for n in 0..count {
                let blocks = look_up(&bytes, place, hash_of(1, &(n / 2).to_le_bytes())).unwrap();
                assert!(blocks.contains(&((n % 1000) as u16)));
            }
            let others = 100_000..120_000u32;
            let found =
                others.filter(|n| !look_up(&bytes, place, hash_of(1, &n.to_le_bytes())).unwrap().is_empty());
            assert!(found.count() < 800);
        }
    }

    #[test]
    fn an_index_that_is_written_in_parts_is_the_same() {
        let all: Vec<u64> = (0..10_000u32).map(|n| entry(hash_of(1, &n.to_le_bytes()), 7)).collect();
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        write(all.clone(), &mut whole);
        let mut builder = Builder::new(all.len());
        while !builder.is_complete() {
            let (begin, end) = (builder.next_bucket, builder.end_of_part(700));
            let is_own = |one: &&u64| (begin..end).contains(&bucket_of(**one, builder.bucket_count));
            let mut own: Vec<u64> = all.iter().filter(is_own).copied().collect();
            builder.push_buckets(end, &mut own, &mut parts);
        }
        builder.finish(&mut parts);
        assert!(whole == parts);
    }

    #[test]
    fn the_first_hash_of_a_bucket_is_in_it_and_the_one_before_is_not() {
        for bucket_count in [1, 2, 3, 7, 1000, 65_537] {
            for bucket in (0..bucket_count).filter(|bucket| *bucket < 50 || bucket_count - bucket < 50) {
                let first = first_hash_of(bucket, bucket_count);
                assert_eq!(bucket_of(first, bucket_count), bucket);
                let before = first.checked_sub(1 << (64 - HASH_BITS));
                assert_eq!(before.map(|hash| bucket_of(hash, bucket_count)), bucket.checked_sub(1));
            }
            assert_eq!(first_hash_of(bucket_count, bucket_count), u64::MAX);
        }
    }

    #[test]
    fn a_changed_bucket_is_damaged() {
        let (mut bytes, place) = index(100);
        bytes[9] ^= 1;
        let damaged =
            (0..50u32).filter(|n| look_up(&bytes, place, hash_of(1, &n.to_le_bytes())) == Err(Damaged));
        assert!(damaged.count() > 10);
        let end = bytes.len();
        bytes[end - 8] ^= 0x40;
        assert!((0..50u32).any(|n| look_up(&bytes, place, hash_of(1, &n.to_le_bytes())) == Err(Damaged)));
    }
}
