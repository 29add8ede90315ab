//! Recipients that an operator sends elsewhere: another message takes their place. It is durable before they end, so that a
//! crash between the two repeats a delivery, and loses none.

use crate::{
    Effect, Engine, LogEvent, RequestId, attempt_result::AttemptResult, event::Context, task::Task,
    task::for_each,
};
use mail::{Attempt, Cause, Enhanced, Outcome, SharedMessage};
use queue::{CancelAs, CommandResult, JobStatus};
use spool::{Entry, SpoolFailure};

/// A message that takes the place of recipients of another message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// The message that takes the place of the redirected recipients.
    pub message: SharedMessage,
    /// Indexes of its recipients, ascending.
    pub recipients: Vec<u32>,
    /// The message for those that take their place.
    pub replacement: SharedMessage,
    /// Reports of success that are stored with the replacement.
    pub reports: Vec<SharedMessage>,
    /// What became of the recipients, for the log.
    pub text: Box<str>,
}

/// A redirection whose replacement is being stored.
#[derive(Debug)]
pub(crate) struct Redirecting {
    pub(crate) redirect: Redirect,
    /// The end of the recipients. Nothing is tried for them meanwhile.
    pub(crate) result: AttemptResult,
    held: Option<Box<str>>,
}

impl Engine {
    /// Unchanged if a recipient is in flight, or has left the queue meanwhile.
    pub(crate) fn redirect(
        &mut self,
        context: Context,
        request: RequestId,
        redirect: Redirect,
        effects: &mut Vec<Effect>,
    ) {
        let id = redirect.message.id;
        let is_meant = |index: u32| redirect.recipients.binary_search(&index).is_ok();
        let Some(view) = self.queue.message(id) else {
            return effects.push(Effect::Answer { request, result: Ok(CommandResult::Missing) });
        };
        let idle = view.jobs.iter().filter(|job| job.status != JobStatus::InFlight);
        let idle_count = idle.flat_map(|job| &job.recipients).filter(|index| is_meant(**index)).count();
        if idle_count == 0 || idle_count < redirect.recipients.len() {
            return effects.push(Effect::Answer { request, result: Ok(CommandResult::Unchanged) });
        }
        let leases = self.queue.cancel(id, is_meant, CancelAs::Delete, context.now).unwrap_or_default();
        let outcome = Outcome::delivered(Enhanced(2, 0, 0), &*redirect.text).because(Cause::Redirected);
        let results =
            leases.iter().flat_map(|lease| for_each(lease.recipients.as_slice(), &outcome)).collect();
        let result =
            AttemptResult { id, leases, results, attempt: Attempt::default(), answer: Some(request) };
        let held = self.hold_reasons.get(&id).cloned();
        let mut transaction = vec![Entry::of(redirect.replacement.clone(), held.clone())];
        transaction.extend(redirect.reports.iter().cloned().map(Entry::Accept));
        let task = self.tasks.add(Task::Redirect(Box::new(Redirecting { redirect, result, held })));
        self.submit(Some(task), transaction, effects);
    }

    pub(crate) fn on_redirected(
        &mut self,
        context: Context,
        redirecting: Redirecting,
        stored: Result<(), SpoolFailure>,
        effects: &mut Vec<Effect>,
    ) {
        let Redirecting { redirect, mut result, held } = redirecting;
        let answer = result.answer.take();
        if let Err(failure) = stored {
            result.leases.iter().for_each(|lease| drop(self.queue.return_lease(lease.job, context.now)));
            effects.extend(answer.map(|request| Effect::Answer { request, result: Err(failure.clone()) }));
            return effects.push(Effect::Fail(failure));
        }
        let all = std::iter::once((redirect.replacement, held))
            .chain(redirect.reports.into_iter().map(|r| (r, None)));
        for (message, held) in all {
            effects.push(Effect::Log(LogEvent::Accepted(message.clone())));
            if let Some(reason) = held.clone() {
                effects.push(Effect::Log(LogEvent::Held { id: message.id, reason }));
            }
            let destinations = self.routing.route(&message.envelope);
            self.enqueue(context, message, &destinations, held, effects);
        }
        let task = answer.map(|request| self.tasks.add(Task::Answer(request, CommandResult::Changed)));
        self.complete(context, result, &redirect.message, (&[], &Vec::new()), task, effects);
    }
}
