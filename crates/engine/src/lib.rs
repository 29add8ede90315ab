//! The life of a message between "durable" and "done", as a pure state machine.
//!
//! [`Engine::handle`] takes one [`Event`] and the time, and appends [`Effect`]s. A driver performs the effects and
//! reports what follows as further events. The engine has no runtime, no I/O, no clock and no thread: the daemon and
//! the simulator drive the same code.
//!
//! The engine owns the queue, the message cache, the last outcomes of recipients, the recipient counters, and the
//! rules that connect them: which recipients are delivered, failed or expired, who gets a delivery status
//! notification (DSN), what operators may do, what a reload moves, what is submitted again after a refusal.
//! Storing is the work of `spool`, connections are the work of `delivery`.
//!
//! Read first: [`Event`] and [`Effect`].

mod abandon;
mod attempt_result;
mod cache;
mod complete;
mod connections;
mod double_bounces;
mod effect;
mod engine;
mod event;
mod invariants;
mod last_outcomes;
#[cfg(feature = "mutants")]
mod mutant;
mod operator;
mod parts;
mod permits;
mod recovery;
mod redirect;
mod refused;
mod reports;
mod reroute;
mod routing;
mod schedule;
mod settings;
mod task;
#[cfg(test)]
mod tests;

pub use abandon::Abandoned;
pub use connections::ConnectionId;
pub use effect::{Effect, LogEvent};
pub use engine::{Engine, JobOutcomes, WaitingJob};
pub use event::{Command, Context, Event, RequestId};
pub use last_outcomes::{LastAttempt, LastOutcome};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use queue::{DestinationId, Lease};
pub use redirect::Redirect;
pub use reports::ReportRequest;
pub use routing::{Routed, Routing};
pub use settings::{EngineSettings, ReportSettings, RetryAt};
pub use task::TaskId;
