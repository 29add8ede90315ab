//! Effects: the work that the driver performs for the engine.

use crate::{Abandoned, ConnectionId, Lease, ReportRequest, RequestId, TaskId};
use mail::{Attempt, Destination, Outcome, QueueId, SharedMessage, UnixMillis};
use queue::{CommandResult, DestinationId, Millis};
use report::{dsn::DsnKind, event::NotMailed};
use spool::{SpoolFailure, Transaction};

/// An effect. A driver performs effects in their order.
///
/// [`Effect::Submit`], [`Effect::WakeAt`] and the log line of an accepted message belong to the step that decided
/// them: a driver with several threads performs them before it lets another thread handle an event.
#[derive(Debug)]
pub enum Effect {
    /// Submit a transaction to the spool. A refusal is reported at once as [`crate::Event::Refused`], before any
    /// other event, so that the transactions of a message reach the spool in the order of the decisions. With a
    /// task, [`crate::Event::Stored`] follows once the transaction is durable.
    Submit {
        /// Reported back with [`crate::Event::Stored`]; `None` if nothing waits for the transaction.
        task: Option<TaskId>,
        /// To be written in this order, all of it or nothing.
        transaction: Transaction,
    },
    /// Read a message from the cache or the spool; [`crate::Event::Loaded`] follows.
    Load {
        /// The task that [`crate::Event::Loaded`] names.
        task: TaskId,
        /// Queue id of the message to read.
        id: QueueId,
    },
    /// Load the content of a message and compose reports on it; [`crate::Event::Composed`] follows.
    Compose(Box<ReportRequest>),
    /// Open a connection; [`crate::Event::ConnectionClosed`] follows once.
    OpenConnection {
        /// The number of the connection, until it is closed.
        connection: ConnectionId,
        /// The destination to connect to.
        destination: Destination,
    },
    /// Wake an idle connection: it has work, or should close.
    WakeConnection(ConnectionId),
    /// Give a connection up, unless it is sending content or waits for the reply to it: it closes as if its time limit
    /// were over. Sent once for a connection.
    AbandonConnection {
        /// The connection to give up.
        connection: ConnectionId,
        /// For the log, and for what deferred jobs say.
        why: Abandoned,
    },
    /// Carry out a lease; [`crate::Event::AttemptFinished`], [`crate::Event::LeaseReturned`] or
    /// [`crate::Event::ConnectionClosed`] gives it back.
    Deliver {
        /// The connection that was ready.
        connection: ConnectionId,
        /// Given back by [`crate::Event::AttemptFinished`] or [`crate::Event::LeaseReturned`].
        lease: Lease,
        /// `None`: the driver reads it from the spool.
        message: Option<SharedMessage>,
    },
    /// Expand the recipients of a lease, whose aliases could not be looked up when the message was accepted, and accept a message for
    /// those that take their place; [`crate::Event::AttemptFinished`] gives the lease back.
    Expand {
        /// The connection that stands for the expansion: the engine opens and closes it, and the driver has none.
        connection: ConnectionId,
        /// The job whose recipients are expanded again.
        lease: Lease,
        /// `None`: the driver reads it from the spool.
        message: Option<SharedMessage>,
    },
    /// Write to the delivery log.
    Log(LogEvent),
    /// Report [`crate::Event::Tick`] at this time. It replaces the time of the last [`Effect::WakeAt`].
    WakeAt(Millis),
    /// Answer the operator's command with this number.
    Answer {
        /// The number from [`crate::Event::Operator`].
        request: RequestId,
        /// A hold, a release or the end of recipients is answered once it is durable; what is not stored (a retry, and
        /// recipients in flight) is answered at once.
        result: Result<CommandResult, SpoolFailure>,
    },
    /// The spool can promise nothing more: the process must end.
    Fail(SpoolFailure),
}

/// What happened, for the delivery log. Nothing in the engine depends on it.
#[derive(Debug)]
pub enum LogEvent {
    /// A report is durable and queued; the message is the report itself.
    Accepted(SharedMessage),
    /// A message is held from its acceptance on.
    Held {
        /// The message that is held.
        id: QueueId,
        /// Who or what holds it, and why.
        reason: Box<str>,
    },
    /// An attempt ended for these recipients.
    Attempt {
        /// The message that they are recipients of.
        message: SharedMessage,
        /// Outcomes, by index of the recipient in the envelope.
        results: Vec<(u32, Outcome)>,
        /// Which server answered, and how long it took.
        attempt: Attempt,
    },
    /// An operator deleted recipients.
    Deleted {
        /// The message that lost these recipients.
        message: SharedMessage,
        /// Outcomes, by index of the recipient in the envelope.
        results: Vec<(u32, Outcome)>,
    },
    /// Nothing is left to do for a message.
    Completed(QueueId),
    /// A report is durable and queued.
    Notified {
        /// Queue id of the message that the report is about.
        id: QueueId,
        /// Queue id of the report itself.
        notification: QueueId,
        /// The kind of the report.
        kind: DsnKind,
    },
    /// A notification of this server failed, and the postmaster gets no mail about it. Before its [`LogEvent::Attempt`].
    NotMailed {
        /// The report that has no mail: it failed, or none was made for it.
        message: SharedMessage,
        /// Outcomes of the recipients that failed, by index in the envelope.
        failures: Vec<(u32, Outcome)>,
        /// Why the postmaster gets no mail about it.
        why: NotMailed,
    },
    /// A recipient waits, because its destination is suspended.
    Waiting {
        /// The message that the waiting recipient belongs to.
        message: SharedMessage,
        /// By position in the envelope.
        recipient: u32,
        /// The destination that gets no attempts until it is probed.
        destination: Destination,
        /// The outcome that suspended the destination.
        outcome: Outcome,
        /// When the destination is tried again.
        until: UnixMillis,
    },
    /// A probe found the destination reachable again.
    Resumed(Destination),
    /// A destination gets no further attempts before a probe.
    Suspended {
        /// The destination, if it was not suspended before: messages wait for it whose wait is not logged yet.
        newly: Option<DestinationId>,
        /// Where its mail goes.
        destination: Destination,
        /// The outcome that suspended the destination.
        outcome: Outcome,
        /// The time of the next probe.
        until: Option<UnixMillis>,
        /// No host could be reached since then.
        since: UnixMillis,
    },
    /// A message is durable whose client was told to try again.
    StoredLate(QueueId),
    /// The spool could not give a queued message, for this reason.
    Unreadable(QueueId, SpoolFailure),
    /// The number of messages that follow new routes.
    Rerouted(u64),
}
