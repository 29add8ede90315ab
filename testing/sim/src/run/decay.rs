//! Synced bytes are damaged while a spool works, while it is off, and while it cleans. Of the messages whose
//! bytes they were each may be lost, and must be reported; everything else goes on as if nothing had happened,
//! and in the end all of it leaves.

use super::{CaseCounts, Ended, Run, Subject};
use crate::mutant::Mutant;
use crate::{
    backend::Backend,
    disk::Decay,
    model::{Live, Queue},
    survey::{self, Spot, What},
    workload,
};
use mail::QueueId;
use spool::{RecoveryReport, Transaction, WorkStep};
use std::{collections::BTreeSet, fmt, ops::Range};

/// Lives before the last one.
const RESTARTS: u64 = 3;
/// Steps of the workload between two moments at which something may be damaged.
const STEPS: u64 = 30;
/// Such moments of a run.
const MOMENTS: u64 = 3;
/// More rounds than any delivery of all takes.
const ROUNDS_MAX: u32 = 20_000;

/// Messages that come and go besides what cannot be read; each takes two blocks or three.
const CHURN: u32 = 120;
/// Segments that may be there then: four besides thrice what is live, one in use, those that are ready, and
/// some that wait to be compacted. Kept by damage they come to forty and more, and grow with the mail.
const CHURNED_MAX: usize = 20;
/// By so many they may grow in the second half.
const GROWTH_MAX: usize = 8;

/// Runs a seed; an error says which promise was broken.
///
/// # Errors
/// In words.
pub fn decay(seed: u64, backend: Backend, mutant: Mutant) -> Result<CaseCounts, String> {
    let mut run = Run::new(seed, backend, mutant);
    run.make_room();
    run.workload = run.workload.slow();
    run.steps = STEPS;
    for _ in 0..RESTARTS {
        run.decaying_life()?;
        run.crash();
        if run.decays.chance(25) {
            run.damage_bytes(lasting(backend));
        }
    }
    run.rescue()?;
    run.tally.message_count = run.model.message_count();
    Ok(run.tally)
}

/// Damage that lasts. Of an append to a queue directory's file that the disk never wrote there is no trace.
fn lasting(backend: Backend) -> &'static [Decay] {
    match backend {
        Backend::Log => &Decay::LASTING,
        Backend::QueueDirs | Backend::Both => &Decay::LASTING[..3],
    }
}

/// Something that went bad.
#[derive(Debug)]
pub(super) struct Decayed {
    how: Decay,
    what: What,
    file: String,
    bytes: Range<usize>,
    /// Messages whose bytes they were.
    pub(super) damaged: BTreeSet<u64>,
    /// The damage was in the newest batch, of which nothing else shows that it existed.
    is_newest: bool,
    /// Numbers of the batches they were in.
    batches: Vec<u64>,
}

impl Decayed {
    /// Is what is left what a disk has that never wrote it?
    fn is_silent(&self) -> bool {
        matches!(self.how, Decay::ZeroSector | Decay::ZeroPage | Decay::LostWrite)
    }
}

impl fmt::Display for Decayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {:?}, {} from {}", self.how, self.what, self.file, self.bytes.start)
    }
}

impl Run {
    /// Damages something that was synced. Its kind is chosen first: there are many records, and few intents.
    pub(super) fn damage_bytes(&mut self, ways: &[Decay]) {
        let spots = survey::spots(&self.disk);
        let kinds: Vec<What> =
            spots.iter().map(|spot| spot.what).collect::<BTreeSet<_>>().into_iter().collect();
        if kinds.is_empty() {
            return;
        }
        let what = kinds[self.decays.index(kinds.len())];
        let some: Vec<&Spot> = spots.iter().filter(|spot| spot.what == what).collect();
        let spot = some[self.decays.index(some.len())];
        let how = ways[self.decays.index(ways.len())];
        let at = spot.bytes.start + self.decays.index(spot.bytes.len());
        let content = self.disk.synced(&spot.file);
        let lost = self.disk.decay(&spot.file, at, how, &mut self.decays);
        let is_newest = spots.iter().any(|one| {
            one.what == What::LastBatch && one.file == spot.file && survey::is_hit(&one.bytes, &lost)
        });
        let owners = survey::owners(&spot.file, &content, &lost);
        let is_damaged = !matches!(how, Decay::Cache);
        let damaged = if is_damaged { self.model.mark_damaged(&owners) } else { BTreeSet::new() };
        let batches = survey::numbers_hit(&content, &lost);
        self.decayed.push(Decayed {
            how,
            what,
            file: spot.file.clone(),
            bytes: lost,
            damaged,
            is_newest,
            batches,
        });
        self.tally.decay_count += 1;
    }

    pub(super) fn said(&self, what: &str) -> String {
        let decayed: Vec<String> = self.decayed.iter().map(Decayed::to_string).collect();
        format!("{what}; went bad: {}", decayed.join(", "))
    }

