//! Delivery status notifications: who gets one, and when it is composed.

use crate::{
    Effect, Engine, LogEvent, TaskId,
    attempt_result::AttemptResult,
    event::Context,
    last_outcomes::LastOutcome,
    parts,
    settings::ReportSettings,
    task::{Notice, Permit, Task},
};
use mail::{
    Attempt, Cause, Disposition, DsnDuty, Enhanced, Message, Notify, Origin, Outcome, QueueId, Recipient,
    ReturnPath, SharedMessage, UnixMillis,
};
use queue::CommandResult;
use report::dsn::{self, EarlierAttempt, Unmailed};
use spool::{Entry, SpoolFailure};
use std::{collections::HashMap, sync::Arc};

/// Content in all reports of a result together.
const CONTENT_TOTAL_BYTES: usize = 4 * 1024 * 1024;
/// Content of a report, however many there are: enough for most headers.
const CONTENT_MIN_BYTES: usize = 4 * 1024;

/// A report to be composed: its kind, its recipients with their outcomes, and its id.
#[derive(Clone)]
struct Planned {
    kind: dsn::DsnKind,
    affected: Vec<(u32, Outcome)>,
    id: QueueId,
}

/// The reports on one message that are to be composed, or the summary of failed notifications. A driver composes them without the lock.
#[derive(Clone)]
pub struct ReportRequest {
    task: TaskId,
    hostname: Arc<str>,
    settings: ReportSettings,
    subject: Subject,
}

#[derive(Clone)]
enum Subject {
    Message(MessageReports),
    /// Notifications that failed, and the id of the summary.
    Unmailed(Unmailed, QueueId),
}

#[derive(Clone)]
struct MessageReports {
    message: SharedMessage,
    attempt: Attempt,
    reports: Vec<Planned>,
    /// The last attempts for recipients whose outcome is not that of an attempt.
    earlier: Vec<LastOutcome>,
    gives_up: UnixMillis,
}

impl std::fmt::Debug for ReportRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReportRequest")
            .field("task", &self.task)
            .field("id", &self.message().map(|message| message.id))
            .finish()
    }
}

impl ReportRequest {
    /// Octets of the content that a report returns at most. The driver need not read more.
    pub const CONTENT_MAX_BYTES: usize = dsn::RETURNED_MAX_BYTES;

    pub(crate) fn of_unmailed(
        task: TaskId,
        hostname: Arc<str>,
        settings: ReportSettings,
        unmailed: Unmailed,
        id: QueueId,
    ) -> Self {
        Self { task, hostname, settings, subject: Subject::Unmailed(unmailed, id) }
    }

    /// For [`crate::Event::Composed`].
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The message that is reported on; none of a summary.
    pub fn message(&self) -> Option<&SharedMessage> {
        match &self.subject {
            Subject::Message(on) => Some(&on.message),
            Subject::Unmailed(..) => None,
        }
    }

    /// Composes the reports. A driver takes them through the accept pipeline before it hands them to the engine:
    /// [`crate::accept`]. `content` is the beginning of the message's content, in whole parts, of at least
    /// [`Self::CONTENT_MAX_BYTES`] if there is so much.
    pub fn compose(&self, content: &[u8], now: UnixMillis) -> Vec<Message> {
        let on = match &self.subject {
            Subject::Message(on) => on,
            Subject::Unmailed(unmailed, id) => {
                return vec![unmailed.compose(*id, &self.hostname, &self.settings.postmaster, now)];
            }
        };
        let earlier: Vec<_> = on.earlier.iter().map(earlier_attempt).collect();
        let context = dsn::DsnContext {
            reporting_mta: &self.hostname,
            postmaster: &self.settings.postmaster,
            texts: &self.settings.texts,
            attempt: &on.attempt,
            earlier: &earlier,
            now,
            gives_up: on.gives_up,
            content: &content[..content.len().min(on.content_share())],
        };
        let compose = |planned: &Planned| {
            let Planned { kind, affected, id } = planned;
            dsn::compose(*kind, &on.message, affected, &context, *id)
        };
        on.reports.iter().filter_map(compose).collect()
    }
}

impl MessageReports {
    /// The most of the content that each report returns: many reports together stay within a bound.
    fn content_share(&self) -> usize {
        let share = CONTENT_TOTAL_BYTES / self.reports.len().max(1);
        share.clamp(CONTENT_MIN_BYTES, ReportRequest::CONTENT_MAX_BYTES)
    }
}

