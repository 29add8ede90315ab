//! One seed: a spool in runs that end in power cuts, kills and errors, wherever they strike, checked
//! against the model after each.

mod bit_flip;
mod decay;
mod full;
mod heal;
mod last_restart;
mod sweep;

pub use decay::decay;
pub use full::full;
pub use heal::heal;
pub use sweep::{Swept, sweep};

use crate::mutant::Mutant;
use crate::{
    backend::{Backend, Setup, Subject},
    clock::Skew,
    disk::{EIO, Fault, SimDisk},
    model::{Live, Model, Queue},
    seed::Rng,
    workload::Workload,
};
use mail::QueueId;
use spool::{CommitSeq, Durable, LogSettings, RecoveryReport, Refused, SpoolFailure, WorkStep};
use std::{
    collections::BTreeSet,
    task::{Context, Poll, Waker},
    time::Duration,
};

/// What one seed has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CaseCounts {
    /// Runs that ended in a cut, a kill or an error.
    pub crash_count: u64,
    /// Of them, those that ended before recovery did.
    pub recovery_crash_count: u64,
    /// Runs that could not begin or go on because the disk was full.
    pub no_room_count: u64,
    /// Messages handed to the spool.
    pub message_count: u64,
    /// Operations on the simulated disk.
    pub operation_count: u64,
    /// Places of the disk that went bad after they were synced.
    pub decay_count: u64,
}

impl CaseCounts {
    /// Adds the counts of another seed.
    pub fn add(&mut self, other: &Self) {
        self.crash_count += other.crash_count;
        self.recovery_crash_count += other.recovery_crash_count;
        self.no_room_count += other.no_room_count;
        self.message_count += other.message_count;
        self.operation_count += other.operation_count;
        self.decay_count += other.decay_count;
    }
}

/// One seed: the spool, its disk, and the model of what it must have.
struct Run {
    rng: Rng,
    /// The stream that chooses the runs that begin with names only. A stream of its own: the other has been counted
    /// on.
    listed: Rng,
    /// The stream that chooses the moments at which segment indexes are written.
    indexes: Rng,
    /// The stream that chooses the bytes of the disk that are damaged, and the moments.
    decays: Rng,
    /// What was damaged so far, to be healed later.
    decayed: Vec<decay::Decayed>,
    /// Messages that came back because their end could not be read, and may go again when it can.
    returned: BTreeSet<u64>,
    /// The stream that chooses the errors of the wall clock.
    clocks: Rng,
    /// The stream that chooses the steps of runs on a full disk.
    fills: Rng,
    skew: Skew,
    disk: SimDisk,
    setup: Setup,
    model: Model,
    workload: Workload,
    /// Something was planned that makes the disk say EIO.
    has_errors: bool,
    /// Of the workload in a run that nothing ends.
    steps: u64,
    tally: CaseCounts,
}

/// Runs a spool again and again, from a start to a crash.
const RESTARTS: u64 = 5;
/// Steps of the workload in a run that nothing ends.
const STEPS: u64 = 150;

/// Time that passes in a run.
const LIFE_MS: i64 = 10_000;

/// Runs a seed on an backend; an error says which promise was broken.
pub fn run(seed: u64, backend: Backend, mutant: Mutant) -> Result<CaseCounts, String> {
    let mut run = Run::new(seed, backend, mutant);
    for _ in 0..RESTARTS {
        run.plan();
        run.run_until_crash()?;
        run.crash();
    }
    if run.rng.chance(15) { run.flip_bit() } else { run.last_restart() }?;
    run.tally.message_count = run.model.message_count();
    Ok(run.tally)
}

