//! Messages kept in memory after their acceptance, so that the first attempt need not read them back. Dropping a
//! message from the cache loses nothing: each cached message is durable.

use foldhash::HashMap;
use mail::{QueueId, SharedMessage};
use std::collections::VecDeque;

/// Memory of a message besides its content, estimated: envelope, maps, allocator.
const OVERHEAD_BYTES: u64 = 768;

/// A bounded set of messages. The oldest messages are evicted first.
#[derive(Debug)]
pub(crate) struct MessageCache {
    by_id: HashMap<QueueId, SharedMessage>,
    order: VecDeque<QueueId>,
    size_bytes: u64,
    max_bytes: u64,
}

impl MessageCache {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { by_id: HashMap::default(), order: VecDeque::new(), size_bytes: 0, max_bytes }
    }

    fn cost(message: &SharedMessage) -> u64 {
        let in_memory: u64 = message
            .content
            .parts()
            .iter()
            .map(|part| if let mail::Part::Memory(bytes) = part { bytes.len() as u64 } else { 0 })
            .sum();
        in_memory + OVERHEAD_BYTES
    }

    pub(crate) fn insert(&mut self, message: SharedMessage) {
        self.size_bytes += Self::cost(&message);
        self.order.push_back(message.id);
        self.by_id.insert(message.id, message);
        while self.size_bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest);
        }
        // Most messages leave long before they are the oldest, so removed ids are swept now and then.
        if self.order.len() > 2 * self.by_id.len() + 1024 {
            let by_id = &self.by_id;
            self.order.retain(|id| by_id.contains_key(id));
        }
    }

    pub(crate) fn get(&self, id: QueueId) -> Option<SharedMessage> {
        self.by_id.get(&id).cloned()
    }

    pub(crate) fn remove(&mut self, id: QueueId) {
        if let Some(message) = self.by_id.remove(&id) {
            self.size_bytes -= Self::cost(&message);
        }
    }

    /// Panics when the size is not the sum of the messages, or a message is not in the queue.
    pub(crate) fn check_invariants(&self, is_queued: impl Fn(QueueId) -> bool) {
        let sum: u64 = self.by_id.values().map(Self::cost).sum();
        assert_eq!(self.size_bytes, sum, "the cache's size is the sum of its messages");
        assert!(self.size_bytes <= self.max_bytes, "the cache is within its limit");
        for id in self.by_id.keys() {
            assert!(is_queued(*id), "{id} is cached and not in the queue");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Content, Envelope, Message, ReversePath, UnixMillis};

    fn message(id: u64) -> SharedMessage {
        SharedMessage::new(Message {
            id: QueueId(id),
            arrived: UnixMillis(0),
            origin: "".into(),
            envelope: Envelope::new(ReversePath::Null),
            content: Content::from_bytes(vec![b'x'; 1000]),
        })
    }

    #[test]
    fn the_oldest_messages_are_evicted_when_there_is_no_room() {
        let mut cache = MessageCache::new(10 * (1000 + OVERHEAD_BYTES));
        for id in 0..100 {
            cache.insert(message(id));
        }
        assert!(cache.get(QueueId(89)).is_none());
        assert!((90..100).all(|id| cache.get(QueueId(id)).is_some()));
        for id in 90..100 {
            cache.remove(QueueId(id));
        }
        assert_eq!((cache.size_bytes, cache.by_id.len()), (0, 0));
    }

    #[test]
    fn ids_of_removed_messages_are_swept_from_the_order() {
        let mut cache = MessageCache::new(1_000_000);
        for id in 0..10_000 {
            cache.insert(message(id));
            cache.remove(QueueId(id));
        }
        assert!(cache.order.len() <= 1025);
    }
}
