//! Reads fail, or give back something else, for a while: while the spool works, compacts and starts. When the disk
//! gives everything back, all messages are there that were accepted and not ended, and none that was ended.

use super::{CaseCounts, Ended, Run, Subject};
use crate::mutant::Mutant;
use crate::{backend::Backend, disk::Decay, model::Queue};
use mail::QueueId;
use spool::RecoveryReport;
use std::collections::BTreeSet;

/// Restarts before everything can be read again.
const RESTARTS: u64 = 5;
/// Steps of the workload between two moments at which reads may begin to fail, or to work again.
const STEPS: u64 = 30;
/// Such moments between two restarts.
const MOMENTS: u64 = 3;

/// Runs a seed; an error says which promise was broken.
///
/// # Errors
/// In words.
pub fn heal(seed: u64, backend: Backend, mutant: Mutant) -> Result<CaseCounts, String> {
    let mut run = Run::new(seed, backend, mutant);
    run.make_room();
    run.workload = run.workload.slow();
    run.steps = STEPS;
    let mut known = Known::default();
    for _ in 0..RESTARTS {
        run.failing_life(&mut known)?;
        run.crash();
        if run.decays.chance(40) {
            run.damage_bytes(&Decay::PASSING);
        }
        if run.decays.chance(25) {
            run.disk.heal();
        }
    }
    run.disk.heal();
    run.healed(&known)?;
    run.rescue()?;
    run.tally.message_count = run.model.message_count();
    Ok(run.tally)
}

/// The facts that are known of messages, whatever a start could read.
#[derive(Default)]
struct Known {
    /// Messages whose acceptance is durable.
    accepted: BTreeSet<u64>,
    /// Messages whose end was submitted.
    ended: BTreeSet<u64>,
    /// Messages whose end is durable, and which no start has brought back since.
    gone: BTreeSet<u64>,
}

impl Known {
    /// Is it about a message that ended? One that came back, since its end could not be read, without its content,
    /// which was removed when it ended, is reported.
    fn names(&self, what: &str) -> bool {
        self.ended.iter().any(|id| what.contains(&QueueId(*id).to_string()))
    }
}

impl Run {
    /// From a start until a crash; a start that can read nothing is none.
    fn failing_life(&mut self, known: &mut Known) -> Result<(), String> {
        let is_listed = self.listed.chance(25);
        let (spool, report) = match self.recover_by(is_listed) {
            Ok((spool, report)) => {
                self.check_reading(&report, known)?;
                (spool, report)
            }
            Err(Ended::Crash | Ended::NoRoom) => return Err(self.said("no start")),
            Err(Ended::Violation(what)) if what.contains("nothing of the log can be read") => {
                self.disk.heal();
                return Ok(());
            }
            Err(Ended::Violation(what)) => return Err(self.said(&what)),
        };
        // A message that came back because its end could not be read may be delivered once more. Without its content it
        // is kept out of the queue, and the report names it.
        let is_named = |id: &u64| {
            report.unread.iter().chain(&report.corrupt).any(|what| what.contains(&QueueId(*id).to_string()))
        };
        let is_back = |id: &&u64| self.model.latest().contains_key(*id) || is_named(id);
        let back: Vec<u64> = known.ended.iter().filter(is_back).copied().collect();
        known.gone.retain(|id| !back.contains(id));
        self.returned.extend(back);
        for _ in 0..MOMENTS {
            self.labour(&spool).map_err(|what| self.said(&what))?;
            if self.decays.chance(30) {
                self.damage_bytes(&Decay::PASSING);
            }
            if self.decays.chance(20) {
                self.disk.heal();
            }
        }
        self.finish_work(&spool);
        self.check_decayed(&spool)?;
        self.note_known(known);
        Ok(())
    }

    /// Checks that errors of the disk were not taken for damage.
    fn check_reading(&self, report: &RecoveryReport, known: &Known) -> Result<(), String> {
        let is_sound = report.quarantined.is_empty() && report.corrupt.iter().all(|what| known.names(what));
        // In queue directories the name of the file is told, and the disk's error.
        let is_told = self.setup.backend != Backend::Log;
        if is_sound || is_told {
            Ok(())
        } else {
            Err(self.said(&format!("nothing is damaged, but: {report:?}")))
        }
    }

    fn note_known(&self, known: &mut Known) {
        known.accepted.extend(self.model.durable());
        let (ended, durable) = self.model.ends();
        known.ended.extend(ended);
        known.gone.extend(durable);
    }

    /// Everything can be read again.
    fn healed(&mut self, known: &Known) -> Result<(), String> {
        let (spool, report) = self.recover_decayed()?;
        let is_complete = report.unread.is_empty() && report.corrupt.iter().all(|what| known.names(what));
        if !is_complete || !report.quarantined.is_empty() {
            return Err(self.said(&format!("everything can be read, but: {report:?}")));
        }
        let found = self.model.latest().clone();
        let is_open = |id: &&u64| !known.ended.contains(id) && !found.contains_key(id);
        if let Some(id) = known.accepted.iter().find(is_open) {
            return Err(self.said(&format!("{id} was accepted, did not end, and is gone: {report:?}")));
        }
        if let Some(id) = known.gone.iter().find(|id| found.contains_key(id)) {
            return Err(self.said(&format!("{id} was ended, and is there again: {report:?}")));
        }
        self.all_whole(&spool, &found)
    }

    fn all_whole(&self, spool: &Subject, found: &Queue) -> Result<(), String> {
        found.keys().try_for_each(|id| {
            let whole = self.model.compare_all(&**spool, QueueId(*id));
            whole.map_err(|what| self.said(&what))
        })
    }
}
