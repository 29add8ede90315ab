//! Moves what still lives in the oldest segment to the end of the log, so that the segment can be
//! used again. Runs only when the log takes several times the room of what lives in it: each byte is
//! then moved once for several that were written.

use super::{
    Folded, Shared, Work,
    index::{Index, Location, MessageEntry, RetainedRecords},
    retain::each_record,
    segment_allocator::RESERVE,
    segment_index,
};
use crate::{
    CommitSeq, SpoolFailure,
    commit_queue::Urgency,
    format::record::{self, Kind},
    mutant::Mutant,
};
use bytes::Bytes;
use mail::QueueId;
use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, atomic::Ordering},
};

/// Segments that may be in use beyond what live records need.
const SLACK_SEGMENTS: u64 = 4;
/// The log may take so many times the room of its live records.
const ROOM_RATIO: u64 = 3;

/// A full log is cleaned where no more than so much is to be moved for what comes free.
const FULL_PERCENT: u64 = 50;
/// The percentage while outcomes have little room left.
const PRESSED_PERCENT: u64 = 87;
/// So much is moved together: a commit takes a block at least, whatever is in it.
const TOGETHER_BYTES: u64 = 1024 * 1024;

/// A message to be written again, as it was when it was read: if it changed since, the move is off.
pub(crate) struct Relocated {
    pub(crate) name: u64,
    pub(crate) entry: MessageEntry,
    pub(crate) folded: Folded,
}

/// A chunk to be written again, because its segment is to be freed.
pub(crate) struct RelocatedChunk {
    pub(crate) chunk_id: u64,
    pub(crate) at: Location,
    pub(crate) bytes: Bytes,
}

/// The records that are kept of a message which is not live, or whose own record is parked, to be written again.
pub(crate) struct RelocatedNotes {
    pub(crate) id: u64,
    /// The message is live, and these are its notes.
    pub(crate) is_live: bool,
    pub(crate) kept: RetainedRecords,
    /// Of its notes; those that come again later are left out.
    pub(crate) bodies: Vec<Option<Vec<u8>>>,
}

impl RelocatedNotes {
    /// At least what the records take in a batch.
    pub(crate) fn bytes(&self) -> usize {
        let bodies = self.bodies.iter().flatten();
        let bodies: usize = bodies.map(|body| record::OVERHEAD_BYTES + body.len()).sum();
        record::OVERHEAD_BYTES + bodies
    }
}

/// Is the oldest segment damaged? What is whole in it is moved, and then it is parked.
fn is_oldest_damaged(shared: &Shared) -> bool {
    let index = shared.index();
    let oldest = index.segments.first_key_value();
    oldest.is_some_and(|(number, oldest)| *number != index.current && oldest.is_damaged)
}

/// Is the log too large for what lives in it?
fn is_due(shared: &Shared) -> bool {
    if is_oldest_damaged(shared) && !shared.mutant.is(Mutant::KeepDamaged) {
        return true;
    }
    let size = shared.settings.segment_bytes;
    let (live, used) = {
        let index = shared.index();
        let live: Vec<u64> = index.segments.values().map(|segment| segment.live_bytes).collect();
        // Segments were larger or smaller once.
        (live, index.segments.values().map(|segment| segment.header.size_bytes).sum::<u64>())
    };
    if used > ROOM_RATIO * live.iter().sum::<u64>() + SLACK_SEGMENTS * size {
        return true;
    }
    if shared.allocator.usable_count() > 0 {
        return false;
    }
    let (ready, free) = (shared.allocator.ready_bytes(), shared.current_free.load(Ordering::Relaxed));
    // Behind the segment in use only a part of the reserve is left: outcomes must find room.
    let is_pressed = ready < RESERVE as u64 * size || free < size / 2;
    let most = if is_pressed { PRESSED_PERCENT } else { FULL_PERCENT };
    let has_room_for = |margin: u64| live.first().is_some_and(|oldest| ready + free >= oldest + margin);
    // What is moved needs room before it gives any, and leaves some empty at the end of segments.
    if has_room_for(size / 2) && is_thin(&live, size, most) {
        return true;
    }
    if shared.mutant.is(Mutant::SkipRound) {
        return false;
    }
    // In a round what comes free is what the next segment needs.
    let is_possible = ready >= size && has_room_for(size / 8);
    let gain = Gain::of(shared, free);
    shared.round().is_due(&gain, size, is_pressed, is_possible)
}