fn earlier_attempt((index, last, at): &LastOutcome) -> EarlierAttempt<'_> {
    let answer = last.outcome.from_remote.then_some((&*last.relay, &*last.outcome.text));
    EarlierAttempt { index: *index, at: *at, answer }
}

/// Returns whether a recipient failed, but not by an operator's command.
pub(crate) fn is_lost((_, outcome): &(u32, Outcome)) -> bool {
    outcome.disposition == Disposition::Failed && outcome.cause != Cause::Returned
}

/// Returns whether a report of this server failed, but not by an operator's command.
pub(crate) fn is_lost_notification(message: &Message, result: &AttemptResult) -> bool {
    message.is_report() && !result.is_deleted() && result.results.iter().any(is_lost)
}

/// Returns whether the postmaster gets a report on these outcomes, unless the limit of these reports is reached
/// ([`Engine::why_not_mailed`]): a report of this server failed, but not one of this kind.
fn is_double_bounce(message: &Message, result: &AttemptResult) -> bool {
    message.origin == Origin::Dsn && is_lost_notification(message, result)
}

/// Returns whether the sender or the postmaster gets a report on any of these outcomes (RFC 3461 §4.1).
pub(crate) fn wants_report(message: &Message, result: &AttemptResult) -> bool {
    is_double_bounce(message, result) || sender_wants_report(message, result)
}

fn sender_wants_report(message: &Message, result: &AttemptResult) -> bool {
    !result.is_deleted()
        && !message.envelope.reverse_path.is_null()
        && result.results.iter().any(|(index, outcome)| {
            let notify = message.envelope.recipients[*index as usize].notify;
            match outcome.disposition {
                Disposition::Failed => notify.failure,
                Disposition::Delivered => {
                    notify.success && result.attempt.dsn_duty != DsnDuty::NextHop
                        || notify != Notify::NEVER && is_deadline_relayed(message, *index, &result.attempt)
                }
                Disposition::Deferred => false,
            }
        })
}

/// Returns whether the sender is told that a message with a deadline went to another server: to one that does not keep the
/// deadline, and to each if the sender wants a trace (RFC 2852 §4.1).
fn is_deadline_relayed(message: &Message, recipient: u32, attempt: &Attempt) -> bool {
    message.envelope.deliver_by(recipient).is_some_and(|by| {
        attempt.dsn_duty != DsnDuty::ReportDelivered && (by.trace || !attempt.takes_deadline)
    })
}

/// Returns the outcomes in groups of recipients whose copies have the same reverse-path: each such address gets a report
/// of its own.
fn by_return_path(
    message: &Message,
    affected: Vec<(u32, Outcome)>,
) -> impl Iterator<Item = Vec<(u32, Outcome)>> + use<> {
    let mut groups: Vec<Vec<(u32, Outcome)>> = Vec::new();
    let of = |index: u32| message.envelope.recipients.get(index as usize).and_then(Recipient::return_path);
    let mut places: HashMap<Option<&ReturnPath>, usize> = HashMap::new();
    for one in affected {
        let at = *places.entry(of(one.0)).or_insert(groups.len());
        if at == groups.len() {
            groups.push(Vec::new());
        }
        groups[at].push(one);
    }
    groups.into_iter()
}

/// Returns a notice for each report, to be noted when they are durable.
fn notices_of(about: QueueId, reports: &[Planned]) -> Vec<Notice> {
    reports.iter().map(|planned| Notice { about, report: planned.id, kind: planned.kind }).collect()
}

impl Engine {
    /// Composes reports at once if there is a permit. Else the message is dropped, and read again when there is a
    /// permit. A result with a delivered recipient does not wait: if the process stopped before the outcome is stored,
    /// the recipient would get the message twice.
    pub(crate) fn report_when_permitted(
        &mut self,
        context: Context,
        result: AttemptResult,
        message: SharedMessage,
        effects: &mut Vec<Effect>,
    ) {
        let is_delivered = |one: &(u32, Outcome)| one.1.disposition == Disposition::Delivered;
        if self.report_permits.try_acquire() {
            self.report(context, result, message, Permit::Report, effects);
        } else if result.results.iter().any(is_delivered) {
            self.report(context, result, message, Permit::None, effects);
        } else {
            self.report_permits.wait(result);
        }
    }

