//! The counters of recipients: accepted = delivered + bounced + expired + deleted + queued. A difference is lost or
//! invented mail.

/// The counters of recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecipientCounters {
    /// Recipients of accepted messages, including DSNs and what recovery found.
    pub accepted: u64,
    /// The next hop or the mailbox has the message.
    pub delivered: u64,
    /// Failed.
    pub bounced: u64,
    /// Failed because the message's lifetime was over.
    pub expired: u64,
    /// Deleted by an operator.
    pub deleted: u64,
    /// Queued: none of the above yet.
    pub queued: u64,
}

/// The counter that a finished recipient adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Delivered,
    Bounced,
    Expired,
    Deleted,
}

impl RecipientCounters {
    /// Counts recipients that enter the queue.
    pub(crate) fn accept(&mut self, count: u64) {
        self.accepted += count;
        self.queued += count;
    }

    /// Counts a recipient that leaves the queue.
    pub(crate) fn finish(&mut self, column: Column) {
        assert!(self.queued > 0, "a finished recipient was queued");
        self.queued -= 1;
        *match column {
            Column::Delivered => &mut self.delivered,
            Column::Bounced => &mut self.bounced,
            Column::Expired => &mut self.expired,
            Column::Deleted => &mut self.deleted,
        } += 1;
    }

    /// Panics when the counters do not add up.
    pub(crate) fn check_invariants(&self) {
        let sum = self.delivered + self.bounced + self.expired + self.deleted + self.queued;
        assert_eq!(self.accepted, sum, "accepted is the sum of all others: {self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_add_up_after_every_step() {
        let mut counters = RecipientCounters::default();
        counters.accept(5);
        for column in [Column::Delivered, Column::Bounced, Column::Expired, Column::Deleted] {
            counters.finish(column);
            counters.check_invariants();
        }
        assert_eq!(counters.queued, 1);
    }
}
