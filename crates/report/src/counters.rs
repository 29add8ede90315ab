//! The counters of recipients: accepted = delivered + bounced + expired + deleted + moved + queued. A difference is lost
//! or invented mail.

use mail::FinishedAs;
use serde::{Deserialize, Serialize};

/// The number of recipients in each state, since the spool was made. The message engine counts, and `postrider status`
/// shows the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecipientCounters {
    /// Recipients of accepted messages, including DSNs.
    pub accepted: u64,
    /// The next hop or the mailbox has the message.
    pub delivered: u64,
    /// Recipients that failed.
    pub bounced: u64,
    /// Failed because the message's lifetime was over.
    pub expired: u64,
    /// Deleted by an operator.
    pub deleted: u64,
    /// Ended here because another message, or another spool, has the recipient.
    #[serde(default)]
    pub moved: u64,
    /// Queued: none of the above yet.
    pub queued: u64,
}

impl RecipientCounters {
    /// Counts recipients that enter the queue.
    pub fn accept(&mut self, count: u64) {
        self.accepted += count;
        self.queued += count;
    }

    /// Counts a recipient that leaves the queue.
    ///
    /// # Panics
    /// When no recipient is queued.
    pub fn finish(&mut self, finished_as: FinishedAs) {
        assert!(self.queued > 0, "a finished recipient was queued");
        self.queued -= 1;
        *match finished_as {
            FinishedAs::Delivered => &mut self.delivered,
            FinishedAs::Bounced => &mut self.bounced,
            FinishedAs::Expired => &mut self.expired,
            FinishedAs::Deleted => &mut self.deleted,
            FinishedAs::Moved => &mut self.moved,
        } += 1;
    }

    /// Counts recipients that left the queue before this start. They were accepted, too.
    pub fn add_finished(&mut self, earlier: &Self) {
        self.accepted += earlier.finished();
        self.delivered += earlier.delivered;
        self.bounced += earlier.bounced;
        self.expired += earlier.expired;
        self.deleted += earlier.deleted;
        self.moved += earlier.moved;
    }

    /// Returns the number of recipients that have left the queue.
    pub fn finished(&self) -> u64 {
        self.delivered + self.bounced + self.expired + self.deleted + self.moved
    }

    /// Returns whether every accepted recipient is queued or finished.
    pub fn is_consistent(&self) -> bool {
        self.accepted == self.finished() + self.queued
    }

    /// Panics when the counters do not add up.
    pub fn check_invariants(&self) {
        assert!(self.is_consistent(), "accepted is the sum of all others: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_add_up_after_every_step() {
        let mut counters = RecipientCounters::default();
        counters.accept(5);
        for finished_as in
            [FinishedAs::Delivered, FinishedAs::Bounced, FinishedAs::Expired, FinishedAs::Deleted]
        {
            counters.finish(finished_as);
            counters.check_invariants();
        }
        assert_eq!((counters.queued, counters.finished()), (1, 4));
        let earlier = RecipientCounters { delivered: 7, moved: 2, ..RecipientCounters::default() };
        counters.add_finished(&earlier);
        counters.check_invariants();
        assert_eq!((counters.accepted, counters.queued, counters.finished()), (14, 1, 13));
    }

    #[test]
    fn counters_are_inconsistent_when_a_recipient_is_in_no_counter() {
        let mut counters = RecipientCounters {
            accepted: 10,
            delivered: 3,
            bounced: 3,
            expired: 1,
            deleted: 1,
            moved: 1,
            queued: 1,
        };
        assert!(counters.is_consistent());
        counters.queued = 0;
        assert!(!counters.is_consistent());
    }
}
