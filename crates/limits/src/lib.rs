//! Rates: how many events of a key are permitted in a time, by the generic cell rate algorithm (GCRA; ITU-T I.371, annex
//! A). Pure: the time is an argument.

mod rate;
mod table;

pub use rate::Rate;
pub use table::{Spent, Table};
