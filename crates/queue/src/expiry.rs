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
    }

    /// Returns whether the lifetime of the message is over, or the deadline at which it is returned, so that a deferral of
    /// the job is a failure.
    pub fn is_expired(&self, job: JobId, now: Millis) -> bool {
        let message = self.jobs[job].message;
        self.is_as_old_as(message, self.settings.expire, now)
            || self.timetable.is_to_be_returned(message, now)
    }

    /// Returns the next overdue message; ask until `None`.
    pub fn next_overdue(&mut self, now: Millis) -> Option<Overdue> {
        if let Some(overdue) = self.next_deadline(now) {
            return Some(overdue);
        }
        self.ages.sort(&mut self.messages);
        let warning = self.settings.delay_warning;
        if let Some(message) = self.ages.first_for_warning().filter(|m| self.is_as_old_as(*m, warning, now)) {
            self.ages.put(&mut self.messages, message, NextDeadline::Expiry);
            let recipients = self.recipients_of(message);
            return Some(Overdue::Delayed(self.messages[message].id, recipients));
        }
        while let Some(message) = self.ages.first_for_expiry().filter(|m| now >= self.expires_at(*m)) {
            self.ages.put(&mut self.messages, message, NextDeadline::None);
            if self.messages[message].held {
                continue;
            }
            let jobs = self.lease_idle_jobs(message, &|_| true, now);
            if !jobs.is_empty() {
                return Some(Overdue::Expired(jobs));
            }
        }
        None
    }

    /// Returns the next message whose deadline is over. The deadline of a held message waits for an operator.
    fn next_deadline(&mut self, now: Millis) -> Option<Overdue> {
        while let Some((message, deadline)) = self.timetable.pop_overdue(now) {
            let entry = &self.messages[message];
            if !deadline.returns {
                return Some(Overdue::Delayed(entry.id, self.recipients_of(message)));
            }
            if entry.held {
                continue;
            }
            let jobs = self.lease_idle_jobs(message, &|_| true, now);
            if !jobs.is_empty() {
                return Some(Overdue::DeadlineOver(jobs));
            }
        }
        None
    }

    /// Returns when a message expires. A message of an earlier process may have waited for days without an attempt, so
    /// it has some time after the start.
    fn expires_at(&self, message: u32) -> Millis {
        let (arrived, expire) = (self.messages[message].arrived, millis(self.settings.expire));
        let earliest = if arrived < self.started_at {
            self.started_at + expire.min(EXPIRY_GRACE_AFTER_START)
        } else {
            arrived
        };
        earliest.max(arrived + expire)
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
        [self.wheel.next_due(), timer, warned, expired, self.timetable.next_due()].into_iter().flatten().min()
    }
}
