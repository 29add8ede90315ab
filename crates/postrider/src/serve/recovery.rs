//! Puts what recovery finds in the spool back into the queue.

use super::{
    clock::Clock,
    engine::{Current, State, Waits},
};
use mail::{IdSource, QueueId};
use report::Ledger;
use spool::Recovered;

/// Takes recovered messages in, one after the other.
pub(super) struct Recovery<'a> {
    pub(super) current: &'a Current,
    pub(super) settings: &'a queue::Settings,
    pub(super) clock: &'a Clock,
    pub(super) ids: &'a IdSource,
    pub(super) ledger: &'a Ledger,
    pub(super) waits: Waits,
    /// Messages of which every recipient is finished. Their last outcome was stored without the word that it
    /// was the last one: they are to be ended, see [`super::conclude::end_finished`].
    pub(super) finished: Vec<QueueId>,
}

impl Recovery<'_> {
    /// Queues a message whose recipients are not all finished, and counts those that are left.
    pub(super) fn take_in(&mut self, state: &mut State, found: &Recovered) {
        let id = found.message.id;
        self.ids.never_before(id);
        match state.restore(found, self.current, self.settings, self.clock, self.waits) {
            0 => self.finished.push(id),
            count => self.ledger.accepted(count),
        }
    }
}