impl Run {
    /// A new disk, large or small, with nothing on it.
    fn new(seed: u64, backend: Backend, mutant: Mutant) -> Self {
        let mut rng = Rng::new(seed);
        let segment_bytes = 1024 * (24 + 8 * rng.below(4));
        let settings = LogSettings {
            segment_bytes,
            max_bytes: if rng.chance(20) { segment_bytes * 12 } else { 0 },
            min_free_bytes: 0,
            queued_bytes_max: 12 * 1024,
            outcome_delay: Duration::ZERO,
            read_threads: 1,
            commit_window: None,
        };
        let capacity_bytes = if rng.chance(20) { segment_bytes * (9 + rng.below(6)) } else { u64::MAX };
        Self {
            disk: SimDisk::new(rng.bits(), capacity_bytes),
            workload: Workload::new(rng.bits(), backend.is_joint()),
            setup: Setup::new(backend, settings, mutant, seed),
            rng,
            listed: Rng::new(!seed),
            indexes: Rng::new(seed.rotate_left(32)),
            decays: Rng::new(!seed.rotate_left(32)),
            decayed: Vec::new(),
            returned: BTreeSet::new(),
            clocks: Rng::new(seed.rotate_left(16)),
            fills: Rng::new(!seed.rotate_left(16)),
            skew: Skew::default(),
            model: Model::new(backend),
            has_errors: false,
            steps: STEPS,
            tally: CaseCounts::default(),
        }
    }

    /// Plans the faults of the next run. Early operations belong to recovery.
    fn plan(&mut self) {
        let within = if self.rng.chance(30) { 40 } else { 400 };
        let cut = 1 + self.rng.below(within);
        self.has_errors = self.rng.chance(15);
        if self.has_errors {
            let fault = [Fault::Once(EIO), Fault::ForGood(EIO), Fault::Sync][self.rng.index(3)];
            self.disk.plan(1 + self.rng.below(cut), fault);
        }
        self.disk.plan(cut, Fault::Cut);
    }

    /// From opening the spool until its disk or the workload ends.
    fn run_until_crash(&mut self) -> Result<(), String> {
        match self.recover() {
            Ok((spool, report)) => {
                if !report.is_complete() {
                    return Err(format!("nothing was damaged, but: {report:?}"));
                }
                self.work(&spool)
            }
            Err(Ended::Crash) => {
                self.tally.recovery_crash_count += 1;
                Ok(())
            }
            Err(Ended::NoRoom) => {
                self.tally.no_room_count += 1;
                self.make_room();
                Ok(())
            }
            Err(Ended::Violation(what)) => Err(what),
        }
    }

    fn recover(&mut self) -> Result<(Subject, RecoveryReport), Ended> {
        let is_listed = self.listed.chance(25);
        self.recover_by(is_listed)
    }

    fn recover_by(&mut self, is_listed: bool) -> Result<(Subject, RecoveryReport), Ended> {
        let failed = |failure: SpoolFailure| {
            if self.disk.is_off() || self.has_errors {
                Ended::Crash
            } else if is_no_room(&failure) {
                Ended::NoRoom
            } else {
                Ended::Violation(format!("recovery failed: {failure}"))
            }
        };
        let mut spool = self.setup.open(&self.disk).map_err(failed)?;
        let mut found = Queue::new();
        let mut twice = None;
        let report = spool.recover(is_listed, &mut |r| {
            let id = r.message.id.0;
            if found.insert(id, Live::recovered(&r.recipients, r.held.clone())).is_some() {
                twice = Some(id);
            }
        });
        let report = self.setup.reported(report.map_err(failed)?);
        if self.disk.is_off() || self.has_errors && !report.is_complete() {
            return Err(Ended::Crash);
        }
        if let Some(id) = twice {
            return Err(Ended::Violation(format!("{id} was recovered twice")));
        }
        let ids: Vec<u64> = found.keys().copied().collect();
        if !self.decayed.is_empty() {
            self.check_told(&found, &report).map_err(Ended::Violation)?;
        }
        // By name alone nobody knows which part of an interrupted batch is there.
        let has_totals = self.decayed.is_empty() && !(is_listed && matches!(spool, Subject::QueueDirs(_)));
        let settled = self.model.settle(found, &report, has_totals);
        settled.map_err(|what| Ended::Violation(format!("{what}; {report:?}")))?;
        for id in ids {
            self.read(&spool, QueueId(id)).map_err(Ended::Violation)?;
        }
        Ok((spool, report))
    }

