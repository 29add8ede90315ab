//! The Postrider daemon and its command line.

fn main() {}
