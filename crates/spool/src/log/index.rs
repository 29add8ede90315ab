//! The index of the log, in memory: the segments with their live bytes, the messages, the chunks. Recovery builds the
//! index from the log alone.

use crate::{
    disk::File,
    format::{
        block::SegmentHeader,
        record::{Kind, Record},
    },
};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

/// Mixes an id. Ids and places are our own, made one after the other: no client can choose them so that
/// they meet, and the start of a full spool looks up millions.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        let z = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = z ^ z >> 32;
    }

    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// By id or place.
pub(crate) type IdMap<T> = HashMap<u64, T, BuildHasherDefault<IdHasher>>;

/// Where a record is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// [`Segment::number`], not the sequence in its header.
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// A live message: its record, and what else belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MessageEntry {
    pub(crate) at: Location,
    /// Most messages have neither outcomes nor chunks.
    pub(crate) extras: Option<Box<MessageExtras>>,
}

/// The parts of an index entry that few messages have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct MessageExtras {
    /// Outcome and hold records, in order.
    pub(crate) notes: Vec<Location>,
    /// Ids of its chunks.
    pub(crate) chunks: Vec<u64>,
}

/// A segment of the log, with what recovery and compaction know of it.
#[derive(Clone)]
pub(crate) struct Segment {
    /// The place of the segment in the order of the log, as long as this process has the log open.
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) header: SegmentHeader,
    pub(crate) file: Arc<dyn File>,
    /// Bytes of records that are still needed.
    pub(crate) live_bytes: u64,
    /// Part of it cannot be read: it is never used again, in case somebody can rescue something.
    pub(crate) is_damaged: bool,
    /// The segment has an index file, or cannot have one.
    pub(crate) is_indexed: bool,
    /// A file beside it says that it was parked: what came after it may be gone.
    pub(crate) is_marked: bool,
}

impl Segment {
    /// Returns a segment without live records.
    pub(crate) fn new(number: u32, name: String, header: SegmentHeader, file: Arc<dyn File>) -> Self {
        Self {
            number,
            name,
            header,
            file,
            live_bytes: 0,
            is_damaged: false,
            is_indexed: false,
            is_marked: false,
        }
    }
}

/// The records that ended or changed messages which may come back: messages whose records lie in a segment that cannot
/// be read now or is missing, or in a file that was quarantined. Without these records a later start would deliver
/// the messages once more.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// All messages up to this queue id may come back.
    pub(crate) up_to: u64,
    /// Other messages that may come back, each with the number of the damaged segment that it lies in, or [`NOWHERE`].
    /// Records in that segment need not be kept, since they come back with the message.
    pub(crate) ids: HashMap<u64, u32>,
    /// What is known of those that may come back, by queue id.
    pub(crate) kept: HashMap<u64, RetainedRecords>,
}

/// A segment number that is never given out.
pub(crate) const NOWHERE: u32 = 0;

/// The records that are kept of one message which is not live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RetainedRecords {
    /// Outcomes and holds, in order.
    pub(crate) notes: Vec<(Kind, Location)>,
    /// The record that ended the message.
    pub(crate) done: Option<Location>,
}

impl RetainedRecords {
    pub(crate) fn locations(&self) -> impl Iterator<Item = Location> + '_ {
        self.notes.iter().map(|(_, at)| *at).chain(self.done)
    }
}

impl Retention {
    /// May this message come back?
    pub(crate) fn covers(&self, id: u64) -> bool {
        id <= self.up_to || self.ids.contains_key(&id)
    }

    /// May it come back without what this segment says of it?
    pub(crate) fn covers_beside(&self, id: u64, segment: u32) -> bool {
        id <= self.up_to || self.ids.get(&id).is_some_and(|own| *own != segment)
    }

    /// Adds a message that lies in a segment which may come back.
    pub(crate) fn add(&mut self, id: u64, segment: u32) {
        self.ids.entry(id).and_modify(|own| *own = NOWHERE).or_insert(segment);
    }

    /// Is there anything that may come back?
    pub(crate) fn is_on(&self) -> bool {
        self.up_to > 0 || !self.ids.is_empty()
    }
}

