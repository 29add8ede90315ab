//! Segments made ready before they are needed: blocks written, header in place, all of it synced.
//! A thread keeps the allocator filled, from segments that were recycled where there are any.

use super::{epoch, index::Segment, recover::UNUSED_BYTES, segment_index};
use crate::{
    disk::{Disk, File, lacks_room},
    format::block::{ALIGN, FIRST_BATCH, HeaderPlace, SegmentHeader},
};
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Ready segments the allocator is kept at.
const READY: usize = 3;
/// Of them, those that only outcomes and reports may use, so that a full disk can drain.
pub(crate) const RESERVE: usize = 2;
/// Without room, it is looked for again after this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Ending of the name of a segment that is being made.
pub(crate) const UNFINISHED: &str = ".tmp";
/// Ending of the name of a segment that is damaged and holds nothing else that is needed.
pub(crate) const DAMAGED: &str = ".quarantined";
/// The endings of unfinished and of quarantined segments in builds before 0.1.0.
const OLD_UNFINISHED: &str = ".new";
const OLD_DAMAGED: &str = ".bad";

/// Returns true if the name is that of a segment that is being made.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.ends_with(UNFINISHED) || name.ends_with(OLD_UNFINISHED)
}

/// Returns true if the name is that of a quarantined segment.
pub(crate) fn is_quarantined(name: &str) -> bool {
    name.ends_with(DAMAGED) || name.ends_with(OLD_DAMAGED)
}

/// Returns the names that a segment may have when it is quarantined.
pub(crate) fn quarantined_names(segment: &str) -> [String; 2] {
    [DAMAGED, OLD_DAMAGED].map(|ending| segment.replace(".seg", ending))
}
/// Endings of the names of the files that say why a segment with the name was parked.
const MARKS: [&str; 2] = [".unread", ".damaged"];
/// New segments are filled in small pieces, with a pause after each, while no append needs them: the
/// disk and the processors are there for mail. Else in large ones.
const PIECE_BYTES: u64 = 128 * 1024;
const LARGE_PIECE_BYTES: u64 = 1024 * 1024;
const PAUSE: Duration = Duration::from_millis(10);

/// How much disk space segments may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpaceLimits {
    pub(crate) segment_bytes: u64,
    /// All segments together; zero: what the disk has.
    pub(crate) max_bytes: u64,
    /// Must stay free on the disk.
    pub(crate) min_free_bytes: u64,
}

struct State {
    ready: VecDeque<Segment>,
    recycled: VecDeque<Segment>,
    /// Segments that exist, wherever they are.
    segment_count: u64,
    next_sequence: u64,
    /// Number of the next segment in memory.
    next_number: u32,
    /// The segment that was taken last; later ones have higher numbers.
    last_taken: u32,
    no_room: bool,
    /// More segments that there was room for when it was last looked, the one that is being made included.
    room_for: u64,
    /// There is not even room to give the oldest of those recycled a new generation, or an end.
    cannot_recycle: bool,
    /// The log has begun to write.
    is_started: bool,
    demand: Demand,
    /// A start waits until as many segments are ready as are kept ready.
    is_filling: bool,
    /// No room is made any more: waiting appends are answered.
    is_ending: bool,
    closing: bool,
    failure: Option<String>,
}

/// How soon another segment is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Demand {
    /// Not soon: the segment in use has room.
    Relaxed,
    /// Before long: the segment in use is nearly full.
    Soon,
    /// At once: the commit thread waits.
    Waiting,
}

impl State {
    /// May a new segment take its time?
    fn has_time(&self) -> bool {
        let is_needed = match self.demand {
            Demand::Relaxed => false,
            Demand::Soon => self.ready.is_empty(),
            Demand::Waiting => true,
        };
        !is_needed && !self.is_filling && !self.closing
    }

    fn is_filled(&self) -> bool {
        self.ready.len() >= READY && self.recycled.is_empty()
    }
}

pub(crate) struct SegmentAllocator {
    disk: Arc<dyn Disk>,
    limits: SpaceLimits,
    /// No thread prepares segments: whoever takes one does.
    single_stepped: bool,
    state: Mutex<State>,
    changed: Condvar,
}

