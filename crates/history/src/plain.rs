//! Plain frames: the events of the growing block, in pieces. They are written every second, long before the block is complete.
//!
//! A segment has two files of them, used in turn. A file is written again from its beginning once all its blocks are durable in
//! the segment. So files are neither made nor removed while a segment grows, their lengths hardly change, and a write that a power
//! cut tears can only damage pieces that nobody needs.

use crate::{ReadAt, block::Content};
use crc32c::crc32c;
use report::UnixMicros;

/// Written in turn: a file is only overwritten once the blocks of its pieces are durable.
pub(crate) const FILE_COUNT: usize = 2;
/// Octets in front of a piece's frames.
const HEAD_BYTES: usize = 24;
const MAGIC: &[u8; 4] = b"PHF2";
/// The length of the header of a piece of earlier builds, which had a file for each block.
const OLD_HEAD_BYTES: usize = 20;
const OLD_MAGIC: &[u8; 4] = b"PHF1";

/// Frames of one block that was not complete when they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Index of the block in its segment.
    pub(crate) block: u32,
    pub(crate) content: Content,
}

/// Appends a piece. `base`: the time of the frame before it.
pub(crate) fn write(block: u32, base: UnixMicros, frames: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(MAGIC);
    for number in [frames.len() as u32, block] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&base.0.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c(&out[begin..]), frames);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(frames);
}

/// Reads the pieces of a file. Behind the last one is what was written before: pieces of earlier blocks, or a part of one.
pub(crate) fn read(mut bytes: &[u8]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    while let Some((head, content, rest)) = take::<HEAD_BYTES>(bytes, MAGIC) {
        let block = u32_at(head, 8);
        if pieces.last().is_some_and(|last| last.block > block) {
            break;
        }
        pieces.push(Piece { block, content });
        bytes = rest;
    }
    pieces
}

/// Reads the pieces of a block, of a file of an earlier build. A power cut leaves a last one that is not whole: it is ignored.
pub(crate) fn read_old(block: u32, mut bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    while let Some((_, content, rest)) = take::<OLD_HEAD_BYTES>(bytes, OLD_MAGIC) {
        pieces.push(Piece { block, content });
        bytes = rest;
    }
    pieces
}

/// Returns the header and the frames of a piece, and the rest; `None` if it is damaged or not whole. A header of each form begins
/// with the magic and the length, and ends with the time before the first frame and the checksum.
fn take<'b, const N: usize>(bytes: &'b [u8], magic: &[u8; 4]) -> Option<(&'b [u8; N], Content, &'b [u8])> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    let (frames, rest) = rest.split_at_checked(u32_at(head, 4) as usize)?;
    let base = UnixMicros(u64::from(u32_at(head, N - 12)) | u64::from(u32_at(head, N - 8)) << 32);
    let is_sound =
        &head[..4] == magic && crc32c::crc32c_append(crc32c(&head[..N - 4]), frames) == u32_at(head, N - 4);
    is_sound.then(|| (head, Content::new(frames.to_vec(), base), rest))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The file next to a segment that holds the pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// One of the two files, by its number.
    File(u8),
    /// Earlier builds had a file for each block.
    OfBlock(u32),
}

impl Place {
    /// Reads the pieces of a file at this place.
    pub(crate) fn pieces(self, bytes: &[u8]) -> Vec<Piece> {
        match self {
            Self::File(_) => read(bytes),
            Self::OfBlock(block) => read_old(block, bytes),
        }
    }
}

/// What the writer knows of one file.
#[derive(Debug, Default, Clone, Copy)]
struct Own {
    length: u64,
    /// The block of the newest piece; `None` in an empty file.
    newest: Option<u32>,
}

/// The writer's view of the plain frames of a segment.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    files: [Own; FILE_COUNT],
    /// The file that has the newest piece.
    current: u8,
    /// Bytes of the growing block's frames that are written.
    pub(crate) done: usize,
    /// Time of the last of these frames.
    pub(crate) base: UnixMicros,
    /// The last piece is not durable yet, or never needs to be because its block is written.
    pub(crate) is_dirty: bool,
}

impl Writer {
    /// Begins with the frames of the next block. `at`: the time of the first one.
    pub(crate) fn begin(&mut self, at: UnixMicros) {
        (self.done, self.base, self.is_dirty) = (0, at, false);
    }

    /// Returns the file and the place in it for the next piece of the growing block. All pieces of a block are in one file.
    /// `durable`: the number of blocks that are durable.
    pub(crate) fn next(&self, durable: u32) -> (u8, u64) {
        let is_free = |own: &Own| own.newest.is_none_or(|newest| newest < durable);
        let current = self.files[usize::from(self.current)];
        if self.done > 0 {
            return (self.current, current.length);
        }
        if is_free(&current) {
            return (self.current, 0);
        }
        let other = 1 - self.current;
        if is_free(&self.files[usize::from(other)]) { (other, 0) } else { (self.current, current.length) }
    }