#[derive(Default)]
pub(crate) struct Index {
    pub(crate) segments: BTreeMap<u32, Segment>,
    /// Segments that are left untouched until a later start: a part of them cannot be read, or is damaged. They
    /// keep none that come after them, since what ended their messages is kept.
    pub(crate) parked: BTreeMap<u32, Segment>,
    pub(crate) retention: Retention,
    /// The highest queue id that any record names.
    pub(crate) highest_id: u64,
    pub(crate) messages: IdMap<MessageEntry>,
    pub(crate) chunks: IdMap<Location>,
    /// Chunks that were discarded while they still wait to be written.
    abandoned: HashSet<u64>,
    /// The newest totals record, with the number of its batch.
    pub(crate) totals: Option<(u64, Location)>,
    /// The number of the segment that the next batch goes to.
    pub(crate) current: u32,
}

impl Index {
    /// A fresh segment, which is written to from now on.
    pub(crate) fn write_to(&mut self, number: u32, segment: Segment) {
        self.segments.insert(number, segment);
        self.current = number;
    }

    /// Returns the segment with this number, in use or parked.
    pub(crate) fn segment(&self, number: u32) -> Option<&Segment> {
        self.segments.get(&number).or_else(|| self.parked.get(&number))
    }

    pub(crate) fn segment_mut(&mut self, number: u32) -> Option<&mut Segment> {
        self.segments.get_mut(&number).or_else(|| self.parked.get_mut(&number))
    }

    /// Leaves a segment untouched until a later start.
    pub(crate) fn park(&mut self, number: u32) {
        self.parked.extend(self.segments.remove_entry(&number));
    }

    fn keep(&mut self, at: Location) {
        if let Some(segment) = self.segment_mut(at.segment) {
            segment.live_bytes += u64::from(at.length);
        }
    }

    pub(crate) fn release(&mut self, at: Location) {
        if let Some(segment) = self.segment_mut(at.segment) {
            segment.live_bytes -= u64::from(at.length);
        }
    }

    /// Lets go of what is kept of a message that is not live.
    pub(crate) fn forget_kept(&mut self, id: u64) {
        if let Some(kept) = self.retention.kept.remove(&id) {
            kept.locations().for_each(|at| self.release(at));
        }
    }

    /// Are these still the records of a message beside its own?
    pub(crate) fn has_records(&self, id: u64, is_live: bool, records: &RetainedRecords) -> bool {
        if !is_live {
            return self.retention.kept.get(&id) == Some(records);
        }
        let extras = self.messages.get(&id).and_then(|entry| entry.extras.as_ref());
        extras.is_some_and(|extras| extras.notes.iter().eq(records.notes.iter().map(|(_, at)| at)))
    }

    /// Lets go of the records of a message beside its own, which were written again.
    pub(crate) fn forget_records(&mut self, id: u64) {
        self.forget_kept(id);
        let extras = self.messages.get_mut(&id).and_then(|entry| entry.extras.as_mut());
        let notes = extras.map(|extras| std::mem::take(&mut extras.notes)).unwrap_or_default();
        notes.iter().for_each(|at| self.release(*at));
    }

    /// Keeps a record of a message that is not live and may come back.
    pub(crate) fn retain(&mut self, kind: Kind, id: u64, at: Location) {
        let kept = self.retention.kept.entry(id).or_default();
        let replaced = match kind {
            Kind::Tombstone => kept.done.replace(at),
            Kind::Outcome | Kind::Hold => {
                kept.notes.push((kind, at));
                None
            }
            Kind::Message | Kind::Chunk | Kind::Totals => return,
        };
        self.keep(at);
        replaced.into_iter().for_each(|at| self.release(at));
    }