impl SegmentAllocator {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        limits: SpaceLimits,
        single_stepped: bool,
        segment_count: u64,
        (next_sequence, next_number): (u64, u32),
        old: Vec<Segment>,
    ) -> Self {
        let state = State {
            ready: VecDeque::new(),
            recycled: old.into(),
            segment_count,
            next_sequence,
            next_number,
            last_taken: 0,
            no_room: false,
            room_for: u64::MAX,
            cannot_recycle: false,
            is_started: false,
            demand: Demand::Relaxed,
            is_filling: false,
            is_ending: false,
            closing: false,
            failure: None,
        };
        Self { disk, limits, single_stepped, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes segments that were not finished, and makes the names durable that were found: whoever
    /// gave them may have been killed before it did, and it is not done for a segment that is only used
    /// again.
    pub(crate) fn tidy_names(&self, unfinished: &[String]) -> io::Result<()> {
        unfinished.iter().try_for_each(|name| self.disk.remove(name))?;
        self.sync_names()
    }

    /// Begins an epoch: the file that says so is durable before any of its numbers is used.
    pub(crate) fn begin_epoch(&self, epoch: u64, earlier: &[String]) -> io::Result<()> {
        let name = epoch::marker(epoch);
        if !earlier.contains(&name) {
            self.disk.create(&name)?;
        }
        self.sync_names()?;
        // What an earlier one says is said by the new one.
        earlier.iter().filter(|old| **old != name).try_for_each(|old| done_before(self.disk.remove(old)))?;
        let mut state = self.lock();
        state.next_sequence = state.next_sequence.max(epoch::first(epoch));
        Ok(())
    }

    /// Says, durably, that what came after these segments may be freed before they are.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(crate) fn mark_parked<'a>(&self, names: impl Iterator<Item = &'a str>, why: Mark) -> io::Result<()> {
        let mut is_new = false;
        for name in names {
            match self.disk.create(&mark_of(name, why)) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                made => is_new |= made.map(|_| true)?,
            }
        }
        if is_new { self.sync_names() } else { Ok(()) }
    }

    /// Takes damaged segments out of the log: only at a start, which has read them twice.
    ///
    /// # Errors
    /// When a file cannot be renamed.
    pub(crate) fn quarantine(&self, dead: Vec<Segment>) -> io::Result<Vec<String>> {
        let mut waiting: Vec<Segment> = self.lock().recycled.drain(..).collect();
        waiting.extend(dead);
        let (damaged, sound): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|old| old.is_damaged);
        self.recycle(sound);
        damaged.iter().map(|old| self.quarantine_one(old)).collect()
    }

    fn sync_names(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    /// The next ready segment; waits for it. An error when there will be none.
    pub(crate) fn take(&self) -> Result<Segment, String> {
        self.take_when(true)
    }

    /// The first segment: the start gets an error when there is no room, and does not wait for it.
    pub(crate) fn take_first(&self) -> Result<Segment, String> {
        self.take_when(false)
    }

    /// Makes a segment in which so many bytes fit beside its headers: for what was written when segments were larger.
    /// The caller waits for the disk.
    ///
    /// # Errors
    /// The disk has no room, or no file can be made; the allocator is as it was.
    pub(crate) fn take_large(&self, bytes: u64) -> Result<Segment, String> {
        let size_bytes = bytes.next_multiple_of(ALIGN as u64) + 2 * ALIGN as u64;
        if !self.disk_bytes().is_ok_and(|free| free >= size_bytes) {
            return Err(self.no_room());
        }
        let (sequence, number) = {
            let mut state = self.lock();
            let next = (state.next_sequence, state.next_number);
            (state.next_sequence, state.next_number) = (next.0 + 1, next.1 + 1);
            next
        };
        let made = self.make(sequence, number, size_bytes).map_err(|e| format!("prepare a segment: {e}"))?;
        let mut state = self.lock();
        state.last_taken = number;
        state.is_started = true;
        Ok(made)
    }

    fn take_when(&self, there_is_room: bool) -> Result<Segment, String> {
        let mut state = self.lock();
        loop {
            if let Some(segment) = state.ready.pop_front() {
                if segment.number < state.last_taken {
                    // Prepared before a large one was: in the log it would come before that.
                    state.recycled.push_back(segment);
                    continue;
                }
                state.last_taken = segment.number;
                state.is_started = true;
                state.demand = Demand::Relaxed;
                self.changed.notify_all();
                return Ok(segment);
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.closing {
                return Err("prepare a segment: the spool is closing".to_owned());
            }
            if self.single_stepped {
                drop(state);
                if !self.work() {
                    return Err(self.no_room());
                }
                state = self.lock();
                continue;
            }
            let is_out_of_room = state.no_room && (state.recycled.is_empty() || state.cannot_recycle);
            if (!there_is_room || state.is_ending) && is_out_of_room {
                return Err(self.no_room());
            }
            state.demand = Demand::Waiting;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn no_room(&self) -> String {
        let SpaceLimits { segment_bytes, max_bytes, min_free_bytes } = self.limits;
        let limit = if max_bytes > 0 { format!(", of {max_bytes} in all") } else { String::new() };
        format!(
            "prepare a segment: the disk has no room for one: {segment_bytes} bytes{limit}, besides {min_free_bytes} \
             that stay free (spool.segment_size, max_size, min_free)"
        )
    }

    /// Returns when as many are ready as are kept ready, or no more can be.
    pub(crate) fn fill_now(&self) {
        let mut state = self.lock();
        state.is_filling = true;
        self.changed.notify_all();
        let goes_on = |state: &mut State| {
            !state.is_filled() && !state.no_room && !state.closing && !self.single_stepped
        };
        let waited = self.changed.wait_while(state, goes_on);
        waited.unwrap_or_else(PoisonError::into_inner).is_filling = false;
    }

    /// The segment in use is half full: the next one should be ready before it is.
    pub(crate) fn request_next(&self) {
        let mut state = self.lock();
        if state.demand < Demand::Soon {
            state.demand = Demand::Soon;
            self.changed.notify_all();
        }
    }

    /// Segments that are not needed, oldest first.
    pub(crate) fn recycle(&self, segments: Vec<Segment>) {
        if !segments.is_empty() {
            self.lock().recycled.extend(segments);
            self.changed.notify_all();
        }
    }

    /// Segments that are ready or that there is room for, besides the reserve.
    pub(crate) fn usable_count(&self) -> u64 {
        let state = self.lock();
        // Outcomes may use the reserve.
        (state.ready.len() as u64).saturating_add(state.room_for).saturating_sub(RESERVE as u64)
    }

    /// Is there a segment to take without waiting for room?
    pub(crate) fn has_next(&self) -> bool {
        let state = self.lock();
        let is_waiting = !state.ready.is_empty() || !state.recycled.is_empty() && !state.cannot_recycle;
        let (no_room, count) = (state.no_room, state.segment_count);
        drop(state);
        // Without a thread that looks for room nobody has looked.
        is_waiting || if self.single_stepped { self.has_room(count).unwrap_or(false) } else { !no_room }
    }

    /// Returns the bytes of segments that are prepared and not used yet.
    pub(crate) fn ready_bytes(&self) -> u64 {
        self.lock().ready.len() as u64 * self.limits.segment_bytes
    }

    /// Notes that no further work is submitted: no outcome comes any more that would make room.
    pub(crate) fn end(&self) {
        self.lock().is_ending = true;
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    /// The thread: fills the allocator until closed or failed.
    pub(crate) fn run(&self) {
        while self.wait_for_work() {
            if !self.work() {
                self.wait_for_room();
            }
        }
    }

    /// Waits until there is something to prepare; `false`: closed.
    fn wait_for_work(&self) -> bool {
        let mut state = self.lock();
        while !state.closing && state.is_filled() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.closing
    }

    /// Is there nothing to prepare?
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.closing || state.is_filled()
    }

    pub(crate) fn is_single_stepped(&self) -> bool {
        self.single_stepped
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    /// Returns the bytes that can still be made into segments.
    pub(crate) fn unmade_bytes(&self) -> u64 {
        let segment_count = self.lock().segment_count;
        // A disk that does not tell its room ends the spool as soon as a segment is prepared.
        self.allowed(self.disk_bytes().unwrap_or(0), segment_count)
    }

    /// Returns the free bytes of the disk, without those that must stay free.
    fn disk_bytes(&self) -> io::Result<u64> {
        // Others use the disk as well.
        Ok(self.disk.free_bytes()?.saturating_sub(self.limits.min_free_bytes))
    }

    /// Returns the error that ended the preparation of segments, if there was one.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// As much of it as may be used beside so many segments.
    fn allowed(&self, disk_bytes: u64, segment_count: u64) -> u64 {
        match self.limits.max_bytes {
            0 => disk_bytes,
            // The limit may be lower than it was.
            max => disk_bytes.min(max.saturating_sub(segment_count * self.limits.segment_bytes)),
        }
    }

    /// Prepares or removes one segment; `false` when there was no room for it.
    pub(crate) fn work(&self) -> bool {
        let mut state = self.lock();
        let old = state.recycled.pop_front();
        let (enough, count) = (state.ready.len() >= READY, state.segment_count);
        let (sequence, number) = (state.next_sequence, state.next_number);
        state.next_sequence += 1;
        state.next_number += 1;
        drop(state);
        let made = match &old {
            Some(old) if enough => self.remove(old).map(|()| None),
            Some(old) => self.renew(old, sequence, number),
            None => match self.has_room(count) {
                Ok(true) => self.make(sequence, number, self.limits.segment_bytes).map(Some),
                Ok(false) => {
                    self.lock().no_room = true;
                    self.changed.notify_all();
                    return false;
                }
                // That is not a full disk.
                Err(e) => Err(io::Error::new(e.kind(), format!("ask for room: {e}"))),
            },
        };
        if matches!(made, Ok(None)) {
            // A disk that was full has room again: mail that was refused meanwhile may come.
            let count = self.lock().segment_count;
            let _ = self.has_room(count);
        }
        let had_room = self.note(made, old);
        self.changed.notify_all();
        had_room
    }

    fn note(&self, made: io::Result<Option<Segment>>, old: Option<Segment>) -> bool {
        let mut state = self.lock();
        state.cannot_recycle = false;
        match made {
            Ok(Some(segment)) => {
                state.no_room = false;
                if old.is_none() {
                    // The first segment is made even where the limit leaves room for none.
                    state.room_for = state.room_for.saturating_sub(1);
                }
                state.ready.push_back(segment);
            }
            Ok(None) => state.no_room &= state.room_for == 0,
            Err(e) if lacks_room(&e) => {
                (state.no_room, state.room_for) = (true, 0);
                // In its place: later ones hold what ended its messages, and must not go before it.
                state.cannot_recycle = old.is_some();
                old.into_iter().for_each(|old| state.recycled.push_front(old));
                return false;
            }
            Err(e) => {
                state.failure = Some(format!("prepare a segment: {e}"));
                state.closing = true;
            }
        }
        true
    }

    fn has_room(&self, segment_count: u64) -> io::Result<bool> {
        let size = self.limits.segment_bytes;
        let disk_bytes = self.disk_bytes()?;
        let mut state = self.lock();
        state.room_for = self.allowed(disk_bytes, segment_count) / size;
        // A start needs one, or nothing could be delivered that is in the others.
        let is_first = !state.is_started && state.ready.is_empty();
        Ok(state.room_for > 0 || is_first && disk_bytes >= size)
    }

    fn wait_for_room(&self) {
        let state = self.lock();
        if (state.recycled.is_empty() || state.cannot_recycle) && !state.closing {
            let waited = self.changed.wait_timeout(state, LOOK_AGAIN);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// A new file, zero-filled: blocks that were written before commit in half the time.
    fn make(&self, sequence: u64, number: u32, size_bytes: u64) -> io::Result<Segment> {
        let (unfinished, name) = (format!("{sequence:016x}{UNFINISHED}"), format!("{sequence:016x}.seg"));
        let header = self.header(sequence, size_bytes)?;
        let made = self.fill(&unfinished, &name, header, number);
        match &made {
            Ok(_) => self.lock().segment_count += 1,
            // Half a segment only takes up room.
            Err(_) => drop(self.disk.remove(&unfinished)),
        }
        made
    }

    fn fill(&self, unfinished: &str, name: &str, header: SegmentHeader, number: u32) -> io::Result<Segment> {
        let file = self.disk.create(unfinished)?;
        let mut at = ALIGN as u64;
        while at < header.size_bytes {
            let piece = if self.has_time() { PIECE_BYTES } else { LARGE_PIECE_BYTES };
            let length = (header.size_bytes - at).min(piece);
            file.fill(at, length)?;
            at += length;
            if at < header.size_bytes && !self.pause() {
                return Err(io::Error::other("the spool is closing"));
            }
        }
        write_header(&*file, &header)?;
        file.sync_data()?;
        // A crash may leave a file with what stood in its blocks before, which may have been a segment:
        // so it is called one only now.
        self.disk.rename(unfinished, name)?;
        // Its name must be there before anything in it is acknowledged.
        self.sync_names()?;
        Ok(Segment::new(number, name.to_owned(), header, file))
    }

    fn has_time(&self) -> bool {
        !self.single_stepped && self.lock().has_time()
    }

    /// Leaves the disk to others for a moment, if there is time. False: there is no need to go on.
    fn pause(&self) -> bool {
        if self.single_stepped {
            return true;
        }
        let paused = self.changed.wait_timeout_while(self.lock(), PAUSE, |state| state.has_time());
        !paused.unwrap_or_else(PoisonError::into_inner).0.closing
    }

    /// A new generation for old blocks: what stands in them does not pass the new seed's checksums.
    fn renew(&self, old: &Segment, sequence: u64, number: u32) -> io::Result<Option<Segment>> {
        if old.header.size_bytes != self.limits.segment_bytes || old.file.len()? != self.limits.segment_bytes
        {
            return self.remove(old).map(|()| None);
        }
        let header = self.header(sequence, self.limits.segment_bytes)?;
        // The mark is durable before the earlier generation gets holes, and the holes are before the new generation
        // begins: of a segment without its header the first batch tells of which generation it is.
        self.mark_freed(old)?;
        self.forget_index(old);
        self.forget_mark(old);
        // A start that finds this much unused need not look through what the earlier generation left behind it.
        let part = (self.limits.segment_bytes / 16).min(UNUSED_BYTES) / ALIGN as u64 * ALIGN as u64;
        old.file.write_zeros(FIRST_BATCH, part.max(ALIGN as u64))?;
        old.file.sync_data()?;
        write_header(&*old.file, &header)?;
        old.file.sync_data()?;
        Ok(Some(Segment::new(number, old.name.clone(), header, old.file.clone())))
    }

    fn mark_freed(&self, old: &Segment) -> io::Result<()> {
        let size_bytes = old.file.len()?;
        write_header(&*old.file, &SegmentHeader { size_bytes, ..old.header }.freed())?;
        old.file.sync_data()
    }

    /// Marks a segment as freed, synced, and removes it. Were only the name removed, and a later segment's name
    /// with it, a crash could bring this one back without what ended its messages.
    fn remove(&self, old: &Segment) -> io::Result<()> {
        self.mark_freed(old)?;
        self.forget_index(old);
        self.forget_mark(old);
        done_before(self.disk.remove(&old.name))?;
        self.disk.sync_dir()?;
        self.lock().segment_count -= 1;
        Ok(())
    }

    /// Under a name that is not the log's, what is in it can be rescued and does not come back.
    fn quarantine_one(&self, old: &Segment) -> io::Result<String> {
        let name = old.name.replace(".seg", DAMAGED);
        tracing::warn!("{} is damaged: renamed to {name}", old.name);
        self.forget_index(old);
        // Whoever brings the file back brings it to where other segments were.
        self.mark_parked([old.name.as_str()].into_iter(), Mark::Damaged)?;
        done_before(self.disk.rename(&old.name, &name))?;
        self.sync_names()?;
        self.lock().segment_count -= 1;
        Ok(name)
    }

    /// Removes the index file of a segment. If the removal fails, the file is not used, and the next start removes
    /// it.
    fn forget_index(&self, old: &Segment) {
        if old.is_indexed {
            let _ = self.disk.remove(&segment_index::name_of(&old.name));
        }
    }

    fn forget_mark(&self, old: &Segment) {
        // One that stays goes at the next start, when its segment is gone; a segment that is used again was sound.
        if old.is_marked {
            let _ = self.disk.remove(&mark_of(&old.name, Mark::Unread));
        }
    }

    fn header(&self, sequence: u64, size_bytes: u64) -> io::Result<SegmentHeader> {
        Ok(SegmentHeader::new(sequence, self.disk.random()?, size_bytes))
    }
}

/// The reason why a segment was parked. It decides what a later start may do with the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mark {
    /// A part of it could not be read: it is used again when all of it can be.
    Unread,
    /// A part of it is damaged: it is quarantined when nothing in it is needed.
    Damaged,
}

/// The file that says that a segment was parked, and why.
pub(super) fn mark_of(segment: &str, why: Mark) -> String {
    segment.replace(".seg", MARKS[why as usize])
}

/// The stem of the segment that a file says was parked, and why, if it is such a file.
pub(super) fn parse_mark(name: &str) -> Option<(&str, Mark)> {
    [Mark::Unread, Mark::Damaged]
        .into_iter()
        .find_map(|why| Some((name.strip_suffix(MARKS[why as usize])?, why)))
}

/// Writes a header and its copy. The copy goes first: whatever a crash leaves of the two, the newer one counts.
fn write_header(file: &dyn File, header: &SegmentHeader) -> io::Result<()> {
    for place in [HeaderPlace::Last, HeaderPlace::First] {
        file.write_at(place.offset(header.size_bytes), &header.encode(place))?;
    }
    Ok(())
}

/// The name is gone when this was done before, and what came after it failed.
pub(super) fn done_before(done: io::Result<()>) -> io::Result<()> {
    done.or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })
}
