//! Blocks: events of about 64 KiB, compressed.

use crate::{
    frame::{self, Frames},
    sort,
};
use crc32c::crc32c;
use report::UnixMicros;
use std::cell::RefCell;

/// A block is complete when its frames have so many bytes.
pub(crate) const BLOCK_BYTES: usize = 64 * 1024;
/// Larger events are not stored.
pub(crate) const EVENT_BYTES_MAX: usize = 256 * 1024;
/// The most bytes that the frames of a block have. Blocks of earlier builds are complete at 128 KiB.
pub(crate) const RAW_BYTES_MAX: usize = 128 * 1024 + EVENT_BYTES_MAX + 32;
/// Octets of a header, with its checksum.
pub(crate) const HEAD_BYTES: usize = 48;
/// The first octets of a header.
pub(crate) const MAGIC: &[u8; 4] = b"PHB1";
/// The level is the fastest one that compresses well.
const LEVEL: i32 = 1;

/// What a block's header says of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) body_bytes: usize,
    raw_bytes: usize,
    pub(crate) event_count: u32,
    /// Times of frames are stored as differences, beginning here.
    base: UnixMicros,
    pub(crate) first: UnixMicros,
    pub(crate) last: UnixMicros,
    body_checksum: u32,
}

impl Head {
    /// Reads a header; `None` for other bytes.
    pub(crate) fn read(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if &bytes[..4] != MAGIC || crc32c(&bytes[..44]) != u32_at(44) {
            return None;
        }
        let head = Self {
            body_bytes: u32_at(4) as usize,
            raw_bytes: u32_at(8) as usize,
            event_count: u32_at(12),
            base: UnixMicros(u64_at(16)),
            first: UnixMicros(u64_at(24)),
            last: UnixMicros(u64_at(32)),
            body_checksum: u32_at(40),
        };
        // Checksums can be right by malice; memory is bounded nevertheless.
        (head.raw_bytes <= RAW_BYTES_MAX && head.body_bytes <= 2 * RAW_BYTES_MAX).then_some(head)
    }

    /// Returns the length of the whole block.
    pub(crate) fn length(&self) -> u64 {
        (HEAD_BYTES + self.body_bytes) as u64
    }

    /// Returns whether these bytes are the body of the block.
    pub(crate) fn is_body(&self, body: &[u8]) -> bool {
        body.len() == self.body_bytes && crc32c(body) == self.body_checksum
    }

    fn write(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(MAGIC);
        for number in [self.body_bytes as u32, self.raw_bytes as u32, self.event_count] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for time in [self.base, self.first, self.last] {
            out.extend_from_slice(&time.0.to_le_bytes());
        }
        out.extend_from_slice(&self.body_checksum.to_le_bytes());
        let checksum = crc32c(&out[begin..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }
}

/// Returns the checksum that the header says it has.
pub(crate) fn checksum_of_head(bytes: &[u8; HEAD_BYTES]) -> u32 {
    u32::from_le_bytes([bytes[44], bytes[45], bytes[46], bytes[47]])
}

/// Frames of a block, as they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Content {
    raw: Vec<u8>,
    base: UnixMicros,
}

impl Content {
    pub(crate) fn new(raw: Vec<u8>, base: UnixMicros) -> Self {
        Self { raw, base }
    }

    pub(crate) fn frames(&self) -> Frames<'_> {
        Frames::new(&self.raw, self.base)
    }

    /// Returns the body of a block; `None` if it is damaged.
    pub(crate) fn read(head: &Head, body: &[u8]) -> Option<Self> {
        if !head.is_body(body) {
            return None;
        }
        let raw = DECOMPRESSOR.with_borrow_mut(|one| one.decompress(body, head.raw_bytes)).ok()?;
        (raw.len() == head.raw_bytes).then_some(Self { raw, base: head.base })
    }
}

/// Collects frames for the next block.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    raw: Vec<u8>,
    base: UnixMicros,
    previous: UnixMicros,
    first: UnixMicros,
    last: UnixMicros,
    event_count: u32,
    hashes: Vec<u64>,
}

impl Builder {
    pub(crate) fn is_empty(&self) -> bool {
        self.event_count == 0
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.raw.len() >= BLOCK_BYTES
    }

