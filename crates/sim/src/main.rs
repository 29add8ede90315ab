//! `sim [--points 10000] [--relays 200] [--seed 1] [--engine directories|both]`: so many seeds of the spool and of
//! the whole relay, which always has the log.

use sim::{
    args::{number, text},
    engine::Engine,
};
use spool::Mutation;
use std::process::ExitCode;

fn main() -> ExitCode {
    let engine = text("--engine")
        .map_or(Engine::Log, |word| word.parse().unwrap_or_else(|why| panic!("--engine: {why}")));
    let seed = number("--seed", 1);
    let summary = sim::points(seed, number("--points", 10_000), engine, Mutation::None);
    for (seed, what) in &summary.violations {
        println!("{what}\n  cargo xtask sim --engine {engine} --seed {seed} --points 1 --relays 0");
    }
    println!("{engine}: {summary}");
    let (relays, violations) = sim::relays(seed, number("--relays", 200));
    for (seed, what) in &violations {
        println!("{what}\n  cargo xtask sim --seed {seed} --points 0 --relays 1");
    }
    println!("{relays}, {} violations", violations.len());
    let is_kept = summary.violations.is_empty() && violations.is_empty();
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
