//! Which recipient is due when, per destination: the queue manager as a pure state machine.
//!
//! One writer holds a [`Queue`] and gives it the time with every call; it does no I/O and keeps no
//! envelope, only keys: about 100 bytes a message, so that ten million fit. Bytes are `spool`'s
//! business, connections `delivery`'s.
//!
//! The recipients of one message at one destination form a *unit*; a unit is in exactly one place:
//! ready, in flight, waiting (on the timer wheel) or held. A destination that cannot be reached is
//! suspended as a whole: its units stay ready, nothing is written, one probe goes out when the time
//! has come, and after it a slow start.
//!
//! Read first: [`Queue`] and [`Settings`].

mod ages;
mod destination;
mod ids;
mod invariants;
mod list;
mod message;
mod operators;
mod order;
mod places;
mod queue;
mod ready;
mod reroute;
mod ring;
mod settings;
mod slab;
mod view;
mod wheel;

pub use destination::DestinationId;
pub use message::{Recipients, UnitId};
pub use operators::Verdict;
pub use order::{SortFacts, SortOrder};
pub use queue::{Aged, Arrival, Order, Queue, Settlement, Taken};
pub use reroute::Rerouted;
pub use settings::{Group, GroupId, Settings};
pub use view::{DestinationView, MessageView, Status, UnitView};

/// Milliseconds on a monotonic clock whose zero is the start of the process. Recovered messages
/// arrived before zero.
pub type Millis = i64;
