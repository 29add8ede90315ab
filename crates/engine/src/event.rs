//! Events: what a driver reports to the engine.

use crate::{ConnectionId, EngineSettings, Lease, Redirect, Routed, Routing, TaskId};
use mail::{Attempt, Destination, Outcome, QueueId, SharedMessage, UnixMillis};
use queue::{CancelAs, Millis};
use spool::{Recovered, Refused, SecondCopy, SpoolFailure, Totals, Transaction};
use std::sync::Arc;

/// The circumstances of an event: its time and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The monotonic clock, by which everything is decided.
    pub now: Millis,
    /// The wall clock, for logs and reports. It may be wrong, and may jump.
    pub wall: UnixMillis,
    /// The worker that reports the event: of several idle connections one of this worker is woken.
    pub worker: Option<usize>,
}

/// The number of an operator's request. The driver chooses it, and finds it in [`crate::Effect::Answer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// A command of an operator. Each command is answered exactly once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Try a message now, whatever it waits for. A held message stays held.
    Retry(QueueId),
    /// Try everything that is not held now.
    Flush,
    /// Try everything for some destinations now that is not held.
    FlushDestinations(Box<[Destination]>),
    /// Do not try a message until it is released.
    Hold {
        /// Queue id of the message to hold.
        id: QueueId,
        /// Who holds it and why, for listings: `by root: a phishing report`.
        reason: Box<str>,
    },
    /// Undo [`Command::Hold`].
    Release(QueueId),
    /// End recipients of a message without a further attempt. Recipients in flight end when their attempt does.
    Cancel {
        /// Queue id of the message whose recipients end.
        id: QueueId,
        /// Indexes into the envelope's recipients, ascending; `None` is all of them.
        recipients: Option<Vec<u32>>,
        /// The treatment of the sender: a DSN, or none.
        cancel_as: CancelAs,
        /// The operator's reason, for the DSN and the log.
        reason: Option<Box<str>>,
    },
    /// Queue another message in place of recipients of a message. Those in flight stay.
    Redirect(Box<Redirect>),
}

