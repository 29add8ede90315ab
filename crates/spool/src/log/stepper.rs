//! The log without threads: the caller does their work, in the order it likes. So a simulation
//! decides what happens before what, and can repeat it.

use super::{
    LogSettings, LogSpool, Shared,
    commit::LogCommitter,
    compact::{self, Compaction},
    segment_index,
};
use crate::{CommitSeq, SpoolFailure, disk::Disk, mutant::ActiveMutant};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    task::{Context, Poll, Waker},
};

/// One round of what a thread does, for a log that runs without threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkStep {
    /// Prepare or remove one segment.
    Prepare,
    /// Commit everything that was submitted.
    Commit,
    /// Have one record moved out of the oldest segment.
    Compact,
    /// Write the index file of one segment. Once the log is closed and committed, the last one's too.
    Index,
}

/// The state that the threads keep between their rounds.
pub(super) struct Stepper {
    committer: LogCommitter,
    compaction: Option<Compaction>,
    /// The move that compaction has submitted and that is not durable yet.
    moving: Option<CommitSeq>,
}

impl Stepper {
    pub(super) fn new(committer: LogCommitter) -> Self {
        Self { committer, compaction: None, moving: None }
    }

    fn compact(&mut self, shared: &Shared) -> Result<bool, SpoolFailure> {
        if let Some(commit_seq) = self.moving {
            let mut wait = shared.group_commit.progress.wait(commit_seq);
            match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return Ok(false),
                Poll::Ready(moved) => moved?,
            }
        }
        let compaction = match &mut self.compaction {
            Some(compaction) => compaction,
            None => self.compaction.insert(Compaction::of_oldest(shared)?),
        };
        self.moving = compaction.next(shared)?;
        Ok(self.moving.is_some())
    }
}

impl LogSpool {
    /// The log on a disk, without threads: nothing happens but in [`LogSpool::step`]. Where a thread
    /// would wait for room, the log fails.
    ///
    /// # Errors
    /// As for [`LogSpool::on`].
    pub fn single_stepped(disk: Arc<dyn Disk>, settings: LogSettings) -> Result<Self, SpoolFailure> {
        Self::opened(disk, settings, ActiveMutant::default(), true)
    }

    /// Does one round of a thread's work; `false` when there was none, or no room for it. Only for a
    /// log [`LogSpool::single_stepped`], after its recovery.
    pub fn step(&self, step: WorkStep) -> bool {
        let mut entry = self.stepper.lock().unwrap_or_else(PoisonError::into_inner);
        if step == WorkStep::Index {
            let is_over = self.shared.group_commit.queue.is_drained();
            // Nobody may write to a segment that has one.
            entry.take_if(|_| is_over);
            return segment_index::make_one(&self.shared, is_over);
        }
        let Some(stepper) = entry.as_mut() else { return false };
        match step {
            WorkStep::Prepare => !self.shared.allocator.is_idle() && self.shared.allocator.work(),
            WorkStep::Commit => {
                let Some((works, commit_seq)) = self.shared.group_commit.queue.take_all() else {
                    return false;
                };
                if !stepper.committer.serve(works, commit_seq) {
                    self.shared.allocator.close();
                    *entry = None;
                }
                true
            }
            WorkStep::Compact if !self.shared.compacting.load(Ordering::Relaxed) => false,
            WorkStep::Compact => {
                let moved = stepper.compact(&self.shared);
                if moved.is_err() || stepper.moving.is_none() {
                    let compacted = stepper.compaction.take().map(|compaction| compaction.segment);
                    stepper.moving = None;
                    self.shared.recycle_dead();
                    let goes_on = compacted.is_some_and(|number| compact::goes_on(&self.shared, number));
                    self.shared.compacting.store(moved.is_ok() && goes_on, Ordering::Relaxed);
                }
                let has_moved = matches!(moved, Ok(true));
                if stepper.moving.is_none() {
                    self.shared.note_compaction(moved.map(drop));
                }
                has_moved
            }
            WorkStep::Index => false,
        }
    }
}