    pub(crate) fn report(
        &mut self,
        context: Context,
        result: AttemptResult,
        message: SharedMessage,
        permit: Permit,
        effects: &mut Vec<Effect>,
    ) {
        let success = match result.attempt.dsn_duty {
            DsnDuty::ReportDelivered => Some(dsn::DsnKind::Delivered),
            DsnDuty::ReportRelayed => Some(dsn::DsnKind::Relayed),
            DsnDuty::NextHop => None,
        };
        let is_double_bounce = is_double_bounce(&message, &result);
        let failed = if is_double_bounce { dsn::DsnKind::DoubleBounce } else { dsn::DsnKind::Failed };
        let kind_of = |(index, outcome): &(u32, Outcome)| match outcome.disposition {
            Disposition::Failed => Some(failed),
            Disposition::Delivered if is_deadline_relayed(&message, *index, &result.attempt) => {
                Some(dsn::DsnKind::DeadlineRelayed)
            }
            Disposition::Delivered => success,
            Disposition::Deferred => None,
        };
        let mut kinds = Vec::new();
        for kind in [Some(failed), Some(dsn::DsnKind::DeadlineRelayed), success].into_iter().flatten() {
            let affected: Vec<_> =
                result.results.iter().filter(|one| kind_of(one) == Some(kind)).cloned().collect();
            if !affected.is_empty() {
                kinds.push((kind, affected));
            }
        }
        let attempt = result.attempt.clone();
        let is_ended = |(_, outcome): &&(u32, Outcome)| outcome.cause.is_without_attempt();
        let ended = result.results.iter().filter(is_ended).map(|(index, _)| *index);
        let earlier = self.earlier_attempts(message.id, ended);
        let reports = self.plan(context, &message, kinds);
        let named = |affected: &[(u32, Outcome)]| affected.iter().map(|(index, _)| *index).collect();
        let planned = reports.iter().map(|report| (report.id, named(&report.affected))).collect();
        let notices = notices_of(message.id, &reports);
        let task =
            self.tasks.add(Task::Report { result, message: message.clone(), permit, planned, notices });
        // Only a delay notice says it.
        let gives_up = context.wall;
        self.compose(task, message, attempt, (reports, earlier), gives_up, effects);
    }

    /// Returns the last attempts for these recipients, as far as there were any.
    fn earlier_attempts(&self, id: QueueId, recipients: impl Iterator<Item = u32>) -> Vec<LastOutcome> {
        recipients.filter_map(|index| self.last_outcomes.noted(id, index).cloned()).collect()
    }

    /// Plans a report for each kind and each reverse-path.
    fn plan(
        &self,
        context: Context,
        message: &Message,
        kinds: Vec<(dsn::DsnKind, Vec<(u32, Outcome)>)>,
    ) -> Vec<Planned> {
        let plan = |(kind, affected)| Planned { kind, affected, id: self.ids.next(context.wall.0) };
        let by_path = |(kind, affected)| by_return_path(message, affected).map(move |some| (kind, some));
        kinds.into_iter().flat_map(by_path).map(plan).collect()
    }

    fn compose(
        &mut self,
        task: TaskId,
        message: SharedMessage,
        attempt: Attempt,
        (reports, earlier): (Vec<Planned>, Vec<LastOutcome>),
        gives_up: UnixMillis,
        effects: &mut Vec<Effect>,
    ) {
        let request = ReportRequest {
            task,
            hostname: self.settings.hostname.clone(),
            settings: self.settings.reports.clone(),
            subject: Subject::Message(MessageReports { message, attempt, reports, earlier, gives_up }),
        };
        effects.push(Effect::Compose(Box::new(request)));
    }

    pub(crate) fn on_composed(
        &mut self,
        context: Context,
        task: TaskId,
        reports: Vec<SharedMessage>,
        effects: &mut Vec<Effect>,
    ) {
        match self.tasks.take(task) {
            Some(Task::Report { result, message, permit, planned, notices }) => {
                let answer = result.answer;
                let store = self.tasks.add(Task::Store { reports: reports.clone(), notices, answer, permit });
                self.complete(context, result, &message, (&reports, &planned), Some(store), effects);
            }
            Some(Task::Summary) if reports.is_empty() => self.double_bounces.end_summary(),
            Some(Task::Summary) => {
                let transaction = reports.iter().cloned().map(Entry::Accept).collect();
                let (notices, permit) = (Vec::new(), Permit::Summary);
                let store = self.tasks.add(Task::Store { reports, notices, answer: None, permit });
                self.submit(Some(store), transaction, effects);
            }
            Some(Task::Warning(..)) if reports.is_empty() => self.release_warning(effects),
            Some(Task::Warning(notices)) => {
                let mut parts = parts::split_warnings(reports).into_iter().peekable();
                while let Some(reports) = parts.next() {
                    let transaction = reports.iter().cloned().map(Entry::Accept).collect();
                    let permit = if parts.peek().is_some() { Permit::None } else { Permit::Warning };
                    let notices = notices.clone();
                    let store = self.tasks.add(Task::Store { reports, notices, answer: None, permit });
                    self.submit(Some(store), transaction, effects);
                }
            }
            other => debug_assert!(false, "{other:?} composes nothing"),
        }
    }

