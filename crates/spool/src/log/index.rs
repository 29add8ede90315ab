//! Where everything is: segments with what still lives in them, messages, chunks. In memory; built
//! by recovery from the log alone.

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

/// Mixes an id. Ids and places are our own, made one after the other: nobody can choose them so that
/// they meet, and the start of a full spool looks up millions.
#[derive(Debug, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
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
pub(crate) type ById<T> = HashMap<u64, T, BuildHasherDefault<Mix>>;

/// A record's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Location {
    /// The segment's sequence number.
    pub(crate) segment: u32,
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

/// A live message: its record, and what else belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) at: Location,
    /// Most messages have neither outcomes nor chunks.
    pub(crate) more: Option<Box<More>>,
}

/// What few messages have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct More {
    /// Outcome and hold records, in order.
    pub(crate) notes: Vec<Location>,
    /// Places of its chunks.
    pub(crate) chunks: Vec<u64>,
}

/// A segment in use.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) name: String,
    pub(crate) header: SegmentHeader,
    pub(crate) file: Arc<dyn File>,
    /// Bytes of records that are still needed.
    pub(crate) live_bytes: u64,
    /// Part of it cannot be read: it is never used again, in case somebody can rescue something.
    pub(crate) is_damaged: bool,
    /// It has a digest, or cannot have one.
    pub(crate) is_digested: bool,
}

#[derive(Default)]
pub(crate) struct Index {
    pub(crate) segments: BTreeMap<u32, Segment>,
    pub(crate) messages: ById<Slot>,
    pub(crate) chunks: ById<Location>,
    /// Chunks nobody wants any more that still wait to be written.
    abandoned: HashSet<u64>,
    /// The segment that is written to.
    pub(crate) current: u32,
}

impl Index {
    /// A fresh segment, which is written to from now on.
    pub(crate) fn write_to(&mut self, number: u32, segment: Segment) {
        self.segments.insert(number, segment);
        self.current = number;
    }

    fn keep(&mut self, at: Location) {
        if let Some(segment) = self.segments.get_mut(&at.segment) {
            segment.live_bytes += u64::from(at.length);
        }
    }

    fn release(&mut self, at: Location) {
        if let Some(segment) = self.segments.get_mut(&at.segment) {
            segment.live_bytes -= u64::from(at.length);
        }
    }

    /// A record is at a place. `chunks` are those a message record names.
    pub(crate) fn apply(&mut self, kind: Kind, name: u64, at: Location, chunks: &[u64]) {
        match kind {
            Kind::Message => {
                // A message that was moved: what is left at its old place is not needed any more.
                if let Some(old) = self.messages.remove(&name) {
                    self.release_slot(old, false);
                }
                self.keep(at);
                let more = (!chunks.is_empty())
                    .then(|| Box::new(More { chunks: chunks.to_vec(), ..More::default() }));
                self.messages.insert(name, Slot { at, more });
            }
            Kind::Outcome | Kind::Hold => {
                // Of one whose segment was set aside nobody will read it.
                let is_there = |slot: &&mut Slot| self.segments.contains_key(&slot.at.segment);
                if let Some(slot) = self.messages.get_mut(&name).filter(is_there) {
                    slot.more.get_or_insert_default().notes.push(at);
                    self.keep(at);
                }
            }
            Kind::Done => {
                if let Some(slot) = self.messages.remove(&name) {
                    self.release_slot(slot, true);
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
        }
    }

    fn release_slot(&mut self, slot: Slot, with_chunks: bool) {
        self.release(slot.at);
        if let Some(more) = slot.more {
            more.notes.iter().for_each(|at| self.release(*at));
            if with_chunks {
                more.chunks.iter().for_each(|place| self.forget_chunk(*place));
            }
        }
    }

    /// What became of a message that cannot be read any more.
    pub(crate) fn forget_notes(&mut self, name: u64) {
        let more = self.messages.get_mut(&name).and_then(|slot| slot.more.as_mut());
        let notes = more.map(|more| std::mem::take(&mut more.notes)).unwrap_or_default();
        notes.iter().for_each(|at| self.release(*at));
    }

    pub(crate) fn forget_chunk(&mut self, place: u64) {
        if let Some(at) = self.chunks.remove(&place) {
            self.release(at);
        }
    }

    /// A chunk that no message will name. One that is not written yet counts for nothing when it is.
    pub(crate) fn abandon_chunk(&mut self, place: u64) {
        if self.chunks.contains_key(&place) {
            self.forget_chunk(place);
        } else {
            self.abandoned.insert(place);
        }
    }

    /// At the end of recovery: chunks no message names are garbage.
    pub(crate) fn forget_orphans(&mut self) {
        let named: HashSet<u64> = self
            .messages
            .values()
            .filter_map(|s| s.more.as_ref())
            .flat_map(|m| m.chunks.iter().copied())
            .collect();
        let orphans: Vec<u64> = self.chunks.keys().filter(|place| !named.contains(place)).copied().collect();
        orphans.into_iter().for_each(|place| self.forget_chunk(place));
    }

    /// The oldest segments in which nothing lives, but the one that is written to. Only from the old end: a
    /// record that ends a message stays until the message's own segment is gone.
    pub(crate) fn take_dead(&mut self) -> Vec<Segment> {
        self.take_dead_before(self.current)
    }

    /// The same from what lies before a segment.
    pub(crate) fn take_dead_before(&mut self, first_needed: u32) -> Vec<Segment> {
        let mut dead = Vec::new();
        while let Some(oldest) = self.segments.first_entry() {
            if *oldest.key() == first_needed || oldest.get().live_bytes > 0 {
                break;
            }
            dead.push(oldest.remove());
        }
        dead
    }
}

/// The places a message record names; empty for other records and for records that cannot be read.
pub(crate) fn chunks_of(record: &Record<'_>) -> Vec<u64> {
    if record.kind != Kind::Message {
        return Vec::new();
    }
    crate::format::message::read_places(record.body).unwrap_or_default()
}

/// The places of a content's stored parts.
pub(crate) fn places(content: &mail::Content) -> Vec<u64> {
    let stored = |part: &mail::Part| match part {
        mail::Part::Stored { place, .. } if *place != crate::format::message::NOWHERE => Some(place.0),
        mail::Part::Stored { .. } | mail::Part::Memory(_) => None,
    };
    content.parts().iter().filter_map(stored).collect()
}
