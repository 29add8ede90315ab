//! Segments: files of blocks. A sealed segment has an index at its end. The block that grows is beside the segment as plain
//! frames.

use crate::{
    Addresses, Folder, Problem, ReadAt,
    block::{self, Content, HEAD_BYTES, Head},
    filter, index,
    plain::{self, Piece},
    privacy::{Concealer, KEY_BYTES},
};
use crc32c::crc32c;
use report::UnixMicros;

/// Octets in front of the first block.
pub(crate) const SEGMENT_HEAD_BYTES: u64 = 64;
const MAGIC: &[u8; 8] = b"PRHIST\r\n";
const VERSION: u16 = 1;
/// The length of the trailer of a sealed segment.
const TRAILER_BYTES: usize = 64;
const SEAL: &[u8; 8] = b"PRSEAL\r\n";
/// Blocks end where an index is being written.
const INDEX: &[u8; 8] = b"PRINDEX\n";
/// Octets of the mark in front of an index.
pub(crate) const INDEX_MARK_BYTES: u64 = 16;
/// The length of a row in the table of blocks.
pub(crate) const ROW_BYTES: usize = 24;
/// The number of bytes in which a block is searched at once, behind a damaged one.
const SEARCH_BYTES: usize = 1024 * 1024;
/// Behind the number in the name of a segment.
const SEGMENT_SUFFIX: &str = ".events";
/// Behind the number in the name of a file of filters.
const FILTERS_SUFFIX: &str = ".filters";
/// The name of a file with hashes of keys ends so.
const KEYS_SUFFIX: &str = ".keys";
/// More is not read into memory at once.
const FILTERS_BYTES_MAX: u64 = 24 * 1024 * 1024;
/// Octets in front of a filter's lines.
const FILTER_HEAD_BYTES: usize = 16;
/// A segment is opened again so often, when files are removed while it is opened.
const OPEN_COUNT_MAX: u32 = 3;
/// The name of a file with plain frames ends so.
const FRAMES_SUFFIX: &str = ".frames";
/// The name of a file with the plain frames of a single block ended so in earlier builds.
const OPEN_SUFFIX: &str = ".open";
/// The most bytes of plain frames that are read of a file.
const PLAIN_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Returns the file name of the segment with this number.
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

/// Returns the name of a file with plain frames.
pub(crate) fn plain_name(number: u64, place: plain::Place) -> String {
    match place {
        plain::Place::File(file) => format!("{number:08}.{file}{FRAMES_SUFFIX}"),
        plain::Place::OfBlock(block) => format!("{number:08}.{block:05}{OPEN_SUFFIX}"),
    }
}

/// What a file of the history is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    Segment(u64),
    /// Filters of the blocks of a segment that is not sealed.
    Filters(u64),
    /// Hashes of the keys of a segment that is not sealed.
    Keys(u64),
    /// Plain frames beside a segment.
    Plain(u64, plain::Place),
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
        if let Some((number, file)) = name.strip_suffix(FRAMES_SUFFIX).and_then(|name| name.split_once('.')) {
            let file = file.parse().ok().filter(|file| usize::from(*file) < plain::FILE_COUNT)?;
            return Some(Self::Plain(number.parse().ok()?, plain::Place::File(file)));
        }
        let (number, block) = name.strip_suffix(OPEN_SUFFIX)?.split_once('.')?;
        Some(Self::Plain(number.parse().ok()?, plain::Place::OfBlock(block.parse().ok()?)))
    }

    /// Returns the number of the segment that the file belongs to.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Segment(number) | Self::Filters(number) | Self::Keys(number) | Self::Plain(number, _) => {
                number
            }
        }
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

/// Where a block is, and the times of its events.
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

/// A segment that is open for reading.
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
    /// Offset behind the last block.
    end: u64,
    /// Pieces of the block that was growing, oldest first.
    plain: Vec<Piece>,
    /// The smallest and the largest time, also of plain frames.
    times: Option<(UnixMicros, UnixMicros)>,
    /// For each block, the largest time of it and those before it; and the smallest of it and those behind it.
    bounds: Vec<(UnixMicros, UnixMicros)>,
    /// `None` if the whole segment can be used.
    pub(crate) problem: Option<Problem>,
}

/// A block or a piece, counted from the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartNumber(pub(crate) u32);

impl Segment {
    /// Opens a segment. `places`: the files with plain frames beside it.
    pub(crate) fn open(folder: &dyn Folder, number: u64, places: &[plain::Place]) -> Result<Self, Problem> {
        let mut count = 1;
        loop {
            let (mut segment, is_current) = Self::open_once(folder, number, places)?;
            // Plain frames that are gone were replaced by their block, after the blocks were read.
            if is_current || count == OPEN_COUNT_MAX {
                segment.note_times();
                return Ok(segment);
            }
            count += 1;
        }
    }

