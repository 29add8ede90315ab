//! Transactions that may be there after a crash. The log keeps them in the order of their commit sequence numbers; of
//! queue directories any may survive, as long as of no message something is there without what came
//! before it.

use super::{Damaged, Queue, apply};
use spool::{Entry, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// More tries than any real story needs.
const TRIES_MAX: u32 = 1_000_000;

fn named(transaction: &Transaction) -> BTreeSet<u64> {
    let id = |entry: &Entry| match entry {
        Entry::Accept(message) => Some(message.id.0),
        Entry::Import(found) => Some(found.message.id.0),
        Entry::Outcome { id, .. } | Entry::Control { id, .. } => Some(id.0),
        Entry::Count(_) => None,
    };
    transaction.iter().filter_map(id).collect()
}

/// Can `found` be what `before` became by some of these transactions?
/// Of messages that are damaged anything goes.
pub(super) fn is_some_of(before: &Queue, open: &[&Transaction], found: &Queue, damaged: &Damaged) -> bool {
    let names: Vec<BTreeSet<u64>> = open.iter().map(|transaction| named(transaction)).collect();
    let touched: BTreeSet<u64> = names.iter().flatten().copied().collect();
    let others = |queue: &Queue| -> Queue {
        queue.iter().filter(|(id, _)| !touched.contains(id)).map(|(id, live)| (*id, live.clone())).collect()
    };
    let mut last = BTreeMap::new();
    for (at, ids) in names.iter().enumerate() {
        last.extend(ids.iter().map(|id| (*id, at)));
    }
    let mut search = Search { open, names: &names, last: &last, found, damaged, tries: 0 };
    others(&damaged.sound(before)) == others(&damaged.sound(found))
        && search.from(0, before, &BTreeSet::new())
}

struct Search<'a> {
    open: &'a [&'a Transaction],
    names: &'a [BTreeSet<u64>],
    /// By queue id, the index of the last transaction that names it.
    last: &'a BTreeMap<u64, usize>,
    found: &'a Queue,
    damaged: &'a Damaged,
    tries: u32,
}

impl Search<'_> {
    /// The transactions from `at` on; those that name a message in `ended` cannot be there.
    fn from(&mut self, at: usize, queue: &Queue, ended: &BTreeSet<u64>) -> bool {
        let Some(transaction) = self.open.get(at) else { return true };
        self.tries += 1;
        if self.tries > TRIES_MAX {
            return false;
        }
        let names = &self.names[at];
        let is_right = |queue: &Queue, id: &u64| self.damaged.has(*id) || queue.get(id) == self.found.get(id);
        if names.is_disjoint(ended) {
            let mut with = queue.clone();
            apply(&mut with, transaction);
            let settled = names.iter().filter(|id| self.last[id] == at);
            if settled.into_iter().all(|id| is_right(&with, id)) && self.from(at + 1, &with, ended) {
                return true;
            }
        }
        if !names.iter().all(|id| is_right(queue, id)) {
            return false;
        }
        let ended = ended | names;
        self.from(at + 1, queue, &ended)
    }
}
