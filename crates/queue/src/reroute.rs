//! New routes for what waits already.

use crate::{
    Arrival, DestinationId, Millis, Queue,
    message::{Place, UnitId},
};
use mail::QueueId;

impl Queue {
    /// Moves what is left of a message to where its recipients go now; `to` knows of each, by index.
    /// Waits and attempts stay as they are. What is in flight is left alone: if it is deferred, it goes
    /// its old way once more. False: there is no such message, or nothing was to be moved.
    pub fn reroute(&mut self, id: QueueId, to: impl Fn(u32) -> DestinationId, now: Millis) -> bool {
        let has_moved = self.move_units(id, to, now);
        self.promises_are_kept();
        has_moved
    }

    fn move_units(&mut self, id: QueueId, to: impl Fn(u32) -> DestinationId, now: Millis) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        let units: Vec<UnitId> = self.units_of(message).collect();
        let (mut rows, mut old) = (Vec::new(), Vec::new());
        for unit in units {
            let entry = &self.units[unit];
            let here = DestinationId(entry.destination);
            let recipients = entry.recipients.as_slice();
            if entry.place() == Place::InFlight || recipients.iter().all(|index| to(*index) == here) {
                continue;
            }
            let due = (entry.place() == Place::Waiting).then_some(entry.due);
            rows.extend(recipients.iter().map(|index| (*index, to(*index), entry.attempt_count(), due)));
            old.push(unit);
        }
        if rows.is_empty() {
            return false;
        }
        let entry = &self.messages[message];
        let (arrived, size_bytes, held) = (entry.arrived, u64::from(entry.size_bytes), entry.held);
        let arrival = Arrival { id, arrived, size_bytes, held, recipients: &rows };
        // The new ones first, so that the message is never without any.
        self.add_units(message, &rows, &arrival, now);
        for unit in old {
            self.withdraw(unit);
            self.remove_unit(unit);
        }
        true
    }
}
