//! `powercut --fs ext4|xfs|btrfs [--cases N] [--seed N] [--mutant NAME] [--backend directories|both]`: the
//! spool on a real file system, on a device that forgets what was not flushed when its power is cut. Each point is
//! a cut, a mount of what it left, a recovery, and a comparison with what was called durable.
//!
//! With `--deliveries BINARY` it is the daemon, with local mail, and `sendmail` beside it; `--leave-out NAME` leaves
//! out one of its syncs.
//!
//! Threads and the kernel decide what happens at the same time, so a seed chooses where the power goes
//! and what survives, and does not repeat a run exactly.

mod cleanup_process;
#[path = "../kill9/client.rs"]
mod client;
mod deliveries;
mod device;
mod fuse;
mod image;
#[path = "../kill9/mail.rs"]
#[allow(dead_code)] // what the next hop does is of no interest here
mod mail;
mod restart;
mod volume;

use deliveries::{Acknowledged, Deliveries};
use device::Cut;
use restart::{End, Past, Subject};
use sim::mutant::Mutant;
use sim::{args, model::Model, seed::Rng, workload::Workload};
use std::{path::Path, process::ExitCode, time::Instant};
use volume::{Kind, LoopMount, Volume};

/// After so many restarts a new file system takes the old one's place, as a new model does.
const RESTARTS: u64 = 100;
/// The same for cases with the whole daemon.
const RESTARTS_OF_DAEMON: u64 = 10;

/// What all cases together have found.
#[derive(Default)]
struct Tally {
    cases: u64,
    in_mount: u64,
    /// Mounted only after the kernel had forgotten the device.
    forgotten: u64,
    in_recovery: u64,
    after_flush: u64,
    messages: u64,
    writes: u64,
    flushes: u64,
}

fn main() -> ExitCode {
    if let Some(folder) = args::text("--cleanup_process") {
        cleanup_process::keep(folder.as_ref());
        return ExitCode::SUCCESS;
    }
    if let Some(kind) = args::text("--mount").and_then(|name| Kind::parse(&name)) {
        LoopMount::run(kind);
        return ExitCode::SUCCESS;
    }
    let name = args::text("--fs").unwrap_or("ext4".to_owned());
    let (cases, seed) = (args::number("--cases", 200), args::number("--seed", 1));
    let mutant = args::text("--mutant").unwrap_or("None".to_owned());
    let chosen = Mutant::by_name(&mutant);
    let backend = args::text("--backend").unwrap_or("log".to_owned());
    let backend = backend.parse().unwrap_or_else(|why| panic!("--backend: {why}"));
    let (Some(kind), Some(mutant)) = (Kind::parse(&name), chosen) else {
        println!("no such file system or mutant: {name}, {mutant}");
        return ExitCode::FAILURE;
    };
    let subject = Subject { backend, mutant };
    let volume = match Volume::new(kind) {
        Ok(volume) => volume,
        Err(what) => {
            println!("SKIPPED: {cases} power cuts on {name}: {}", what.trim());
            return ExitCode::SUCCESS;
        }
    };
    let (begun, mut tally) = (Instant::now(), Tally::default());
    let daemon = args::text("--deliveries");
    let done = match &daemon {
        Some(binary) => run_deliveries(&volume, binary, cases, seed, &mut tally),
        None => run(&volume, &subject, cases, seed, &mut tally),
    };
    let what = daemon.map_or_else(|| subject.backend.to_string(), |_| "deliveries".to_owned());
    let took = begun.elapsed().as_secs_f64();
    volume.close();
    println!(
        "{name}, {what}: {} power cuts ({} right after a flush, {} while mounting, {} in recovery) in {took:.1} s, \
         {} messages, {} writes, {} flushes, {} violations",
        tally.cases,
        tally.after_flush,
        tally.in_mount,
        tally.in_recovery,
        tally.messages,
        tally.writes,
        tally.flushes,
        u32::from(done.is_err()),
    );
    if tally.forgotten > 0 {
        println!("  {} times the kernel had to forget the device first", tally.forgotten);
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(broken) => {
            println!(
                "{broken}\n  cargo xtask powercut --backend {what} --fs {name} --cases {cases} --seed {seed}"
            );
            ExitCode::FAILURE
        }
    }
}

