//! New routes for what waits already.

use crate::{
    Arrival, DestinationId, Millis, Queue,
    message::{Place, UnitId},
};
use mail::QueueId;

/// What became of a message whose routes may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rerouted {
    /// Something of it goes another way now.
    pub has_moved: bool,
    /// Something of it is in flight on its old way: ask again.
    pub is_left: bool,
}

impl Queue {
    /// Moves what is left of a message to where its recipients go now; `to` knows of each, by index.
    /// Waits and attempts stay as they are. What is in flight cannot be moved before its attempt has ended.
    pub fn reroute(&mut self, id: QueueId, to: impl Fn(u32) -> DestinationId, now: Millis) -> Rerouted {
        let rerouted = self.move_units(id, to, now);
        self.promises_are_kept();
        rerouted
    }

    fn move_units(&mut self, id: QueueId, to: impl Fn(u32) -> DestinationId, now: Millis) -> Rerouted {
        let mut rerouted = Rerouted::default();
        let Some(message) = self.by_id.get(&self.messages, id) else { return rerouted };
        let units: Vec<UnitId> = self.units_of(message).collect();
        let (mut rows, mut old) = (Vec::new(), Vec::new());
        for unit in units {
            let entry = &self.units[unit];
            let here = DestinationId(entry.destination);
            let recipients = entry.recipients.as_slice();
            if recipients.iter().all(|index| to(*index) == here) {
                continue;
            }
            if entry.place() == Place::InFlight {
                rerouted.is_left = true;
                continue;
            }
            let due = (entry.place() == Place::Waiting).then_some(entry.due);
            rows.extend(recipients.iter().map(|index| (*index, to(*index), entry.attempt_count(), due)));
            old.push(unit);
        }
        if rows.is_empty() {
            return rerouted;
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
        Rerouted { has_moved: true, ..rerouted }
    }
}
