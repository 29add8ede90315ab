//! The delivery helper: a process beside the daemon that runs programs, and writes Maildirs and files as other users. The
//! daemon itself may do neither.
//!
//! For each delivery, the daemon sends a request ([`Helper`]): the place, the envelope, and the content as a sealed file in
//! memory. The helper ([`serve`]) trusts no request. It looks for the place in its own copy of the configuration
//! ([`Permitted`]), and takes user, time limit and program from there. Files are written by one more process for each
//! message, which becomes the user first ([`Job`]). A supervisor starts a helper that has ended again ([`supervise`]).

mod budget;
mod client;
mod files;
mod packet;
mod protocol;
mod server;
mod supervisor;

pub use client::{Condition, Helper};
pub use files::{ForwardJob, Job, Task};
pub(crate) use packet::{memory_file, seal};
pub(crate) use protocol::Request;
pub use server::{FileRoute, Permitted, RouteUser, serve};
pub use supervisor::supervise;
