//! Delay warnings and expiry.

use crate::{JobId, Lease, Millis, Queue, message::NextDeadline, settings::millis};
use mail::QueueId;
use std::time::Duration;

/// After a start no message expires untried for this time.
const EXPIRY_GRACE_AFTER_START: Millis = 3_600_000;

/// A message whose delay warning or expiry is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The sender may get a delay warning about these recipients.
    Delayed(QueueId, Vec<u32>),
    /// The jobs fail now: they are in flight, to be completed as failed.
    Expired(Vec<Lease>),
    /// The jobs fail now, because the deadline that their sender set is over.
    DeadlineOver(Vec<Lease>),
}

impl Queue {
    /// Lists a message for its expiry again that was held or in flight when its lifetime ended.
    pub(crate) fn list_for_expiry(&mut self, message: u32, now: Millis) {
        if self.messages[message].next_deadline == NextDeadline::None
            && self.release_of(message, now).is_none()
        {
            self.ages.put_for_expiry(&mut self.messages, message);
            self.hint_at(now);
        }
        if let Some(at) = self.timetable.reopen(message) {
            self.hint_at(at);
        }
        if !self.settings.routes.is_empty() {
            let jobs: Vec<JobId> = self.jobs_of(message).collect();
            jobs.into_iter().for_each(|job| self.list_own_lifetime(job));
        }
    }

    /// Returns whether the lifetime of the message is over, or the deadline at which it is returned, so that a deferral of
    /// the job is a failure.
    pub fn is_expired(&self, job: JobId, now: Millis) -> bool {
        let message = self.jobs[job].message;
        let general = || self.is_as_old_as(message, self.settings.expire, now);
        self.is_own_lifetime_over(job, now).unwrap_or_else(general)
            || self.timetable.is_to_be_returned(message, now) && self.has_deadline(job)
    }

    /// Returns the next overdue message; ask until `None`.
    pub fn next_overdue(&mut self, now: Millis) -> Option<Overdue> {
        if let Some(overdue) = self.next_deadline(now) {
            return Some(overdue);
        }
        self.ages.sort(&mut self.messages);
        let warning = self.settings.delay_warning;
        while let Some(message) =
            self.ages.first_for_warning().filter(|m| self.is_as_old_as(*m, warning, now))
        {
            self.ages.put(&mut self.messages, message, NextDeadline::Expiry);
            // The warning says that the server keeps trying.
            let ends_now = || {
                self.is_as_old_as(message, self.settings.expire, now)
                    || self.timetable.is_to_be_returned(message, now)
            };
            if self.messages[message].held || ends_now() {
                continue;
            }
            let recipients = self.recipients_of(message);
            return Some(Overdue::Delayed(self.messages[message].id, recipients));
        }
        if let Some(lease) = self.next_own_overdue(now) {
            return Some(Overdue::Expired(vec![lease]));
        }
        while let Some(message) = self.ages.first_for_expiry().filter(|m| now >= self.expires_at(*m)) {
            self.ages.put(&mut self.messages, message, NextDeadline::None);
            if self.messages[message].held {
                continue;
            }
            let own = self.recipients_with_own_lifetime(message);
            let jobs = self.lease_idle_jobs(message, &|index| !own.contains(&index), now);
            if !jobs.is_empty() {
                return Some(Overdue::Expired(jobs));
            }
        }
        None
    }

    /// Returns the next message whose deadline is over. The deadline of a held message waits for an operator.
    fn next_deadline(&mut self, now: Millis) -> Option<Overdue> {
        while let Some((message, deadline)) = self.timetable.pop_overdue(now) {
            let mut late = self.recipients_of(message);
            late.retain(|recipient| self.timetable.concerns(message, *recipient));
            let entry = &self.messages[message];
            if !deadline.returns {
                let id = entry.id;
                // It is told once that the message is late.
                if self.warning_of(message).is_some_and(|due| due <= now) {
                    self.ages.put(&mut self.messages, message, NextDeadline::Expiry);
                }
                if late.is_empty() {
                    continue;
                }
                return Some(Overdue::Delayed(id, late));
            }
            if entry.held {
                continue;
            }
            let jobs = self.lease_idle_jobs(message, &|recipient| late.contains(&recipient), now);
            if !jobs.is_empty() {
                return Some(Overdue::DeadlineOver(jobs));
            }
        }
        None
    }

    /// Returns when a message expires. A message of an earlier process may have waited for days without an attempt, so
    /// it has some time after the start.
    fn expires_at(&self, message: u32) -> Millis {
        self.expires_after(message, self.settings.expire)
    }

    /// Returns when a job fails if it is not delivered before; none while an operator holds its message.
    pub(crate) fn expiry_of(&self, job: JobId) -> Option<Millis> {
        let message = self.jobs[job].message;
        if self.messages[message].held {
            return None;
        }
        Some(self.or_returned(job))
    }

    /// Returns the end of the lifetime of a job, or the deadline at which it is returned where that comes first.
    pub(crate) fn or_returned(&self, job: JobId) -> Millis {
        let (message, expires) = (self.jobs[job].message, self.lifetime_end(job));
        let deadline = self.timetable.deadline(message).filter(|deadline| deadline.returns);
        match deadline {
            Some(deadline) if self.has_deadline(job) => expires.min(deadline.at),
            _ => expires,
        }
    }

    /// Returns whether the deadline of its message, if it has one, concerns a recipient of a job.
    fn has_deadline(&self, job: JobId) -> bool {
        let entry = &self.jobs[job];
        entry.recipients.as_slice().iter().any(|recipient| self.timetable.concerns(entry.message, *recipient))
    }

    /// Returns when the delay warning of a message is due; none if it was due before.
    pub(crate) fn warning_of(&self, message: u32) -> Option<Millis> {
        let entry = &self.messages[message];
        (entry.next_deadline == NextDeadline::Warning)
            .then(|| entry.arrived + millis(self.settings.delay_warning))
    }

    /// Returns when a lifetime of a message is over.
    pub(crate) fn expires_after(&self, message: u32, lifetime: Duration) -> Millis {
        let (arrived, expire) = (self.messages[message].arrived, millis(lifetime));
        let earliest = if arrived < self.started_at {
            self.started_at + expire.min(EXPIRY_GRACE_AFTER_START)
        } else {
            arrived
        };
        earliest.max(arrived + expire)
    }

    /// Returns the recipients whose route has a lifetime of its own: that of the message does not concern them.
    fn recipients_with_own_lifetime(&self, message: u32) -> Vec<u32> {
        let jobs = self.jobs_of(message).filter(|job| self.own_lifetime(*job).is_some());
        jobs.flat_map(|job| self.jobs[job].recipients.as_slice().to_vec()).collect()
    }

    fn is_as_old_as(&self, message: u32, age: Duration, now: Millis) -> bool {
        now - self.messages[message].arrived >= millis(age)
    }

    /// Returns when [`Queue::advance`] and [`Queue::next_overdue`] have something next.
    pub fn next_wake(&self) -> Option<Millis> {
        let after = |m: u32, age: Duration| self.messages[m].arrived + millis(age);
        let warned = self.ages.first_for_warning().map(|m| after(m, self.settings.delay_warning));
        let expired = self.ages.first_for_expiry().map(|m| self.expires_at(m));
        let timer = self.timers.first().map(|t| t.0);
        let own = self.own_lifetimes.first().map(|(deadline, _)| *deadline);
        let planned = self.timetable.next_due();
        [self.wheel.next_due(), timer, warned, expired, planned, own].into_iter().flatten().min()
    }
}
