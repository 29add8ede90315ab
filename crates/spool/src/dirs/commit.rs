//! The commit thread: takes everything that waits, batch by batch. What a crash may leave of a batch
//! is in the module's text.

use super::{
    Shared, Work,
    commit_batch::{ChangedMessage, CommitBatch},
    intent,
    names::Named,
    pending_sync::{Unwritten, Written},
    totals::{self, Slot},
};
use crate::{CommitSeq, SpoolFailure, Totals, disk::File, mutant::Mutant};
use mail::Part;
use std::{sync::Arc, time::Instant};

/// The commit thread of queue directories: its state between two batches.
pub(super) struct DirCommitter {
    shared: Arc<Shared>,
    next: Next,
}

/// Numbers that nothing on the disk has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) intent: u64,
    pub(super) batch: u64,
}

impl DirCommitter {
    pub(super) fn new(shared: Arc<Shared>, next: Next) -> Self {
        Self { shared, next }
    }

    /// Runs the commit thread, until the spool is closed or has failed.
    pub(super) fn run(mut self) {
        let shared = self.shared.clone();
        let delay = shared.settings.outcome_delay;
        shared.group_commit.run(|| delay, |works, commit_seq| self.serve(works, commit_seq));
    }

    /// Everything that waited; `false` when it failed, which is final.
    pub(super) fn serve(&mut self, works: Vec<(Work, u64)>, last: CommitSeq) -> bool {
        if self.shared.mutant.is(Mutant::AnswerEarly) {
            self.shared.group_commit.progress.publish(last);
        }
        let mut commit_seq = CommitSeq(last.0 - works.len() as u64);
        let mut batch = self.begin();
        for (work, blocks) in works {
            batch.blocks += blocks;
            commit_seq.0 += 1;
            match work {
                Work::Transaction(entries) => batch.transaction(&self.shared, entries),
                Work::Chunk(chunk_id, bytes) => batch.chunk(&self.shared, chunk_id, bytes),
                Work::Forget(chunk_id, dir) => batch.forgotten.push((chunk_id, dir)),
            }
            if commit_seq == last || batch.is_full() {
                if let Err(failure) = self.commit(std::mem::replace(&mut batch, CommitBatch::new(0))) {
                    self.shared.poison(failure);
                    return false;
                }
                self.shared.group_commit.progress.publish(commit_seq);
                batch = self.begin();
            }
        }
        true
    }

    fn begin(&mut self) -> CommitBatch {
        let number = self.shared.batch_after(self.next.batch);
        self.next.batch = number.saturating_add(1);
        CommitBatch::new(number)
    }

    fn commit(&mut self, batch: CommitBatch) -> Result<(), SpoolFailure> {
        if batch.is_empty() {
            self.shared.room.settle(batch.blocks);
            return Ok(());
        }
        if self.shared.mutant.is(Mutant::ReuseEarly) {
            batch.changed.iter().filter(|t| t.ends).for_each(|t| self.remove_content(t));
        }
        let started = Instant::now();
        let totals = self.shared.totals().next(&batch.counted);
        let is_counted = batch.counted != Totals::default() && !self.shared.mutant.is(Mutant::StaleTotals);
        self.write_new(&batch, is_counted.then_some(&totals))?;
        let intent = self.write_intent(&batch)?;
        self.apply(&batch)?;
        let took_us = started.elapsed().as_micros() as u64;
        probe::probe!(postrider, commit, batch.changed.len(), batch.blocks, took_us);
        self.shared.group_commit.note_commit();
        if is_counted {
            *self.shared.totals() = totals;
        }
        let blocks = batch.blocks;
        self.note(batch);
        if let Some(number) = intent {
            self.tidy(self.shared.queues.first(), Named::Intent(number));
        }
        let shared = &self.shared;
        shared.look_for_room().map_err(|e| SpoolFailure::Io(format!("ask for room: {e}")))?;
        shared.room.settle(blocks);
        if shared.room.set_lacking(false) {
            tracing::info!("the disk has space again");
        }
        Ok(())
    }

    /// Chunks, content, unfinished envelopes and the totals; afterwards their bytes and names are durable.
    fn write_new(&self, batch: &CommitBatch, totals: Option<&Slot>) -> Result<(), SpoolFailure> {
        self.when_there_is_room(|written| {
            Self::create_all(written, batch)?;
            if let Some(totals) = totals {
                totals::write(written, &self.shared, totals)?;
            }
            written.sync()
        })
        .map(drop)
    }

    /// New files, which no envelope names yet: without room for one of them none stays.
    fn when_there_is_room(
        &self,
        create: impl Fn(&mut Written<'_>) -> Result<(), Unwritten>,
    ) -> Result<Written<'_>, SpoolFailure> {
        loop {
            let mut written = Written::new(&self.shared);
            let Err(unwritten) = create(&mut written) else { return Ok(written) };
            if unwritten.lacks_room {
                written.undo()?;
            }
            self.shared.await_room(unwritten)?;
        }
    }

