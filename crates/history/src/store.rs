//! Writing the history: a sink of the event stream.

use crate::{
    Addresses, Folder,
    block::{self, BLOCK_BYTES, Content, EVENT_BYTES_MAX},
    index, is_of_history, key, keys, plain,
    privacy::{Concealer, KEY_BYTES},
    retention::{self, Closed},
    sealing::{self, Sealing, Step},
    segment::{self, Name, PartNumber, Row, SEGMENT_HEAD_BYTES, Segment},
};
use report::{Event, Sink, UnixMicros, event};
use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

/// The interval in which plain frames of the growing block are written.
const WRITE_INTERVAL_US: u64 = 1_000_000;
/// The interval in which written files are made durable.
const SYNC_INTERVAL_US: u64 = 5_000_000;
/// A block of this size is completed when the segment is synced.
const SYNCED_BLOCK_BYTES: usize = BLOCK_BYTES / 4;
/// The interval in which segments that are too old are deleted.
const DELETE_INTERVAL_US: u64 = 3_600_000_000;
/// The time until a segment is sealed again that could not be written.
const SEAL_RETRY_US: u64 = 60_000_000;
/// The largest segment that the next start continues.
const CONTINUED_BYTES_MAX: u64 = 1024 * 1024;
/// The size of a segment, unless all are to be smaller.
const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;
/// A segment has no more than this part of all bytes, and of the time that is kept: the oldest is deleted as a whole.
const SEGMENTS_MIN: u64 = 8;

/// What the history keeps, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Older segments are deleted.
    pub keep: Duration,
    /// All segments together, in octets: the oldest are deleted for new ones.
    pub max_bytes: u64,
    /// How much of addresses is stored.
    pub addresses: Addresses,
}

impl Settings {
    fn segment_bytes(&self) -> u64 {
        SEGMENT_BYTES.min(self.max_bytes / SEGMENTS_MIN)
    }

    /// Returns the time after which a segment is not continued, in microseconds.
    fn segment_us(&self) -> u64 {
        u64::try_from(self.keep.as_micros()).unwrap_or(u64::MAX) / SEGMENTS_MIN
    }
}

/// What a start finds of one segment.
#[derive(Default)]
struct Found {
    /// Of all of its files together.
    bytes: u64,
    filters_bytes: Option<u64>,
    keys_bytes: Option<u64>,
    /// Files beside it with pieces.
    plain: Vec<plain::Place>,
}

/// The writer. A file that cannot be written loses events, which are counted; it never waits for anything but the disk.
pub struct Store<F: Folder> {
    folder: F,
    settings: Settings,
    clock: Box<dyn Fn() -> UnixMicros + Send>,
    new_key: Box<dyn FnMut() -> [u8; KEY_BYTES] + Send>,
    closed: Vec<Closed>,
    deleted_at: UnixMicros,
    next_number: u64,
    /// The segment in use, once there is an event.
    open: Option<OpenSegment>,
    /// The complete segments that have no index yet.
    sealing: VecDeque<Sealing>,
    /// No sealing before this time, after an error.
    seal_after: UnixMicros,
    /// The most entries of an index that are in memory.
    pub(crate) part_entries: usize,
    compressor: zstd::bulk::Compressor<'static>,
    /// Kept for the next event, to save allocations.
    event: Vec<u8>,
    out: Vec<u8>,
    lost_count: u64,
    /// Why events are lost; `None` while none is.
    fault: Option<String>,
}

/// The segment that events are appended to.
struct OpenSegment {
    number: u64,
    concealer: Arc<Concealer>,
    /// The place of the next block; 0 until the header is written.
    offset: u64,
    rows: Vec<Row>,
    first: UnixMicros,
    last: UnixMicros,
    block: block::Builder,
    plain: plain::Writer,
    /// Blocks of which the disk has confirmed a sync.
    durable: u32,
    /// The file of the segment has something that is not durable.
    is_dirty: bool,
    written_at: UnixMicros,
    synced_at: UnixMicros,
    /// The lengths of the files of filters and of keys.
    filters_bytes: u64,
    keys_bytes: u64,
}

