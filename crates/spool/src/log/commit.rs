//! The commit thread: takes everything that waits, writes it once, syncs once, says so, and begins
//! again. So commits clock themselves: at once when idle, and as many transactions together as came
//! in while the last sync was under way.

use super::{
    Shared, Work,
    index::{Location, Segment, chunk_ids},
};
use crate::{
    CommitSeq, ControlOp, Entry, SpoolFailure, Totals,
    disk::lacks_room,
    format::{
        block::{ALIGN, Chain, FIRST_BATCH, begin_batch, end_batch},
        message::{write_message, write_message_again, write_results, write_totals},
        record::{self, Kind},
    },
    mutant::Mutant,
};
use mail::UnixMillis;
use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// A batch is closed at this size; more waits for the next.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// A full log looks for room so many times a segment.
const PARTS: u64 = 16;

/// What the index has to learn of a record once it is durable.
struct Written {
    kind: Kind,
    name: u64,
    offset: u32,
    length: u32,
    chunks: Vec<u64>,
    /// A copy by compaction of a chunk that the index had then.
    is_copy: bool,
    /// The first of the records that are kept of a message: those of before go.
    replaces_kept: bool,
}

/// The commit thread of the log: the segment that it writes, and its one buffer.
pub(crate) struct LogCommitter {
    shared: Arc<Shared>,
    /// The number, file and position of the segment in use; the index holds the segment itself.
    current: Current,
    batch_sequence: u64,
    buffer: Vec<u8>,
    written: Vec<Written>,
    chain: Chain,
    /// Numbers that the entries of the batch add to the totals.
    counted: Totals,
    /// The segment whose newest totals are the newest of all; none before the first commit.
    totals_in: Option<u32>,
}

struct Current {
    number: u32,
    seed: u64,
    size: u64,
    file: Arc<dyn crate::disk::File>,
    position: u64,
}

impl Current {
    fn of(segment: &Segment) -> Self {
        Self {
            number: segment.number,
            seed: segment.header.seed,
            size: segment.header.end(),
            file: segment.file.clone(),
            position: FIRST_BATCH,
        }
    }
}

impl LogCommitter {
    /// Begins in a fresh segment, which enters the index, with room for so many bytes of records.
    pub(crate) fn new(
        shared: Arc<Shared>,
        batch_sequence: u64,
        first_bytes: u64,
    ) -> Result<Self, SpoolFailure> {
        let segment = if first_bytes > shared.record_bytes_max() {
            shared.allocator.take_large(first_bytes + ALIGN as u64)
        } else {
            shared.allocator.take_first()
        };
        let segment = segment.map_err(SpoolFailure::Io)?;
        let current = Current::of(&segment);
        shared.index().write_to(current.number, segment);
        let (buffer, written, chain) = (Vec::new(), Vec::new(), Chain::default());
        let (counted, totals_in) = (Totals::default(), None);
        Ok(Self { shared, current, batch_sequence, buffer, written, chain, counted, totals_in })
    }

    /// Writes records again that were found behind the last proven batch.
    pub(crate) fn write_again(
        &mut self,
        records: &[super::recover::UnsyncedRecord],
    ) -> Result<(), SpoolFailure> {
        self.begin();
        for r in records {
            let view = record::Record { kind: r.kind, name: r.name, body: &r.body };
            let chunks = super::index::chunks_of(&view);
            self.record(r.kind, r.name, chunks, |out| out.extend_from_slice(&r.body));
        }
        // As they were, without totals of this start: a copy with other records would be damage.
        self.write_batch()
    }

    /// Runs the commit thread, until the log is closed or has failed.
    pub(crate) fn run(mut self) {
        let shared = self.shared.clone();
        let commit = |works, commit_seq| self.serve(works, commit_seq);
        shared.group_commit.run(|| shared.outcome_delay(), commit);
    }

    /// One round; `false` when it failed, which is final.
    pub(crate) fn serve(&mut self, works: Vec<Work>, commit_seq: CommitSeq) -> bool {
        if self.shared.mutant.is(Mutant::AnswerEarly) {
            self.shared.group_commit.progress.publish(commit_seq);
        }
        if self.shared.mutant.is(Mutant::ReuseEarly) {
            self.reuse_early(&works);
        }
        if let Err(failure) = self.write_works(works) {
            self.shared.poison(failure);
            return false;
        }
        self.shared.group_commit.progress.publish(commit_seq);
        self.shared.recycle_dead();
        true
    }

