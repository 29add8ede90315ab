//! The changes of one batch of commits, message by message, computed before any of them is made.

use super::{
    Shared, envelope,
    index::{Index, Slot},
    intent::Step,
    line::Lines,
    note::{self, Append, Note},
};
use crate::{ControlOp, Entry, RecipientState, Recovered, Totals, mutant::Mutant};
use bytes::Bytes;
use mail::{Message, Part, QueueId, SharedMessage};
use std::collections::HashMap;

/// More files wait for the next batch: a message should not wait for a thousand others.
const FILES_MAX: usize = 512;
/// More bytes, too.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a batch writes to one message's envelope file.
pub(super) struct ChangedMessage {
    pub(super) id: QueueId,
    pub(super) dir: u16,
    /// Offset of `lines` in the envelope file.
    pub(super) base: u64,
    pub(super) lines: Vec<u8>,
    /// The new message; its lines are the whole file.
    pub(super) accepted: Option<SharedMessage>,
    pub(super) ends: bool,
    /// A transaction changes it together with others.
    is_joint: bool,
}

/// Content to be written to a file of its own.
pub(super) struct NewChunk {
    pub(super) chunk_id: u64,
    pub(super) dir: u16,
    pub(super) bytes: Bytes,
}

pub(super) struct CommitBatch {
    number: u64,
    /// Queue directory of everything new: each further directory would need a further sync.
    queue: Option<usize>,
    pub(super) changed: Vec<ChangedMessage>,
    by_id: HashMap<u64, usize>,
    pub(super) chunks: Vec<NewChunk>,
    /// Chunk files that are needed no longer.
    pub(super) forgotten: Vec<(u64, u16)>,
    bytes: usize,
    /// Bytes, in whole blocks, that were reserved for all this.
    pub(super) blocks: u64,
    /// Numbers that the changes add to the totals.
    pub(super) counted: Totals,
}

impl CommitBatch {
    pub(super) fn new(number: u64) -> Self {
        let (changed, by_id, chunks, forgotten) = (Vec::new(), HashMap::new(), Vec::new(), Vec::new());
        let counted = Totals::default();
        Self { number, queue: None, changed, by_id, chunks, forgotten, bytes: 0, blocks: 0, counted }
    }

    pub(super) fn is_full(&self) -> bool {
        self.changed.len() + self.chunks.len() >= FILES_MAX || self.bytes >= BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        let changes_nothing = self.changed.is_empty() && self.chunks.is_empty() && self.forgotten.is_empty();
        changes_nothing && self.counted == Totals::default()
    }

    fn dir_for(&mut self, number: u64, shared: &Shared, index: &Index) -> u16 {
        let queue = *self.queue.get_or_insert_with(|| shared.queues.choose(number, &index.pending));
        shared.queues.dir_in(queue, number)
    }

    pub(super) fn chunk(&mut self, shared: &Shared, chunk_id: u64, bytes: Bytes) {
        let index = shared.index();
        // Abandoned before it was written?
        if index.chunks.contains_key(&chunk_id) {
            let dir = self.dir_for(shared.ordinal_of(chunk_id), shared, &index);
            self.bytes += bytes.len();
            self.chunks.push(NewChunk { chunk_id, dir, bytes });
        }
    }

    pub(super) fn transaction(&mut self, shared: &Shared, entries: Vec<Entry>) {
        let mut together: Vec<usize> = Vec::new();
        for entry in entries {
            let mut counted = Totals::default();
            counted.count(&entry);
            let is_count = matches!(entry, Entry::Count(_));
            let at = self.entry(shared, entry);
            if is_count || at.is_some() {
                self.counted.add(&counted);
            }
            together.extend(at);
        }
        together.sort_unstable();
        together.dedup();
        if together.len() > 1 {
            together.iter().for_each(|at| self.changed[*at].is_joint = true);
        }
    }

    /// Adds an entry. Returns the index of the message that it changes; `None` if there is no such message.
    fn entry(&mut self, shared: &Shared, entry: Entry) -> Option<usize> {
        match entry {
            Entry::Accept(message) => self.accept(shared, message),
            Entry::Import(found) => {
                let at = self.accept(shared, found.message.clone())?;
                self.note(shared, found.message.id, &past(&found))?;
                Some(at)
            }
            Entry::Count(_) => None,
            Entry::Outcome { .. } if shared.mutant.is(Mutant::DropOutcome) => None,
            Entry::Outcome { id, last: true, .. } | Entry::Control { id, op: ControlOp::Delete } => {
                let at = self.touch(shared, id)?;
                self.changed[at].ends = true;
                Some(at)
            }
            Entry::Outcome { id, results, last: false } => {
                self.note(shared, id, &[Note::Outcomes(shared.now(), results)])
            }
            Entry::Control { id, op: ControlOp::Hold(reason) } => {
                self.note(shared, id, &[Note::Held(Some(reason))])
            }
            Entry::Control { id, op: ControlOp::Release } => self.note(shared, id, &[Note::Held(None)]),
        }
    }

