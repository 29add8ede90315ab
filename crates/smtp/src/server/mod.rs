//! The server side of SMTP, without I/O.
//!
//! [`Connection`] is what a driver holds: bytes go in, it asks its questions as [`Step`]s, and the
//! replies stand in its output. Below it [`session`] is the table of states and inputs, and
//! [`content`] finds the end of DATA.

pub mod connection;
pub mod content;
mod counts;
pub mod profile;
pub mod replies;
pub mod session;

pub use connection::{Connection, Step};
pub use content::BareLf;
pub use counts::{CommandCounts, Verb};
pub use profile::{Auth, Extensions, Keyword, MechanismNeed, OfferedMechanism, Profile};
pub use session::{AuthInput, Query, Refused, Session, State};
