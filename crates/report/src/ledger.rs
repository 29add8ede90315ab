//! The product's own bookkeeping: accepted = delivered + bounced + expired + deleted + queued, in
//! recipients. A difference would be lost or invented mail.

use std::sync::{Mutex, PoisonError};

/// The counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Recipients of accepted messages, DSNs of our own and what a restart found included.
    pub accepted: u64,
    /// The next hop or the mailbox has the message.
    pub delivered: u64,
    /// Failed.
    pub bounced: u64,
    /// Failed because their time was over.
    pub expired: u64,
    /// An operator threw them away.
    pub deleted: u64,
    /// None of these yet.
    pub queued: u64,
}

/// Counts. One lock guards all, so that they add up at every moment.
#[derive(Debug, Default)]
pub struct Ledger {
    counters: Mutex<Snapshot>,
}

impl Ledger {
    fn change(&self, change: impl FnOnce(&mut Snapshot)) {
        change(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Settled ones leave the queue.
    fn settle(&self, count: u64, column: impl FnOnce(&mut Snapshot) -> &mut u64) {
        self.change(|all| {
            debug_assert!(all.queued >= count, "what is settled was queued");
            all.queued = all.queued.saturating_sub(count);
            *column(all) += count;
        });
    }

    /// New recipients.
    pub fn accepted(&self, count: u64) {
        self.change(|all| {
            all.accepted += count;
            all.queued += count;
        });
    }

    /// The next hop has them.
    pub fn delivered(&self, count: u64) {
        self.settle(count, |all| &mut all.delivered);
    }

    /// They failed.
    pub fn bounced(&self, count: u64) {
        self.settle(count, |all| &mut all.bounced);
    }

    /// They failed of old age.
    pub fn expired(&self, count: u64) {
        self.settle(count, |all| &mut all.expired);
    }

    /// An operator threw them away.
    pub fn deleted(&self, count: u64) {
        self.settle(count, |all| &mut all.deleted);
    }

    /// All counters.
    pub fn snapshot(&self) -> Snapshot {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_adds_up_at_every_moment() {
        let ledger = Ledger::default();
        let steps: [fn(&Ledger); 6] = [
            |l| l.accepted(10),
            |l| l.delivered(4),
            |l| l.bounced(2),
            |l| l.accepted(1),
            |l| l.expired(1),
            |l| l.deleted(3),
        ];
        for step in steps {
            step(&ledger);
            let s = ledger.snapshot();
            assert_eq!(s.accepted, s.delivered + s.bounced + s.expired + s.deleted + s.queued);
        }
        assert_eq!(ledger.snapshot().queued, 1);
    }
}