    /// Notes a piece that was written: its block, its place, its length, the length of its block's frames up to its end, and the
    /// time of the last of them.
    pub(crate) fn written(
        &mut self,
        block: u32,
        (file, offset): (u8, u64),
        length: usize,
        done: usize,
        base: UnixMicros,
    ) {
        self.current = file;
        self.files[usize::from(file)] = Own { length: offset + length as u64, newest: Some(block) };
        (self.done, self.base, self.is_dirty) = (done, base, true);
    }

    /// Returns the file that has frames of the growing block which are not durable.
    pub(crate) fn to_sync(&self) -> Option<u8> {
        (self.done > 0 && self.is_dirty).then_some(self.current)
    }
}

/// Reads a small file, at most the first `bytes_max` of it; nothing of one that cannot be read.
pub(crate) fn read_all(file: &dyn ReadAt, bytes_max: u64) -> Vec<u8> {
    let length = file.length().unwrap_or_default().min(bytes_max);
    let mut bytes = vec![0; length as usize];
    if file.read_at(0, &mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(block: u32, base: u64, frames: &[u8]) -> Piece {
        Piece { block, content: Content::new(frames.to_vec(), UnixMicros(base)) }
    }

    #[test]
    fn pieces_are_read_up_to_what_was_written_before() {
        let mut old = Vec::new();
        for block in 3..6 {
            write(block, UnixMicros(7), b"long ago", &mut old);
        }
        let mut file = Vec::new();
        write(6, UnixMicros(8), b"now", &mut file);
        let new = [piece(6, 8, b"now")];
        assert_eq!(read(&file), new);
        // The rest begins in the middle of a piece, or with one.
        assert_eq!(read(&[&file, &old[file.len()..]].concat()), new);
        assert_eq!(read(&[&file[..], &old[..]].concat()), new);
        file[HEAD_BYTES] ^= 1;
        assert_eq!(read(&file), []);
    }

    #[test]
    fn pieces_of_an_earlier_build_are_read() {
        let old = b"PHF1\x02\0\0\0\x05\0\0\0\0\0\0\0";
        let checksum = crc32c::crc32c_append(crc32c(old), b"ab").to_le_bytes();
        let file = [&old[..], &checksum, b"ab", &old[..10]].concat();
        assert_eq!(Place::OfBlock(9).pieces(&file), [piece(9, 5, b"ab")]);
        assert_eq!(Place::File(0).pieces(&file), []);
    }

    #[derive(Debug, Clone, Copy)]
    enum Action {
        /// Writes a piece with so many octets.
        Write(u8),
        /// Ends the block: its plain frames are not needed any more.
        Complete,
        Sync,
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![3 => any::<u8>().prop_map(Action::Write), 2 => Just(Action::Complete), 1 => Just(Action::Sync)]
    }

    proptest! {
        /// A power cut leaves any part of what was written since the last sync.
        #[test]
        fn a_power_cut_loses_no_piece_that_was_synced_and_whose_block_was_not(
            actions in proptest::collection::vec(action(), 0..60),
            torn in proptest::collection::vec(any::<bool>(), 512),
        ) {
            let (mut writer, mut files, mut durable_files) = (Writer::default(), [const { Vec::new() }; 2], [const { Vec::new() }; 2]);
            let (mut block, mut durable_blocks, mut frames) = (0u32, 0u32, 0usize);
            // Pieces that were synced, or are not yet.
            let (mut synced, mut written): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
            writer.begin(UnixMicros(0));
            for (number, action) in actions.into_iter().enumerate() {
                match action {
                    Action::Write(count) => {
                        let content = vec![number as u8; usize::from(count)];
                        let mut out = Vec::new();
                        write(block, UnixMicros(number as u64), &content, &mut out);
                        let (file, offset) = writer.next(durable_blocks);
                        let bytes: &mut Vec<u8> = &mut files[usize::from(file)];
                        bytes.resize(bytes.len().max(offset as usize + out.len()), 0);
                        bytes[offset as usize..][..out.len()].copy_from_slice(&out);
                        frames += content.len() + 1;
                        writer.written(block, (file, offset), out.len(), frames, UnixMicros(0));
                        written.push(piece(block, number as u64, &content));
                    }
                    Action::Complete => {
                        (block, frames) = (block + 1, 0);
                        writer.begin(UnixMicros(0));
                    }
                    Action::Sync => {
                        if let Some(file) = writer.to_sync() {
                            durable_files[usize::from(file)] = files[usize::from(file)].clone();
                            writer.is_dirty = false;
                        }
                        durable_blocks = block;
                        synced.append(&mut written);
                        synced.retain(|piece| piece.block == block);
                    }
                }
                let mut found = Vec::new();
                for (file, durable) in files.iter().zip(&durable_files) {
                    let octet = |at: usize| match (durable.get(at), file.get(at)) {
                        (old, Some(new)) if torn[at % torn.len()] => Some(*new).or(old.copied()),
                        (old, new) => old.copied().or(new.map(|_| 0)),
                    };
                    found.extend(read(&(0..file.len()).map_while(octet).collect::<Vec<u8>>()));
                }
                let is_lost = |piece: &&Piece| !found.contains(piece);
                prop_assert_eq!(synced.iter().find(is_lost), None);
            }
        }
    }
}
