//! One verb a chore; see `cargo xtask --help`.

fn main() {}
