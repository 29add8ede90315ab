//! Puts what recovery finds in the spool back into the queue.

use super::{
    clock::Clock,
    engine::{Current, State, Waits},
};
use mail::{Fate, IdSource};
use queue::Verdict;
use report::Ledger;
use spool::{Entry, Recovered};

/// Takes recovered messages in, one after the other.
pub(super) struct Recovery<'a> {
    pub(super) current: &'a Current,
    pub(super) settings: &'a queue::Settings,
    pub(super) clock: &'a Clock,
    pub(super) ids: &'a IdSource,
    pub(super) ledger: &'a Ledger,
    pub(super) waits: Waits,
    /// What the spool is to be told, see [`super::conclude::store_recovered`]: the ends of messages of which every
    /// recipient is finished, because their last outcome was stored without the word that it was the last one;
    /// and outcomes that only a second copy of a message has.
    pub(super) entries: Vec<Entry>,
}

impl Recovery<'_> {
    /// Queues a message whose recipients are not all finished, and counts those that are left.
    pub(super) fn take_in(&mut self, state: &mut State, found: &Recovered) {
        let id = found.message.id;
        self.ids.never_before(id);
        match state.restore(found, self.current, self.settings, self.clock, self.waits) {
            0 => self.entries.push(Entry::Outcome { id, results: Vec::new(), last: true }),
            count => self.ledger.accepted(count),
        }
    }

    /// Applies what a second copy of a message says of its recipients: those that are finished there are not
    /// served again.
    pub(super) fn merge(&mut self, state: &mut State, copy: &spool::SecondCopy) {
        let outcome_of = |index: u32| {
            let past = copy.recipients.get(index as usize).filter(|past| past.settled)?;
            past.last.as_ref().map(|(_, outcome)| outcome.clone())
        };
        let now = self.clock.now();
        let is_finished = |index| outcome_of(index).is_some();
        let taken = state.queue.seize(copy.id, is_finished, Verdict::Deleted, now).unwrap_or_default();
        for one in taken {
            let results: Vec<_> = one
                .recipients
                .as_slice()
                .iter()
                .filter_map(|index| Some((*index, outcome_of(*index)?)))
                .collect();
            let fates: Vec<_> = results.iter().map(|(index, outcome)| (*index, outcome.fate)).collect();
            let last = state.queue.settle(one.unit, &fates, false, now).last;
            state.remember(copy.id, &results, last);
            for (_, outcome) in &results {
                match outcome.fate {
                    Fate::Delivered => self.ledger.delivered(1),
                    Fate::Failed | Fate::Deferred => self.ledger.bounced(1),
                }
            }
            self.entries.push(Entry::Outcome { id: copy.id, results, last });
        }
    }
}