/// The part of a segment that stays empty at its end when it is filled with moved records: one in so many.
const WASTE_SHARE: u64 = 128;

/// The room that moving all live records of the log would give.
struct Gain {
    oldest: u32,
    current: u32,
    bytes: u64,
}

impl Gain {
    /// Computes the gain. `free_bytes` is the part of the segment in use that was not written yet.
    fn of(shared: &Shared, free_bytes: u64) -> Self {
        let index = shared.index();
        let oldest = index.segments.first_key_value().map_or(0, |(number, _)| *number);
        let bytes = index.segments.values().map(|segment| {
            let unused = if segment.number == index.current { free_bytes } else { 0 };
            let size = segment.header.size_bytes;
            // A segment that is full of live records gives nothing, and moving them wastes room.
            size.saturating_sub(segment.live_bytes + unused + size / WASTE_SHARE)
        });
        Self { oldest, current: index.current, bytes: bytes.sum() }
    }
}

/// The compaction of a whole full log, segment after segment. Where mail leaves a full log slowly, hardly anything comes
/// free in any one segment, while the records that end messages fill the reserve: the segments with those are given
/// back when everything before them was moved.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The last segment of the round that is under way.
    until: Option<u32>,
    /// The gain that was left when the last round had ended.
    left_bytes: u64,
}

impl Round {
    /// Begins a round where that gives half a segment more than was left after the last one. Returns whether a round is
    /// under way.
    fn is_due(&mut self, gain: &Gain, segment_bytes: u64, is_pressed: bool, is_possible: bool) -> bool {
        match self.until {
            Some(until) if is_possible && gain.oldest <= until => return true,
            Some(_) => (self.until, self.left_bytes) = (None, gain.bytes),
            None => self.left_bytes = self.left_bytes.min(gain.bytes),
        }
        let begins = is_pressed && is_possible && gain.bytes >= self.left_bytes + segment_bytes / 2;
        self.until = begins.then_some(gain.current);
        begins
    }
}

/// Do some segments at the old end, taken together, hold live records in at most `most_percent` of their room?
fn is_thin(live: &[u64], size: u64, most_percent: u64) -> bool {
    // The one that is written to is the last.
    let before = live.split_last().map_or(&[][..], |(_, before)| before);
    let mut sum = 0;
    (1..).zip(before).any(|(count, live)| {
        sum += live;
        sum * 100 <= count * size * most_percent
    })
}

/// A segment in which less lives than one part in so many costs next to nothing to compact.
const SPARSE_SHARE: u64 = 16;

/// After the compaction of a segment: is the next one to be compacted at once? A full log is compacted as long as
/// that gives room, and any log while that costs little.
pub(super) fn goes_on(shared: &Shared, compacted: u32) -> bool {
    let oldest = {
        let index = shared.index();
        index.segments.first_key_value().map(|(number, oldest)| (*number, oldest.live_bytes))
    };
    let is_worth_it = |live_bytes| {
        shared.allocator.usable_count() == 0 || live_bytes * SPARSE_SHARE <= shared.settings.segment_bytes
    };
    oldest.is_some_and(|(number, live_bytes)| number != compacted && is_worth_it(live_bytes))
        && is_due(shared)
}

fn compact_while_due(shared: &Shared) -> Result<(), SpoolFailure> {
    if !is_due(shared) {
        return Ok(());
    }
    loop {
        let compacted = compact(shared)?;
        shared.recycle_dead();
        if shared.group_commit.queue.is_drained() || !goes_on(shared, compacted) {
            return Ok(());
        }
    }
}

