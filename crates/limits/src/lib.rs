//! Rates: how many events of a key are permitted in a time, by the generic cell rate algorithm (GCRA; ITU-T I.371, annex
//! A); and the connections that a small listener keeps open. Pure: the time is an argument.

mod connections;
mod rate;
mod table;

pub use connections::{OpenConnections, network};
pub use rate::Rate;
pub use table::{Spent, Table};
