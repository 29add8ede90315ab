//! Commands of operators.

use crate::{Command, Effect, Engine, RequestId, event::Context, task::Task};
use mail::QueueId;
use queue::{CancelAs, CommandResult};
use spool::{ControlOp, Entry};

impl Engine {
    pub(crate) fn on_command(
        &mut self,
        context: Context,
        request: RequestId,
        command: Command,
        effects: &mut Vec<Effect>,
    ) {
        let meant = match &command {
            Command::Hold { id, .. } | Command::Cancel { id, .. } => self.destinations_of(*id),
            Command::Redirect(redirect) => self.destinations_of(redirect.message.id),
            _ => Vec::new(),
        };
        self.perform_command(context, request, command, effects);
        self.abandon_unwanted(&meant, effects);
    }

    fn perform_command(
        &mut self,
        context: Context,
        request: RequestId,
        command: Command,
        effects: &mut Vec<Effect>,
    ) {
        let result = match command {
            Command::Retry(id) => self.queue.retry(id, context.now),
            Command::Flush => {
                self.queue.flush(context.now);
                CommandResult::Changed
            }
            Command::FlushDestinations(names) => {
                match self.queue.flush_destinations(|name| names.contains(name), context.now) {
                    0 => CommandResult::Unchanged,
                    _ => CommandResult::Changed,
                }
            }
            Command::Hold { id, reason } => {
                return self.change(context, request, id, ControlOp::Hold(reason), effects);
            }
            Command::Release(id) => return self.change(context, request, id, ControlOp::Release, effects),
            Command::Redirect(redirect) => return self.redirect(context, request, *redirect, effects),
            Command::Cancel { id, recipients, cancel_as, reason } => {
                self.keep_reason(id, reason);
                return self.cancel(context, request, id, recipients.as_deref(), cancel_as, effects);
            }
        };
        effects.push(Effect::Answer { request, result: Ok(result) });
    }

    /// Holds or releases a message. Queue and spool get changes in the same order, and the spool gets none of a
    /// message that has ended.
    fn change(
        &mut self,
        context: Context,
        request: RequestId,
        id: QueueId,
        change: ControlOp,
        effects: &mut Vec<Effect>,
    ) {
        let result = match &change {
            ControlOp::Hold(reason) => self.hold(id, reason),
            ControlOp::Release => {
                self.hold_reasons.remove(&id);
                self.queue.release(id, context.now)
            }
            ControlOp::Delete => CommandResult::Missing,
        };
        if result == CommandResult::Missing {
            return effects.push(Effect::Answer { request, result: Ok(result) });
        }
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::ForgetHolds {
            return effects.push(Effect::Answer { request, result: Ok(result) });
        }
        let op = match (change, self.hold_reasons.get(&id)) {
            // A message that was held keeps its first reason.
            (ControlOp::Hold(_), Some(reason)) => ControlOp::Hold(reason.clone()),
            (change, _) => change,
        };
        // What is unchanged may not be durable yet: it is answered behind the change before it.
        let task = self.tasks.add(Task::Answer(request, result));
        self.submit(Some(task), vec![Entry::Control { id, op }], effects);
    }

    fn hold(&mut self, id: QueueId, reason: &str) -> CommandResult {
        let result = self.queue.hold(id);
        if result == CommandResult::Changed {
            self.hold_reasons.insert(id, reason.into());
        }
        result
    }

    /// Keeps the reason of a command until its message is gone: recipients in flight end later.
    fn keep_reason(&mut self, id: QueueId, reason: Option<Box<str>>) {
        const KEPT_MAX: usize = 1000;
        if self.cancel_reasons.len() >= KEPT_MAX {
            let queue = &self.queue;
            self.cancel_reasons.retain(|id, _| queue.contains(*id));
        }
        match reason {
            Some(reason) => self.cancel_reasons.insert(id, reason),
            None => self.cancel_reasons.remove(&id),
        };
    }

    fn cancel(
        &mut self,
        context: Context,
        request: RequestId,
        id: QueueId,
        recipients: Option<&[u32]>,
        cancel_as: CancelAs,
        effects: &mut Vec<Effect>,
    ) {
        let is_meant = |index: u32| recipients.is_none_or(|some| some.binary_search(&index).is_ok());
        match self.queue.cancel(id, is_meant, cancel_as, context.now) {
            None => effects.push(Effect::Answer { request, result: Ok(CommandResult::Missing) }),
            // All are in flight, and end with their attempts.
            Some(leases) if leases.is_empty() => {
                effects.push(Effect::Answer { request, result: Ok(CommandResult::Changed) });
            }
            Some(leases) => self.end_cancelled(id, leases, cancel_as, Some(request), effects),
        }
    }
}