    fn create_all(written: &mut Written<'_>, batch: &CommitBatch) -> Result<(), Unwritten> {
        for chunk in &batch.chunks {
            written.create(chunk.dir, Named::Chunk(chunk.chunk_id), |file| file.write_at(0, &chunk.bytes))?;
        }
        for changed in batch.changed.iter().filter(|t| t.is_new()) {
            let Some(message) = &changed.accepted else { continue };
            if super::commit_batch::memory_bytes(message) > 0 {
                written.create(changed.dir, Named::Content(changed.id.0), |file| {
                    let mut at = 0;
                    for part in message.content.parts() {
                        let Part::Memory(bytes) = part else { continue };
                        file.write_at(at, bytes)?;
                        at += bytes.len() as u64;
                    }
                    Ok(())
                })?;
            }
            let write = |file: &dyn File| file.write_at(0, &changed.lines);
            written.create(changed.dir, Named::Unfinished(changed.id.0), write)?;
        }
        Ok(())
    }

    /// Writes the intent of a batch that changes several messages together, before the first of them is changed.
    /// Returns
    /// the number of the intent; `None` if the batch needs none.
    fn write_intent(&mut self, batch: &CommitBatch) -> Result<Option<u64>, SpoolFailure> {
        let steps = batch.joint_steps();
        if steps.is_empty() {
            return Ok(None);
        }
        let number = self.next.intent;
        self.next.intent += 1;
        let mut bytes = Vec::new();
        intent::write(&mut bytes, self.shared.checksum_of(number), number, &steps);
        let first = self.shared.queues.first();
        let mut written = self.when_there_is_room(|written| {
            written.create(first, Named::Draft(number), |file| file.write_at(0, &bytes))?;
            written.sync_files()
        })?;
        written.rename(first, Named::Draft(number), Named::Intent(number))?;
        written.sync().map_err(|unwritten| unwritten.failure)?;
        Ok(Some(number))
    }

    /// Appends lines, gives names, takes names; afterwards all of it is durable.
    fn apply(&self, batch: &CommitBatch) -> Result<(), SpoolFailure> {
        let old = |t: &&ChangedMessage| t.accepted.is_none();
        let append = || {
            let mut written = Written::new(&self.shared);
            for changed in batch.changed.iter().filter(old).filter(|t| !t.ends && !t.lines.is_empty()) {
                let write = |file: &dyn File| file.write_at(changed.base, &changed.lines);
                written.change(changed.dir, Named::Envelope(changed.id.0), write)?;
            }
            written.sync_files()?;
            Ok(written)
        };
        // All lines at the same places again: nobody counts on what the first try left there, and no page counts
        // that an earlier sync gave up.
        let mut written = loop {
            match append() {
                Ok(written) => break written,
                Err(unwritten) => self.shared.await_room(unwritten)?,
            }
        };
        for changed in batch.changed.iter().filter(|t| t.is_new()) {
            written.rename(changed.dir, Named::Unfinished(changed.id.0), Named::Envelope(changed.id.0))?;
        }
        for changed in batch.changed.iter().filter(old).filter(|t| t.ends) {
            written.remove(changed.dir, Named::Envelope(changed.id.0))?;
        }
        written.sync().map_err(|unwritten| unwritten.failure)
    }

    /// Updates the index, and removes what is needed no longer: only now is its end durable.
    fn note(&self, batch: CommitBatch) {
        let mut freed = batch.forgotten;
        let dirs = &self.shared.queues.dirs;
        let mut index = self.shared.index();
        for chunk in batch.chunks {
            // Abandoned while it was written?
            if let Some(known) = index.take_chunk(chunk.chunk_id) {
                index.add_chunk(chunk.chunk_id, super::index::Chunk { dir: Some(chunk.dir), ..known });
            } else {
                freed.push((chunk.chunk_id, chunk.dir));
            }
        }
        let mut ended = Vec::new();
        for changed in &batch.changed {
            let slot = match &changed.accepted {
                Some(message) => Some(changed.slot(message)),
                None => index.take(dirs, changed.id.0),
            };
            let Some(mut slot) = slot else { continue };
            if changed.ends {
                for chunk_id in &slot.chunks {
                    let chunk = index.take_chunk(*chunk_id);
                    freed.extend(chunk.and_then(|chunk| Some((*chunk_id, chunk.dir?))));
                }
                ended.push((changed, slot.content_bytes));
            } else {
                slot.envelope_bytes = changed.base + changed.lines.len() as u64;
                index.add(dirs, changed.id.0, slot);
            }
        }
        drop(index);
        for (chunk_id, dir) in freed {
            self.tidy(dir, Named::Chunk(chunk_id));
        }
        for (changed, content_bytes) in ended {
            if changed.accepted.is_none() && content_bytes > 0 && !self.shared.mutant.is(Mutant::ReuseEarly) {
                self.remove_content(changed);
            }
        }
    }

    fn remove_content(&self, changed: &ChangedMessage) {
        self.tidy(changed.dir, Named::Content(changed.id.0));
    }

    /// Removes a file that is not needed. What stays is garbage, which the next start removes.
    fn tidy(&self, dir: u16, named: Named) {
        let dir = self.shared.queues.dir(dir);
        if let Err(e) = dir.disk.remove(&named.file()) {
            tracing::debug!("remove {}/{}: {e}", dir.name, named.file());
        }
    }
}
