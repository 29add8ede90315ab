//! The last outcome of each recipient that was tried, for `queue explain` and listings.

use foldhash::HashMap;
use mail::{Attempt, Cause, Disposition, Outcome, QueueId, UnixMillis};
use std::sync::Arc;

/// What the last attempt for a recipient brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastAttempt {
    /// The outcome. That of a finished recipient has no text, as in the spool.
    pub outcome: Outcome,
    /// The next hop, as [`mail::Attempt::relay`]. The spool does not keep it: after a restart it is empty.
    pub relay: Box<str>,
}

/// A recipient's index in the envelope, its last attempt, and when it was noted.
pub type LastOutcome = (u32, Arc<LastAttempt>, UnixMillis);

#[derive(Debug, Default)]
pub(crate) struct LastOutcomes {
    by_id: HashMap<QueueId, Vec<LastOutcome>>,
    /// Deferred recipients often share one text, which is then kept once.
    last_text: Option<Arc<LastAttempt>>,
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
        attempt: &Attempt,
        last: bool,
        wall: impl FnOnce() -> UnixMillis,
    ) {
        if last {
            self.by_id.remove(&id);
            return;
        }
        let at = wall();
        for (index, outcome) in results {
            self.note(id, *index, outcome, attempt.answered_by(*index).0, at);
        }
    }

    /// Notes one recipient's outcome in place of the one before.
    pub(crate) fn note(&mut self, id: QueueId, index: u32, outcome: &Outcome, relay: &str, at: UnixMillis) {
        let shared = match outcome.disposition {
            Disposition::Deferred => self.share(outcome, relay),
            Disposition::Delivered | Disposition::Failed => self.share(&without_text(outcome), ""),
        };
        let outcomes = self.by_id.entry(id).or_default();
        outcomes.retain(|one| one.0 != index);
        outcomes.push((index, shared, at));
    }

    pub(crate) fn of(&self, id: QueueId) -> &[LastOutcome] {
        self.by_id.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn of_recipient(&self, id: QueueId, index: u32) -> Option<&Arc<LastAttempt>> {
        self.noted(id, index).map(|one| &one.1)
    }

    /// Returns the last attempt for a recipient with its time.
    pub(crate) fn noted(&self, id: QueueId, index: u32) -> Option<&LastOutcome> {
        self.of(id).iter().find(|one| one.0 == index)
    }

    fn share(&mut self, outcome: &Outcome, relay: &str) -> Arc<LastAttempt> {
        match &self.last_text {
            Some(last) if last.outcome == *outcome && *last.relay == *relay => last.clone(),
            _ => {
                let attempt = LastAttempt { outcome: outcome.clone(), relay: relay.into() };
                self.last_text.insert(Arc::new(attempt)).clone()
            }
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
        let mx = Attempt { relay: "mx".into(), ..Attempt::default() };
        outcomes.note_all(QueueId(1), &[(0, deferred.clone()), (1, deferred)], &mx, false, || AT);
        outcomes.note_all(QueueId(1), &[(0, delivered)], &mx, false, || AT);
        let text = |index| {
            let last = outcomes.of_recipient(QueueId(1), index).unwrap();
            (last.outcome.text.to_string(), last.relay.to_string())
        };
        assert_eq!(text(0), (String::new(), String::new()));
        assert_eq!(text(1), ("no answer".to_owned(), "mx".to_owned()));
        outcomes.note_all(QueueId(1), &[], &mx, true, || AT);
        assert!(outcomes.of(QueueId(1)).is_empty());
    }
}
