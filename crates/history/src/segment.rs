//! Segments: files of blocks. A sealed segment has an index at its end. The block that grows is beside the segment as plain
//! frames, in a file of its own.

use crate::{
    Addresses, Folder, Problem, ReadAt,
    block::{self, Content, HEAD_BYTES, Head, RAW_BYTES_MAX},
    filter,
    frame::Frame,
    index,
    privacy::{Concealer, KEY_BYTES},
};
use crc32c::crc32c;
use report::UnixMicros;

/// The length of the header of a segment.
pub(crate) const SEGMENT_HEAD_BYTES: u64 = 64;
const MAGIC: &[u8; 8] = b"PRHIST\r\n";
const VERSION: u16 = 1;
/// The length of the trailer of a sealed segment.
const TRAILER_BYTES: usize = 64;
const SEAL: &[u8; 8] = b"PRSEAL\r\n";
/// Blocks end where an index is being written.
const INDEX: &[u8; 8] = b"PRINDEX\n";
/// The length of the mark before an index.
pub(crate) const INDEX_MARK_BYTES: u64 = 16;
/// The length of a row in the table of blocks.
pub(crate) const ROW_BYTES: usize = 24;
/// The length of the header of a piece of plain frames.
const PIECE_HEAD_BYTES: usize = 20;
const PIECE: &[u8; 4] = b"PHF1";
/// The number of bytes in which a block is searched at once, behind a damaged one.
const SEARCH_BYTES: usize = 1024 * 1024;
/// The name of a segment ends so.
const SEGMENT_SUFFIX: &str = ".events";
/// The name of a file with filters ends so.
const FILTERS_SUFFIX: &str = ".filters";
/// The name of a file with hashes of keys ends so.
const KEYS_SUFFIX: &str = ".keys";
/// The most bytes of filters that are read.
const FILTERS_BYTES_MAX: u64 = 24 * 1024 * 1024;
/// The length of the header of a filter.
const FILTER_HEAD_BYTES: usize = 16;
/// A segment is opened again so often, when files are removed while it is opened.
const OPEN_COUNT_MAX: u32 = 3;
/// The name of a file with plain frames ends so.
const OPEN_SUFFIX: &str = ".open";

/// Returns the name of a segment.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:08}{SEGMENT_SUFFIX}")
}

/// Returns the name of the file with the filters of a segment that is not sealed.
pub(crate) fn filters_name(number: u64) -> String {
    format!("{number:08}{FILTERS_SUFFIX}")
}

/// Returns the name of the file with the hashes of the keys of a segment that is not sealed.
pub(crate) fn keys_name(number: u64) -> String {
    format!("{number:08}{KEYS_SUFFIX}")
}

/// Returns the name of the file with the plain frames of a block.
pub(crate) fn open_name(number: u64, block: u32) -> String {
    format!("{number:08}.{block:05}{OPEN_SUFFIX}")
}

/// A file of the history, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Segment(u64),
    /// Filters of the blocks of a segment that is not sealed.
    Filters(u64),
    /// Hashes of the keys of a segment that is not sealed.
    Keys(u64),
    /// Plain frames of a block of a segment.
    Open(u64, u32),
}

impl Name {
    /// Reads a name; `None` for files that are not of the history.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if let Some(number) = name.strip_suffix(SEGMENT_SUFFIX) {
            return number.parse().ok().map(Self::Segment);
        }
        if let Some(number) = name.strip_suffix(FILTERS_SUFFIX) {
            return number.parse().ok().map(Self::Filters);
        }
        if let Some(number) = name.strip_suffix(KEYS_SUFFIX) {
            return number.parse().ok().map(Self::Keys);
        }
        let (number, block) = name.strip_suffix(OPEN_SUFFIX)?.split_once('.')?;
        Some(Self::Open(number.parse().ok()?, block.parse().ok()?))
    }
}

