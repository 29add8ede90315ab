//! Tasks that the engine waits for: reads, reports, commits.

use crate::{RequestId, attempt_result::AttemptResult, parts::ReportedRecipients, redirect::Redirecting};
use foldhash::HashMap;
use mail::{Outcome, QueueId, SharedMessage};
use queue::CommandResult;
use report::dsn::DsnKind;

/// The number of a task: it stands in an effect, and in the event that answers the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// What a task holds of a limited resource, and gives back at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Permit {
    None,
    Report,
    Warning,
    /// Of the summary of failed notifications: there is one at a time.
    Summary,
}

/// What the log tells of a report once it is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notice {
    pub(crate) about: QueueId,
    /// Queue id of the report.
    pub(crate) report: QueueId,
    pub(crate) kind: DsnKind,
}

#[derive(Debug)]
pub(crate) enum Task {
    /// Read the message of a result. Holds a read permit.
    Read(AttemptResult),
    /// Read the message of a result again, for its reports. Holds a report permit.
    ReadForReport(AttemptResult),
    /// Compose the reports of a result.
    Report {
        result: AttemptResult,
        message: SharedMessage,
        permit: Permit,
        planned: ReportedRecipients,
        notices: Vec<Notice>,
    },
    /// Read a message whose recipients are late. Holds a warning permit.
    ReadForWarning(Vec<u32>),
    /// Compose a delay warning. Holds a warning permit.
    Warning(Vec<Notice>),
    /// Compose the summary of failed notifications that made no mail.
    Summary,
    /// Queue these reports once they are durable, and answer an operator.
    Store { reports: Vec<SharedMessage>, notices: Vec<Notice>, answer: Option<RequestId>, permit: Permit },
    /// Answer an operator once a decision is durable.
    Answer(RequestId, CommandResult),
    /// Queue a message in place of recipients, and end these.
    Redirect(Box<Redirecting>),
    /// Read a message that is routed again.
    Reroute(QueueId),
}

impl Task {
    /// Returns whether a decision would be lost if the process ended now. A warning or a new route is decided again.
    fn is_decided(&self) -> bool {
        match self {
            Self::Read(_)
            | Self::ReadForReport(_)
            | Self::Report { .. }
            | Self::Summary
            | Self::Answer(..)
            | Self::Redirect(_) => true,
            Self::Store { permit, .. } => *permit != Permit::Warning,
            Self::ReadForWarning(_) | Self::Warning(..) | Self::Reroute(_) => false,
        }
    }

    /// Returns the result that waits, with its leases.
    pub(crate) fn result(&self) -> Option<&AttemptResult> {
        match self {
            Self::Read(result) | Self::ReadForReport(result) | Self::Report { result, .. } => Some(result),
            Self::Redirect(redirecting) => Some(&redirecting.result),
            _ => None,
        }
    }

    pub(crate) fn permit(&self) -> Permit {
        match self {
            Self::ReadForReport(_) => Permit::Report,
            Self::Report { permit, .. } | Self::Store { permit, .. } => *permit,
            Self::ReadForWarning(_) | Self::Warning(..) => Permit::Warning,
            Self::Summary => Permit::Summary,
            Self::Read(_) | Self::Answer(..) | Self::Redirect(_) | Self::Reroute(_) => Permit::None,
        }
    }
}

/// Tasks whose event has not come yet.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    by_id: HashMap<TaskId, Task>,
    last: u64,
}

impl Tasks {
    pub(crate) fn add(&mut self, task: Task) -> TaskId {
        self.last += 1;
        let id = TaskId(self.last);
        self.by_id.insert(id, task);
        id
    }

    /// A task ends when its event comes. `None` for an event that comes a second time.
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Task> {
        let task = self.by_id.remove(&id);
        debug_assert!(task.is_some(), "{id:?} is answered once");
        task
    }

    /// Returns the last task that was added.
    pub(crate) fn newest(&self) -> TaskId {
        TaskId(self.last)
    }

    /// Returns whether this task, or an earlier one, is still storing reports.
    pub(crate) fn is_storing_reports(&self, up_to: TaskId) -> bool {
        self.by_id.iter().any(|(id, task)| *id <= up_to && matches!(task, Task::Store { .. }))
    }

    pub(crate) fn decided_count(&self) -> usize {
        self.by_id.values().filter(|task| task.is_decided()).count()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Task> {
        self.by_id.values()
    }
}

/// Gives each recipient the same outcome.
pub(crate) fn for_each(recipients: &[u32], outcome: &Outcome) -> Vec<(u32, Outcome)> {
    recipients.iter().map(|index| (*index, outcome.clone())).collect()
}
