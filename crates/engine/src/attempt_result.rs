//! Jobs that end together, from the end of an attempt to the entry in the spool.

use crate::{Lease, RequestId};
use mail::{Attempt, Cause, Outcome, QueueId};

/// Jobs of one message that end together, and the outcomes of their recipients. One report has them all.
#[derive(Debug)]
pub(crate) struct AttemptResult {
    pub(crate) id: QueueId,
    pub(crate) leases: Vec<Lease>,
    pub(crate) results: Vec<(u32, Outcome)>,
    pub(crate) attempt: Attempt,
    /// The operator's request that is answered when the result is stored.
    pub(crate) answer: Option<RequestId>,
}

impl AttemptResult {
    /// Returns true if an operator deleted the recipients: their sender gets no report.
    pub(crate) fn is_deleted(&self) -> bool {
        self.results.first().is_some_and(|(_, outcome)| outcome.cause == Cause::Deleted)
    }
}