/// Appends the header of a segment.
pub(crate) fn write_head(concealer: &Concealer, created: UnixMicros, out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(match concealer.mode() {
        Addresses::Full => 0,
        Addresses::Domain => 1,
        Addresses::Hashed => 2,
    });
    out.extend_from_slice(&[0; 5]);
    out.extend_from_slice(&created.0.to_le_bytes());
    out.extend_from_slice(concealer.key());
    out.extend_from_slice(&[0; 4]);
    let checksum = crc32c(&out[begin..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn read_head(
    file: &str,
    bytes: &[u8; SEGMENT_HEAD_BYTES as usize],
) -> Result<(Concealer, UnixMicros), Problem> {
    let damaged = Problem::damaged(file, "its header is not that of a segment");
    if &bytes[..8] != MAGIC || crc32c(&bytes[..60]).to_le_bytes() != bytes[60..] {
        return Err(damaged);
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != VERSION {
        return Err(Problem::Unknown { file: file.to_owned(), version });
    }
    let mode = match bytes[10] {
        0 => Addresses::Full,
        1 => Addresses::Domain,
        2 => Addresses::Hashed,
        _ => return Err(damaged),
    };
    let (mut created, mut key) = ([0; 8], [0; KEY_BYTES]);
    created.copy_from_slice(&bytes[16..24]);
    key.copy_from_slice(&bytes[24..24 + KEY_BYTES]);
    Ok((Concealer::new(mode, key), UnixMicros(u64::from_le_bytes(created))))
}

/// The place and the times of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) offset: u64,
    pub(crate) first: UnixMicros,
    pub(crate) last: UnixMicros,
    /// The checksum of the block's header; 0 in a segment that is sealed.
    pub(crate) checksum: u32,
}

impl Row {
    /// Returns what names the block in files beside the segment. A block that was lost in a power cut has another name than
    /// the one that is written in its place. The largest segment has far less than 4 GiB.
    pub(crate) fn name(&self) -> u64 {
        self.offset << 32 | u64::from(self.checksum)
    }
}

/// Appends the mark that stands before an index. `offset`: its own place.
pub(crate) fn write_index_mark(offset: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(INDEX);
    out.extend_from_slice(&offset.to_le_bytes());
}

/// Appends the table of blocks.
pub(crate) fn write_table(rows: &[Row], out: &mut Vec<u8>) {
    for row in rows {
        for number in [row.offset, row.first.0, row.last.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Appends the trailer of a sealed segment. `table` stands between the index and the trailer.
pub(crate) fn write_trailer(index: index::Place, table: &[u8], out: &mut Vec<u8>) {
    let trailer = out.len();
    out.extend_from_slice(SEAL);
    let block_count = (table.len() / ROW_BYTES) as u32;
    for number in [block_count, index.entry_count, index.bucket_count, crc32c(table)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for number in [index.offset, index.offset + index.length(), 0, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&[0; 4]);
    let checksum = crc32c(&out[trailer..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Appends plain frames. `base`: the time of the frame before them.
pub(crate) fn write_piece(base: UnixMicros, frames: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.extend_from_slice(PIECE);
    out.extend_from_slice(&(frames.len() as u32).to_le_bytes());
    out.extend_from_slice(&base.0.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c(&out[begin..]), frames);
    out.extend_from_slice(&checksum.to_le_bytes());
    out.extend_from_slice(frames);
}

/// Appends the filter of a block.
pub(crate) fn write_filter(row: &Row, hashes: &[u64], out: &mut Vec<u8>) {
    let filter = filter::build(hashes);
    out.extend_from_slice(&row.name().to_le_bytes());
    for number in [filter.len() as u32, crc32c(&filter)] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&filter);
}

/// Reads the filters of blocks; `None` for a block whose filter is missing or damaged.
fn read_filters(mut bytes: &[u8], rows: &[Row]) -> Vec<Option<Vec<u8>>> {
    let mut filters = vec![None; rows.len()];
    while let Some((head, rest)) = bytes.split_first_chunk::<FILTER_HEAD_BYTES>() {
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let name = u64::from(u32_at(0)) | u64::from(u32_at(4)) << 32;
        let Some((filter, rest)) = rest.split_at_checked(u32_at(8) as usize) else { break };
        if let Ok(number) = rows.binary_search_by_key(&name, Row::name)
            && crc32c(filter) == u32_at(12)
        {
            filters[number] = Some(filter.to_vec());
        }
        bytes = rest;
    }
    filters
}

/// Reads the pieces of plain frames. A power cut leaves a last one that is not whole: it is ignored.
fn read_pieces(mut bytes: &[u8]) -> Vec<Content> {
    let mut pieces = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<PIECE_HEAD_BYTES>() {
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let base = UnixMicros(u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32);
        let Some((frames, rest)) = rest.split_at_checked(u32_at(4) as usize) else { break };
        if &head[..4] != PIECE || crc32c::crc32c_append(crc32c(&head[..16]), frames) != u32_at(16) {
            break;
        }
        pieces.push(Content::new(frames.to_vec(), base));
        bytes = rest;
    }
    pieces
}

/// A segment that is read.
pub(crate) struct Segment {
    pub(crate) number: u64,
    name: String,
    file: Box<dyn ReadAt>,
    pub(crate) concealer: Concealer,
    rows: Vec<Row>,
    /// `None` of a segment that is not sealed.
    index: Option<index::Place>,
    /// The filters of the blocks of a segment that is not sealed: some megabytes.
    filters: Vec<Option<Vec<u8>>>,
    /// The place behind the blocks.
    end: u64,
    /// The plain frames behind the blocks.
    open: Vec<Content>,
    /// A part that cannot be used.
    pub(crate) problem: Option<Problem>,
}

/// A part of a segment that is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartNumber(pub(crate) u32);

impl Segment {
    /// Opens a segment. `open`: the blocks of which there are files with plain frames.
    pub(crate) fn open(folder: &dyn Folder, number: u64, open: &[u32]) -> Result<Self, Problem> {
        let mut count = 1;
        loop {
            let (segment, is_current) = Self::open_once(folder, number, open)?;
            // The file of plain frames that is gone was replaced by its block, after the blocks were read.
            if is_current || count == OPEN_COUNT_MAX {
                return Ok(segment);
            }
            count += 1;
        }
    }

    /// Opens a segment; false if a file of plain frames was missing.
    fn open_once(folder: &dyn Folder, number: u64, open: &[u32]) -> Result<(Self, bool), Problem> {
        let name = segment_name(number);
        let io = |e: &std::io::Error| Problem::io(&name, e);
        let file = folder.open(&name).map_err(|e| io(&e))?;
        let mut head = [0; SEGMENT_HEAD_BYTES as usize];
        file.read_at(0, &mut head).map_err(|e| io(&e))?;
        let (concealer, _) = read_head(&name, &head)?;
        let length = file.length().map_err(|e| io(&e))?;
        let mut segment = Self {
            number,
            name,
            file,
            concealer,
            rows: Vec::new(),
            index: None,
            filters: Vec::new(),
            end: SEGMENT_HEAD_BYTES,
            open: Vec::new(),
            problem: None,
        };
        if !segment.read_end(length)? {
            segment.scan(length)?;
            segment.drop_damaged_end(open);
            // Without them, all blocks are searched.
            let file = folder.open(&filters_name(number));
            let bytes = file.map(|file| read_all(&*file, FILTERS_BYTES_MAX)).unwrap_or_default();
            segment.filters = read_filters(&bytes, &segment.rows);
        }
        let mut is_current = true;
        for block in open {
            // A power cut may leave a block that is damaged, before its plain frames were removed.
            if segment.block(*block).is_some() || (segment.is_sealed() && *block < segment.rows.len() as u32)
            {
                continue;
            }
            match folder.open(&open_name(number, *block)) {
                Ok(file) => segment.open.extend(read_pieces(&read_all(&*file, 8 * RAW_BYTES_MAX as u64))),
                Err(_) => is_current = false,
            }
        }
        Ok((segment, is_current))
    }

    /// Returns a block; `None` if it is damaged or there is none.
    fn block(&self, number: u32) -> Option<Content> {
        if (number as usize) < self.rows.len() { self.part(PartNumber(number)).ok() } else { None }
    }

    /// Ignores blocks at the end that are damaged, and have files of plain frames: they were never durable.
    fn drop_damaged_end(&mut self, open: &[u32]) {
        while let Some(last) = self.rows.len().checked_sub(1)
            && open.contains(&(last as u32))
            && self.block(last as u32).is_none()
            && let Some(row) = self.rows.pop()
        {
            self.end = row.offset;
        }
    }

    /// Reads the end of a sealed segment; false if the segment is not sealed.
    fn read_end(&mut self, length: u64) -> Result<bool, Problem> {
        let Some(offset) = length.checked_sub(TRAILER_BYTES as u64) else { return Ok(false) };
        let mut trailer = [0; TRAILER_BYTES];
        self.read(offset, &mut trailer)?;
        let u32_at =
            |at: usize| u32::from_le_bytes([trailer[at], trailer[at + 1], trailer[at + 2], trailer[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if &trailer[..8] != SEAL || crc32c(&trailer[..60]) != u32_at(60) {
            return Ok(false);
        }
        let (block_count, table_checksum) = (u32_at(8) as usize, u32_at(20));
        let place = index::Place { offset: u64_at(24), entry_count: u32_at(12), bucket_count: u32_at(16) };
        let table_offset = u64_at(32);
        let table_bytes = block_count * ROW_BYTES;
        let is_sound = place.bucket_count > 0
            && place.offset.checked_add(place.length()) == Some(table_offset)
            && table_offset.checked_add(table_bytes as u64) == Some(offset);
        if !is_sound {
            return Err(Problem::damaged(&self.name, "its trailer"));
        }
        let mut table = vec![0; table_bytes];
        self.read(table_offset, &mut table)?;
        if crc32c(&table) != table_checksum {
            // The blocks are there nevertheless.
            self.problem = Some(Problem::damaged(&self.name, "its table of blocks"));
            return Ok(false);
        }
        let (rows, _) = table.as_chunks::<ROW_BYTES>();
        let number = |row: &[u8; ROW_BYTES], at: usize| {
            u64::from_le_bytes(*row[at..].first_chunk().expect("a row has three numbers"))
        };
        self.rows = rows
            .iter()
            .map(|row| Row {
                offset: number(row, 0),
                first: UnixMicros(number(row, 8)),
                last: UnixMicros(number(row, 16)),
                checksum: 0,
            })
            .collect();
        (self.index, self.end) = (Some(place), place.offset);
        Ok(true)
    }

    /// Reads the headers of the blocks one after the other.
    fn scan(&mut self, length: u64) -> Result<(), Problem> {
        let mut offset = SEGMENT_HEAD_BYTES;
        while offset + HEAD_BYTES as u64 <= length {
            let mut bytes = [0; HEAD_BYTES];
            self.read(offset, &mut bytes)?;
            if let Some(head) = Head::read(&bytes).filter(|head| offset + head.length() <= length) {
                let checksum = block::checksum_of_head(&bytes);
                self.rows.push(Row { offset, first: head.first, last: head.last, checksum });
                offset += head.length();
                continue;
            }
            if &bytes[..8] == INDEX && bytes[8..16] == offset.to_le_bytes() {
                break;
            }
            // The end, as a rule: a block that was being written. Else there are blocks behind.
            let Some(next) = self.next_block(offset + 1, length)? else { break };
            self.problem = Some(self.damaged("a block"));
            offset = next;
        }
        self.end = offset;
        Ok(())
    }

    /// Returns where the next block begins that has a sound header.
    fn next_block(&self, from: u64, length: u64) -> Result<Option<u64>, Problem> {
        let mut offset = from;
        while offset + HEAD_BYTES as u64 <= length {
            let mut bytes = vec![0; SEARCH_BYTES.min((length - offset) as usize)];
            self.read(offset, &mut bytes)?;
            let found = bytes.windows(HEAD_BYTES).position(|window| {
                window.starts_with(block::MAGIC)
                    && window.first_chunk().is_some_and(|head| Head::read(head).is_some())
            });
            if let Some(found) = found {
                return Ok(Some(offset + found as u64));
            }
            offset += (bytes.len() - (HEAD_BYTES - 1)) as u64;
        }
        Ok(None)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Problem> {
        self.file.read_at(offset, into).map_err(|e| Problem::io(&self.name, &e))
    }

    fn damaged(&self, part: &'static str) -> Problem {
        Problem::damaged(&self.name, part)
    }

    /// Returns whether the segment has an index.
    pub(crate) fn is_sealed(&self) -> bool {
        self.index.is_some()
    }

    /// Returns the blocks.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the place behind the last block.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the plain frames of events that are in no block.
    pub(crate) fn plain_frames(&self) -> impl Iterator<Item = Frame<'_>> {
        self.open.iter().flat_map(Content::frames)
    }

    /// Returns the number of parts: blocks, then pieces of plain frames.
    pub(crate) fn part_count(&self) -> u32 {
        (self.rows.len() + self.open.len()) as u32
    }

    /// Returns the largest time, also of plain frames.
    pub(crate) fn last(&self) -> Option<UnixMicros> {
        let open = self.open.iter().flat_map(|piece| piece.frames().map(|frame| frame.at));
        self.rows.iter().map(|row| row.last).chain(open).max()
    }

    /// Returns the smallest time, also of plain frames.
    pub(crate) fn first(&self) -> Option<UnixMicros> {
        let open = self.open.iter().flat_map(|piece| piece.frames().map(|frame| frame.at));
        self.rows.iter().map(|row| row.first).chain(open).min()
    }

    /// Returns the parts that may have events between two times.
    pub(crate) fn parts_between(&self, from: UnixMicros, to: UnixMicros) -> Vec<PartNumber> {
        let blocks = self.rows.iter().enumerate().filter(|(_, row)| row.first <= to && row.last >= from);
        let blocks = blocks.map(|(number, _)| PartNumber(number as u32));
        blocks.chain(self.open_parts()).collect()
    }

    fn open_parts(&self) -> impl Iterator<Item = PartNumber> {
        (self.rows.len() as u32..self.part_count()).map(PartNumber)
    }

    /// Returns the parts that may have a key, in ascending order.
    pub(crate) fn parts_with(&self, hash: u64) -> Result<Vec<PartNumber>, Problem> {
        let blocks = match self.index {
            Some(place) => self.indexed(place, hash)?,
            None => self.filtered(hash),
        };
        Ok(blocks.into_iter().chain(self.open_parts()).collect())
    }

    fn indexed(&self, place: index::Place, hash: u64) -> Result<Vec<PartNumber>, Problem> {
        let damaged = |_| self.damaged("its index");
        let mut places = [0; 2 * index::PLACE_BYTES];
        self.read(place.directory_offset(hash), &mut places)?;
        let (offset, length, checksum) = place.bucket(&places).map_err(damaged)?;
        let mut bucket = vec![0; length];
        self.read(offset, &mut bucket)?;
        let blocks = index::blocks_in(&bucket, checksum, hash).map_err(damaged)?;
        let is_there = |block: &u16| usize::from(*block) < self.rows.len();
        Ok(blocks.into_iter().filter(is_there).map(|block| PartNumber(block.into())).collect())
    }

    fn filtered(&self, hash: u64) -> Vec<PartNumber> {
        let may_have =
            |filter: &Option<Vec<u8>>| filter.as_ref().is_none_or(|filter| filter::may_have(filter, hash));
        let found = self.filters.iter().enumerate().filter(|(_, filter)| may_have(filter));
        found.map(|(number, _)| PartNumber(number as u32)).collect()
    }

    fn head(&self, row: &Row) -> Result<Head, Problem> {
        let mut bytes = [0; HEAD_BYTES];
        self.read(row.offset, &mut bytes)?;
        Head::read(&bytes).ok_or_else(|| self.damaged("the header of a block"))
    }

    /// Reads a part.
    pub(crate) fn part(&self, part: PartNumber) -> Result<Content, Problem> {
        let number = part.0 as usize;
        let Some(row) = self.rows.get(number) else {
            return self
                .open
                .get(number - self.rows.len())
                .cloned()
                .ok_or_else(|| self.damaged("a missing block"));
        };
        let head = self.head(row)?;
        let mut body = vec![0; head.body_bytes];
        self.read(row.offset + HEAD_BYTES as u64, &mut body)?;
        Content::read(&head, &body).ok_or_else(|| self.damaged("the content of a block"))
    }
}

/// Reads a small file, at most the first `bytes_max` of it; nothing of one that cannot be read.
fn read_all(file: &dyn ReadAt, bytes_max: u64) -> Vec<u8> {
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

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(Name::parse(&segment_name(7)), Some(Name::Segment(7)));
        assert_eq!(Name::parse(&filters_name(7)), Some(Name::Filters(7)));
        assert_eq!(Name::parse(&keys_name(7)), Some(Name::Keys(7)));
        assert_eq!(Name::parse(&open_name(7, 123_456)), Some(Name::Open(7, 123_456)));
        assert_eq!(Name::parse(&segment_name(1 << 40)), Some(Name::Segment(1 << 40)));
        for other in ["", "x.events", "1.open", "lost+found", ".events", "1.x.open"] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