    /// Breaks the rule that [`Mutant::ReuseEarly`] names.
    fn reuse_early(&mut self, works: &[Work]) {
        let mut index = self.shared.index();
        for work in works {
            let Work::Transaction(entries) = work else { continue };
            for entry in entries {
                if let Entry::Outcome { id, last: true, .. } = entry {
                    let nowhere = Location { segment: 0, offset: 0, length: 0 };
                    index.apply(Kind::Tombstone, id.0, nowhere, &[]);
                }
            }
        }
        drop(index);
        self.shared.recycle_dead();
        while !self.shared.allocator.is_idle() && self.shared.allocator.work() {}
    }

    fn write_works(&mut self, works: Vec<Work>) -> Result<(), SpoolFailure> {
        self.begin();
        for work in works {
            match work {
                Work::Transaction(entries) => {
                    let size = entries.iter().map(entry_bytes).sum();
                    self.make_room(size)?;
                    entries.iter().for_each(|entry| self.entry(entry));
                }
                Work::Chunk(chunk_id, bytes) => {
                    self.make_room(bytes.len() + record::OVERHEAD_BYTES)?;
                    self.record(Kind::Chunk, chunk_id, Vec::new(), |out| out.extend_from_slice(&bytes));
                }
                Work::Move(moved) => {
                    self.settle_index_of(moved.name)?;
                    let size = super::message_bytes(&moved.folded.message)
                        + super::states_bytes(&moved.folded.states);
                    let is_still = self.shared.index().messages.get(&moved.name) == Some(&moved.entry);
                    if is_still && self.make_room_for_move(size)? {
                        self.moved(&moved);
                    }
                }
                Work::MoveKept(moved) => {
                    self.settle_index_of(moved.id)?;
                    let is_still = self.shared.index().has_records(moved.id, moved.is_live, &moved.kept);
                    if is_still && self.make_room_for_move(moved.bytes())? {
                        self.moved_kept(&moved);
                    }
                }
                Work::MoveChunk(moved) => {
                    let is_still = self.shared.index().chunks.get(&moved.chunk_id) == Some(&moved.at);
                    if is_still && self.make_room_for_move(moved.bytes.len() + record::OVERHEAD_BYTES)? {
                        self.record(Kind::Chunk, moved.chunk_id, Vec::new(), |out| {
                            out.extend_from_slice(&moved.bytes);
                        });
                        self.written.last_mut().expect("it was written just now").is_copy = true;
                    }
                }
            }
        }
        self.commit()
    }

    fn begin(&mut self) {
        self.buffer.clear();
        self.written.clear();
        self.chain = Chain::default();
        begin_batch(&mut self.buffer);
    }

    /// A transaction stays within one batch: when it does not fit, what is there goes first.
    fn make_room(&mut self, size: usize) -> Result<(), SpoolFailure> {
        let full = self.buffer.len() + size > BATCH_BYTES;
        if (full || !self.fits(self.buffer.len() + size)) && !self.written.is_empty() {
            self.commit()?;
            self.begin();
        }
        if !self.fits(self.buffer.len() + size) {
            self.next_segment()?;
        }
        Ok(())
    }

    /// With its past, or since segments are smaller now, a message may be too large for a segment. It gets one of its
    /// own where the disk has room for that; else it stays where it is.
    fn make_room_for_move(&mut self, size: usize) -> Result<bool, SpoolFailure> {
        if size as u64 <= self.shared.record_bytes_max() {
            // A move waits for no segment: what it is done for may be the only thing that gives one.
            if !self.fits(self.buffer.len() + size) && !self.shared.allocator.has_next() {
                return Ok(false);
            }
            return self.make_room(size).map(|()| true);
        }
        self.commit()?;
        self.begin();
        let Ok(segment) = self.shared.allocator.take_large((size + ALIGN) as u64) else { return Ok(false) };
        self.current = Current::of(&segment);
        self.shared.index().write_to(self.current.number, segment);
        Ok(true)
    }

