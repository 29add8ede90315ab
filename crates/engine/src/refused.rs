//! Transactions that the spool refused. They are submitted again: a lost outcome would repeat an attempt after a
//! crash, and keep its message in the spool for ever.

use crate::TaskId;
use foldhash::HashMap;
use mail::QueueId;
use queue::Millis;
use spool::{Entry, Transaction};
use std::collections::{HashSet, VecDeque};

/// A refused transaction is submitted again after this, in milliseconds.
const RETRY_AFTER: Millis = 100;

#[derive(Debug, Default)]
pub(crate) struct RefusedTransactions {
    list: VecDeque<(Option<TaskId>, Transaction)>,
    /// The number of waiting transactions that name each message.
    by_id: HashMap<QueueId, u32>,
    retry_at: Option<Millis>,
}

fn id_of(entry: &Entry) -> Option<QueueId> {
    match entry {
        Entry::Accept(message) => Some(message.id),
        Entry::Import(recovered) => Some(recovered.message.id),
        Entry::Outcome { id, .. } | Entry::Control { id, .. } => Some(*id),
        Entry::Count(_) => None,
    }
}

fn ids_of(transaction: &Transaction) -> impl Iterator<Item = QueueId> + '_ {
    transaction.iter().filter_map(id_of)
}

impl RefusedTransactions {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether a refused transaction names a message of this one. Then this one must wait behind it, because
    /// the spool keeps the last decision on a message.
    pub(crate) fn is_before(&self, transaction: &Transaction) -> bool {
        !self.list.is_empty() && ids_of(transaction).any(|id| self.by_id.contains_key(&id))
    }

    /// Takes in a transaction that waits behind others of its messages.
    pub(crate) fn push_behind(&mut self, task: Option<TaskId>, transaction: Transaction) {
        self.count_in(&transaction);
        self.list.push_back((task, transaction));
    }

    /// Takes in a transaction that follows one of the same message, which is submitted now. It waits although nothing was
    /// refused: each keeps its place behind the one before it.
    pub(crate) fn push_next(&mut self, task: Option<TaskId>, transaction: Transaction, now: Millis) {
        self.push_behind(task, transaction);
        self.retry_at = self.retry_at.or(Some(now + RETRY_AFTER));
    }

    /// Takes in a transaction that the spool refused. Others of its messages, if any, were decided later.
    pub(crate) fn push_refused(&mut self, task: Option<TaskId>, transaction: Transaction, now: Millis) {
        self.count_in(&transaction);
        self.list.push_front((task, transaction));
        self.retry_at = Some(now + RETRY_AFTER);
    }

    fn count_in(&mut self, transaction: &Transaction) {
        for id in ids_of(transaction) {
            *self.by_id.entry(id).or_default() += 1;
        }
    }

    /// Returns the time at which [`Self::take_due`] is to be called.
    pub(crate) fn retry_at(&self) -> Option<Millis> {
        self.retry_at
    }

    /// Takes out the transactions that may be submitted now: the first one of each message.
    pub(crate) fn take_due(&mut self, now: Millis) -> Vec<(Option<TaskId>, Transaction)> {
        if self.retry_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let (mut due, mut seen) = (Vec::new(), HashSet::new());
        self.by_id.clear();
        for (task, transaction) in std::mem::take(&mut self.list) {
            let is_first = !ids_of(&transaction).any(|id| seen.contains(&id));
            seen.extend(ids_of(&transaction));
            if is_first {
                due.push((task, transaction));
            } else {
                self.push_behind(task, transaction);
            }
        }
        self.retry_at = (!self.list.is_empty()).then_some(now + RETRY_AFTER);
        due
    }

    /// Panics when a transaction waits without a time at which it is submitted again.
    pub(crate) fn check_invariants(&self) {
        assert!(self.list.is_empty() || self.retry_at.is_some(), "refused transactions are retried");
        let named: u32 = self.by_id.values().sum();
        let entries: usize = self.list.iter().map(|(_, transaction)| ids_of(transaction).count()).sum();
        assert_eq!(named as usize, entries, "each refused entry is counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spool::ControlOp;

    fn hold() -> ControlOp {
        ControlOp::Hold("by root".into())
    }

    fn amend(id: u64, change: ControlOp) -> Transaction {
        vec![Entry::Control { id: QueueId(id), op: change }]
    }

    fn shown(due: &[(Option<TaskId>, Transaction)]) -> Vec<(u64, ControlOp)> {
        let one = |transaction: &Transaction| match &transaction[0] {
            Entry::Control { id, op: change } => (id.0, change.clone()),
            other => panic!("{other:?}"),
        };
        due.iter().map(|(_, transaction)| one(transaction)).collect()
    }

    #[test]
    fn the_transactions_of_a_message_keep_their_order_however_often_they_are_refused() {
        let mut refused = RefusedTransactions::default();
        refused.push_refused(None, amend(1, hold()), 0);
        assert!(refused.is_before(&amend(1, ControlOp::Release)) && !refused.is_before(&amend(2, hold())));
        refused.push_behind(None, amend(1, ControlOp::Release));
        assert_eq!(shown(&refused.take_due(99)), []);
        let due = refused.take_due(100);
        assert_eq!(shown(&due), [(1, hold())]);
        for (task, transaction) in due {
            refused.push_refused(task, transaction, 100);
        }
        refused.check_invariants();
        assert_eq!(shown(&refused.take_due(200)), [(1, hold())]);
        assert_eq!(shown(&refused.take_due(300)), [(1, ControlOp::Release)]);
        assert_eq!((refused.len(), refused.retry_at()), (0, None));
    }
}