impl OpenSegment {
    fn new(number: u64, concealer: Concealer) -> Self {
        Self {
            number,
            concealer: Arc::new(concealer),
            offset: 0,
            rows: Vec::new(),
            first: UnixMicros(u64::MAX),
            last: UnixMicros(0),
            block: block::Builder::default(),
            plain: plain::Writer::default(),
            durable: 0,
            is_dirty: false,
            written_at: UnixMicros(0),
            synced_at: UnixMicros(0),
            filters_bytes: 0,
            keys_bytes: 0,
        }
    }

    /// Appends an event in the form in which it is stored.
    fn push(&mut self, at: UnixMicros, event: &Event<'_>, bytes: &[u8]) {
        if self.block.is_empty() {
            self.plain.begin(at);
        }
        self.block.push(at, bytes);
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
        let times = (self.block.times().0, at);
        key::hashes_within(event, times, &mut |hash| self.block.push_hash(hash));
    }

    /// Appends a frame that was stored before. An event of a later version has no keys.
    fn push_stored(&mut self, at: UnixMicros, bytes: &[u8]) {
        match event::decode(bytes) {
            Some(event) => self.push(at, &event, bytes),
            None => self.block.push(at, bytes),
        }
    }
}

impl<F: Folder> Store<F> {
    /// Opens a store. Segments that are too old are deleted, and a small one is continued. `new_key` makes random keys.
    ///
    /// # Errors
    /// A folder that cannot be listed.
    pub fn open(
        folder: F,
        settings: Settings,
        clock: Box<dyn Fn() -> UnixMicros + Send>,
        new_key: Box<dyn FnMut() -> [u8; KEY_BYTES] + Send>,
    ) -> io::Result<Self> {
        let mut found: BTreeMap<u64, Found> = BTreeMap::new();
        for (name, bytes) in folder.list()? {
            let Some(name) = Name::parse(&name) else { continue };
            let files = found.entry(name.number()).or_default();
            files.bytes += bytes;
            match name {
                Name::Segment(_) => {}
                Name::Filters(_) => files.filters_bytes = Some(bytes),
                Name::Keys(_) => files.keys_bytes = Some(bytes),
                Name::Plain(_, place) => files.plain.push(place),
            }
        }
        let mut store = Self {
            folder,
            settings,
            clock,
            new_key,
            closed: Vec::new(),
            deleted_at: UnixMicros(0),
            next_number: found.keys().next_back().map_or(1, |last| last + 1),
            open: None,
            sealing: VecDeque::new(),
            seal_after: UnixMicros(0),
            part_entries: sealing::PART_ENTRIES,
            compressor: block::compressor(),
            event: Vec::new(),
            out: Vec::new(),
            lost_count: 0,
            fault: None,
        };
        let newest = found.keys().next_back().copied();
        let now = (store.clock)();
        for (number, mut files) in found {
            if files.bytes < SEGMENT_HEAD_BYTES {
                // Killed before there was an event.
                store.remove_segment(number);
                continue;
            }
            files.plain.sort_unstable();
            let opened = Segment::open(&store.folder, number, &files.plain);
            // One that cannot be read is kept as if it was new: somebody may repair it.
            let last = opened.as_ref().ok().and_then(Segment::last).unwrap_or(now);
            store.closed.push(Closed { number, bytes: files.bytes, last });
            store.delete_expired(now);
            let is_kept = store.closed.iter().any(|one| one.number == number);
            if let Ok(segment) = opened
                && is_kept
                && segment.problem.is_none()
            {
                let is_continued = Some(number) == newest
                    && files.bytes <= CONTINUED_BYTES_MAX
                    && segment.concealer.mode() == settings.addresses;
                if !(is_continued && store.continue_segment(&segment)) {
                    store.finish_segment(&segment, &files);
                }
            }
        }
        Ok(store)
    }

    /// Writes the events of a small segment into a new one, and removes the small one: many restarts make few segments.
    /// Returns false if that failed.
    fn continue_segment(&mut self, old: &Segment) -> bool {
        let parts: Result<Vec<_>, _> = (0..old.part_count()).map(|part| old.part(PartNumber(part))).collect();
        let Ok(parts) = parts else { return false };
        let concealer = Concealer::new(old.concealer.mode(), *old.concealer.key());
        let mut segment = OpenSegment::new(self.next_number, concealer);
        self.next_number += 1;
        let mut is_written = true;
        for part in &parts {
            is_written &= self.write_stored(&mut segment, part);
        }
        is_written &= self.write_plain(&mut segment) && self.sync(&mut segment);
        if is_written {
            self.open = Some(segment);
            self.closed.retain(|one| one.number != old.number);
            self.remove_segment(old.number);
        } else {
            self.remove_segment(segment.number);
        }
        is_written
    }

