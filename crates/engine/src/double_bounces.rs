//! The number of mails to the postmaster about notifications that failed: one each, up to a limit, and one summary of
//! the others.

use crate::{
    Effect, Engine, LogEvent, ReportRequest,
    event::Context,
    task::{Task, TaskId},
};
use mail::{Origin, Outcome, SharedMessage};
use queue::Millis;
use report::{dsn::Unmailed, event::NotMailed};
use std::collections::VecDeque;

const HOUR: Millis = 3_600_000;

/// The mails of the last hour, and the failures that the next summary tells.
#[derive(Debug, Default)]
pub(crate) struct DoubleBounces {
    /// The times of the mails, the oldest first; as many as the limit at most.
    mailed: VecDeque<Millis>,
    unmailed: Unmailed,
    /// When the next summary is composed; `None` if there is nothing to tell.
    due: Option<Millis>,
    /// Failures in the summary that is being composed or stored.
    summarizing: u64,
}

impl DoubleBounces {
    /// Returns whether another failure gets a mail of its own: fewer than `limit` did so in the last hour.
    fn try_mail(&mut self, limit: u32, now: Millis) -> bool {
        while self.mailed.front().is_some_and(|at| at + HOUR <= now) {
            self.mailed.pop_front();
        }
        let is_mailed = self.mailed.len() < limit as usize;
        if is_mailed {
            self.mailed.push_back(now);
        }
        is_mailed
    }

    /// Returns the failures for the next summary if it is due: an hour after the first of them, so that there is one an
    /// hour at most. At shutdown it is due at once, since failures in memory would be forgotten.
    fn take_due(&mut self, now: Millis, is_closed: bool) -> Option<Unmailed> {
        let is_due = self.due.is_some_and(|at| is_closed || at <= now) && self.summarizing == 0;
        if !is_due {
            return None;
        }
        self.due = None;
        let unmailed = std::mem::take(&mut self.unmailed);
        self.summarizing = unmailed.count();
        Some(unmailed)
    }

    /// Returns when the next summary is to be composed; `None` also while one is under way.
    pub(crate) fn due(&self) -> Option<Millis> {
        self.due.filter(|_| self.summarizing == 0)
    }

    /// Permits the next summary: this one is durable, or is not wanted.
    pub(crate) fn end_summary(&mut self) {
        self.summarizing = 0;
    }
}

impl Engine {
    /// Decides whether the postmaster gets a mail about a notification that failed, and returns why not. Called once for
    /// each result.
    pub(crate) fn why_not_mailed(&mut self, notification: &Origin, now: Millis) -> Option<NotMailed> {
        let reports = &self.settings.reports;
        let limit = reports.max_double_bounces_per_hour;
        match notification {
            Origin::DoubleBounce => Some(NotMailed::DoubleBounce),
            _ if !reports.double_bounces || limit == 0 => Some(NotMailed::Off),
            _ => (!self.double_bounces.try_mail(limit, now)).then_some(NotMailed::Limit),
        }
    }

    /// Logs failures of a notification about which there is no mail, and keeps those that a summary tells. Their outcomes are
    /// submitted in the same step: until these are durable, a restart tries the notification again.
    pub(crate) fn note_not_mailed(
        &mut self,
        context: Context,
        message: &SharedMessage,
        failures: Vec<(u32, Outcome)>,
        why: NotMailed,
        effects: &mut Vec<Effect>,
    ) {
        if why == NotMailed::Limit {
            for (index, outcome) in &failures {
                let to = message.envelope.recipients[*index as usize].path.as_str();
                self.double_bounces.unmailed.add(message.id, to, &outcome.text, context.wall);
            }
            self.double_bounces.due.get_or_insert(context.now + HOUR);
        }
        effects.push(Effect::Log(LogEvent::NotMailed { message: message.clone(), failures, why }));
    }

    /// Composes the summary when it is due.
    pub(crate) fn summarize_not_mailed(&mut self, context: Context, effects: &mut Vec<Effect>) {
        if let Some(unmailed) = self.double_bounces.take_due(context.now, self.is_closed) {
            let (task, id) = (self.tasks.add(Task::Summary), self.ids.next(context.wall.0));
            effects.push(Effect::Compose(Box::new(self.request_summary(task, unmailed, id))));
        }
    }

    fn request_summary(&self, task: TaskId, unmailed: Unmailed, id: mail::QueueId) -> ReportRequest {
        ReportRequest::of_unmailed(
            task,
            self.settings.hostname.clone(),
            self.settings.reports.clone(),
            unmailed,
            id,
        )
    }

    /// Returns the number of failed notifications that a summary still has to tell. A restart forgets them; the log and the history
    /// name them.
    pub fn unsummarized_count(&self) -> u64 {
        self.double_bounces.unmailed.count() + self.double_bounces.summarizing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{QueueId, UnixMillis};

    #[test]
    fn no_hour_has_more_mails_than_the_limit() {
        let mut bounces = DoubleBounces::default();
        let mut mailed = Vec::new();
        for now in (0..6 * HOUR).step_by(60_000) {
            for _ in 0..3 {
                mailed.extend(bounces.try_mail(20, now).then_some(now));
            }
        }
        for from in &mailed {
            let count = mailed.iter().filter(|at| (*from..from + HOUR).contains(at)).count();
            assert!(count <= 20, "{count} from {from} on");
        }
        assert_eq!(mailed.len(), 6 * 20);
        assert!(!bounces.try_mail(0, 100 * HOUR));
    }

    #[test]
    fn a_summary_is_due_an_hour_after_its_first_failure_or_at_shutdown_and_never_beside_another() {
        let mut bounces = DoubleBounces::default();
        assert_eq!(bounces.take_due(0, true), None);
        let add = |bounces: &mut DoubleBounces, now| {
            bounces.unmailed.add(QueueId(1), "a@b.test", "550 no", UnixMillis(now as u64));
            bounces.due.get_or_insert(now + HOUR);
        };
        add(&mut bounces, 5);
        add(&mut bounces, 70);
        assert_eq!((bounces.take_due(HOUR + 4, false), bounces.due()), (None, Some(HOUR + 5)));
        assert_eq!(bounces.take_due(HOUR + 5, false).map(|taken| taken.count()), Some(2));
        add(&mut bounces, HOUR + 6);
        assert_eq!((bounces.take_due(9 * HOUR, true), bounces.due()), (None, None));
        bounces.end_summary();
        assert_eq!(bounces.take_due(HOUR + 7, true).map(|taken| taken.count()), Some(1));
    }
}