    fn decaying_life(&mut self) -> Result<(), String> {
        let (spool, _) = self.recover_decayed()?;
        for _ in 0..MOMENTS {
            self.labour(&spool).map_err(|what| self.said(&what))?;
            if self.decays.chance(30) {
                self.damage_bytes(lasting(self.setup.backend));
            }
        }
        self.finish_work(&spool);
        self.check_decayed(&spool)
    }

    /// Without both of its headers a segment may be read as one of an earlier generation, or not at all.
    fn hurt_behind_headers(&mut self) {
        let is_bad = |what: What, file: &str| {
            let mut some = self.decayed.iter().filter(|one| one.what == what && one.file == file);
            some.any(|one| self.disk.is_bad(file, &one.bytes))
        };
        let headless = self.decayed.iter().filter(|one| {
            one.what == What::SegmentHeader
                && is_bad(What::SegmentHeader, &one.file)
                && is_bad(What::HeaderCopy, &one.file)
        });
        for decayed in headless {
            self.model.mark_damaged(&survey::all_owners(&self.disk.synced(&decayed.file)));
        }
    }

    pub(super) fn recover_decayed(&mut self) -> Result<(Subject, RecoveryReport), String> {
        self.hurt_behind_headers();
        let is_listed = self.listed.chance(25);
        let (spool, report) = self.recover_by(is_listed).map_err(|ended| match ended {
            Ended::Violation(what) => self.said(&what),
            Ended::Crash | Ended::NoRoom => self.said("no start"),
        })?;
        if !report.is_complete() && self.decayed.is_empty() {
            return Err(format!("nothing was damaged, but: {report:?}"));
        }
        Ok((spool, report))
    }

    /// Did it end because it had to write to what cannot be read?
    pub(super) fn has_met_decay(&self, spool: &Subject) -> bool {
        spool.pressure().poisoned && self.disk.has_met_decay()
    }

    /// Checks that the spool has not failed, unless a write needed a place that cannot be read.
    pub(super) fn check_decayed(&self, spool: &Subject) -> Result<(), String> {
        match spool.failure() {
            Some(failure) if spool.pressure().poisoned && !self.has_met_decay(spool) => {
                Err(self.said(&format!("failed for nothing that was written: {failure}")))
            }
            _ => Ok(()),
        }
    }

    /// A message that was accepted, is not there, and must be: it is reported, in queue directories by name. Of
    /// one whose segment was set aside that was reported at that time.
    pub(super) fn check_told(&self, found: &Queue, report: &RecoveryReport) -> Result<(), String> {
        let missing = self.model.missing(found);
        if missing.is_empty() {
            return Ok(());
        }
        let range = survey::number_range(&self.disk);
        let is_told = |(id, _): &(u64, Live)| {
            let name = QueueId(*id).to_string();
            let mut told = report.corrupt.iter().chain(&report.unread);
            let by_name = told.any(|what| what.contains(&name) || what.contains(".intent"));
            let is_aside = |one: &Decayed| {
                one.damaged.contains(id)
                    && one.file.ends_with(".seg")
                    && !self.disk.synced(&one.file.replace(".seg", ".quarantined")).is_empty()
            };
            // Zeros, or what was there before, in place of the first or the last batches of the log: as if they had never
            // been written. Behind such a batch in a segment nothing tells what belongs to its generation.
            let is_outside = |one: &Decayed| {
                range.is_none_or(|(from, to)| one.batches.iter().all(|n| *n < from || *n > to))
            };
            let is_lost = |one: &Decayed| one.is_silent() && (one.is_newest || is_outside(one));
            let is_untold = |one: &Decayed| {
                let is_behind = |other: &Decayed| other.file == one.file && is_lost(other);
                one.damaged.contains(id)
                    && (is_lost(one) || is_outside(one) && self.decayed.iter().any(is_behind))
            };
            let has_gone_again = self.returned.contains(id);
            if has_gone_again || self.decayed.iter().any(|one| is_aside(one) || is_untold(one)) {
                return true;
            }
            let at_all = !report.is_complete() || report.torn_bytes > 0;
            if self.setup.backend == Backend::QueueDirs { by_name } else { at_all }
        };
        match missing.iter().find(|one| !is_told(one)) {
            Some((id, _)) => Err(format!("{id} is lost, and nobody is told: {report:?}")),
            None => Ok(()),
        }
    }

    /// The end: all that is found is delivered, what is lost is deleted, and nothing of it comes again.
    pub(super) fn rescue(&mut self) -> Result<(), String> {
        // A write that needs a page that cannot be read ends the spool, and another start goes on.
        for _ in 0..=self.decayed.len() {
            let (spool, report) = self.recover_decayed()?;
            let is_done = self.deliver_decayed(&spool, &report)?;
            drop(spool);
            self.disk = self.disk.after_kill();
            if is_done {
                let (_, report) = self.recover_decayed()?;
                return match self.model.latest().keys().next() {
                    None => Ok(()),
                    Some(id) => {
                        Err(self.said(&format!("{id} was delivered, and is there again; {report:?}")))
                    }
                };
            }
        }
        Err(self.said("it fails again and again"))
    }

