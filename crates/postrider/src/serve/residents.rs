//! Messages kept in memory after their acceptance, so that the first attempt need not read them
//! back. Dropping one costs nothing: it is durable already.

use mail::{QueueId, SharedMessage};
use std::collections::{HashMap, VecDeque};

/// What a message costs besides its content: envelope, maps, allocator.
const OVERHEAD_BYTES: u64 = 768;

/// A bounded set of messages; the oldest go first.
#[derive(Debug)]
pub(crate) struct Residents {
    by_id: HashMap<QueueId, SharedMessage>,
    order: VecDeque<QueueId>,
    bytes: u64,
    max_bytes: u64,
}

impl Residents {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { by_id: HashMap::new(), order: VecDeque::new(), bytes: 0, max_bytes }
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
        self.bytes += Self::cost(&message);
        self.order.push_back(message.id);
        self.by_id.insert(message.id, message);
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(oldest);
        }
        // Most leave long before they are the oldest: their ids are swept now and then.
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
            self.bytes -= Self::cost(&message);
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
    fn the_oldest_leave_when_there_is_no_room() {
        let mut residents = Residents::new(10 * (1000 + OVERHEAD_BYTES));
        for id in 0..100 {
            residents.insert(message(id));
        }
        assert!(residents.get(QueueId(89)).is_none());
        assert!((90..100).all(|id| residents.get(QueueId(id)).is_some()));
        for id in 90..100 {
            residents.remove(QueueId(id));
        }
        assert_eq!((residents.bytes, residents.by_id.len()), (0, 0));
    }

    #[test]
    fn what_left_early_is_swept_from_the_order() {
        let mut residents = Residents::new(1_000_000);
        for id in 0..10_000 {
            residents.insert(message(id));
            residents.remove(QueueId(id));
        }
        assert!(residents.order.len() <= 1025);
    }
}