    /// Seals a segment that an earlier process has not sealed, or removes the files that it left beside a sealed one.
    fn finish_segment(&mut self, old: &Segment, files: &Found) {
        if old.is_sealed() {
            // Frames that are in no block are only there.
            let plain = if old.plain().is_empty() { &files.plain[..] } else { &[] };
            let names = plain.iter().map(|place| segment::plain_name(old.number, *place));
            let mut names: Vec<String> = names.collect();
            names.extend(files.filters_bytes.map(|_| segment::filters_name(old.number)));
            names.extend(files.keys_bytes.map(|_| segment::keys_name(old.number)));
            for name in names {
                if let Err(e) = self.folder.remove(&name) {
                    self.failed("remove", &name, &e);
                }
            }
            return;
        }
        let concealer = Concealer::new(old.concealer.mode(), *old.concealer.key());
        let mut segment = OpenSegment::new(old.number, concealer);
        (segment.rows, segment.offset) = (old.rows().to_vec(), old.end());
        segment.filters_bytes = files.filters_bytes.unwrap_or_default();
        segment.keys_bytes = files.keys_bytes.unwrap_or_default();
        let mut is_written = true;
        let mut previous = None;
        for piece in old.plain() {
            // Blocks keep their numbers, by which their plain frames are known to be of no use.
            if previous.replace(piece.block).is_some_and(|previous| previous != piece.block) {
                is_written &= self.write_block(&mut segment);
            }
            is_written &= self.write_stored(&mut segment, &piece.content);
        }
        // Else its plain frames are as good, until the next start.
        is_written &= self.write_block(&mut segment);
        if is_written && !segment.rows.is_empty() && segment.rows.len() <= index::BLOCKS_MAX {
            let Segment { number, .. } = *old;
            self.sealing.push_back(Sealing::new(number, segment.rows, segment.offset, self.part_entries));
        }
    }

    /// Appends frames that were stored before, and writes each block that is complete. Returns false if that failed.
    fn write_stored(&mut self, segment: &mut OpenSegment, content: &Content) -> bool {
        let mut is_written = true;
        for frame in content.frames() {
            segment.push_stored(frame.at, frame.event);
            if segment.block.is_complete() {
                is_written &= self.write_block(segment);
            }
        }
        is_written
    }

    fn remove_segment(&mut self, number: u64) {
        let names = self.folder.list().unwrap_or_default();
        for (name, _) in names {
            let is_meant = Name::parse(&name).is_some_and(|name| name.number() == number);
            if is_meant && let Err(e) = self.folder.remove(&name) {
                self.failed("remove", &name, &e);
            }
        }
    }

    /// Notes an error: a failing disk is reported once, until it works again.
    fn failed(&mut self, doing: &str, name: &str, error: &io::Error) {
        let text = format!("{doing} the history file {name}: {error}");
        if self.fault.is_none() {
            tracing::error!("{text}; events are missing in the history until that works");
        }
        self.fault = Some(text);
    }

    fn delete_expired(&mut self, now: UnixMicros) {
        self.deleted_at = now;
        let Settings { keep, max_bytes, .. } = self.settings;
        // The segment in use, and the files beside it and beside one that is being sealed.
        let reserved_bytes = 2 * self.settings.segment_bytes();
        for number in retention::expired(&self.closed, now, keep, max_bytes, reserved_bytes) {
            self.sealing.retain(|one| one.number != number);
            self.remove_segment(number);
            self.closed.retain(|one| one.number != number);
        }
    }

