//! Leases whose transactions have begun, on one connection or on several.

use crate::{LeasedMessage, WorkSource, session::millis};
use mail::{
    Attempt, Outcome, SharedMessage,
    seven_bit::{Plan, Unconvertible},
};
use std::{sync::Arc, time::Instant};

/// A lease whose transaction has begun.
pub(crate) struct ActiveLease {
    pub(crate) transaction_id: u64,
    pub(crate) lease: LeasedMessage,
    pub(crate) message: SharedMessage,
    pub(crate) begun: Instant,
    /// Outcomes of earlier transactions of the lease: a server may take fewer recipients at once.
    pub(crate) outcomes: Vec<(u32, Outcome)>,
    /// Recipients for later transactions.
    pub(crate) remaining: Vec<u32>,
    /// The most recipients of its next transaction, once a larger transaction was refused at DATA or at the end
    /// of the content, or the server closed the connection in reply to DATA.
    pub(crate) recipients_max: Option<usize>,
    /// The conversion of the content to 7 bits, once a next hop has asked for that.
    pub(crate) plan: Option<Result<Arc<Plan>, Unconvertible>>,
}

impl ActiveLease {
    /// Returns whether no transaction of the lease has ended with a result that the next connection needs.
    pub(crate) fn is_whole(&self) -> bool {
        self.outcomes.is_empty() && self.recipients_max.is_none()
    }

    /// Completes the lease. Recipients without an outcome get this one.
    pub(crate) fn complete<J: WorkSource>(mut self, source: &J, outcome: &Outcome, attempt: &Attempt) {
        let remaining = std::mem::take(&mut self.remaining);
        self.outcomes.extend(remaining.into_iter().map(|index| (index, outcome.clone())));
        source.complete(self.lease, self.outcomes, attempt);
    }
}

/// Leases that the next connection to the same destination continues. The server did not take their recipients
/// because the transaction, or the connection, had too many of them.
#[derive(Default)]
pub(crate) struct Unfinished {
    pub(crate) leases: Vec<ActiveLease>,
    /// The most recipients that the server took in one transaction before it closed.
    pub(crate) recipients_max: Option<usize>,
    /// The connection that ended has delivered to a recipient. Behind the server's limit of transactions (MAILMAX)
    /// any outcome of a recipient counts.
    pub(crate) has_progress: bool,
    /// The connection, for recipients that were delivered to.
    pub(crate) attempt: Attempt,
}

impl Unfinished {
    /// Completes all leases: no other connection could be made.
    pub(crate) fn fail<J: WorkSource>(self, source: &J, outcome: &Outcome) {
        for active in self.leases {
            let (queued_ms, transfer_ms) = (active.lease.queued_ms, millis(active.begun.elapsed()));
            let attempt = Attempt { queued_ms, transfer_ms, ..self.attempt.clone() };
            active.complete(source, outcome, &attempt);
        }
    }
}
