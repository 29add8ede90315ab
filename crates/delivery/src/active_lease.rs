//! Leases whose transactions have begun, on one connection or on several.

use crate::{LeasedMessage, WorkSource, session::millis};
use mail::{
    AnsweredBy, Attempt, Outcome, SharedMessage,
    seven_bit::{Plan, Unconvertible},
};
use std::{collections::HashMap, sync::Arc, time::Instant};

/// A lease with a transaction in flight, and what earlier transactions of it have brought.
pub(crate) struct ActiveLease {
    pub(crate) transaction_id: u64,
    pub(crate) lease: LeasedMessage,
    pub(crate) message: SharedMessage,
    pub(crate) begun: Instant,
    /// Outcomes of earlier transactions of the lease: a server may take fewer recipients at once.
    pub(crate) outcomes: Vec<(u32, Outcome)>,
    /// Recipients for later transactions.
    pub(crate) remaining: Vec<u32>,
    /// Recipients that this server deferred, for the next server.
    pub(crate) postponed: Vec<(u32, Outcome)>,
    /// The outcomes at the servers before this one, and who gave them: they stand if no other server can be reached.
    pub(crate) earlier: Vec<(u32, Outcome, AnsweredBy)>,
    /// The servers before this one that gave the first of `outcomes`, in the same order.
    pub(crate) servers: Vec<(u32, AnsweredBy)>,
    /// The most recipients of its next transaction, once a larger transaction was refused at DATA or at the end
    /// of the content, or the server closed the connection in reply to DATA.
    pub(crate) recipients_max: Option<usize>,
    /// The conversion of the content to 7 bits, once a next hop has asked for that.
    pub(crate) plan: Option<Result<Arc<Plan>, Unconvertible>>,
}

impl ActiveLease {
    /// Returns whether no transaction of the lease has ended with a result that the next connection needs.
    pub(crate) fn is_whole(&self) -> bool {
        let is_at_first_server = self.postponed.is_empty() && self.earlier.is_empty();
        self.outcomes.is_empty() && self.recipients_max.is_none() && is_at_first_server
    }

    /// Prepares the lease for the next server: what this one deferred is tried again, and its limits are forgotten.
    pub(crate) fn turn_to_next_server(&mut self, last: &Attempt) {
        let server = || AnsweredBy { relay: last.relay.clone(), tls: last.tls.clone() };
        let postponed = std::mem::take(&mut self.postponed);
        self.remaining.extend(postponed.iter().map(|(index, _)| *index));
        self.remaining.sort_unstable();
        self.earlier.retain(|(index, ..)| !postponed.iter().any(|(other, _)| index == other));
        self.earlier.extend(postponed.into_iter().map(|(index, outcome)| (index, outcome, server())));
        let known = self.servers.len();
        self.servers.extend(self.outcomes[known..].iter().map(|(index, _)| (*index, server())));
        self.recipients_max = None;
    }

    /// Completes the lease. Recipients without an outcome get the one that an earlier server gave, or else this one.
    pub(crate) fn complete<J: WorkSource>(mut self, source: &J, outcome: &Outcome, attempt: &Attempt) {
        self.turn_to_next_server(attempt);
        let earlier = std::mem::take(&mut self.earlier).into_iter();
        let mut earlier: HashMap<u32, (Outcome, AnsweredBy)> =
            earlier.map(|(index, outcome, server)| (index, (outcome, server))).collect();
        for index in std::mem::take(&mut self.remaining) {
            match earlier.remove(&index) {
                Some((outcome, server)) => {
                    self.outcomes.push((index, outcome));
                    self.servers.push((index, server));
                }
                None => self.outcomes.push((index, outcome.clone())),
            }
        }
        let attempt = Attempt { elsewhere: self.servers.into_iter().collect(), ..attempt.clone() };
        source.complete(self.lease, self.outcomes, &attempt);
    }
}

/// Leases that the next connection to the same destination continues.
#[derive(Default)]
pub(crate) struct Unfinished {
    /// For the same server: it did not take their recipients because the transaction, or the connection, had too many of
    /// them.
    pub(crate) leases: Vec<ActiveLease>,
    /// For the next server: this one deferred them.
    pub(crate) for_next_server: Vec<ActiveLease>,
    /// The most recipients that the server took in one transaction before it closed.
    pub(crate) recipients_max: Option<usize>,
    /// The connection that ended has delivered to a recipient. Behind the server's limit of transactions (MAILMAX)
    /// any outcome of a recipient counts.
    pub(crate) has_progress: bool,
    /// The connection, for recipients that were delivered to.
    pub(crate) attempt: Attempt,
}

impl Unfinished {
    /// Moves all leases to the next server.
    pub(crate) fn turn_to_next_server(&mut self) {
        self.leases.append(&mut self.for_next_server);
        self.leases.iter_mut().for_each(|lease| lease.turn_to_next_server(&self.attempt));
        self.recipients_max = None;
    }

    /// Completes all leases: no other connection could be made.
    pub(crate) fn fail<J: WorkSource>(self, source: &J, outcome: &Outcome) {
        for active in self.leases.into_iter().chain(self.for_next_server) {
            let (queued_ms, transfer_ms) = (active.lease.queued_ms, millis(active.begun.elapsed()));
            let attempt = Attempt { queued_ms, transfer_ms, ..self.attempt.clone() };
            active.complete(source, outcome, &attempt);
        }
    }
}