    /// Writes bytes at a place; false if that failed.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> bool {
        match self.folder.write_at(name, offset, bytes) {
            Ok(()) => {
                self.fault = None;
                true
            }
            Err(e) => {
                self.failed("write", name, &e);
                false
            }
        }
    }

    /// Writes the header of a segment, if it is not there yet.
    fn write_head(&mut self, segment: &mut OpenSegment) -> bool {
        if segment.offset > 0 {
            return true;
        }
        let mut head = Vec::new();
        segment::write_head(&segment.concealer, segment.first, &mut head);
        let is_written = self.write_at(&segment::segment_name(segment.number), 0, &head);
        if is_written {
            (segment.offset, segment.is_dirty) = (SEGMENT_HEAD_BYTES, true);
        }
        is_written
    }

    /// Ends the growing block, and writes it. Its events are lost if that fails.
    fn write_block(&mut self, segment: &mut OpenSegment) -> bool {
        if segment.block.is_empty() {
            return true;
        }
        let (event_count, (first, last)) = (segment.block.event_count(), segment.block.times());
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let hashes = segment.block.finish(&mut self.compressor, &mut out);
        let name = segment::segment_name(segment.number);
        let is_written = self.write_head(segment) && self.write_at(&name, segment.offset, &out);
        if is_written {
            let checksum = out.first_chunk().map_or(0, block::checksum_of_head);
            let row = Row { offset: segment.offset, first, last, checksum };
            self.write_keys(segment, &row, &hashes);
            segment.rows.push(row);
            segment.offset += out.len() as u64;
            segment.is_dirty = true;
        } else {
            self.lost_count += u64::from(event_count);
        }
        self.out = out;
        is_written
    }

    /// Writes the filter and the keys of a block. A block without a filter is searched more slowly, and sealing makes the keys
    /// that are missing.
    fn write_keys(&mut self, segment: &mut OpenSegment, row: &Row, hashes: &[u64]) {
        let mut record = Vec::new();
        segment::write_filter(row, hashes, &mut record);
        if self.write_at(&segment::filters_name(segment.number), segment.filters_bytes, &record) {
            segment.filters_bytes += record.len() as u64;
        }
        record.clear();
        keys::write(row, hashes, &mut record);
        if self.write_at(&segment::keys_name(segment.number), segment.keys_bytes, &record) {
            segment.keys_bytes += record.len() as u64;
        }
    }

    /// Writes the frames of the growing block that are in no file yet.
    fn write_plain(&mut self, segment: &mut OpenSegment) -> bool {
        let raw = segment.block.raw();
        if segment.block.is_empty() || raw.len() == segment.plain.done {
            return true;
        }
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let block = segment.rows.len() as u32;
        plain::write(block, segment.plain.base, &raw[segment.plain.done..], &mut out);
        let place = segment.plain.next(segment.durable);
        let name = segment::plain_name(segment.number, plain::Place::File(place.0));
        // The header first: without its segment the file is of no use.
        let is_written = self.write_head(segment) && self.write_at(&name, place.1, &out);
        if is_written {
            let (done, base) = (segment.block.raw().len(), segment.block.previous());
            segment.plain.written(block, place, out.len(), done, base);
        }
        self.out = out;
        is_written
    }

    /// Makes everything durable that is written.
    fn sync(&mut self, segment: &mut OpenSegment) -> bool {
        let own = segment.is_dirty.then(|| segment::segment_name(segment.number));
        let plain = segment.plain.to_sync();
        let plain = plain.map(|file| segment::plain_name(segment.number, plain::Place::File(file)));
        for name in own.into_iter().chain(plain) {
            if let Err(e) = self.folder.sync(&name) {
                self.failed("sync", &name, &e);
                return false;
            }
        }
        (segment.is_dirty, segment.plain.is_dirty) = (false, false);
        segment.durable = segment.rows.len() as u32;
        true
    }

    /// Ends the segment in use. It is sealed step by step.
    fn end_segment(&mut self) {
        let Some(mut segment) = self.open.take() else { return };
        self.write_block(&mut segment);
        if segment.rows.is_empty() {
            return;
        }
        let OpenSegment { number, offset, filters_bytes, keys_bytes, rows, last, .. } = segment;
        self.closed.push(Closed { number, bytes: offset + filters_bytes + keys_bytes, last });
        self.sealing.push_back(Sealing::new(number, rows, offset, self.part_entries));
    }

    /// Does a step of sealing; false if there is none to do, or it failed.
    pub(crate) fn seal_step(&mut self) -> bool {
        let Some(sealing) = self.sealing.front_mut() else { return false };
        let number = sealing.number;
        match sealing.step(&mut self.folder) {
            Ok(Step::More) => return true,
            Ok(Step::Sealed(bytes)) => {
                if let Some(closed) = self.closed.iter_mut().find(|one| one.number == number) {
                    closed.bytes = bytes;
                }
            }
            Ok(Step::Damaged) => {}
            Err(e) => {
                self.failed("seal", &segment::segment_name(number), &e);
                self.seal_after = UnixMicros((self.clock)().0.saturating_add(SEAL_RETRY_US));
                return false;
            }
        }
        self.sealing.pop_front();
        true
    }

    fn is_sealing(&self, now: UnixMicros) -> bool {
        // The clock may have stepped back.
        let is_paused = now < self.seal_after && self.seal_after.0 - now.0 <= SEAL_RETRY_US;
        !self.sealing.is_empty() && !is_paused
    }

    /// Returns whether the next event belongs into a new segment: this one is full or too old.
    fn is_complete(&self, segment: &OpenSegment, at: UnixMicros) -> bool {
        segment.offset >= self.settings.segment_bytes()
            || segment.rows.len() >= index::BLOCKS_MAX
            || (segment.first.0 < u64::MAX
                && at.0.saturating_sub(segment.first.0) > self.settings.segment_us())
    }

    fn append(&mut self, at: UnixMicros, event: &Event<'_>) {
        if self.open.as_ref().is_some_and(|segment| self.is_complete(segment, at)) {
            // As a rule, the segment before this one was sealed long ago.
            while self.is_sealing((self.clock)()) && self.seal_step() {}
            self.end_segment();
            self.delete_expired(at);
        }
        if self.open.is_none() {
            let key = match self.settings.addresses {
                Addresses::Hashed => (self.new_key)(),
                Addresses::Full | Addresses::Domain => [0; KEY_BYTES],
            };
            let concealer = Concealer::new(self.settings.addresses, key);
            self.open = Some(OpenSegment::new(self.next_number, concealer));
            self.next_number += 1;
        }
        let Some(mut segment) = self.open.take() else { return };
        let concealer = segment.concealer.clone();
        concealer.conceal(event, &mut |event| {
            self.event.clear();
            event::encode(event, &mut self.event);
            if self.event.len() > EVENT_BYTES_MAX {
                self.lost_count += 1;
            } else {
                segment.push(at, event, &self.event);
            }
        });
        if segment.block.is_complete() {
            self.write_block(&mut segment);
        }
        self.open = Some(segment);
    }
}

