//! Recovery: messages that a start finds in the spool go back to the queue.

use crate::{Effect, Engine, RetryAt, event::Context, schedule::schedule_of};
use mail::{Attempt, QueueId, UnixMillis};
use queue::{Arrival, ArrivingRecipient, CancelAs, Millis, Outage};
use report::RecipientCounters;
use spool::{Entry, Recovered, SecondCopy, Totals};

impl Engine {
    /// Queues a message whose recipients are not all finished.
    pub(crate) fn on_recovered(&mut self, context: Context, found: &Recovered, effects: &mut Vec<Effect>) {
        let (id, message) = (found.message.id, &found.message);
        self.keep_id(id);
        let arrived = self.monotonic(message.arrived, context.now);
        let mut rows = Vec::new();
        let destinations = self.routing.route(&message.envelope);
        for (index, ((name, group), past)) in (0..).zip(destinations.iter().zip(&found.recipients)) {
            if let Some((at, outcome)) = &past.last {
                self.last_outcomes.note(id, index, outcome, "", *at);
            }
            if past.settled {
                continue;
            }
            let due =
                past.last.as_ref().filter(|_| self.settings.retry_at == RetryAt::Recorded).map(|(at, _)| {
                    let tried = self.monotonic(*at, context.now);
                    // Spread by id: recipients that were deferred together are not tried together.
                    let spread = (id.0 % 1000) as f64 / 1000.0;
                    let before = u16::try_from(past.attempt_count).unwrap_or(u16::MAX).saturating_sub(1);
                    let queue = &self.settings.queue;
                    tried + queue.retry_after((name, *group), before, tried - arrived, spread)
                });
            let destination = self.destination(name, *group);
            let attempt_count = u16::try_from(past.attempt_count).unwrap_or(u16::MAX);
            rows.push(ArrivingRecipient { index, destination, attempt_count, due });
        }
        if rows.is_empty() {
            // The last outcome was stored without the mark that it was the last one. A message without jobs would stay
            // in the queue for ever.
            self.last_outcomes.note_all(id, &[], &Attempt::default(), true, || context.wall);
            return self.end_recovered(Entry::Outcome { id, results: Vec::new(), last: true }, effects);
        }
        let size_bytes = message.content.size_bytes();
        let (held, schedule) = (found.held.is_some(), schedule_of(&message.envelope, context));
        let arrival =
            Arrival { id, arrived, size_bytes, held, recipients: &rows, schedule: schedule.as_ref() };
        if self.queue.insert(&arrival, context.now) {
            self.counters.accept(rows.len() as u64);
            self.hold_reasons.extend(found.held.clone().map(|reason| (id, reason)));
        }
    }

    /// The id is not given again, whatever the clock shows.
    fn keep_id(&self, id: QueueId) {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::ReuseIds {
            return;
        }
        self.ids.never_before(id);
    }

    /// Applies a second copy of a message: recipients that are finished in the copy are not tried again.
    pub(crate) fn on_second_copy(&mut self, context: Context, copy: &SecondCopy, effects: &mut Vec<Effect>) {
        let outcome_of = |index: u32| {
            let past = copy.recipients.get(index as usize).filter(|past| past.settled)?;
            past.last.as_ref().map(|(_, outcome)| outcome.clone())
        };
        let is_finished = |index| outcome_of(index).is_some();
        let taken =
            self.queue.cancel(copy.id, is_finished, CancelAs::Delete, context.now).unwrap_or_default();
        for one in taken {
            let recipients = one.recipients.as_slice().iter();
            let results: Vec<_> =
                recipients.filter_map(|index| Some((*index, outcome_of(*index)?))).collect();
            let dispositions: Vec<_> =
                results.iter().map(|(index, outcome)| (*index, outcome.disposition)).collect();
            let last = self.queue.complete(one.job, &dispositions, false, context.now).last;
            self.last_outcomes.note_all(copy.id, &results, &Attempt::default(), last, || context.wall);
            let finished = results.iter().filter_map(|(_, outcome)| outcome.finished_as());
            finished.for_each(|finished_as| self.counters.finish(finished_as));
            if last {
                self.hold_reasons.remove(&copy.id);
            }
            self.end_recovered(Entry::Outcome { id: copy.id, results, last }, effects);
        }
    }

    /// Continues the outages of destinations that an earlier start could not reach, when all messages are recovered.
    pub fn continue_outages(&mut self, outages: Vec<Outage>, context: Context) {
        self.queue.continue_outages(outages, context.now);
    }

    /// Continues the counters of earlier starts.
    pub(crate) fn on_totals(&mut self, totals: &Totals) {
        let Totals { accepted: _, delivered, bounced, expired, deleted, moved } = *totals;
        self.counters.add_finished(&RecipientCounters {
            delivered,
            bounced,
            expired,
            deleted,
            moved,
            ..RecipientCounters::default()
        });
    }

    /// One transaction each: the messages of one transaction must be in one spool.
    fn end_recovered(&mut self, entry: Entry, effects: &mut Vec<Effect>) {
        let removed = match entry {
            Entry::Outcome { id, last: true, .. } => Some(id),
            _ => None,
        };
        self.submit(None, vec![entry], effects);
        effects.extend(removed.map(|id| Effect::Log(crate::LogEvent::Completed(id))));
    }

    /// Returns a time of the wall clock on the monotonic clock: negative before the start, and never after now, since
    /// the wall clock may have been wrong when the time was stored.
    pub fn monotonic(&self, at: UnixMillis, now: Millis) -> Millis {
        let said = self.start.now + (at.0 as Millis - self.start.wall.0 as Millis);
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::BelieveClock {
            return said;
        }
        said.min(now)
    }
}