    pub(crate) fn on_stored(
        &mut self,
        context: Context,
        task: TaskId,
        stored: Result<(), SpoolFailure>,
        effects: &mut Vec<Effect>,
    ) {
        let (reports, notices, answer, permit) = match self.tasks.take(task) {
            Some(Task::Store { reports, notices, answer, permit }) => {
                let answer = answer.map(|request| (request, CommandResult::Changed));
                (reports, notices, answer, permit)
            }
            Some(Task::Answer(request, result)) => {
                (Vec::new(), Vec::new(), Some((request, result)), Permit::None)
            }
            Some(Task::Redirect(redirecting)) => {
                return self.on_redirected(context, *redirecting, stored, effects);
            }
            other => return debug_assert!(false, "{other:?} stores nothing"),
        };
        if let Some((request, result)) = answer {
            effects.push(Effect::Answer { request, result: stored.clone().map(|()| result) });
        }
        match stored {
            Err(failure) => effects.push(Effect::Fail(failure)),
            Ok(()) => {
                for report in reports {
                    // Before the first line about its delivery.
                    effects.push(Effect::Log(LogEvent::Accepted(report.clone())));
                    if let Some(notice) = notices.iter().find(|notice| notice.report == report.id) {
                        let Notice { about: id, report: notification, kind } = *notice;
                        effects.push(Effect::Log(LogEvent::Notified { id, notification, kind }));
                    }
                    let destinations = self.routing.route(&report.envelope);
                    self.enqueue(context, report, &destinations, None, effects);
                }
            }
        }
        match permit {
            Permit::None => {}
            Permit::Report => self.release_report(effects),
            Permit::Warning => self.release_warning(effects),
            Permit::Summary => self.double_bounces.end_summary(),
        }
    }

    /// Gives a report permit back; the next result that waits is read again.
    pub(crate) fn release_report(&mut self, effects: &mut Vec<Effect>) {
        if let Some(result) = self.report_permits.release() {
            let id = result.id;
            self.load(Task::ReadForReport(result), id, effects);
        }
    }

    // ---- delay warnings ----

    /// Composes a delay warning when there is a permit.
    pub(crate) fn warn_when_permitted(
        &mut self,
        id: QueueId,
        recipients: Vec<u32>,
        effects: &mut Vec<Effect>,
    ) {
        if let Some((id, recipients)) = self.warning_permits.acquire((id, recipients)) {
            self.load(Task::ReadForWarning(recipients), id, effects);
        }
    }

    pub(crate) fn release_warning(&mut self, effects: &mut Vec<Effect>) {
        if let Some((id, recipients)) = self.warning_permits.release() {
            self.load(Task::ReadForWarning(recipients), id, effects);
        }
    }

    pub(crate) fn warn(
        &mut self,
        context: Context,
        message: SharedMessage,
        recipients: &[u32],
        effects: &mut Vec<Effect>,
    ) {
        let wants = |index: &u32| message.envelope.recipients[*index as usize].notify.delay;
        // A recipient may have come to its end since the warning was due.
        let left = self.queue.recipients(message.id);
        let recipients: Vec<u32> = recipients.iter().filter(|index| left.contains(index)).copied().collect();
        if message.envelope.reverse_path.is_null() || !recipients.iter().any(wants) {
            return self.release_warning(effects);
        }
        let unknown = || Outcome::deferred(Enhanced(4, 4, 7), "no attempt has been made yet");
        let last = |index: &u32| self.last_words_of(message.id, *index);
        let outcome = |index: &u32| last(index).unwrap_or_else(unknown);
        let affected = recipients.iter().map(|index| (*index, outcome(index))).collect();
        let kinds = vec![(dsn::DsnKind::Delayed, affected)];
        let reports = self.plan(context, &message, kinds);
        let task = self.tasks.add(Task::Warning(notices_of(message.id, &reports)));
        let expires = self.queue.gives_up_at(message.id, &recipients).unwrap_or(context.now);
        let left = u64::try_from(expires - context.now).unwrap_or_default();
        let gives_up = UnixMillis(context.wall.0.saturating_add(left));
        let earlier = self.earlier_attempts(message.id, recipients.iter().copied());
        self.compose(task, message, Attempt::default(), (reports, earlier), gives_up, effects);
    }
}
