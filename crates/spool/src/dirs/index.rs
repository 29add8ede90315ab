//! The contents of the directories, in memory; built by recovery from the files alone.

use super::{envelope::Piece, queues::Dir};
use std::collections::HashMap;

/// Files take whole blocks of the disk.
const BLOCK: u64 = 4096;

/// Returns the disk space that files of these lengths take, in bytes.
pub(super) fn blocks(lengths: impl IntoIterator<Item = u64>) -> u64 {
    lengths.into_iter().map(|length| length.div_ceil(BLOCK) * BLOCK).sum()
}

/// Where a live message is stored, and how much room it takes.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// By index in [`super::queues::Queues`].
    pub(super) dir: u16,
    /// Length of its envelope file: there the next line goes.
    pub(super) envelope_bytes: u64,
    /// Of its content file; zero when it has none.
    pub(super) content_bytes: u64,
    pub(super) chunks: Box<[u64]>,
}

impl Slot {
    pub(super) fn blocks(&self) -> u64 {
        blocks([self.envelope_bytes, self.content_bytes])
    }
}

/// Content in a file of its own, with the checksum that its bytes must have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk {
    /// The directory of its file; none while it is still to be written.
    pub(super) dir: Option<u16>,
    pub(super) length_bytes: u32,
    pub(super) sum: u32,
}

impl Chunk {
    /// Are these the bytes that were stored?
    pub(super) fn is_right(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == u64::from(self.length_bytes) && crc32c::crc32c(bytes) == self.sum
    }
}

/// All live messages and chunks, in memory.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) messages: HashMap<u64, Slot>,
    pub(super) chunks: HashMap<u64, Chunk>,
    /// Live messages of each queue directory.
    pub(super) pending: Vec<u64>,
    /// Disk space that all files take.
    pub(super) used_bytes: u64,
}

impl Index {
    pub(super) fn add(&mut self, dirs: &[Dir], id: u64, slot: Slot) {
        self.pending[dirs[usize::from(slot.dir)].queue] += 1;
        self.used_bytes += slot.blocks();
        self.messages.insert(id, slot);
    }

    pub(super) fn take(&mut self, dirs: &[Dir], id: u64) -> Option<Slot> {
        let slot = self.messages.remove(&id)?;
        self.pending[dirs[usize::from(slot.dir)].queue] -= 1;
        self.release(slot.blocks());
        Some(slot)
    }

    /// Notes that a chunk's file is written.
    pub(super) fn add_chunk(&mut self, chunk_id: u64, chunk: Chunk) {
        self.used_bytes += blocks([u64::from(chunk.length_bytes)]);
        self.chunks.insert(chunk_id, chunk);
    }

    /// The chunks of these that another message named with another content.
    pub(super) fn disputed<'a>(
        &self,
        pieces: &'a [Piece],
    ) -> impl Iterator<Item = (u64, Chunk)> + use<'a, '_> {
        pieces.iter().filter_map(|piece| {
            let Piece::Chunk { chunk_id, length_bytes, sum } = *piece else { return None };
            let known = self.chunks.get(&chunk_id)?;
            let is_same = (known.length_bytes, known.sum) == (length_bytes, sum);
            (!is_same).then_some((chunk_id, Chunk { dir: None, length_bytes, sum }))
        })
    }

    /// Marks a chunk as not owned by the messages that named it so far: their end must not remove it.
    pub(super) fn disown_chunk(&mut self, chunk_id: u64) {
        self.take_chunk(chunk_id);
        for slot in self.messages.values_mut().filter(|slot| slot.chunks.contains(&chunk_id)) {
            slot.chunks = slot.chunks.iter().copied().filter(|other| *other != chunk_id).collect();
        }
    }

    pub(super) fn take_chunk(&mut self, chunk_id: u64) -> Option<Chunk> {
        let chunk = self.chunks.remove(&chunk_id)?;
        if chunk.dir.is_some() {
            self.release(blocks([u64::from(chunk.length_bytes)]));
        }
        Some(chunk)
    }

    /// Files are gone.
    fn release(&mut self, bytes: u64) {
        // What leaves the index was added with this length. Damage can only add the length of a chunk twice, when two
        // messages name the chunk.
        assert!(bytes <= self.used_bytes, "{bytes} bytes leave the index, which has {}", self.used_bytes);
        self.used_bytes -= bytes;
    }
}

/// The length of the content file and the places of the chunks.
pub(super) fn content_of(pieces: &[Piece]) -> (u64, Box<[u64]>) {
    let here = |piece: &Piece| match piece {
        Piece::Here { length_bytes, .. } => u64::from(*length_bytes),
        Piece::Chunk { .. } => 0,
    };
    let chunk_id = |piece: &Piece| match piece {
        Piece::Chunk { chunk_id, .. } => Some(*chunk_id),
        Piece::Here { .. } => None,
    };
    (pieces.iter().map(here).sum(), pieces.iter().filter_map(chunk_id).collect())
}
