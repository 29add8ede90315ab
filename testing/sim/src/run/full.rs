//! A spool with little room: it fills with large mail until it refuses, outcomes still find theirs, and what
//! leaves gives its room back. Nobody waits for room that only they could make.

use super::{CaseCounts, Ended, Run, Subject, last_restart::files_max};
use crate::backend::Backend;
use crate::mutant::Mutant;
use spool::{Refused, WorkStep};

/// Lives before everything is delivered.
const RESTARTS: u64 = 3;
/// In each of these restarts.
const STEPS: u64 = 300;
/// Log segments that are the least there may be.
const SEGMENTS_MIN: u64 = 8;
/// More rounds than giving back all room takes.
const ROUNDS_MAX: u32 = 5000;

/// Runs a seed; an error says which promise was broken.
///
/// # Errors
/// In words.
pub fn full(seed: u64, backend: Backend, mutant: Mutant) -> Result<CaseCounts, String> {
    let mut run = Run::new(seed, backend, mutant);
    run.make_room();
    run.workload = run.workload.slow().large();
    let segments = SEGMENTS_MIN + run.fills.below(5);
    // So large that a block for each commit, and what stays empty at a segment's end, are a small part of it.
    run.setup.log.segment_bytes *= 10;
    run.setup.log.max_bytes = segments * run.setup.log.segment_bytes;
    for _ in 0..RESTARTS {
        let is_listed = run.listed.chance(25);
        let spool = run.recover_full(is_listed)?;
        run.fill(&spool)?;
        drop(spool);
        run.crash();
    }
    // By names alone, chunks that belong to nobody would stay.
    let spool = run.recover_full(false)?;
    run.fill(&spool)?;
    run.drain(&spool)?;
    run.tally.message_count = run.model.message_count();
    Ok(run.tally)
}

impl Run {
    /// Recovers from a full disk: a start finds room for itself, however full it is.
    fn recover_full(&mut self, is_listed: bool) -> Result<Subject, String> {
        match self.recover_by(is_listed) {
            Ok((spool, report)) if report.corrupt.is_empty() => Ok(spool),
            Ok((_, report)) => Err(format!("nothing was damaged, but: {:?}", report.corrupt)),
            Err(Ended::Violation(what)) => Err(what),
            Err(Ended::Crash | Ended::NoRoom) => Err("no room for a start".to_owned()),
        }
    }

    /// As the threads do it: whatever there is to do is done soon.
    fn all_turns(&mut self, spool: &Subject) -> Result<(), String> {
        for step in [WorkStep::Prepare, WorkStep::Commit, WorkStep::Compact, WorkStep::Prepare] {
            if self.fills.chance(80) {
                spool.step(step);
            }
        }
        match spool.failure() {
            Some(failure) if spool.pressure().poisoned => Err(format!("it stands still: {failure}")),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, spool: &Subject) -> Result<(), String> {
        for _ in 0..STEPS {
            // Without room for mail only what leaves, and what is refused, matters.
            let is_full = spool.pressure().free_bytes == 0;
            let done = match is_full && self.fills.chance(50) {
                true => self.workload.finish_one(&**spool, &mut self.model),
                false => self.workload.step(&**spool, &mut self.model).map(drop),
            };
            match done {
                Ok(()) | Err(Refused::Busy) => {}
                Err(Refused::Full) => self.tally.no_room_count += 1,
                Err(refused) => return Err(format!("it refuses for good: {refused}")),
            }
            self.all_turns(spool)?;
            self.note_durable(spool);
        }
        Ok(())
    }

    /// Everything leaves, and then there is room again.
    fn drain(&mut self, spool: &Subject) -> Result<(), String> {
        self.workload.abandon_all(&**spool);
        let mut rounds = 0;
        while !self.model.latest().is_empty() {
            match self.workload.finish_one(&**spool, &mut self.model) {
                Ok(()) | Err(Refused::Busy) => {}
                Err(refused) => return Err(format!("an outcome finds no room: {refused}")),
            }
            self.all_turns(spool)?;
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err("what is there never leaves".to_owned());
            }
        }
        while [WorkStep::Compact, WorkStep::Commit, WorkStep::Prepare]
            .into_iter()
            .any(|step| spool.step(step))
        {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err("the spool never rests".to_owned());
            }
        }
        self.note_durable(spool);
        let (waiting, live) = (self.model.open_count(), spool.pressure().message_count);
        if waiting > 0 || live > 0 {
            return Err(format!("all left, but {waiting} transactions wait and {live} messages are there"));
        }
        let files = self.disk.spool_files();
        if files.len() > files_max(self.setup.backend) {
            return Err(format!("all left, and these files keep their room: {files:?}"));
        }
        let given = self.workload.one_each(&**spool, &mut self.model);
        given.map_err(|refused| format!("empty, and no room for a message: {refused}"))
    }
}
