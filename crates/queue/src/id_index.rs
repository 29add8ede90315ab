//! Messages by their ids. The table holds slab indexes and reads the ids from the messages: five bytes an entry
//! instead of seventeen.

use crate::{message::QueuedMessage, slab::Slab};
use hashbrown::HashTable;
use mail::QueueId;

#[derive(Debug, Default)]
pub(crate) struct IdIndex(HashTable<u32>);

/// Mixes an id. Ids are counted up by this server, so no client can choose them to collide.
fn hash(id: QueueId) -> u64 {
    let mixed = id.0.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // The table takes its slot from the low bits and its tag from the high ones.
    mixed ^ mixed >> 32
}

impl IdIndex {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, messages: &Slab<QueuedMessage>, id: QueueId) -> Option<u32> {
        self.0.find(hash(id), |at| messages[*at].id == id).copied()
    }

    /// Adds a message whose id is not in the index.
    pub(crate) fn insert(&mut self, messages: &Slab<QueuedMessage>, at: u32) {
        self.0.insert_unique(hash(messages[at].id), at, |at| hash(messages[*at].id));
    }

    /// Has to be called before the slab frees the entry, whose id is needed.
    pub(crate) fn remove(&mut self, messages: &Slab<QueuedMessage>, at: u32) {
        if let Ok(entry) = self.0.find_entry(hash(messages[at].id), |other| *other == at) {
            entry.remove();
        }
    }
}
