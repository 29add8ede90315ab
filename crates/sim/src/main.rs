//! `sim --points 10000 [--seed N] [--engine directories]`: so many seeds from N on, and what they came to.

use sim::engine::Engine;
use spool::Mutation;
use std::{fmt::Display, process::ExitCode, str::FromStr};

fn value<T: FromStr<Err: Display>>(name: &str, default: T) -> T {
    let mut args = std::env::args().skip_while(|arg| arg != name);
    args.nth(1).map_or(default, |text| text.parse().unwrap_or_else(|why| panic!("{name} {text}: {why}")))
}

fn main() -> ExitCode {
    let engine = value("--engine", Engine::Log);
    let summary = sim::points(value("--seed", 1), value("--points", 10_000), engine, Mutation::None);
    for (seed, what) in &summary.violations {
        println!("{what}\n  cargo run -p sim --release -- --engine {engine} --seed {seed} --points 1");
    }
    println!("{engine}: {summary}");
    if summary.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