    /// An error counts when the disk had no reason for it.
    fn read(&self, spool: &Subject, id: QueueId) -> Result<(), String> {
        let compared = self.model.compare(&**spool, id);
        if self.disk.is_off() || self.has_errors { Ok(()) } else { compared }
    }

    fn work(&mut self, spool: &Subject) -> Result<(), String> {
        self.labour(spool)?;
        self.finish_work(spool);
        self.check_failure(spool)
    }

    /// Uses the spool as a mail server does, for so many steps.
    fn labour(&mut self, spool: &Subject) -> Result<(), String> {
        for _ in 0..self.steps {
            match self.workload.step(&**spool, &mut self.model) {
                Ok(_) | Err(Refused::Busy | Refused::Full | Refused::TooLarge) => {}
                Err(Refused::Poisoned) => break,
            }
            for step in [WorkStep::Prepare, WorkStep::Compact, WorkStep::Commit] {
                let percent = if step == WorkStep::Prepare { 70 } else { 40 };
                if self.rng.chance(percent) {
                    spool.step(step);
                }
            }
            if self.indexes.chance(8) {
                spool.step(WorkStep::Index);
            }
            self.note_durable(spool);
            if self.rng.chance(10) {
                let ids = self.model.readable();
                if !ids.is_empty() {
                    let id = ids[self.rng.index(ids.len())];
                    self.read(spool, id)?;
                }
            }
        }
        Ok(())
    }

    /// Sometimes it is closed as it should be.
    fn finish_work(&mut self, spool: &Subject) {
        if self.indexes.chance(30) {
            spool.close();
            while [WorkStep::Commit, WorkStep::Index].into_iter().any(|step| spool.step(step)) {}
        }
        self.note_durable(spool);
    }

    /// The log may fail when the disk did, and for want of room, where its thread would wait.
    fn check_failure(&mut self, spool: &Subject) -> Result<(), String> {
        if !spool.pressure().poisoned || self.disk.is_off() || self.has_errors {
            return Ok(());
        }
        match spool.failure() {
            Some(failure) if !is_no_room(&failure) => Err(format!("failed for nothing: {failure}")),
            _ => {
                self.tally.no_room_count += 1;
                self.make_room();
                Ok(())
            }
        }
    }

    /// Makes room as an operator does; nothing is lost until then.
    fn make_room(&mut self) {
        self.disk.set_capacity(u64::MAX);
        self.setup.log.max_bytes = 0;
    }

    /// Notes the transactions that the spool calls durable now.
    fn note_durable(&mut self, spool: &Subject) {
        let is_durable =
            |commit_seq: &CommitSeq| matches!(poll(spool.durable(*commit_seq)), Poll::Ready(Ok(())));
        for shard in 0..spool.shard_count() {
            let commit_seqs: Vec<CommitSeq> = self.model.open_tickets(shard).collect();
            if let Some(last) = commit_seqs.into_iter().take_while(is_durable).last() {
                self.model.acknowledged(shard, last);
            }
        }
    }

    /// The end of a run: mostly the power goes, sometimes only the process.
    fn crash(&mut self) {
        self.tally.crash_count += 1;
        self.tally.operation_count += self.disk.operation_count();
        self.disk =
            if self.rng.chance(25) { self.disk.after_kill() } else { self.disk.after_crash(self.rng.bits()) };
        self.has_errors = false;
        self.workload.hang_up();
        if self.clocks.chance(20) {
            self.skew.jump(&mut self.clocks);
        }
        self.disk.set_clock(self.skew.shows(self.tally.crash_count as i64 * LIFE_MS));
    }
}

fn poll(mut wait: Durable) -> Poll<Result<(), SpoolFailure>> {
    wait.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn is_no_room(failure: &SpoolFailure) -> bool {
    failure.to_string().contains("no room for one")
}

/// Why a start ended without a spool to go on with.
enum Ended {
    /// The disk had failed: another restart follows.
    Crash,
    NoRoom,
    Violation(String),
}
