//! One operation fails, the Nth, once or for good. Whatever the spool makes of it, nothing it called
//! durable is lost, and after a restart on a sound disk all is well.

use super::Run;
use crate::mutant::Mutant;
use crate::{backend::Backend, disk::Fault};

/// Whether a fault at an operation had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// The operation was reached, and failed.
    Struck,
    /// The run has fewer operations.
    Clean,
}

/// Steps of the workload: enough for segments to be finished, prepared and given back.
const STEPS: u64 = 50;

/// Runs a seed with one fault at an operation; an error says which promise was broken.
///
/// # Errors
/// In words.
pub fn sweep(seed: u64, at: u64, fault: Fault, backend: Backend, mutant: Mutant) -> Result<Swept, String> {
    let mut run = Run::new(seed, backend, mutant);
    run.make_room();
    run.steps = STEPS;
    // Something to recover.
    run.run_until_crash()?;
    run.disk = run.disk.after_crash(run.rng.bits());
    run.disk.plan(at, fault);
    run.has_errors = true;
    run.run_until_crash()?;
    let swept = if run.disk.is_planned() { Swept::Clean } else { Swept::Struck };
    run.crash();
    run.last_restart()?;
    Ok(swept)
}
