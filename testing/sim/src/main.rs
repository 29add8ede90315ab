//! `sim [--cases 10000] [--relays 200] [--seed 1] [--backend directories|both]`: so many seeds of the spool and of
//! the whole relay, which always has the log.
//!
//! `sim replay FILE [--seed 1]`: the recording in a support bundle of `postrider support-bundle`.

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
    if std::env::args().nth(1).as_deref() == Some("replay") {
        return replay();
    }
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
    let contentions = number("--relays", 200).div_ceil(4);
    let late: Vec<(u64, String)> = (seed..seed + contentions)
        .filter_map(|seed| sim::contention::run(seed, engine::Mutant::None).err().map(|what| (seed, what)))
        .collect();
    for (seed, what) in &late {
        println!("{what}\n  cargo xtask sim --seed {seed} --cases 0 --relays 1");
    }
    println!("{contentions} bursts of mail for servers that do not take it, {} violations", late.len());
    if is_kept && violations.is_empty() && late.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replays a file, and tells what became of its messages.
fn replay() -> ExitCode {
    let Some(file) = text("replay") else {
        eprintln!("write `sim replay FILE`: the workload.jsonl of a support bundle");
        return ExitCode::FAILURE;
    };
    let opened = std::fs::File::open(&file).map_err(|error| error.to_string());
    let read = opened.and_then(|opened| recording::Recording::read(std::io::BufReader::new(opened)));
    let report = read.and_then(|recording| sim::replay::replay(&recording, number("--seed", 1)));
    match report {
        Ok(report) => {
            println!("{report}");
            if report.is_same() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("replay {file}: {why}");
            ExitCode::FAILURE
        }
    }
}
