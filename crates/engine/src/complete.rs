//! The consequences of outcomes. One step updates the queue, the spool, the counters and the log, and composes reports
//! to the senders of failed recipients. A permanent failure and its report are one transaction: after a crash neither
//! exists without the other.

use crate::{
    Effect, Engine, Lease, LogEvent, RequestId,
    attempt_result::AttemptResult,
    event::Context,
    parts::{self, Part, ReportedRecipients},
    reports,
    task::{Permit, Task, TaskId, for_each},
};
use mail::{
    Attempt, Cause, Disposition, Enhanced, ForwardPath, Message, Origin, Outcome, QueueId, ReplyStage,
    SharedMessage,
};
use queue::{CancelAs, CommandResult, Completion, DestinationId, Overdue};
use spool::{ControlOp, Entry, SpoolFailure, Totals, Transaction};

/// "Delivery time expired" (RFC 3463 §3.5).
const EXPIRED: Enhanced = Enhanced(5, 4, 7);

/// Returns the outcome of an expiry, with the text of the last outcome.
fn expired(last: Option<&Outcome>) -> Outcome {
    let text = match last {
        Some(last) => format!("could not be delivered in time; the last attempt: {}", last.text),
        None => "could not be delivered in time".to_owned(),
    };
    Outcome::failed(EXPIRED, text).because(Cause::Expired)
}

/// Returns the outcome of a message whose deadline with return is over (RFC 2852 §4), with the text of the last outcome.
fn deadline_over(last: Option<&Outcome>) -> Outcome {
    let text = match last {
        Some(last) => {
            format!("the deadline of the sender (DELIVERBY) is over; the last attempt: {}", last.text)
        }
        None => "the deadline of the sender (DELIVERBY) is over".to_owned(),
    };
    Outcome::failed(EXPIRED, text).because(Cause::Expired)
}

/// The entries for the spool. A deletion does not say how many recipients it ends.
fn ending(id: QueueId, is_deleted: bool, results: Vec<(u32, Outcome)>, last: bool) -> Transaction {
    if is_deleted && last {
        let deleted = Totals { deleted: results.len() as u64, ..Totals::default() };
        return vec![Entry::Control { id, op: ControlOp::Delete }, Entry::Count(deleted)];
    }
    vec![Entry::Outcome { id, results, last }]
}

impl Engine {
    pub(crate) fn on_attempt(
        &mut self,
        context: Context,
        lease: Lease,
        message: Option<SharedMessage>,
        results: Vec<(u32, Outcome)>,
        attempt: Attempt,
        effects: &mut Vec<Effect>,
    ) {
        let result = AttemptResult { id: lease.id, leases: vec![lease], results, attempt, answer: None };
        match message {
            Some(message) => self.finish_attempt(context, result, message, effects),
            None => self.read_when_permitted(result, effects),
        }
    }

    /// Null MX, or no such domain: every recipient that waits for the destination fails.
    pub(crate) fn on_undeliverable(
        &mut self,
        context: Context,
        destination: DestinationId,
        outcome: &Outcome,
        attempt: &Attempt,
        effects: &mut Vec<Effect>,
    ) {
        self.queue.mark_undeliverable(destination);
        while let Some(lease) = self.queue.lease_next(destination, context.now) {
            let results = for_each(lease.recipients.as_slice(), outcome);
            let (id, attempt) = (lease.id, attempt.clone());
            let result = AttemptResult { id, leases: vec![lease], results, attempt, answer: None };
            self.read_when_permitted(result, effects);
        }
    }

    pub(crate) fn on_overdue(&mut self, overdue: Overdue, effects: &mut Vec<Effect>) {
        match overdue {
            Overdue::Delayed(id, recipients) => self.warn_when_permitted(id, recipients, effects),
            Overdue::Expired(leases) => {
                self.end_overdue(leases, expired, effects);
            }
            Overdue::DeadlineOver(leases) => {
                self.end_overdue(leases, deadline_over, effects);
            }
        }
    }

