//! Load generators: the source and the sink, and the tools of the five papers in front of the source.

pub mod address;
pub mod agent;
mod checksum;
pub mod compat;
pub mod hdr;
pub mod hostile;
pub mod sink;
mod slots;
pub mod source;
mod spin;

pub(crate) use measure::{arguments, limits, rounds, signals, table, usage};
