//! `sim --points 10000 [--seed N] [--engine directories]`: so many seeds from N on, and what they came to.

use sim::{
    args::{number, text},
    engine::Engine,
};
use spool::Mutation;
use std::process::ExitCode;

fn main() -> ExitCode {
    let engine = text("--engine")
        .map_or(Engine::Log, |word| word.parse().unwrap_or_else(|why| panic!("--engine: {why}")));
    let summary = sim::points(number("--seed", 1), number("--points", 10_000), engine, Mutation::None);
    for (seed, what) in &summary.violations {
        println!("{what}\n  cargo xtask sim --engine {engine} --seed {seed} --points 1");
    }
    println!("{engine}: {summary}");
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
