//! Queued messages have new routes: each is read, routed, and moved. A message with a job in flight is looked at
//! again after the attempt.

use crate::{Effect, Engine, LogEvent, event::Context, task::Task};
use mail::{QueueId, SharedMessage};
use queue::Millis;
use std::collections::VecDeque;

/// Messages with jobs in flight are looked at again after this, in milliseconds.
const AGAIN_AFTER: Millis = 1000;

#[derive(Debug, Default)]
pub(crate) struct Reroute {
    /// Messages of this pass that were not looked at yet.
    todo: VecDeque<QueueId>,
    /// Messages of the next pass.
    left: VecDeque<QueueId>,
    /// `None` as long as no message is left for another pass.
    again_at: Option<Millis>,
    moved_count: u64,
    /// The message is being read from the spool, because its envelope is not cached.
    is_reading: bool,
}

impl Reroute {
    pub(crate) fn again_at(&self) -> Option<Millis> {
        self.again_at
    }

    pub(crate) fn is_reading(&self) -> bool {
        self.is_reading
    }
}

impl Engine {
    /// Looks at all queued messages. A pass that is under way begins anew.
    pub(crate) fn reroute_all(&mut self, effects: &mut Vec<Effect>) {
        self.reroute.todo = self.queue.ids().into();
        self.reroute.left.clear();
        self.reroute.again_at = None;
        if !self.reroute.is_reading {
            self.reroute_next(effects);
        }
    }

    pub(crate) fn reroute_left(&mut self, context: Context, effects: &mut Vec<Effect>) {
        if self.reroute.again_at.is_some_and(|at| at <= context.now) {
            self.reroute.again_at = None;
            self.reroute.todo = std::mem::take(&mut self.reroute.left);
            self.reroute_next(effects);
        }
    }

    fn reroute_next(&mut self, effects: &mut Vec<Effect>) {
        if let Some(id) = self.reroute.todo.pop_front().filter(|_| !self.is_closed) {
            self.reroute.is_reading = true;
            self.load(Task::Reroute(id), id, effects);
        }
    }

    /// `None`: the message is gone meanwhile, or unreadable, which its next attempt reports.
    pub(crate) fn reroute_one(
        &mut self,
        context: Context,
        id: QueueId,
        message: Option<&SharedMessage>,
        effects: &mut Vec<Effect>,
    ) {
        self.reroute.is_reading = false;
        if let Some(message) = message {
            // By the newest routes: another reload may have come since the pass began.
            let destinations = self.routing.route(&message.envelope);
            let destinations: Vec<_> =
                destinations.iter().map(|(name, group)| self.queue.destination_in(name, *group)).collect();
            let rerouted = self.queue.reroute(id, |index| destinations[index as usize], context.now);
            self.reroute.moved_count += u64::from(rerouted.has_moved);
            if rerouted.has_in_flight {
                self.reroute.left.push_back(id);
            }
        }
        self.reroute_next(effects);
        if self.reroute.is_reading {
            return;
        }
        let moved_count = std::mem::take(&mut self.reroute.moved_count);
        if moved_count > 0 {
            effects.push(Effect::Log(LogEvent::Rerouted(moved_count)));
        }
        if !self.reroute.left.is_empty() && !self.is_closed {
            self.reroute.again_at = Some(context.now + AGAIN_AFTER);
        }
    }
}