    /// Ends jobs of one message whose time is over. Each recipient has its own last outcome, or that which suspended its
    /// destination.
    fn end_overdue(
        &mut self,
        leases: Vec<Lease>,
        end: impl Fn(Option<&Outcome>) -> Outcome,
        effects: &mut Vec<Effect>,
    ) {
        let Some(id) = leases.first().map(|lease| lease.id) else { return };
        let mut results = Vec::new();
        for lease in &leases {
            let down = lease.recipients.as_slice().first().and_then(|index| self.down_reason_of(id, *index));
            for index in lease.recipients.as_slice() {
                let last = self.last_outcomes.of_recipient(id, *index).map(|last| &last.outcome);
                results.push((*index, end(last.or(down))));
            }
        }
        self.end(id, leases, results, None, effects);
    }

    /// Returns the last outcome of a recipient, or the outcome that suspended its destination.
    pub(crate) fn last_words_of(&self, id: QueueId, index: u32) -> Option<Outcome> {
        if let Some(last) = self.last_outcomes.of_recipient(id, index) {
            return Some(last.outcome.clone());
        }
        self.down_reason_of(id, index).cloned()
    }

    /// Returns the outcome that suspended the destination of a recipient.
    fn down_reason_of(&self, id: QueueId, index: u32) -> Option<&Outcome> {
        let view = self.queue.message(id)?;
        let job = view.jobs.iter().find(|job| job.recipients.contains(&index))?;
        self.queue.down_reason(job.destination_id)
    }

    /// Ends jobs of several messages that operators cancelled while they were in flight.
    pub(crate) fn on_cancelled(&mut self, mut cancelled: Vec<(Lease, CancelAs)>, effects: &mut Vec<Effect>) {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::ForgetCancelled {
            for (lease, _) in cancelled {
                self.queue.return_lease(lease.job, 0);
            }
            return;
        }
        let which = |(lease, cancel_as): &(Lease, CancelAs)| (lease.id, *cancel_as == CancelAs::Delete);
        cancelled.sort_by_key(which);
        let mut rest = cancelled.into_iter().peekable();
        while let Some((first, cancel_as)) = rest.next() {
            let id = first.id;
            let together = std::iter::from_fn(|| rest.next_if(|next| (next.0.id, next.1) == (id, cancel_as)));
            let leases = std::iter::once(first).chain(together.map(|next| next.0)).collect();
            self.end_cancelled(id, leases, cancel_as, None, effects);
        }
    }

    /// Ends jobs of one message as an operator decided.
    pub(crate) fn end_cancelled(
        &mut self,
        id: QueueId,
        leases: Vec<Lease>,
        cancel_as: CancelAs,
        answer: Option<RequestId>,
        effects: &mut Vec<Effect>,
    ) {
        let (text, cause) = match cancel_as {
            CancelAs::Bounce => ("returned by the postmaster", Cause::Returned),
            CancelAs::Delete => ("deleted by the postmaster", Cause::Deleted),
        };
        let text = match self.cancel_reasons.get(&id) {
            Some(reason) => format!("{text}: {reason}"),
            None => text.to_owned(),
        };
        let outcome = Outcome::failed(Enhanced(5, 7, 0), text).because(cause);
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::SplitReports {
            for lease in leases {
                let results = for_each(lease.recipients.as_slice(), &outcome);
                self.end(id, vec![lease], results, None, effects);
            }
            effects
                .extend(answer.map(|request| Effect::Answer { request, result: Ok(CommandResult::Changed) }));
            return;
        }
        let each = leases.iter().flat_map(|lease| for_each(lease.recipients.as_slice(), &outcome));
        let results = each.collect();
        self.end(id, leases, results, answer, effects);
    }