    /// Opens a segment; false if plain frames were removed or overwritten in the meantime.
    fn open_once(folder: &dyn Folder, number: u64, places: &[plain::Place]) -> Result<(Self, bool), Problem> {
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
            plain: Vec::new(),
            times: None,
            bounds: Vec::new(),
            problem: None,
        };
        let is_sealed = segment.read_end(length)?;
        if !is_sealed {
            segment.scan(length)?;
        }
        let mut is_current = true;
        let mut pieces = Vec::new();
        for place in places {
            match folder.open(&plain_name(number, *place)) {
                Ok(file) => pieces.extend(place.pieces(&plain::read_all(&*file, PLAIN_BYTES_MAX))),
                Err(_) => is_current = false,
            }
        }
        pieces.sort_by_key(|piece| piece.block);
        if !is_sealed {
            segment.drop_damaged_end(&pieces);
            // Without them, all blocks are searched.
            let file = folder.open(&filters_name(number));
            let bytes = file.map(|file| plain::read_all(&*file, FILTERS_BYTES_MAX)).unwrap_or_default();
            segment.filters = read_filters(&bytes, &segment.rows);
        }
        // A power cut may leave a block that is damaged, although its plain frames are there.
        let mut sound = (u32::MAX, false);
        pieces.retain(|piece| {
            if sound.0 != piece.block {
                sound = (piece.block, segment.has_block(piece.block));
            }
            !sound.1
        });
        // Behind a power cut, too; there it stays so.
        is_current &= pieces.iter().all(|piece| piece.block as usize <= segment.rows.len());
        segment.plain = pieces;
        Ok((segment, is_current))
    }

    /// Returns whether there is a block, and it is not damaged. In a sealed segment all were read.
    fn has_block(&self, number: u32) -> bool {
        let Some(row) = self.rows.get(number as usize) else { return false };
        self.is_sealed() || self.body(row).is_ok_and(|(head, body)| head.is_body(&body))
    }

    /// Ignores blocks at the end that are damaged, and have plain frames: they were never durable.
    fn drop_damaged_end(&mut self, pieces: &[Piece]) {
        while let Some(last) = self.rows.len().checked_sub(1)
            && pieces.binary_search_by_key(&(last as u32), |piece| piece.block).is_ok()
            && !self.has_block(last as u32)
            && let Some(row) = self.rows.pop()
        {
            self.end = row.offset;
        }
    }

    /// Notes what is asked for often.
    fn note_times(&mut self) {
        let plain =
            self.plain.iter().flat_map(|piece| piece.content.frames().map(|frame| (frame.at, frame.at)));
        let blocks = self.rows.iter().map(|row| (row.first, row.last));
        self.times = blocks.chain(plain).reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)));
        let mut largest = UnixMicros(0);
        self.bounds = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            largest = largest.max(row.last);
            self.bounds.push((largest, row.first));
        }
        let mut smallest = UnixMicros(u64::MAX);
        for (_, first) in self.bounds.iter_mut().rev() {
            smallest = smallest.min(*first);
            *first = smallest;
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

    /// Returns the blocks, oldest first.
    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the place behind the last block.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns the plain frames of events that are in no block.
    pub(crate) fn plain(&self) -> &[Piece] {
        &self.plain
    }

    /// Returns the number of parts: blocks, then pieces of plain frames.
    pub(crate) fn part_count(&self) -> u32 {
        (self.rows.len() + self.plain.len()) as u32
    }

    /// Returns the largest time, also of plain frames.
    pub(crate) fn last(&self) -> Option<UnixMicros> {
        self.times.map(|(_, last)| last)
    }

    /// Returns the smallest time, also of plain frames.
    pub(crate) fn first(&self) -> Option<UnixMicros> {
        self.times.map(|(first, _)| first)
    }

    /// Returns the parts that may have events between two times.
    pub(crate) fn parts_between(&self, from: UnixMicros, to: UnixMicros) -> Vec<PartNumber> {
        // The times of blocks nearly ascend.
        let begin = self.bounds.partition_point(|(largest, _)| *largest < from);
        let end = self.bounds.partition_point(|(_, smallest)| *smallest <= to);
        let blocks = (begin..end).filter(|number| {
            let row = &self.rows[*number];
            row.first <= to && row.last >= from
        });
        blocks.map(|number| PartNumber(number as u32)).chain(self.plain_parts()).collect()
    }

    fn plain_parts(&self) -> impl Iterator<Item = PartNumber> {
        (self.rows.len() as u32..self.part_count()).map(PartNumber)
    }

    /// Returns the parts that may have a key, in ascending order.
    pub(crate) fn parts_with(&self, hash: u64) -> Result<Vec<PartNumber>, Problem> {
        let blocks = match self.index {
            Some(place) => self.indexed(place, hash)?,
            None => self.filtered(hash),
        };
        Ok(blocks.into_iter().chain(self.plain_parts()).collect())
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

    /// Reads and unpacks a block or a piece.
    pub(crate) fn part(&self, part: PartNumber) -> Result<Content, Problem> {
        let number = part.0 as usize;
        let Some(row) = self.rows.get(number) else {
            let piece = self.plain.get(number - self.rows.len());
            return piece.map(|piece| piece.content.clone()).ok_or_else(|| self.damaged("a missing block"));
        };
        let (head, body) = self.body(row)?;
        Content::read(&head, &body).ok_or_else(|| self.damaged("the content of a block"))
    }

    /// Reads the header and the body of a block.
    fn body(&self, row: &Row) -> Result<(Head, Vec<u8>), Problem> {
        let head = self.head(row)?;
        let mut body = vec![0; head.body_bytes];
        self.read(row.offset + HEAD_BYTES as u64, &mut body)?;
        Ok((head, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(Name::parse(&segment_name(7)), Some(Name::Segment(7)));
        assert_eq!(Name::parse(&filters_name(7)), Some(Name::Filters(7)));
        assert_eq!(Name::parse(&keys_name(7)), Some(Name::Keys(7)));
        for place in [plain::Place::File(0), plain::Place::File(1), plain::Place::OfBlock(123_456)] {
            assert_eq!(Name::parse(&plain_name(7, place)), Some(Name::Plain(7, place)));
        }
        assert_eq!(Name::parse(&segment_name(1 << 40)), Some(Name::Segment(1 << 40)));
        for other in ["", "x.events", "1.open", "lost+found", ".events", "1.x.open", "1.2.frames", "1.frames"]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