    fn fits(&self, bytes: usize) -> bool {
        self.current.position + (bytes + ALIGN).next_multiple_of(ALIGN) as u64 <= self.current.size
    }

    fn next_segment(&mut self) -> Result<(), SpoolFailure> {
        let segment = self.shared.allocator.take().map_err(SpoolFailure::Io)?;
        self.current = Current::of(&segment);
        self.shared.index().write_to(self.current.number, segment);
        super::compact::start_compaction_if_due(&self.shared);
        Ok(())
    }

    /// Numbers batches from here.
    pub(crate) fn at_sequence(mut self, batch_sequence: u64) -> Self {
        self.batch_sequence = batch_sequence;
        self
    }

    fn record(&mut self, kind: Kind, name: u64, chunks: Vec<u64>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.buffer.len();
        let sum =
            record::append(&mut self.buffer, self.current.position, self.current.seed, kind, name, write);
        self.chain.add(sum);
        let offset = (self.current.position + start as u64) as u32;
        let length = (self.buffer.len() - start) as u32;
        self.written.push(Written {
            kind,
            name,
            offset,
            length,
            chunks,
            is_copy: false,
            replaces_kept: false,
        });
    }

    fn entry(&mut self, entry: &Entry) {
        self.counted.count(entry);
        match entry {
            Entry::Count(_) => {}
            Entry::Accept(message) => {
                let chunks = chunk_ids(&message.content);
                self.record(Kind::Message, message.id.0, chunks, |out| write_message(out, message));
            }
            Entry::Import(found) => {
                let (message, past) = (&found.message, (&found.recipients[..], found.held.as_deref()));
                let chunks = chunk_ids(&message.content);
                self.record(Kind::Message, message.id.0, chunks, |out| {
                    write_message_again(out, message, Some(past), &[]);
                });
            }
            Entry::Outcome { .. } if self.shared.mutant.is(Mutant::DropOutcome) => {}
            Entry::Outcome { id, last: true, .. } | Entry::Control { id, op: ControlOp::Delete } => {
                self.record(Kind::Tombstone, id.0, Vec::new(), |_| {});
            }
            Entry::Outcome { id, results, last: false } => {
                let now = self.now();
                self.record(Kind::Outcome, id.0, Vec::new(), |out| write_results(out, now, results));
            }
            Entry::Control { id, op: change } => {
                let reason = if let ControlOp::Hold(reason) = change { Some(&**reason) } else { None };
                if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
                    self.record(Kind::Hold, id.0, Vec::new(), |out| {
                        out.push(super::HOLD_REASON);
                        out.extend_from_slice(reason.as_bytes());
                    });
                }
                self.record(Kind::Hold, id.0, Vec::new(), |out| out.push(u8::from(reason.is_some())));
            }
        }
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.shared.allocator.disk().clock().as_millis() as u64)
    }

    fn moved(&mut self, moved: &super::compact::Relocated) {
        let chunks = moved.entry.extras.as_ref().map(|more| more.chunks.clone()).unwrap_or_default();
        let past = (&moved.folded.states[..], moved.folded.held.as_deref());
        self.record(Kind::Message, moved.name, chunks, |out| {
            write_message_again(out, &moved.folded.message, Some(past), &moved.folded.unknown);
        });
    }

    /// All records that are kept of a message, in their order.
    fn moved_kept(&mut self, moved: &super::compact::RelocatedNotes) {
        let first = self.written.len();
        for ((kind, _), body) in moved.kept.notes.iter().zip(&moved.bodies) {
            if let Some(body) = body {
                self.record(*kind, moved.id, Vec::new(), |out| out.extend_from_slice(body));
            }
        }
        if moved.kept.done.is_some() {
            self.record(Kind::Tombstone, moved.id, Vec::new(), |_| {});
        }
        if let Some(first) = self.written.get_mut(first) {
            first.replaces_kept = true;
        }
    }

    /// Before a message's move is judged, what came before it must be in the index: it may have ended it.
    fn settle_index_of(&mut self, message: u64) -> Result<(), SpoolFailure> {
        if self.written.iter().any(|w| w.name == message && w.kind != Kind::Chunk) {
            self.commit()?;
            self.begin();
        }
        Ok(())
    }

    /// Appends the totals if the batch changes them, or is the first in its segment: so only the segment in use has
    /// totals that are needed.
    fn append_totals(&mut self) {
        let is_changed = self.counted != Totals::default();
        let is_first = self.totals_in != Some(self.current.number) && !self.written.is_empty();
        if !is_changed && !is_first {
            return;
        }
        let totals = {
            let mut totals = self.shared.totals();
            totals.add(&std::mem::take(&mut self.counted));
            *totals
        };
        if !is_first && self.shared.mutant.is(Mutant::StaleTotals) {
            return;
        }
        self.totals_in = Some(self.current.number);
        self.record(Kind::Totals, self.batch_sequence, Vec::new(), |out| write_totals(out, &totals));
    }

    fn commit(&mut self) -> Result<(), SpoolFailure> {
        self.append_totals();
        self.write_batch()
    }

    /// Writes and syncs what is in the buffer, then tells the index.
    fn write_batch(&mut self) -> Result<(), SpoolFailure> {
        if self.written.is_empty() {
            return Ok(());
        }
        let current = &mut self.current;
        end_batch(&mut self.buffer, current.position, current.seed, self.batch_sequence, self.chain);
        if current.position + self.buffer.len() as u64 > current.size {
            // Recovery does not look for it there.
            let text = "the segment size is too small for one transaction";
            return Err(SpoolFailure::Unusable(text.to_owned()));
        }
        let sync_us = loop {
            match write_durably(current, &self.buffer) {
                Ok(sync_us) => break sync_us,
                // All of it is written again, so that no page counts that an earlier sync gave up.
                Err((doing, e)) if lacks_room(&e) => self.shared.await_room(doing, &e)?,
                Err((doing, e)) => return Err(SpoolFailure::Io(format!("{doing} the log: {e}"))),
            }
        };
        self.shared.note_room();
        probe::probe!(postrider, commit, self.written.len(), self.buffer.len(), sync_us);
        self.shared.group_commit.note_sync(sync_us);
        self.shared.group_commit.note_commit();
        current.position += self.buffer.len() as u64;
        self.batch_sequence += 1;
        let mut index = self.shared.index();
        for w in self.written.drain(..) {
            // Abandoned meanwhile.
            if w.is_copy && !index.chunks.contains_key(&w.name) {
                continue;
            }
            let at = Location { segment: current.number, offset: w.offset, length: w.length };
            if w.replaces_kept {
                index.forget_records(w.name);
            }
            index.apply(w.kind, w.name, at, &w.chunks);
        }
        let free = current.size - current.position;
        let part = |at: u64| at * PARTS / current.size;
        let is_further = part(current.position) != part(current.position - self.buffer.len() as u64);
        drop(index);
        self.shared.current_free.store(free, Ordering::Relaxed);
        if free < current.size / 2 {
            self.shared.allocator.request_next();
        }
        if is_further && self.shared.allocator.usable_count() == 0 {
            super::compact::start_compaction_if_due(&self.shared);
        }
        Ok(())
    }
}

/// Writes a batch at the position and syncs it. Returns the microseconds of the sync; an error with the call that
/// failed.
fn write_durably(current: &Current, batch: &[u8]) -> Result<u64, (&'static str, std::io::Error)> {
    current.file.write_at(current.position, batch).map_err(|e| ("write", e))?;
    let started = Instant::now();
    // A failure is final: the pages are marked clean, a second sync would say OK.
    current.file.sync_data().map_err(|e| ("sync", e))?;
    Ok(started.elapsed().as_micros() as u64)
}

/// At least what an entry takes in the batch.
pub(super) fn entry_bytes(entry: &Entry) -> usize {
    match entry {
        Entry::Accept(message) => super::message_bytes(message),
        Entry::Import(found) => {
            let reason = found.held.as_ref().map_or(0, |reason| 16 + reason.len());
            super::message_bytes(&found.message) + super::states_bytes(&found.recipients) + reason
        }
        Entry::Outcome { results, .. } => 64 + results.iter().map(|r| 32 + r.1.text.len()).sum::<usize>(),
        Entry::Control { op: ControlOp::Hold(reason), .. } => 128 + reason.len(),
        Entry::Control { .. } | Entry::Count(_) => 64,
    }
}
