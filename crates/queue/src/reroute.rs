//! New routes for queued messages.

use crate::{
    Arrival, ArrivingRecipient, DestinationId, Millis, Queue,
    message::{JobId, JobState},
};
use mail::QueueId;

/// What routing a queued message again has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rerouted {
    /// Some recipients go another way now.
    pub has_moved: bool,
    /// A job with a new route is in flight: ask again after its attempt.
    pub has_in_flight: bool,
}

impl Queue {
    /// Moves what is left of a message to the destinations of its recipients; `to` has the destination of each, by
    /// index. Waits and attempts stay as they are. A job in flight cannot be moved before its attempt has ended.
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
                rerouted.has_in_flight = true;
                continue;
            }
            let due = (entry.state() == JobState::Waiting).then_some(entry.due);
            let attempt_count = entry.attempt_count();
            let arriving =
                |&index: &u32| ArrivingRecipient { index, destination: to(index), attempt_count, due };
            rows.extend(recipients.iter().map(arriving));
            old.push(job);
        }
        if rows.is_empty() {
            return rerouted;
        }
        let entry = &self.messages[message];
        let (arrived, size_bytes, held) = (entry.arrived, u64::from(entry.size_bytes), entry.held);
        let arrival = Arrival { id, arrived, size_bytes, held, recipients: &rows, schedule: None };
        // The new jobs first, so that the message is never without any.
        self.add_jobs(message, &rows, &arrival, now);
        for job in old {
            self.unschedule(job);
            self.remove_job(job);
        }
        Rerouted { has_moved: true, ..rerouted }
    }
}
