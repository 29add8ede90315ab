//! Postfix: `main.cf`, `master.cf` and look-up tables; queue files.

mod access;
mod convert;
mod main_cf;
mod master_cf;
mod pattern;
pub mod queue;
mod restrictions;
mod sql;
mod table;

pub use convert::{convert, origin};
pub(crate) use main_cf::logical_lines;
pub use main_cf::{MainCf, Parameter};
pub use master_cf::{MasterCf, Service};
pub use table::{Table, TableEntry, entries};