    /// A record is at a place. `chunks` are those a message record names.
    pub(crate) fn apply(&mut self, kind: Kind, name: u64, at: Location, chunks: &[u64]) {
        if kind.is_of_message() {
            self.highest_id = self.highest_id.max(name);
        }
        match kind {
            Kind::Message => {
                if self.retention.is_on() {
                    self.forget_kept(name);
                }
                // A message that was moved: what is left at its old place is not needed any more.
                if let Some(old) = self.messages.remove(&name) {
                    self.release_entry(old, false);
                }
                self.keep(at);
                let extras = (!chunks.is_empty())
                    .then(|| Box::new(MessageExtras { chunks: chunks.to_vec(), ..MessageExtras::default() }));
                self.messages.insert(name, MessageEntry { at, extras });
            }
            Kind::Outcome | Kind::Hold => {
                if let Some(entry) = self.messages.get_mut(&name) {
                    entry.extras.get_or_insert_default().notes.push(at);
                    self.keep(at);
                } else if self.retention.covers(name) {
                    self.retain(kind, name, at);
                }
            }
            Kind::Tombstone => {
                if let Some(entry) = self.messages.remove(&name) {
                    self.release_entry(entry, true);
                }
                if self.retention.covers(name) {
                    self.retain(kind, name, at);
                }
            }
            Kind::Chunk => {
                if self.abandoned.remove(&name) {
                    return;
                }
                if let Some(old) = self.chunks.insert(name, at) {
                    self.release(old);
                }
                self.keep(at);
            }
            // A batch that was written again may come behind later ones.
            Kind::Totals if self.totals.is_some_and(|(batch, _)| batch > name) => {}
            Kind::Totals => match self.totals.replace((name, at)) {
                // Mostly: nothing changes but the place.
                Some((_, old)) if (old.segment, old.length) == (at.segment, at.length) => {}
                old => {
                    self.keep(at);
                    old.into_iter().for_each(|(_, old)| self.release(old));
                }
            },
        }
    }

    fn release_entry(&mut self, entry: MessageEntry, with_chunks: bool) {
        self.release(entry.at);
        if let Some(more) = entry.extras {
            more.notes.iter().for_each(|at| self.release(*at));
            if with_chunks {
                more.chunks.iter().for_each(|chunk_id| self.forget_chunk(*chunk_id));
            }
        }
    }

    pub(crate) fn forget_chunk(&mut self, chunk_id: u64) {
        if let Some(at) = self.chunks.remove(&chunk_id) {
            self.release(at);
        }
    }

    /// A chunk that no message will name. One that is not written yet counts for nothing when it is.
    pub(crate) fn abandon_chunk(&mut self, chunk_id: u64) {
        if self.chunks.contains_key(&chunk_id) {
            self.forget_chunk(chunk_id);
        } else {
            self.abandoned.insert(chunk_id);
        }
    }

    /// At the end of recovery: chunks no message names are garbage.
    pub(crate) fn forget_orphans(&mut self) {
        let named: HashSet<u64> = self
            .messages
            .values()
            .filter_map(|s| s.extras.as_ref())
            .flat_map(|m| m.chunks.iter().copied())
            .collect();
        let orphans: Vec<u64> =
            self.chunks.keys().filter(|chunk_id| !named.contains(chunk_id)).copied().collect();
        orphans.into_iter().for_each(|chunk_id| self.forget_chunk(chunk_id));
    }

    /// The oldest segments in which nothing lives, but the one that is written to. Only from the old end: a
    /// record that ends a message stays until the message's own segment is gone. A damaged segment is not used
    /// again: whoever compacts the log parks it.
    pub(crate) fn take_dead(&mut self) -> Vec<Segment> {
        self.take_dead_before(self.current, false)
    }

    /// Returns the dead segments before a segment. At a start damaged ones are among them, to be quarantined.
    pub(crate) fn take_dead_before(&mut self, first_needed: u32, is_start: bool) -> Vec<Segment> {
        let mut dead = Vec::new();
        while let Some(oldest) = self.segments.first_entry() {
            let is_needed = *oldest.key() >= first_needed || oldest.get().live_bytes > 0;
            if is_needed || oldest.get().is_damaged && !is_start {
                break;
            }
            dead.push(oldest.remove());
        }
        dead
    }
}

/// The chunks that a message record names; empty for other records and for records that cannot be read.
pub(crate) fn chunks_of(record: &Record<'_>) -> Vec<u64> {
    if record.kind != Kind::Message {
        return Vec::new();
    }
    crate::format::message::read_places(record.body).unwrap_or_default()
}

/// Returns the ids of the chunks that the content refers to.
pub(crate) fn chunk_ids(content: &mail::Content) -> Vec<u64> {
    let stored = |part: &mail::Part| match part {
        mail::Part::Stored { chunk_id, .. } if *chunk_id != crate::format::message::NOWHERE => {
            Some(chunk_id.0)
        }
        mail::Part::Stored { .. } | mail::Part::Memory(_) => None,
    };
    content.parts().iter().filter_map(stored).collect()
}
