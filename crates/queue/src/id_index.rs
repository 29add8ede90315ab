//! Messages by their ids. The table holds places only and finds the ids where they are kept anyway:
//! five bytes an entry instead of seventeen.

use crate::{message::QueuedMessage, slab::Slab};
use hashbrown::HashTable;
use mail::QueueId;

#[derive(Debug, Default)]
pub(crate) struct IdIndex(HashTable<u32>);

/// IdIndex are ours, counted up: nobody can choose them so that they collide.
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

    /// Of a message whose id is not there yet.
    pub(crate) fn insert(&mut self, messages: &Slab<QueuedMessage>, at: u32) {
        self.0.insert_unique(hash(messages[at].id), at, |at| hash(messages[*at].id));
    }

    /// Of a message that is still in its place.
    pub(crate) fn remove(&mut self, messages: &Slab<QueuedMessage>, at: u32) {
        if let Ok(entry) = self.0.find_entry(hash(messages[at].id), |other| *other == at) {
            entry.remove();
        }
    }
}
