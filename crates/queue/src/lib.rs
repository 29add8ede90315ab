//! The queue manager: which recipient is due when, per destination. A pure state machine.
//!
//! One writer holds a [`Queue`] and gives it the time with every call. The queue does no I/O and keeps no envelope,
//! only keys: about 100 bytes a message, so that ten million fit. Content is kept by `spool`, connections are made by
//! `delivery`.
//!
//! The recipients of one message at one destination form a *job*. A job is in exactly one state: ready, in flight,
//! waiting (on the timer wheel) or held. A destination that cannot be reached is suspended as a whole: its jobs stay
//! ready, nothing is written, and one probe is made when it is due. A slow start follows.
//!
//! Read first: [`Queue`] and [`QueueSettings`].

mod age_index;
mod connection_scheduler;
mod connections;
mod destination_queue;
mod destination_table;
mod exchangers;
mod expiry;
mod id_index;
mod invariants;
mod lifetime;
mod list;
mod message;
mod operators;
mod order;
mod outages;
mod queue;
mod ranked_jobs;
mod ready_list;
mod reroute;
mod settings;
mod shares;
mod slab;
mod timer_wheel;
mod timetable;
mod view;

pub use connections::{ConnectionCounts, ConnectionRequest};
pub use destination_queue::DestinationId;
pub use exchangers::{ExchangerView, Exchangers};
pub use expiry::Overdue;
pub use message::{JobId, Recipients};
pub use operators::{CancelAs, CommandResult};
pub use order::{SortFacts, SortOrder};
pub use outages::Outage;
pub use queue::{Arrival, ArrivingRecipient, Completion, Lease, Queue};
pub use reroute::Rerouted;
pub use settings::{Group, GroupId, QueueSettings, RouteSchedule};
pub use shares::{Share, ShareView};
pub use timetable::{Deadline, Schedule};
pub use view::{DestinationView, JobStatus, JobView, MessageView, SCAN_SLOTS, ScannedJob};

/// Milliseconds on a monotonic clock whose zero is the start of the process. Recovered messages
/// arrived before zero.
pub type Millis = i64;