    /// Ends jobs of one message with these results.
    fn end(
        &mut self,
        id: QueueId,
        leases: Vec<Lease>,
        results: Vec<(u32, Outcome)>,
        answer: Option<RequestId>,
        effects: &mut Vec<Effect>,
    ) {
        let attempt = Attempt::default();
        self.read_when_permitted(AttemptResult { id, leases, results, attempt, answer }, effects);
    }

    /// Reads the message of a result, now or when there is a permit. Reading never waits for the spool, so a result
    /// that needs no report, and frees room, never waits for one that needs room.
    fn read_when_permitted(&mut self, result: AttemptResult, effects: &mut Vec<Effect>) {
        if let Some(result) = self.read_permits.acquire(result) {
            self.read(result, effects);
        }
    }

    fn read(&mut self, result: AttemptResult, effects: &mut Vec<Effect>) {
        let id = result.id;
        self.load(Task::Read(result), id, effects);
    }

    /// Asks for a message; [`crate::Event::Loaded`] continues the task.
    pub(crate) fn load(&mut self, task: Task, id: QueueId, effects: &mut Vec<Effect>) {
        let task = self.tasks.add(task);
        effects.push(Effect::Load { task, id });
    }

    pub(crate) fn on_loaded(
        &mut self,
        context: Context,
        task: TaskId,
        loaded: Result<SharedMessage, SpoolFailure>,
        effects: &mut Vec<Effect>,
    ) {
        match self.tasks.take(task) {
            Some(Task::Read(result)) => {
                match loaded {
                    Ok(message) => self.finish_attempt(context, result, message, effects),
                    Err(failure) => self.on_unreadable(context, result, failure, effects),
                }
                if let Some(next) = self.read_permits.release() {
                    self.read(next, effects);
                }
            }
            Some(Task::ReadForReport(result)) => match loaded {
                Ok(message) => self.report(context, result, message, Permit::Report, effects),
                Err(failure) => {
                    self.on_unreadable(context, result, failure, effects);
                    self.release_report(effects);
                }
            },
            Some(Task::ReadForWarning(recipients)) => match loaded {
                Ok(message) => self.warn(context, message, &recipients, effects),
                Err(_) => self.release_warning(effects),
            },
            Some(Task::Reroute(id)) => self.reroute_one(context, id, loaded.ok().as_ref(), effects),
            other => debug_assert!(false, "{other:?} reads nothing"),
        }
    }

    /// Completes jobs whose message cannot be read. Without the envelope nothing can be reported, so failed recipients
    /// stay and are tried again. Delivered and deleted recipients need no envelope: they have ended.
    fn on_unreadable(
        &mut self,
        context: Context,
        mut result: AttemptResult,
        failure: SpoolFailure,
        effects: &mut Vec<Effect>,
    ) {
        let id = result.id;
        let is_deleted = result.is_deleted();
        let has_ended = |outcome: &Outcome| is_deleted || outcome.disposition == Disposition::Delivered;
        let deferred = Outcome::deferred(Enhanced(4, 3, 0), format!("read from the spool: {failure}"));
        for (_, outcome) in result.results.iter_mut().filter(|(_, outcome)| !has_ended(outcome)) {
            outcome.clone_from(&deferred);
        }
        let completion = self.complete_jobs(&result, false, context);
        self.last_outcomes
            .note_all(id, &result.results, &Attempt::default(), completion.last, || context.wall);
        if completion.last {
            self.cache.remove(id);
            self.hold_reasons.remove(&id);
        }
        effects.push(Effect::Log(LogEvent::Unreadable(id, failure.clone())));
        self.count(&result);
        let AttemptResult { mut results, answer, .. } = result;
        results.retain(|(_, outcome)| has_ended(outcome));
        if is_deleted {
            let task = answer.map(|request| self.tasks.add(Task::Answer(request, CommandResult::Changed)));
            self.submit(task, ending(id, is_deleted, results, completion.last), effects);
        } else {
            if !results.is_empty() {
                self.submit(None, ending(id, is_deleted, results, completion.last), effects);
            }
            effects.extend(answer.map(|request| Effect::Answer { request, result: Err(failure) }));
        }
        if completion.last {
            effects.push(Effect::Log(LogEvent::Completed(id)));
        }
        self.on_cancelled(completion.cancelled, effects);
    }