    /// `false`: the spool ended, as it must when what cannot be read is to be written to.
    fn deliver_decayed(&mut self, spool: &Subject, report: &RecoveryReport) -> Result<bool, String> {
        let given = self.workload.one_each(&**spool, &mut self.model);
        given.map_err(|refused| self.said(&format!("a message more: {refused}")))?;
        let unreadable = |id: &u64| spool.read(QueueId(*id)).is_err();
        let (damaged, found): (Vec<u64>, Vec<u64>) =
            self.model.latest().keys().partition(|id| unreadable(id));
        let finished: Vec<Transaction> =
            found.iter().map(|id| vec![workload::finished(&self.model, QueueId(*id))]).collect();
        if !self.end(spool, finished)? {
            return Ok(false);
        }
        // What waits for an operator keeps nothing else back, however long he takes.
        if !self.decayed.is_empty() && self.setup.backend == Backend::Log && !self.is_unreadable() {
            self.churn(spool)?;
        }
        let lost = self.model.hurt_messages().filter(|id| !found.contains(id)).collect::<Vec<_>>();
        let deleted = damaged.iter().chain(&lost).map(|id| workload::deleted(&self.model, QueueId(*id)));
        let deleted: Vec<Transaction> = deleted.collect();
        if !self.end(spool, deleted)? {
            return Ok(false);
        }
        let mut rounds = 0;
        while [WorkStep::Compact, WorkStep::Commit, WorkStep::Prepare]
            .into_iter()
            .any(|step| spool.step(step))
        {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(self.said("the spool never rests"));
            }
        }
        self.note_durable(spool);
        if self.has_met_decay(spool) {
            return Ok(false);
        }
        self.check_decayed(spool)?;
        let (waiting, live) = (self.model.open_count(), spool.pressure().message_count);
        let segments = self.segments_in_use();
        // Beside damage what ended messages is kept, too, in some segments.
        let most = if self.decayed.is_empty() { super::last_restart::SEGMENTS_MAX } else { 6 * CHURNED_MAX };
        let keeps_room = segments.len() > most && !self.is_unreadable();
        if waiting > 0 || live > 0 || keeps_room {
            return Err(self.said(&format!(
                "all left, but {waiting} transactions wait, {live} messages are there, and {segments:?}; {report:?}"
            )));
        }
        Ok(true)
    }

    /// Ends messages; `false` as above.
    fn end(&mut self, spool: &Subject, transactions: Vec<Transaction>) -> Result<bool, String> {
        for transaction in transactions {
            match spool.submit(transaction.clone()) {
                Ok(commit_seq) => self.model.submitted(spool.shard(commit_seq), commit_seq, transaction),
                Err(_) if self.has_met_decay(spool) => return Ok(false),
                Err(refused) => return Err(self.said(&format!("an outcome: {refused}"))),
            }
            spool.step(WorkStep::Commit);
        }
        Ok(true)
    }

    /// More mail comes and goes than the log may take room for.
    fn churn(&mut self, spool: &Subject) -> Result<(), String> {
        let step = || {
            for step in [WorkStep::Commit, WorkStep::Compact, WorkStep::Commit, WorkStep::Prepare] {
                spool.step(step);
            }
        };
        let mut halfway = 0;
        for number in 0..CHURN {
            if number == CHURN / 2 {
                halfway = self.segments_in_use().len();
            }
            let passed = self.workload.pass_through(&**spool, &mut self.model, &step);
            passed.map_err(|refused| self.said(&format!("mail besides damage: {refused}")))?;
        }
        let segments = self.segments_in_use();
        // In segments of six blocks, one of which each move takes, what is kept beside damage takes many.
        let is_kept =
            self.disk.file_names().iter().any(|name| {
                [".quarantined", ".damaged", ".unread"].iter().any(|ending| name.ends_with(ending))
            });
        let most = if is_kept { 6 * CHURNED_MAX } else { CHURNED_MAX };
        if segments.len() > most && segments.len() > halfway + GROWTH_MAX {
            let faults = spool.faults();
            return Err(
                self.said(&format!("damage keeps segments that are not needed: {faults:?} {segments:?}"))
            );
        }
        Ok(())
    }

    /// Is there something that the disk does not give back, so that compaction may pause?
    pub(super) fn is_unreadable(&self) -> bool {
        let names = self.disk.file_names();
        names.iter().any(|name| name.ends_with(".seg") && !self.disk.unreadable(name).is_empty())
    }

    /// Segments that are neither set aside nor parked.
    fn segments_in_use(&self) -> Vec<String> {
        let names = self.disk.file_names();
        let has = |name: &str, mark| names.contains(&name.replace(".seg", mark));
        let is_parked = |name: &String| has(name, ".unread") || has(name, ".damaged");
        names.iter().filter(|name| name.ends_with(".seg") && !is_parked(name)).cloned().collect()
    }
}
