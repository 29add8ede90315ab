//! Benchmarks of disks, stores, sockets and maps.

mod berkeley;
pub mod bonnie;
pub mod commit_window;
pub mod delete_cost;
pub mod disk;
pub mod ipc;
pub mod kv;
pub mod log_buffering;
pub mod log_format;
pub mod map_lookup;
mod message_factory;
pub mod postmark;
mod shared_memory;
mod sm_snprintf;
mod snprintf;
pub mod syslog_loss;

pub(crate) use measure::{device, limits, rounds, scratch, signals, table, usage};