    pub(crate) fn event_count(&self) -> u32 {
        self.event_count
    }

    /// Returns the smallest and the largest time.
    pub(crate) fn times(&self) -> (UnixMicros, UnixMicros) {
        (self.first, self.last)
    }

    /// Returns the frames so far, not compressed.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Returns the time of the last frame.
    pub(crate) fn previous(&self) -> UnixMicros {
        self.previous
    }

    /// Appends an event in binary form.
    pub(crate) fn push(&mut self, at: UnixMicros, event: &[u8]) {
        if self.event_count == 0 {
            (self.base, self.previous, self.first, self.last) = (at, at, at, at);
        }
        frame::push(&mut self.raw, &mut self.previous, at, event);
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
        self.event_count += 1;
    }

    /// Appends bytes in place of frames.
    pub(crate) fn push_raw(&mut self, frames: &[u8]) {
        self.raw.extend_from_slice(frames);
        (self.first, self.last, self.event_count) = (UnixMicros(0), UnixMicros(u64::MAX), 1);
    }

    /// Adds the hash of a key of the last event.
    pub(crate) fn push_hash(&mut self, hash: u64) {
        self.hashes.push(hash);
    }

    /// Appends the block, and returns the hashes of its keys, each once. The builder begins anew.
    pub(crate) fn finish(
        &mut self,
        compressor: &mut zstd::bulk::Compressor<'static>,
        out: &mut Vec<u8>,
    ) -> Vec<u64> {
        let mut hashes = std::mem::take(&mut self.hashes);
        sort::sort_hashes(&mut hashes);
        hashes.dedup();
        // Into memory, and with a bound that the library computes: it cannot fail.
        let body = compressor.compress(&self.raw).unwrap_or_default();
        let head = Head {
            body_bytes: body.len(),
            raw_bytes: self.raw.len(),
            event_count: self.event_count,
            base: self.base,
            first: self.first,
            last: self.last,
            body_checksum: crc32c(&body),
        };
        head.write(out);
        out.extend_from_slice(&body);
        self.raw.clear();
        self.event_count = 0;
        hashes
    }
}

thread_local! {
    /// To make one takes as long as to use it.
    static DECOMPRESSOR: RefCell<zstd::bulk::Decompressor<'static>> =
        // Fails without memory only.
        RefCell::new(zstd::bulk::Decompressor::new().expect("there is memory"));
}

/// Returns a compressor with the level of blocks; each writer needs one.
pub(crate) fn compressor() -> zstd::bulk::Compressor<'static> {
    // Fails for a level that does not exist, or without memory.
    zstd::bulk::Compressor::new(LEVEL).expect("the level exists")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_block_is_read_as_it_was_written_and_damage_is_noticed(
            events in proptest::collection::vec((any::<u64>(), proptest::collection::vec(any::<u8>(), 0..200)), 1..50),
            place: prop::sample::Index,
            bit in 0u8..8,
        ) {
            let mut builder = Builder::default();
            for (at, event) in &events {
                builder.push(UnixMicros(*at), event);
                builder.push_hash(*at);
            }
            let mut out = Vec::new();
            let hashes = builder.finish(&mut compressor(), &mut out);
            prop_assert!(hashes.windows(2).all(|pair| pair[0] < pair[1]));
            let read = |out: &[u8]| {
                let head = Head::read(out.first_chunk().unwrap())?;
                let body = out.get(HEAD_BYTES..head.length() as usize)?;
                Some((head, Content::read(&head, body)?))
            };
            let (head, content) = read(&out).unwrap();
            prop_assert_eq!(head.event_count as usize, events.len());
            prop_assert_eq!(Some(head.first.0), events.iter().map(|(at, _)| *at).min());
            prop_assert_eq!(Some(head.last.0), events.iter().map(|(at, _)| *at).max());
            let frames: Vec<_> = content.frames().map(|frame| (frame.at.0, frame.event.to_vec())).collect();
            prop_assert_eq!(frames, events);
            let place = place.index(out.len());
            out[place] ^= 1 << bit;
            prop_assert!(read(&out).is_none(), "byte {}", place);
        }
    }
}
