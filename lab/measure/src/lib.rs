//! Parts that all measurements share: repeated rounds, statistics, the resources of processes, signals, output, and the
//! limits of the machine.

pub mod arguments;
pub mod command;
pub mod kept_port;
pub mod limits;
pub mod output;
pub mod rounds;
pub mod scratch;
pub mod signals;
pub mod stat;
pub mod table;
pub mod usage;
pub mod workers;

pub use machine::disk::device;
