//! Jobs at destinations whose route has a lifetime of its own.

use crate::{
    JobId, Lease, Millis, Queue,
    message::{Job, JobState},
    settings::millis,
};
use mail::QueueId;
use std::time::Duration;

impl Queue {
    /// Returns the lifetime that the route of a job gives it, if it has one.
    pub(crate) fn own_lifetime(&self, job: JobId) -> Option<Duration> {
        if self.settings.routes.is_empty() {
            return None;
        }
        let destination = &self.destinations[self.jobs[job].destination as usize];
        self.settings.schedule_of(&destination.name).and_then(|schedule| schedule.lifetime)
    }

    /// Returns when the first of some recipients of a message expires, or the message is returned because of its deadline; `None`
    /// if none of them waits.
    pub fn gives_up_at(&self, id: QueueId, recipients: &[u32]) -> Option<Millis> {
        let message = self.by_id.get(&self.messages, id)?;
        let meant = |job: &JobId| {
            self.jobs[*job].recipients.as_slice().iter().any(|index| recipients.contains(index))
        };
        self.jobs_of(message).filter(meant).map(|job| self.or_returned(job)).min()
    }

    /// Returns when the lifetime of a job is over: that of its route, or that of the queue.
    pub(crate) fn lifetime_end(&self, job: JobId) -> Millis {
        let lifetime = self.own_lifetime(job).unwrap_or(self.settings.expire);
        self.expires_after(self.jobs[job].message, lifetime)
    }

    /// Returns when the lifetime that the route of a job gives it is over.
    fn own_deadline(&self, job: JobId) -> Option<Millis> {
        let lifetime = self.own_lifetime(job)?;
        Some(self.expires_after(self.jobs[job].message, lifetime))
    }

    /// Lists a job for its expiry, if its route has a lifetime of its own.
    pub(crate) fn list_own_lifetime(&mut self, job: JobId) {
        if let Some(deadline) = self.own_deadline(job) {
            self.own_lifetimes.insert((deadline, job));
            self.hint_at(deadline);
        }
    }

    /// Forgets a job that is about to be removed.
    pub(crate) fn unlist_own_lifetime(&mut self, job: JobId) {
        if self.own_lifetimes.is_empty() {
            return;
        }
        if let Some(deadline) = self.own_deadline(job) {
            self.own_lifetimes.remove(&(deadline, job));
        }
    }

    /// Lists all jobs anew: other settings give other deadlines.
    pub(crate) fn list_own_lifetimes(&mut self) {
        self.own_lifetimes.clear();
        if self.settings.routes.is_empty() {
            return;
        }
        let jobs: Vec<JobId> = self.jobs.iter().map(|(job, _)| job).collect();
        jobs.into_iter().for_each(|job| self.list_own_lifetime(job));
    }

    /// Returns the next job whose own lifetime is over, as a lease. A job in flight ends with its attempt, and a held job
    /// is listed again when it is released.
    pub(crate) fn next_own_overdue(&mut self, now: Millis) -> Option<Lease> {
        while let Some((_, job)) =
            self.own_lifetimes.first().copied().filter(|(deadline, _)| *deadline <= now)
        {
            self.own_lifetimes.pop_first();
            let Job { message, .. } = self.jobs[job];
            if self.jobs[job].state() == JobState::InFlight || self.messages[message].held {
                continue;
            }
            self.unschedule(job);
            return Some(self.start_attempt(job, now));
        }
        None
    }

    /// Returns whether the lifetime that the route gives a job is over; `None` without such a lifetime.
    pub(crate) fn is_own_lifetime_over(&self, job: JobId, now: Millis) -> Option<bool> {
        let lifetime = self.own_lifetime(job)?;
        Some(now - self.messages[self.jobs[job].message].arrived >= millis(lifetime))
    }
}