/// Starts a thread that cleans the oldest segment and makes the indexes that are due, unless one is at
/// it or there is no need.
pub(crate) fn start_compaction_if_due(shared: &Arc<Shared>) {
    if shared.compacting.load(Ordering::Relaxed) {
        return;
    }
    let is_wanted = is_due(shared) || !shared.allocator.is_single_stepped() && segment_index::is_due(shared);
    if !is_wanted || shared.compacting.swap(true, Ordering::Relaxed) || shared.allocator.is_single_stepped() {
        return;
    }
    let own = shared.clone();
    let run = move || {
        own.note_compaction(compact_while_due(&own));
        while !own.group_commit.queue.is_drained() && segment_index::make_one(&own, false) {}
        own.compacting.store(false, Ordering::Relaxed);
    };
    let poisoned = shared.clone();
    match crate::parallel::start_thread("spool-compact", run, move |failure| poisoned.poison(failure)) {
        // The one before has said that it is through.
        Ok(thread) => *shared.compactor() = Some(thread),
        Err(failure) => {
            tracing::warn!("{failure}");
            shared.compacting.store(false, Ordering::Relaxed);
        }
    }
}

fn warn(failure: &SpoolFailure) {
    tracing::warn!("move messages out of an old segment: {failure}");
}

/// Compacts the oldest segment; its number.
fn compact(shared: &Shared) -> Result<u32, SpoolFailure> {
    let mut compaction = Compaction::of_oldest(shared)?;
    while let Some(commit_seq) = compaction.next(shared)? {
        shared.group_commit.progress.wait_blocking(commit_seq)?;
    }
    Ok(compaction.segment)
}

impl Shared {
    /// Notes why room cannot be recycled now, and tells when that changes. It is tried again when more was
    /// written.
    pub(super) fn note_compaction(&self, done: Result<(), SpoolFailure>) {
        let why = done.err().map(|failure| failure.to_string());
        let mut faults = self.faults();
        if faults.compaction != why {
            match &why {
                Some(why) => tracing::error!("compaction of the log pauses: {why}"),
                None => tracing::info!("compaction of the log continues"),
            }
            faults.compaction = why;
        }
    }

    /// Parks a segment in which nothing is left but what is damaged: it would keep all that come after it.
    ///
    /// # Errors
    /// When something is left that could not be read for another reason, or a later segment cannot be read.
    fn park_damaged(&self, compaction: &mut Compaction) -> Result<(), SpoolFailure> {
        let number = compaction.segment;
        let (name, count) = {
            let mut index = self.index();
            let is_oldest = index.segments.first_key_value().is_some_and(|(oldest, _)| *oldest == number);
            let left = records_in(&index, number);
            if let Some(failure) = compaction.failed.take() {
                return Err(failure);
            }
            // One that has become too large for a segment stays, and is whole.
            let is_lost = |(kind, name): &(Kind, u64)| compaction.corrupt.contains(&(*kind as u8, *name));
            if !is_oldest || number == index.current || !left.iter().all(is_lost) {
                return Ok(());
            }
            let Some(segment) = index.segments.get_mut(&number) else { return Ok(()) };
            if left.is_empty() && !segment.is_damaged {
                return Ok(());
            }
            segment.is_damaged = true;
            (segment.name.clone(), left.len())
        };
        self.park_oldest(number)?;
        tracing::error!(
            "{name} is damaged: {count} messages, or parts of some, cannot be read; it is left as it is until the \
             next start reads it again"
        );
        self.recycle_dead();
        Ok(())
    }
}

/// A compaction of one segment, whose records are moved one by one.
#[derive(Default)]
pub(crate) struct Compaction {
    pub(super) segment: u32,
    records: VecDeque<(Kind, u64)>,
    /// True if the records are those that the index has: a record may be readable by itself although its batch
    /// cannot be read as a whole.
    is_again: bool,
    /// Of what is left, records that are damaged.
    corrupt: HashSet<(u8, u64)>,
    /// Something that the disk did not give back.
    failed: Option<SpoolFailure>,
}

