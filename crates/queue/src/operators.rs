//! The commands of operators on messages, and on some of their recipients.

use crate::{
    DestinationId, Lease, Millis, Queue, Recipients,
    message::{Job, JobId, JobState},
    ready_list::Tables,
};
use mail::{Destination, QueueId};

/// How an operator cancels recipients: with or without a DSN to the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAs {
    /// The sender gets a DSN.
    Bounce,
    /// The sender gets no DSN.
    Delete,
}

/// What a command did to a message, as its answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandResult {
    /// There is no such message.
    Missing,
    /// The message is as it was: it was held already, is not held, or cannot be tried now.
    Unchanged,
    /// The command took effect.
    Changed,
}

impl CommandResult {
    fn changed_if(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::Unchanged }
    }
}

impl Queue {
    /// Holds a message: no job of it is tried until [`Queue::release`].
    pub fn hold(&mut self, id: QueueId) -> CommandResult {
        let Some(message) = self.by_id.get(&self.messages, id) else { return CommandResult::Missing };
        let was_held = std::mem::replace(&mut self.messages[message].held, true);
        self.held_count += usize::from(!was_held);
        for job in self.jobs_of(message).collect::<Vec<_>>() {
            self.unschedule(job);
        }
        CommandResult::changed_if(!was_held)
    }

    /// Releases a held message; its jobs are ready now, unless its sender wants a later release. A message that is not
    /// held stays as it is.
    pub fn release(&mut self, id: QueueId, now: Millis) -> CommandResult {
        let Some(message) = self.by_id.get(&self.messages, id) else { return CommandResult::Missing };
        if !self.messages[message].held {
            return CommandResult::Unchanged;
        }
        self.messages[message].held = false;
        self.held_count -= 1;
        self.make_ready(message, now);
        self.list_for_expiry(message, now);
        CommandResult::Changed
    }

    /// Makes the jobs of a message ready, whatever they wait for. A held message stays held, as does one until the release
    /// that its sender chose; a job in flight is not interrupted.
    pub fn retry(&mut self, id: QueueId, now: Millis) -> CommandResult {
        let Some(message) = self.by_id.get(&self.messages, id) else { return CommandResult::Missing };
        let changed = !self.messages[message].held && self.make_ready(message, now);
        CommandResult::changed_if(changed)
    }

    /// Makes the jobs of a message ready that are not in flight. Returns whether there is one. Jobs of a message that is
    /// not released yet wait for the release.
    fn make_ready(&mut self, message: u32, now: Millis) -> bool {
        let mut is_any = false;
        let release = self.release_of(message, now);
        for job in self.jobs_of(message).collect::<Vec<_>>() {
            if self.jobs[job].state() == JobState::InFlight {
                continue;
            }
            self.unschedule(job);
            if let Some(release) = release {
                self.put_waiting(job, release);
                continue;
            }
            self.put_ready(job, now, false);
            self.revive(DestinationId(self.jobs[job].destination), now);
            is_any = true;
        }
        is_any
    }

    fn revive(&mut self, id: DestinationId, now: Millis) {
        self.resume(id);
        self.update_connections(id, now);
    }

    /// Returns the number of messages that [`Queue::flush`] makes due, as [`Queue::retry`] would each: those that are neither
    /// held nor await the release that their sender chose, and of which something is not in flight.
    pub fn flushable_count(&self, now: Millis) -> usize {
        let is_held = |at: u32| self.messages[at].held || self.release_of(at, now).is_some();
        let is_in_flight = |at: u32| self.jobs_of(at).all(|job| self.jobs[job].state() == JobState::InFlight);
        self.messages.iter().filter(|(at, _)| !is_held(*at) && !is_in_flight(*at)).count()
    }

    /// Makes all jobs ready that are not held, and probes suspended destinations.
    pub fn flush(&mut self, now: Millis) {
        self.flush_destinations(|_| true, now);
    }

    /// Makes the jobs of some destinations ready that are not held, and probes those destinations. Returns the number of
    /// jobs that are ready or in flight then.
    pub fn flush_destinations(&mut self, is_meant: impl Fn(&Destination) -> bool, now: Millis) -> u64 {
        let meant: Vec<bool> = self.destinations.iter().map(|one| is_meant(&one.name)).collect();
        let waits = |job: &Job| {
            job.state() == JobState::Waiting
                && meant[job.destination as usize]
                && self.release_of(job.message, now).is_none()
        };
        let waiting: Vec<JobId> = self.jobs.iter().filter(|(_, job)| waits(job)).map(|(at, _)| at).collect();
        for job in waiting {
            self.unschedule(job);
            self.put_ready(job, now, false);
        }
        let mut busy_count = 0;
        for at in (0..meant.len()).filter(|at| meant[*at]) {
            self.revive(DestinationId(at as u32), now);
            let destination = &self.destinations[at];
            busy_count += u64::from(destination.ready_count) + u64::from(destination.in_flight_count);
        }
        busy_count
    }

    /// Cancels the recipients of a message that are `meant`, by index. Returns the jobs of those that are not in
    /// flight: they are in flight now, and the caller completes them. Recipients in flight are cancelled when their
    /// attempt ends without a delivery or failure: see [`crate::Completion::cancelled`] and [`Queue::return_lease`].
    /// `None`: no such message.
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

    /// Notes that recipients of a job in flight are cancelled. The last command on a recipient holds.
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

    /// Leases the recipients that are meant and not in flight, so that the caller alone decides about them.
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
            let mut tables =
                Tables { jobs: &mut self.jobs, messages: &self.messages, timetable: &self.timetable };
            self.destinations[destination].ready.change(&mut tables, job, change);
        } else {
            change(&mut self.jobs[job]);
        }
    }

    /// Splits cancelled recipients off those that come back from an attempt.
    pub(crate) fn split_off_cancelled(
        &mut self,
        job: JobId,
        open: &mut Vec<u32>,
        now: Millis,
    ) -> Vec<(Lease, CancelAs)> {
        // Cancellations in flight are rare.
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

    /// Makes a new job in flight with some of the recipients of another job, which the other job is to lose.
    fn split_off(&mut self, from: JobId, recipients: &[u32], now: Millis) -> Lease {
        let Job { due, message, destination, .. } = self.jobs[from];
        let (attempt_count, destination) = (self.jobs[from].attempt_count(), DestinationId(destination));
        let job = self.new_job(message, Recipients::new(recipients), destination, attempt_count, due);
        self.start_attempt(job, now)
    }
}
