//! Places and commit sequence numbers of several stores: a store's own, with the store's number in the upper bits. Those of
//! the first store are as it gave them.

use crate::{CommitSeq, Entry, Recovered, format::message::NOWHERE};
use mail::{ChunkId, Content, Message, Part, SharedMessage};

/// The bits of a store's own; at a million chunks or transactions a second they last two thousand years.
const OWN_BITS: u32 = 56;
const OWN_MASK: u64 = (1 << OWN_BITS) - 1;
/// The last number of all would make a place of [`NOWHERE`].
pub(super) const STORES_MAX: usize = (1 << (u64::BITS - OWN_BITS)) - 1;

pub(super) fn outer(chunk_id: ChunkId, shard: usize) -> ChunkId {
    if chunk_id == NOWHERE {
        return chunk_id; // what recovery leaves on the disk
    }
    debug_assert!(chunk_id.0 >> OWN_BITS == 0, "a store counts its chunk_ids from 0");
    ChunkId(chunk_id.0 | (shard as u64) << OWN_BITS)
}

pub(super) fn outer_commit_seq(own: CommitSeq, shard: usize) -> CommitSeq {
    debug_assert!(own.0 >> OWN_BITS == 0, "a store counts its commit_seqs from 0");
    CommitSeq(own.0 | (shard as u64) << OWN_BITS)
}

/// The store that gave it, and its own commit sequence number.
pub(super) fn inner_commit_seq(commit_seq: CommitSeq) -> (usize, CommitSeq) {
    ((commit_seq.0 >> OWN_BITS) as usize, CommitSeq(commit_seq.0 & OWN_MASK))
}

pub(super) fn shard_of(chunk_id: ChunkId) -> usize {
    (chunk_id.0 >> OWN_BITS) as usize
}

/// The id in its own store, if it is one of this store.
pub(super) fn inner(chunk_id: ChunkId, of: usize) -> Option<ChunkId> {
    (shard_of(chunk_id) == of).then_some(ChunkId(chunk_id.0 & OWN_MASK))
}

/// Returns the shard of a message's chunks, if it has any.
pub(super) fn shard_of_message(message: &Message) -> Option<usize> {
    let mut shards = message.content.parts().iter().filter_map(Part::chunk_id).map(shard_of);
    let first = shards.next()?;
    // All were stored for one envelope.
    assert!(shards.all(|other| other == first), "a message's chunks lie in two stores");
    Some(first)
}

/// As its store is to write it.
pub(super) fn inner_entry(entry: Entry, of: usize) -> Entry {
    let own = |chunk_id| inner(chunk_id, of).unwrap_or(chunk_id);
    match entry {
        Entry::Accept(message) => Entry::Accept(with_places(message, of, own)),
        Entry::Import(found) => {
            let message = with_places(found.message, of, own);
            Entry::Import(Box::new(Recovered { message, ..*found }))
        }
        Entry::Outcome { .. } | Entry::Control { .. } | Entry::Count(_) => entry,
    }
}

/// Returns the message with chunk ids as they are outside of its store.
pub(super) fn outer_message(message: SharedMessage, of: usize) -> SharedMessage {
    with_places(message, of, |chunk_id| outer(chunk_id, of))
}

fn with_places(message: SharedMessage, of: usize, named: impl Fn(ChunkId) -> ChunkId) -> SharedMessage {
    if of == 0 || message.content.parts().iter().all(|part| part.chunk_id().is_none()) {
        return message;
    }
    let part = |part: &Part| match *part {
        Part::Stored { chunk_id, length_bytes } => Part::Stored { chunk_id: named(chunk_id), length_bytes },
        Part::Memory(ref bytes) => Part::Memory(bytes.clone()),
    };
    let parts: Vec<Part> = message.content.parts().iter().map(part).collect();
    let content = Content::new(message.content.traits, parts);
    SharedMessage::new(Message { content, ..Message::clone(&message) })
}