/// All that is live in a segment, according to the index.
fn records_in(index: &Index, segment: u32) -> Vec<(Kind, u64)> {
    let messages = index.messages.iter().filter(|(_, entry)| entry.at.segment == segment);
    let chunks = index.chunks.iter().filter(|(_, at)| at.segment == segment);
    let records = messages.map(|(id, _)| (Kind::Message, *id));
    let is_here = |kept: &RetainedRecords| kept.locations().any(|at| at.segment == segment);
    let is_note_here = |entry: &MessageEntry| {
        let notes = entry.extras.iter().flat_map(|more| &more.notes);
        index.parked.contains_key(&entry.at.segment) && notes.into_iter().any(|at| at.segment == segment)
    };
    let noted = index.messages.iter().filter(|_| !index.parked.is_empty());
    let noted = noted.filter(|(_, entry)| is_note_here(entry)).map(|(id, _)| (Kind::Outcome, *id));
    let kept =
        index.retention.kept.iter().filter(|(_, kept)| is_here(kept)).map(|(id, _)| (Kind::Tombstone, *id));
    let mut all: Vec<_> = records
        .chain(chunks.map(|(chunk_id, _)| (Kind::Chunk, *chunk_id)))
        .chain(noted)
        .chain(kept)
        .collect();
    // Maps have no order of their own, and a simulation wants one.
    all.sort_unstable();
    all
}

impl Compaction {
    /// All that was written to the oldest segment. Nothing when the log has none.
    pub(crate) fn of_oldest(shared: &Shared) -> Result<Self, SpoolFailure> {
        let oldest = shared.index().segments.first_key_value().map(|(_, segment)| segment.clone());
        let Some(oldest) = oldest else { return Ok(Self::default()) };
        let segment = oldest.number;
        let (mut seen, mut records) = (HashSet::new(), VecDeque::new());
        let read = each_record(&oldest, |record| {
            let is_moved = matches!(record.kind, Kind::Message | Kind::Chunk);
            if is_moved && seen.insert((record.kind, record.name)) {
                records.push_back((record.kind, record.name));
            }
        });
        // What the disk does not give back as a whole is looked for record by record.
        let is_again = read.is_err();
        if is_again {
            records = records_in(&shared.index(), segment).into();
        }
        Ok(Self { segment, records, is_again, ..Self::default() })
    }

    /// Has the next records that still live written again; `None` at the end, when all that can be moved
    /// have been.
    ///
    /// # Errors
    /// At the end, when the disk did not give something back.
    pub(crate) fn next(&mut self, shared: &Shared) -> Result<Option<CommitSeq>, SpoolFailure> {
        loop {
            let commit_seq = self.next_together(shared);
            if commit_seq.is_some() || shared.mutant.is(Mutant::KeepDamaged) {
                return Ok(commit_seq);
            }
            if self.is_again {
                return shared.park_damaged(self).map(|()| None);
            }
            *self = Self { segment: self.segment, is_again: true, ..Self::default() };
            self.records = records_in(&shared.index(), self.segment).into();
        }
    }

    fn next_together(&mut self, shared: &Shared) -> Option<CommitSeq> {
        let most = TOGETHER_BYTES.min(shared.settings.segment_bytes / 4);
        let (mut bytes, mut last) = (0, None);
        while bytes < most
            && let Some((commit_seq, length)) = self.next_listed(shared)
        {
            bytes += length;
            last = Some(commit_seq);
        }
        last.inspect(|commit_seq| shared.group_commit.queue.request_commit(*commit_seq))
    }

    fn next_listed(&mut self, shared: &Shared) -> Option<(CommitSeq, u64)> {
        while let Some((kind, name)) = self.records.pop_front() {
            let moved = match kind {
                Kind::Chunk => move_chunk(shared, self.segment, name),
                Kind::Tombstone => move_kept(shared, name),
                Kind::Outcome => move_notes(shared, name),
                _ => move_message(shared, self.segment, name),
            };
            match moved {
                Ok(None) => {}
                Ok(moved) => return moved,
                // It stays; the others can go.
                Err(failure) => match failure {
                    SpoolFailure::Corrupt(_) => {
                        self.corrupt.insert((kind as u8, name));
                        warn(&failure);
                    }
                    other => self.failed = Some(other),
                },
            }
        }
        None
    }
}