fn run(volume: &Volume, subject: &Subject, cases: u64, seed: u64, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    while tally.cases < cases {
        let (restarts, mut rng) = (RESTARTS.min(cases - tally.cases), rng.fork());
        let mut past = Past {
            model: Model::new(subject.backend),
            workload: Workload::new(rng.bits(), subject.backend.is_joint()),
        };
        for restart in 0..restarts {
            volume.switch_on(restart == 0, rng.bits(), plan(&mut rng));
            one_life(volume, subject, &mut past, tally)
                .map_err(|what| format!("case {}: {what}", tally.cases))?;
            tally.cases += 1;
        }
        // And the last one, without a cut.
        volume.switch_on(false, rng.bits(), Cut::At(u64::MAX));
        one_life(volume, subject, &mut past, &mut Tally::default())?;
        tally.messages += past.model.message_count();
    }
    Ok(())
}

/// The daemon's restarts, by tens on one file system.
fn run_deliveries(
    volume: &Volume,
    binary: &str,
    cases: u64,
    seed: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let deliveries = Deliveries::new(binary, args::text("--leave-out").as_deref())?;
    let mut rng = Rng::new(seed);
    while tally.cases < cases {
        let (restarts, mut rng) = (RESTARTS_OF_DAEMON.min(cases - tally.cases), rng.fork());
        let mut acknowledged = Acknowledged::new();
        for restart in 0..=restarts {
            // The last one only looks.
            let cut = if restart == restarts { Cut::At(u64::MAX) } else { plan_of_daemon(&mut rng) };
            volume.switch_on(restart == 0, rng.bits(), cut);
            let name = format!("m{}-{restart}", tally.cases);
            let live = |at: &Path, is_off: &dyn Fn() -> bool| {
                deliveries.live(&name, at, &mut acknowledged, is_off).map(|()| End::UnderLoad)
            };
            between_mounts(volume, tally, live).map_err(|what| format!("case {}: {what}", tally.cases))?;
            tally.cases += u64::from(restart < restarts);
        }
        tally.messages += acknowledged.len() as u64;
    }
    Ok(())
}

/// As [`plan`], for a daemon that makes segments first.
fn plan_of_daemon(rng: &mut Rng) -> Cut {
    match rng.below(10) {
        0..2 => Cut::At(1 + rng.below(200)),
        2..5 => Cut::At(1 + rng.below(3000)),
        _ => Cut::AfterFlush(1 + rng.below(150)),
    }
}

/// Chooses the moment at which the power goes: anywhere from the mount to the thick of the load, often right after a
/// flush, when something was called durable a moment ago.
fn plan(rng: &mut Rng) -> Cut {
    match rng.below(10) {
        0..2 => Cut::At(1 + rng.below(60)),
        2..5 => Cut::At(1 + rng.below(600)),
        _ => Cut::AfterFlush(1 + rng.below(80)),
    }
}

fn one_life(volume: &Volume, subject: &Subject, past: &mut Past, tally: &mut Tally) -> Result<(), String> {
    between_mounts(volume, tally, |at, is_off| restart::live(past, subject, &at.join("spool"), is_off))
}

/// Mounts the file system, lives on it, cuts the power if it is still on, and unmounts.
fn between_mounts(
    volume: &Volume,
    tally: &mut Tally,
    live: impl FnOnce(&Path, &dyn Fn() -> bool) -> Result<End, String>,
) -> Result<(), String> {
    let is_off = || volume.is_off();
    let mut mounted = volume.mount();
    if mounted.is_err() && !is_off() && volume.forget() {
        mounted = volume.mount();
        tally.forgotten += u64::from(mounted.is_ok());
    }
    let at = match mounted {
        Ok(at) => at,
        Err(_) if is_off() => {
            tally.in_mount += 1;
            return Ok(());
        }
        Err(e) => return Err(format!("what the cut left cannot be mounted: {e}")),
    };
    let lived = live(&at, &is_off);
    // Without power nothing is left to be written, and the file system's complaints are of no interest.
    let counts = volume.switch_off();
    volume.unmount().map_err(|e| format!("unmount: {e}"))?;
    tally.writes += counts.writes;
    tally.flushes += counts.flushes;
    tally.after_flush += u64::from(counts.is_after_flush);
    tally.in_recovery += u64::from(matches!(lived?, End::InRecovery));
    Ok(())
}