    fn accept(&mut self, shared: &Shared, message: SharedMessage) -> Option<usize> {
        let id = message.id;
        let index = shared.index();
        if self.by_id.contains_key(&id.0) || index.messages.contains_key(&id.0) {
            tracing::error!("{id} is accepted a second time: the first stays");
            return None;
        }
        let mut lines = Vec::new();
        let sum_of = |chunk_id| index.chunks.get(&chunk_id).map_or(0, |chunk| chunk.sum);
        envelope::write(&mut lines, shared.checksum_of(id.0), &message, sum_of);
        let dir = self.dir_for(id.0, shared, &index);
        self.bytes += lines.len() + memory_bytes(&message);
        let accepted = Some(message);
        Some(self.enter(ChangedMessage { id, dir, base: 0, lines, accepted, ends: false, is_joint: false }))
    }

    fn touch(&mut self, shared: &Shared, id: QueueId) -> Option<usize> {
        if let Some(at) = self.by_id.get(&id.0) {
            return Some(*at).filter(|at| !self.changed[*at].ends);
        }
        let (dir, base) = {
            let index = shared.index();
            let slot = index.messages.get(&id.0)?;
            (slot.dir, slot.envelope_bytes)
        };
        let lines = Vec::new();
        Some(self.enter(ChangedMessage {
            id,
            dir,
            base,
            lines,
            accepted: None,
            ends: false,
            is_joint: false,
        }))
    }

    fn enter(&mut self, changed: ChangedMessage) -> usize {
        let at = self.changed.len();
        self.by_id.insert(changed.id.0, at);
        self.changed.push(changed);
        at
    }

    fn note(&mut self, shared: &Shared, id: QueueId, notes: &[Note]) -> Option<usize> {
        let at = self.touch(shared, id)?;
        let changed = &mut self.changed[at];
        // All that the batch appends is one append; what is new was never there without it.
        let base = if changed.accepted.is_some() { changed.lines.len() as u64 } else { changed.base };
        let append = Append { base, batch: self.number };
        let here = changed.base + changed.lines.len() as u64;
        let mut lines = Vec::new();
        let mut to = Lines::new(&mut lines, shared.checksum_of(id.0), here);
        notes.iter().for_each(|note| note::write(&mut to, append, note));
        self.bytes += lines.len();
        changed.lines.extend(lines);
        Some(at)
    }

    /// Returns the steps that must be done for several messages or for none; empty if at most one message is
    /// concerned.
    pub(super) fn joint_steps(&self) -> Vec<Step> {
        let step = |t: &ChangedMessage| match (&t.accepted, t.ends) {
            (Some(_), true) => None,
            (Some(_), false) => Some(Step::Finish(t.id)),
            (None, true) => Some(Step::Remove(t.id)),
            (None, false) => (!t.lines.is_empty()).then(|| Step::Append(t.id, t.base, t.lines.clone())),
        };
        let steps: Vec<Step> = self.changed.iter().filter(|t| t.is_joint).filter_map(step).collect();
        if steps.len() > 1 { steps } else { Vec::new() }
    }
}

impl ChangedMessage {
    /// Are there files to be written for it?
    pub(super) fn is_new(&self) -> bool {
        self.accepted.is_some() && !self.ends
    }

    /// Returns the message's entry in the index, after the batch.
    pub(super) fn slot(&self, message: &Message) -> Slot {
        let chunk_id = |part: &Part| part.chunk_id().map(|chunk_id| chunk_id.0);
        Slot {
            dir: self.dir,
            envelope_bytes: self.lines.len() as u64,
            content_bytes: memory_bytes(message) as u64,
            chunks: message.content.parts().iter().filter_map(chunk_id).collect(),
        }
    }
}

/// Returns the state that a message had in another spool, as notes.
fn past(found: &Recovered) -> Vec<Note> {
    let states = (0..).zip(&found.recipients).filter(|(_, state)| **state != RecipientState::default());
    let mut notes: Vec<Note> = states.map(|(index, state)| Note::Past(index, state.clone())).collect();
    notes.extend(found.held.clone().map(|reason| Note::Held(Some(reason))));
    notes
}

/// Returns the size of the content that is in memory, in bytes.
pub(super) fn memory_bytes(message: &Message) -> usize {
    message.content.parts().iter().map(|p| if let Part::Memory(b) = p { b.len() } else { 0 }).sum()
}
