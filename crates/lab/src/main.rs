//! Postlab, the laboratory: loads, sinks, disk and store benches, statistics.

#[allow(dead_code)]
mod address;
#[allow(dead_code)] // until the command line is in
mod sink;

fn main() {}
