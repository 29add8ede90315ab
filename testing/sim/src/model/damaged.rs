//! Messages whose bytes went bad after they were synced: each may be as it was, or lack what stood there. All others
//! must
//! be as if nothing had happened.

use super::{Live, Model, Past, Queue, told};
use crate::survey::Owner;
use mail::{Disposition, Part};
use spool::Entry;
use std::collections::{BTreeMap, BTreeSet};

/// A chunk's number without that of its store, where there are several.
const PLACE_MASK: u64 = (1 << 56) - 1;

/// Outcomes ever submitted, by message and recipient.
type Outcomes = BTreeMap<(u64, u32), Vec<(Disposition, String)>>;

/// Messages something of which may be lost, and what is known of all.
#[derive(Debug, Default)]
pub(super) struct Damaged {
    messages: BTreeSet<u64>,
    /// By chunk, the message that refers to it.
    chunk_ids: BTreeMap<u64, u64>,
    /// Chunks that are damaged, whoever will name them.
    damaged_chunks: BTreeSet<u64>,
    outcomes: Outcomes,
}

impl Damaged {
    /// Learns the chunks of a message before it is submitted.
    pub(super) fn sent(&mut self, message: &mail::Message) {
        for chunk_id in message.content.parts().iter().filter_map(Part::chunk_id) {
            let chunk_id = chunk_id.0 & PLACE_MASK;
            self.chunk_ids.insert(chunk_id, message.id.0);
            if self.damaged_chunks.contains(&chunk_id) {
                self.messages.insert(message.id.0);
            }
        }
    }

    /// Learns an entry that was submitted.
    pub(super) fn submitted(&mut self, entry: &Entry) {
        if let Entry::Outcome { id, results, .. } = entry {
            for (index, outcome) in results {
                self.outcomes.entry((id.0, *index)).or_default().push(told(outcome));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.messages.contains(&id)
    }

    /// Without those of which nothing is certain.
    pub(super) fn sound(&self, queue: &Queue) -> Queue {
        queue.iter().filter(|(id, _)| !self.has(**id)).map(|(id, live)| (*id, live.clone())).collect()
    }

    /// A message that was never reported may not be listed.
    pub(super) fn check(&self, found: &Queue) -> Result<(), String> {
        for (id, live) in found.iter().filter(|(id, _)| self.has(**id)) {
            for (index, past) in (0..).zip(&live.recipients) {
                let said = self.outcomes.get(&(*id, index)).map_or(&[][..], Vec::as_slice);
                if !past.is_part_of(said) {
                    return Err(format!("{id}: of recipient {index} nobody said {past:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Past {
    /// Is it what some of these outcomes come to?
    fn is_part_of(&self, said: &[(Disposition, String)]) -> bool {
        let is_settling = |(disposition, _): &(Disposition, String)| *disposition != Disposition::Deferred;
        // An attempt that is kept while its message cannot be read may be counted twice.
        self.attempt_count as usize <= 2 * said.len()
            && (!self.settled || said.iter().any(is_settling))
            && self.last.as_ref().is_none_or(|last| said.contains(last))
    }
}

impl Model {
    /// Something of these may be lost from now on; which messages they are.
    pub fn mark_damaged(&mut self, owners: &BTreeSet<Owner>) -> BTreeSet<u64> {
        let chunk_id =
            |owner: &Owner| if let Owner::Chunk(chunk_id) = owner { Some(*chunk_id) } else { None };
        self.damaged.damaged_chunks.extend(owners.iter().filter_map(chunk_id));
        let message = |owner: &Owner| match owner {
            Owner::Message(id) => Some(*id),
            Owner::Chunk(chunk_id) => self.damaged.chunk_ids.get(chunk_id).copied(),
        };
        let messages: BTreeSet<u64> = owners.iter().filter_map(message).collect();
        self.damaged.messages.extend(&messages);
        messages
    }

    /// Messages something of which may be lost.
    pub fn hurt_messages(&self) -> impl Iterator<Item = u64> + '_ {
        self.damaged.messages.iter().copied()
    }

    /// Messages whose acceptance is durable, whose end was not submitted, and which recovery did not find.
    pub fn missing(&self, found: &Queue) -> Vec<(u64, Live)> {
        let is_missing = |id: &u64| !found.contains_key(id);
        let mut all: Vec<u64> =
            self.shards.iter().flat_map(super::Shard::durable).filter(is_missing).collect();
        all.dedup();
        all.into_iter().filter_map(|id| Some((id, self.latest.get(&id)?.clone()))).collect()
    }
}
