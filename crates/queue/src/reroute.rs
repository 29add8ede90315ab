//! New routes for what waits already.

use crate::{
    Arrival, DestinationId, Millis, Queue,
    message::{JobId, JobState},
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
        let rerouted = self.move_jobs(id, to, now);
        self.release_reservations();
        rerouted
    }

    fn move_jobs(&mut self, id: QueueId, to: impl Fn(u32) -> DestinationId, now: Millis) -> Rerouted {
        let mut rerouted = Rerouted::default();
        let Some(message) = self.by_id.get(&self.messages, id) else { return rerouted };
        let jobs: Vec<JobId> = self.jobs_of(message).collect();
        let (mut rows, mut old) = (Vec::new(), Vec::new());
        for job in jobs {
            let entry = &self.jobs[job];
            let here = DestinationId(entry.destination);
            let recipients = entry.recipients.as_slice();
            if recipients.iter().all(|index| to(*index) == here) {
                continue;
            }
            if entry.state() == JobState::InFlight {
                rerouted.is_left = true;
                continue;
            }
            let due = (entry.state() == JobState::Waiting).then_some(entry.due);
            rows.extend(recipients.iter().map(|index| (*index, to(*index), entry.attempt_count(), due)));
            old.push(job);
        }
        if rows.is_empty() {
            return rerouted;
        }
        let entry = &self.messages[message];
        let (arrived, size_bytes, held) = (entry.arrived, u64::from(entry.size_bytes), entry.held);
        let arrival = Arrival { id, arrived, size_bytes, held, recipients: &rows };
        // The new ones first, so that the message is never without any.
        self.add_jobs(message, &rows, &arrival, now);
        for job in old {
            self.unschedule(job);
            self.remove_job(job);
        }
        Rerouted { has_moved: true, ..rerouted }
    }
}