    fn finish_attempt(
        &mut self,
        context: Context,
        mut result: AttemptResult,
        message: SharedMessage,
        effects: &mut Vec<Effect>,
    ) {
        for (index, outcome) in &mut result.results {
            if self.is_unknown_postmaster(&message, *index, outcome) {
                outcome.soften();
            }
        }
        if result.results.iter().any(|(_, outcome)| outcome.disposition == Disposition::Deferred) {
            self.expire_overdue(&mut result, context);
        }
        let is_lost = reports::is_lost_notification(&message, &result);
        let not_mailed = if is_lost { self.why_not_mailed(&message.origin, context.now) } else { None };
        if let Some(why) = not_mailed {
            let failures = result.results.iter().filter(|one| reports::is_lost(one)).cloned().collect();
            self.note_not_mailed(context, &message, failures, why, effects);
        } else if reports::wants_report(&message, &result) {
            return self.report_when_permitted(context, result, message, effects);
        }
        let task = result.answer.map(|request| self.tasks.add(Task::Answer(request, CommandResult::Changed)));
        self.complete(context, result, &message, (&[], &Vec::new()), task, effects);
    }

    /// Returns whether the next hop does not have the mailbox of the postmaster (RFC 5321 §4.5.1). Its mail waits for an
    /// operator to make one, but for mail of which nobody else would hear.
    fn is_unknown_postmaster(&self, message: &Message, index: u32, outcome: &Outcome) -> bool {
        let is_about_address = match outcome.cause {
            Cause::Reply(reply) => reply.stage == ReplyStage::Rcpt && outcome.status.1 <= 1,
            Cause::Local => outcome.status.1 == 1,
            Cause::Expired | Cause::Returned | Cause::Deleted | Cause::Redirected => false,
        };
        let postmaster = &self.settings.reports.postmaster;
        is_about_address
            && message.origin != Origin::DoubleBounce
            && match &message.envelope.recipients[index as usize].path {
                ForwardPath::Postmaster => true,
                ForwardPath::Mailbox(mailbox) => mailbox.key() == postmaster.key(),
            }
    }

    /// Turns a deferral beyond the lifetime of the message into a failure. The report tells the deferral.
    fn expire_overdue(&mut self, result: &mut AttemptResult, context: Context) {
        if !self.queue.is_expired(result.leases[0].job, context.now) {
            return;
        }
        for (index, outcome) in &mut result.results {
            if outcome.disposition == Disposition::Deferred {
                let AttemptResult { id, ref attempt, .. } = *result;
                self.last_outcomes.note(id, *index, outcome, attempt.answered_by(*index).0, context.wall);
                *outcome = expired(Some(outcome));
            }
        }
    }

    /// Completes jobs in the queue, and submits their outcomes together with the reports on them. Both are one step,
    /// so that the outcomes of a message reach the spool in the order of the completions.
    pub(crate) fn complete(
        &mut self,
        context: Context,
        result: AttemptResult,
        message: &SharedMessage,
        (reports, planned): (&[SharedMessage], &ReportedRecipients),
        task: Option<TaskId>,
        effects: &mut Vec<Effect>,
    ) {
        let id = message.id;
        let reached = !result.attempt.relay.is_empty();
        let is_deleted = result.is_deleted();
        let completion = self.complete_jobs(&result, reached, context);
        self.last_outcomes.note_all(id, &result.results, &result.attempt, completion.last, || context.wall);
        // The message is needed again only when the retry is due, and can be read back then.
        if completion.last || completion.retry_at.is_some() {
            self.uncache(id);
        }
        self.count(&result);
        let AttemptResult { results, attempt, .. } = result;
        match parts::split(&results, reports, planned) {
            None => {
                let mut transaction = ending(id, is_deleted, results.clone(), completion.last);
                transaction.extend(reports.iter().cloned().map(Entry::Accept));
                self.submit(task, transaction, effects);
            }
            Some(parts) => {
                let ending = |results, is_final| ending(id, is_deleted, results, completion.last && is_final);
                self.submit_parts(parts, ending, task, context, effects);
            }
        }
        let message = message.clone();
        effects.push(Effect::Log(if is_deleted {
            LogEvent::Deleted { message, results }
        } else {
            LogEvent::Attempt { message, results, attempt }
        }));
        if completion.last {
            self.hold_reasons.remove(&id);
            effects.push(Effect::Log(LogEvent::Completed(id)));
        }
        effects.extend(completion.resumed.map(|name| Effect::Log(LogEvent::Resumed(name))));
        if !completion.cancelled.is_empty() {
            self.on_cancelled(completion.cancelled, effects);
        }
    }

