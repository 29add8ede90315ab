//! `sim --points 10000 [--seed N]`: so many seeds from N on, and what they came to.

use spool::Mutation;
use std::process::ExitCode;

fn value(name: &str, default: u64) -> u64 {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}: a number, not {text}")))
}

fn main() -> ExitCode {
    let summary = sim::points(value("--seed", 1), value("--points", 10_000), Mutation::None);
    for (seed, what) in &summary.violations {
        println!("{what}\n  cargo run -p sim --release -- --seed {seed} --points 1");
    }
    println!("{summary}");
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
