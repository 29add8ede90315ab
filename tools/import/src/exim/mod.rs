//! Exim: its configuration and Debian's, and spool files.

mod conf;
mod convert;
pub mod queue;

pub use conf::{Conf, Driver, Setting};
pub use convert::{Names, convert, names};