    /// Submits an ending in several transactions, of which the last one concludes the task: the spool keeps the order, so
    /// that all are durable when the last one is.
    #[cold]
    fn submit_parts(
        &mut self,
        parts: Vec<Part>,
        ending: impl Fn(Vec<(u32, Outcome)>, bool) -> Transaction,
        task: Option<TaskId>,
        context: Context,
        effects: &mut Vec<Effect>,
    ) {
        let count = parts.len();
        for (number, part) in (1..).zip(parts) {
            let is_final = number == count;
            let mut transaction = ending(part.results, is_final);
            transaction.extend(part.reports.into_iter().map(Entry::Accept));
            let task = task.filter(|_| is_final);
            if number == 1 {
                self.submit(task, transaction, effects);
            } else {
                self.refused.push_next(task, transaction, context.now);
            }
        }
    }

    fn uncache(&mut self, id: QueueId) {
        #[cfg(feature = "mutants")]
        if self.mutant == crate::Mutant::KeepCached {
            return;
        }
        self.cache.remove(id);
    }

    fn count(&mut self, result: &AttemptResult) {
        let finished = result.results.iter().filter_map(|(_, outcome)| outcome.finished_as());
        finished.for_each(|finished_as| self.counters.finish(finished_as));
    }

    /// Completes each job with the outcomes of its own recipients.
    fn complete_jobs(&mut self, result: &AttemptResult, reached: bool, context: Context) -> Completion {
        let mut dispositions: Vec<(u32, Disposition)> =
            result.results.iter().map(|(index, o)| (*index, o.disposition)).collect();
        if let [one] = &*result.leases {
            return self.queue.complete(one.job, &dispositions, reached, context.now);
        }
        dispositions.sort_unstable_by_key(|disposition| disposition.0);
        let fate_of = |index: &u32| {
            Some(dispositions[dispositions.binary_search_by_key(index, |disposition| disposition.0).ok()?])
        };
        let mut whole = Completion::default();
        for one in &result.leases {
            let own: Vec<_> = one.recipients.as_slice().iter().filter_map(fate_of).collect();
            let completion = self.queue.complete(one.job, &own, reached, context.now);
            whole.last = completion.last;
            whole.retry_at = whole.retry_at.or(completion.retry_at);
            whole.cancelled.extend(completion.cancelled);
            whole.resumed = whole.resumed.or(completion.resumed);
        }
        whole
    }

    /// Submits a transaction, or lets it wait behind a refused transaction of the same message.
    pub(crate) fn submit(
        &mut self,
        task: Option<TaskId>,
        transaction: Transaction,
        effects: &mut Vec<Effect>,
    ) {
        let is_behind = self.refused.is_before(&transaction);
        #[cfg(feature = "mutants")]
        let is_behind = is_behind && self.mutant != crate::Mutant::Overtake;
        if is_behind {
            self.refused.push_behind(task, transaction);
        } else {
            effects.push(Effect::Submit { task, transaction });
        }
    }
}
