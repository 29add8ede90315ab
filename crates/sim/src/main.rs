//! `sim --points 10000 [--seed N]`: so many seeds from N on, and what they came to.

use sim::args::number;
use spool::Mutation;
use std::process::ExitCode;

fn main() -> ExitCode {
    let summary = sim::points(number("--seed", 1), number("--points", 10_000), Mutation::None);
    for (seed, what) in &summary.violations {
        println!("{what}\n  cargo xtask sim --seed {seed} --points 1");
    }
    println!("{summary}");
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