impl<F: Folder> Sink for Store<F> {
    fn write(&mut self, at: UnixMicros, event: &Event<'_>) {
        if is_of_history(event) {
            self.append(at, event);
        }
    }

    fn flush(&mut self) -> bool {
        let now = (self.clock)();
        // The clock may have stepped back.
        let is_over = |since: UnixMicros, interval: u64| now.0.abs_diff(since.0) >= interval;
        let mut has_work = false;
        if let Some(mut segment) = self.open.take() {
            // One file is synced instead of two, for a block that is a little smaller.
            let is_large = segment.is_dirty && segment.block.raw().len() >= SYNCED_BLOCK_BYTES;
            if is_large && is_over(segment.synced_at, SYNC_INTERVAL_US) {
                self.write_block(&mut segment);
            }
            if is_over(segment.written_at, WRITE_INTERVAL_US) {
                self.write_plain(&mut segment);
                segment.written_at = now;
            }
            let is_dirty = |segment: &OpenSegment| segment.is_dirty || segment.plain.to_sync().is_some();
            if is_dirty(&segment) && is_over(segment.synced_at, SYNC_INTERVAL_US) {
                self.sync(&mut segment);
                segment.synced_at = now;
            }
            let is_written = segment.block.is_empty() || segment.block.raw().len() == segment.plain.done;
            has_work = is_dirty(&segment) || !is_written;
            self.open = Some(segment);
        }
        if is_over(self.deleted_at, DELETE_INTERVAL_US) {
            self.delete_expired(now);
        }
        if self.is_sealing(now) {
            self.seal_step();
        }
        has_work || !self.sealing.is_empty()
    }

    fn lost_count(&self) -> u64 {
        self.lost_count
    }

    fn fault(&self) -> Option<String> {
        self.fault.clone()
    }
}

impl<F: Folder> Drop for Store<F> {
    fn drop(&mut self) {
        self.end_segment();
        while self.seal_step() {}
    }
}
