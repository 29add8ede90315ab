//! The last outcome of each recipient that was tried, for `queue explain` and listings.

use mail::{Cause, Disposition, Outcome, QueueId, UnixMillis};
use std::{collections::HashMap, sync::Arc};

/// A recipient's index in the envelope, its last outcome, and when it was noted. The outcome of a finished recipient
/// has no text, as in the spool.
pub type LastOutcome = (u32, Arc<Outcome>, UnixMillis);

#[derive(Debug, Default)]
pub(crate) struct LastOutcomes {
    by_id: HashMap<QueueId, Vec<LastOutcome>>,
    /// Deferred recipients often share one text, which is then kept once.
    last_text: Option<Arc<Outcome>>,
}

/// Returns the part of a final outcome that the spool keeps. Most final outcomes are then equal, and kept once.
fn without_text(outcome: &Outcome) -> Outcome {
    Outcome { text: "".into(), from_remote: false, cause: Cause::Local, ..outcome.clone() }
}

impl LastOutcomes {
    /// Notes the outcomes of an attempt. With `last` the message is gone, and its outcomes with it.
    pub(crate) fn note_all(
        &mut self,
        id: QueueId,
        results: &[(u32, Outcome)],
        last: bool,
        wall: impl FnOnce() -> UnixMillis,
    ) {
        if last {
            self.by_id.remove(&id);
            return;
        }
        let at = wall();
        results.iter().for_each(|(index, outcome)| self.note(id, *index, outcome, at));
    }

    /// Notes one recipient's outcome in place of the one before.
    pub(crate) fn note(&mut self, id: QueueId, index: u32, outcome: &Outcome, at: UnixMillis) {
        let shared = match outcome.disposition {
            Disposition::Deferred => self.share(outcome),
            Disposition::Delivered | Disposition::Failed => self.share(&without_text(outcome)),
        };
        let outcomes = self.by_id.entry(id).or_default();
        outcomes.retain(|one| one.0 != index);
        outcomes.push((index, shared, at));
    }

    pub(crate) fn of(&self, id: QueueId) -> &[LastOutcome] {
        self.by_id.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn of_recipient(&self, id: QueueId, index: u32) -> Option<&Arc<Outcome>> {
        self.of(id).iter().find(|one| one.0 == index).map(|one| &one.1)
    }

    fn share(&mut self, outcome: &Outcome) -> Arc<Outcome> {
        match &self.last_text {
            Some(last) if **last == *outcome => last.clone(),
            _ => self.last_text.insert(Arc::new(outcome.clone())).clone(),
        }
    }

    /// Panics when outcomes are kept of a message that is not in the queue.
    pub(crate) fn check_invariants(&self, is_queued: impl Fn(QueueId) -> bool) {
        for id in self.by_id.keys() {
            assert!(is_queued(*id), "{id} has last outcomes and is not in the queue");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Enhanced;

    const AT: UnixMillis = UnixMillis(1);

    #[test]
    fn the_last_outcome_replaces_the_one_before() {
        let mut outcomes = LastOutcomes::default();
        let deferred = Outcome::deferred(Enhanced(4, 4, 1), "no answer");
        let delivered = Outcome::delivered(Enhanced(2, 0, 0), "250 ok");
        outcomes.note_all(QueueId(1), &[(0, deferred.clone()), (1, deferred)], false, || AT);
        outcomes.note_all(QueueId(1), &[(0, delivered)], false, || AT);
        let text = |index| outcomes.of_recipient(QueueId(1), index).unwrap().text.to_string();
        assert_eq!((text(0).as_str(), text(1).as_str()), ("", "no answer"));
        outcomes.note_all(QueueId(1), &[], true, || AT);
        assert!(outcomes.of(QueueId(1)).is_empty());
    }
}