/// Writes a message again, and returns its commit sequence number and size; nothing when it is not there any more.
fn move_message(shared: &Shared, segment: u32, name: u64) -> Result<Option<(CommitSeq, u64)>, SpoolFailure> {
    let entry = shared.index().messages.get(&name).filter(|entry| entry.at.segment == segment).cloned();
    let Some(entry) = entry else { return Ok(None) };
    let mut folded = shared.fold(QueueId(name), &entry, true)?;
    // Written now, the message would be without what only cannot be read for the moment.
    if let Some(failure) = folded.lost.take_if(|failure| matches!(failure, SpoolFailure::Io(_))) {
        return Err(failure);
    }
    let bytes = u64::from(entry.at.length);
    let moved = Relocated { name, entry, folded };
    let commit_seq = shared.group_commit.queue.push(
        shared.group_commit.queue.lock(),
        Work::Move(Box::new(moved)),
        bytes,
        Urgency::Lazy,
    );
    Ok(Some((commit_seq, bytes)))
}

fn move_chunk(
    shared: &Shared,
    segment: u32,
    chunk_id: u64,
) -> Result<Option<(CommitSeq, u64)>, SpoolFailure> {
    let at = shared.index().chunks.get(&chunk_id).filter(|at| at.segment == segment).copied();
    let Some(at) = at else { return Ok(None) };
    let bytes = Bytes::from(shared.record(at, Kind::Chunk, chunk_id)?);
    let length = bytes.len() as u64;
    let moved = RelocatedChunk { chunk_id, at, bytes };
    let commit_seq = shared.group_commit.queue.push(
        shared.group_commit.queue.lock(),
        Work::MoveChunk(Box::new(moved)),
        length,
        Urgency::Lazy,
    );
    Ok(Some((commit_seq, length)))
}

fn move_kept(shared: &Shared, id: u64) -> Result<Option<(CommitSeq, u64)>, SpoolFailure> {
    let kept = shared.index().retention.kept.get(&id).cloned();
    let Some(kept) = kept else { return Ok(None) };
    let read = |(kind, at): &(Kind, Location)| shared.record(*at, *kind, id);
    let bodies = without_copies(kept.notes.iter().map(read).collect::<Result<_, _>>()?);
    Ok(Some(push_kept(shared, RelocatedNotes { id, is_live: false, kept, bodies })))
}

/// The notes of a message whose own record stays in a parked segment.
fn move_notes(shared: &Shared, id: u64) -> Result<Option<(CommitSeq, u64)>, SpoolFailure> {
    let entry = shared.index().messages.get(&id).cloned();
    let Some(more) = entry.and_then(|entry| entry.extras) else { return Ok(None) };
    let (mut kept, mut bodies) = (RetainedRecords::default(), Vec::new());
    for at in &more.notes {
        let (kind, body) = shared.any_record(*at, id)?;
        kept.notes.push((kind, *at));
        bodies.push(body);
    }
    let bodies = without_copies(bodies);
    Ok(Some(push_kept(shared, RelocatedNotes { id, is_live: true, kept, bodies })))
}

/// Of notes that say the same only the last: the others were written again.
fn without_copies(bodies: Vec<Vec<u8>>) -> Vec<Option<Vec<u8>>> {
    let is_last: Vec<bool> = (1..).zip(&bodies).map(|(next, body)| !bodies[next..].contains(body)).collect();
    bodies.into_iter().zip(is_last).map(|(body, is_last)| is_last.then_some(body)).collect()
}

fn push_kept(shared: &Shared, moved: RelocatedNotes) -> (CommitSeq, u64) {
    let length = moved.bytes() as u64;
    let commit_seq = shared.group_commit.queue.push(
        shared.group_commit.queue.lock(),
        Work::MoveKept(Box::new(moved)),
        length,
        Urgency::Lazy,
    );
    (commit_seq, length)
}
