//! What operators do to messages, and to some of their recipients.

use crate::{
    DestinationId, Lease, Millis, Queue, Recipients,
    message::{Job, JobId, JobState},
    ready_list::Tables,
};
use mail::QueueId;

/// What an operator decided of recipients: there is no further attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAs {
    /// The sender gets a report.
    Bounce,
    /// Nobody hears of it.
    Delete,
}

impl Queue {
    /// Nothing of it is tried until [`Queue::release`]. False: no such message.
    pub fn hold(&mut self, id: QueueId) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        self.messages[message].held = true;
        for job in self.jobs_of(message).collect::<Vec<_>>() {
            self.unschedule(job);
        }
        true
    }

    /// Undoes [`Queue::hold`]; what was held is ready now. False: no such message.
    pub fn release(&mut self, id: QueueId, now: Millis) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        self.messages[message].held = false;
        self.make_ready(message, now);
        self.list_for_expiry(message, now);
        true
    }

    /// Tries it now, whatever it waits for; held messages stay held. False: no such message.
    pub fn retry(&mut self, id: QueueId, now: Millis) -> bool {
        let Some(message) = self.by_id.get(&self.messages, id) else { return false };
        if !self.messages[message].held {
            self.make_ready(message, now);
        }
        true
    }

    fn make_ready(&mut self, message: u32, now: Millis) {
        for job in self.jobs_of(message).collect::<Vec<_>>() {
            if self.jobs[job].state() == JobState::InFlight {
                continue;
            }
            self.unschedule(job);
            self.put_ready(job, now, false);
            self.revive(DestinationId(self.jobs[job].destination), now);
        }
    }

    fn revive(&mut self, id: DestinationId, now: Millis) {
        self.resume(id);
        self.update_connections(id, now);
    }

    /// Tries everything that is not held now, dead destinations too.
    pub fn flush(&mut self, now: Millis) {
        let waiting: Vec<JobId> =
            self.jobs.iter().filter(|(_, job)| job.state() == JobState::Waiting).map(|(at, _)| at).collect();
        for job in waiting {
            self.unschedule(job);
            self.put_ready(job, now, false);
        }
        for at in 0..self.destinations.len() {
            self.revive(DestinationId(at as u32), now);
        }
    }

    /// Takes those recipients of a message that are `meant`, by index, into the caller's hands, to be settled
    /// as the verdict says. Of those in flight it holds once they come back without a delivery or failure: see
    /// [`crate::Completion::cancelled`] and [`Queue::put_back`]. `None`: no such message.
    pub fn cancel(
        &mut self,
        id: QueueId,
        meant: impl Fn(u32) -> bool,
        cancel_as: CancelAs,
        now: Millis,
    ) -> Option<Vec<Lease>> {
        let message = self.by_id.get(&self.messages, id)?;
        for job in self.jobs_of(message).collect::<Vec<_>>() {
            if self.jobs[job].state() == JobState::InFlight {
                self.mark_cancelled(job, &meant, cancel_as);
            }
        }
        Some(self.lease_idle_jobs(message, &meant, now))
    }

    /// The last verdict on a recipient is the one that holds.
    fn mark_cancelled(&mut self, job: JobId, meant: &impl Fn(u32) -> bool, cancel_as: CancelAs) {
        let recipients = self.jobs[job].recipients.as_slice().iter().copied();
        let chosen: Vec<u32> = recipients.filter(|index| meant(*index)).collect();
        if chosen.is_empty() {
            return;
        }
        let cancellations = self.cancellations.entry(job).or_default();
        cancellations.retain(|(index, _)| !chosen.contains(index));
        cancellations.extend(chosen.into_iter().map(|index| (index, cancel_as)));
    }

    /// Puts what is meant and not in flight in flight, so that the caller alone decides of it.
    pub(crate) fn lease_idle_jobs(
        &mut self,
        message: u32,
        meant: &impl Fn(u32) -> bool,
        now: Millis,
    ) -> Vec<Lease> {
        let mut cancelled = Vec::new();
        for job in self.jobs_of(message).collect::<Vec<_>>() {
            if self.jobs[job].state() == JobState::InFlight {
                continue;
            }
            let recipients = self.jobs[job].recipients.as_slice();
            let (chosen, rest): (Vec<u32>, Vec<u32>) = recipients.iter().partition(|index| meant(**index));
            if chosen.is_empty() {
                continue;
            }
            if rest.is_empty() {
                self.unschedule(job);
                cancelled.push(self.start_attempt(job, now));
            } else {
                self.retain(job, &rest);
                cancelled.push(self.split_off(job, &chosen, now));
            }
        }
        cancelled
    }

    /// Keeps only these recipients of a job that is not in flight.
    fn retain(&mut self, job: JobId, recipients: &[u32]) {
        let (state, destination) = (self.jobs[job].state(), self.jobs[job].destination as usize);
        let change = |job: &mut Job| job.recipients = Recipients::new(recipients);
        if state == JobState::Ready {
            let mut tables = Tables { jobs: &mut self.jobs, messages: &self.messages };
            self.destinations[destination].ready.change(&mut tables, job, change);
        } else {
            change(&mut self.jobs[job]);
        }
    }

    /// Of recipients that come back from an attempt: those with a verdict leave `open` for jobs of their own.
    pub(crate) fn split_off_cancelled(
        &mut self,
        job: JobId,
        open: &mut Vec<u32>,
        now: Millis,
    ) -> Vec<(Lease, CancelAs)> {
        // Hardly ever is there any.
        if self.cancellations.is_empty() {
            return Vec::new();
        }
        let Some(cancellations) = self.cancellations.remove(&job) else { return Vec::new() };
        let mut cancelled = Vec::new();
        for cancel_as in [CancelAs::Bounce, CancelAs::Delete] {
            let (cancelled_here, rest): (Vec<u32>, Vec<u32>) =
                open.iter().partition(|index| cancellations.contains(&(**index, cancel_as)));
            if !cancelled_here.is_empty() {
                cancelled.push((self.split_off(job, &cancelled_here, now), cancel_as));
            }
            *open = rest;
        }
        cancelled
    }

    /// A new job in flight with some of another's recipients, which the other is to lose.
    fn split_off(&mut self, from: JobId, recipients: &[u32], now: Millis) -> Lease {
        let Job { due, message, destination, .. } = self.jobs[from];
        let (attempt_count, destination) = (self.jobs[from].attempt_count(), DestinationId(destination));
        let job = self.new_job(message, Recipients::new(recipients), destination, attempt_count, due);
        self.start_attempt(job, now)
    }
}
