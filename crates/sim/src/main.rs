//! `sim [--cases 10000] [--relays 200] [--seed 1] [--backend directories|both]`: so many seeds of the spool and of
//! the whole relay, which always has the log.

use sim::mutant::Mutant;
use sim::{
    args::{number, text},
    backend::Backend,
};
use std::process::ExitCode;

/// Of so many seeds the first one is also one with damaged storage.
const BAD_SHARE: u64 = 8;
/// Of so many, also one of a spool that is full, which takes longer.
const FULL_SHARE: u64 = 32;

fn main() -> ExitCode {
    let backend = text("--backend")
        .map_or(Backend::Log, |word| word.parse().unwrap_or_else(|why| panic!("--backend: {why}")));
    let (seed, cases) = (number("--seed", 1), number("--cases", 10_000));
    let mut is_kept = true;
    let mut tell = |what: &str, summary: &sim::Summary| {
        for (seed, what) in &summary.violations {
            println!("{what}\n  cargo xtask sim --backend {backend} --seed {seed} --cases 1 --relays 0");
        }
        println!("{backend}{what}: {summary}");
        is_kept &= summary.violations.is_empty();
    };
    tell("", &sim::cases(seed, cases, backend, Mutant::None));
    // Of both each would be full at another time.
    let fulls = if backend == Backend::Both { 0 } else { cases.div_ceil(FULL_SHARE) };
    tell(", full", &sim::fulls(seed, fulls, backend, Mutant::None));
    tell(", damaged", &sim::decays(seed, cases.div_ceil(BAD_SHARE), backend, Mutant::None));
    tell(", reads that fail", &sim::heals(seed, cases.div_ceil(BAD_SHARE), backend, Mutant::None));
    let (relays, violations) = sim::relays(seed, number("--relays", 200));
    for (seed, what) in &violations {
        println!("{what}\n  cargo xtask sim --seed {seed} --cases 0 --relays 1");
    }
    println!("{relays}, {} violations", violations.len());
    if is_kept && violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