/// An event. The driver reports each one once.
///
/// The life of a connection, after [`crate::Effect::OpenConnection`]:
///
/// | state | event of the driver | next |
/// |---|---|---|
/// | opening | `DestinationUnreachable`, then `ConnectionClosed` | gone |
/// | opening | `ConnectionReady`: the next hop has greeted | ready |
/// | ready | `ConnectionReady`, answered by [`crate::Effect::Deliver`] in the same call | delivering |
/// | ready | `ConnectionReady`, answered by nothing: there is no work | ready; the driver goes on with `ConnectionIdle` |
/// | delivering | `ConnectionReady` again: transactions may be pipelined | delivering, with one lease more, or the same |
/// | delivering | `AttemptFinished` or `LeaseReturned` for each lease | ready, after the last lease |
/// | ready | `ConnectionIdle` | idle; with work, [`crate::Effect::WakeConnection`] at once |
/// | idle | [`crate::Effect::WakeConnection`] of the engine | ready |
/// | idle | `ConnectionNotIdle`: the connection ends, or looks for work by itself | ready |
/// | any | `ConnectionClosed`, with the leases that are left | gone |
pub enum Event<'a> {
    /// Recovery found a message. Before [`Event::Started`].
    Recovered(&'a Recovered),
    /// Recovery found a second copy of a recovered message.
    SecondCopy(&'a SecondCopy),
    /// The totals of the spool: how the recipients of earlier starts ended.
    Totals(&'a Totals),
    /// Recovery is complete: connections may be opened.
    Started,
    /// A message from a client or from this machine is durable. The driver has logged its acceptance.
    Accepted {
        /// The message that is durable now, with its queue id, envelope and content.
        message: SharedMessage,
        /// What [`crate::Routed`] found; routed again if the configuration has changed since.
        routed: Routed,
        /// Why the message is held until an operator releases it, if it is held. The spool has that already.
        held: Option<Box<str>>,
        /// True if the client was told to try again before the message was durable. Delivering the message twice is
        /// better than losing it.
        is_late: bool,
    },
    /// A connection can carry another transaction. Answered by [`crate::Effect::Deliver`] or by nothing.
    ConnectionReady(ConnectionId),
    /// A connection is made to a mail exchanger. Other servers are not reported.
    ConnectedToExchanger(ConnectionId, queue::Exchangers),
    /// A connection has no work and waits for [`crate::Effect::WakeConnection`].
    ConnectionIdle(ConnectionId),
    /// A connection no longer waits, although it was not woken. Nothing follows if it was.
    ConnectionNotIdle(ConnectionId),
    /// A connection is gone, or could not be made.
    ConnectionClosed {
        /// Its number may be given to another connection now.
        connection: ConnectionId,
        /// The leases of the connection that were neither finished nor returned.
        leases: Vec<Lease>,
    },
    /// An attempt ended, and with it the lease.
    AttemptFinished {
        /// The connection that it was delivered on.
        connection: ConnectionId,
        /// The lease from [`crate::Effect::Deliver`].
        lease: Lease,
        /// The message, if the driver has it in memory.
        message: Option<SharedMessage>,
        /// The outcome of each recipient of the lease, by index in the envelope, every one of them once.
        results: Vec<(u32, Outcome)>,
        /// Which server answered, and how long it took.
        attempt: Attempt,
    },
    /// The lease's transaction never began on the wire: no attempt is counted.
    LeaseReturned {
        /// The connection that did not use it.
        connection: ConnectionId,
        /// Counts as no attempt.
        lease: Lease,
    },
    /// No host of the destination can be used. A deferred outcome suspends the destination; a failed one (null MX,
    /// no such domain) fails every recipient that waits for the destination.
    DestinationUnreachable {
        /// Closed by this event.
        connection: ConnectionId,
        /// The reason that the destination cannot be reached.
        outcome: Outcome,
        /// The circumstances of the attempt to reach the destination.
        attempt: Attempt,
    },
    /// A message was read, or cannot be. Answers [`crate::Effect::Load`].
    Loaded {
        /// From [`crate::Effect::Load`].
        task: TaskId,
        /// The message, or the reason that the spool cannot give it.
        result: Result<SharedMessage, SpoolFailure>,
    },
    /// Reports are composed. Answers [`crate::Effect::Compose`].
    Composed {
        /// The task of the [`crate::Effect::Compose`].
        task: TaskId,
        /// Empty if no sender wants one.
        reports: Vec<SharedMessage>,
    },
    /// A submitted transaction is durable, or never will be. Answers [`crate::Effect::Submit`] with a task.
    Stored {
        /// From [`crate::Effect::Submit`].
        task: TaskId,
        /// `Ok` if the transaction is durable.
        result: Result<(), SpoolFailure>,
    },
    /// The spool did not take a transaction. Reported before any other event: see [`crate::Effect::Submit`].
    Refused {
        /// The task of the [`crate::Effect::Submit`], if it had one.
        task: Option<TaskId>,
        /// The transaction as it was submitted.
        transaction: Transaction,
        /// Why the spool did not take it.
        refused: Refused,
    },
    /// An operator's command, to be answered.
    Operator {
        /// The number that [`crate::Effect::Answer`] will have.
        request: RequestId,
        /// [`crate::Effect::Answer`] says what came of it.
        command: Command,
    },
    /// The configuration was read again.
    Reconfigured {
        /// Apply at once, except those that are fixed when the engine is made.
        settings: EngineSettings,
        /// The routes of the new configuration.
        routing: Arc<dyn Routing>,
        /// True if routes or groups differ, so that queued messages are routed again.
        is_rerouted: bool,
    },
    /// The time of [`crate::Effect::WakeAt`] has come.
    Tick,
    /// Start nothing new. Attempts that are in flight may end.
    Shutdown,
}
