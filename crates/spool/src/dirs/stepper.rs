//! Queue directories without a thread: the caller does the thread's work, so that a simulation decides what
//! happens before what, and can repeat it.

use super::{DirSettings, DirSpool, QueueDirectory};
use crate::{SpoolFailure, WorkStep, mutant::ActiveMutant};
use std::sync::PoisonError;

impl DirSpool {
    /// Opens queue directories without a thread: nothing happens but in [`DirSpool::step`].
    ///
    /// # Errors
    /// As for [`DirSpool::on`].
    pub fn single_stepped(queues: Vec<QueueDirectory>, settings: DirSettings) -> Result<Self, SpoolFailure> {
        Self::opened(queues, settings, ActiveMutant::default(), true)
    }

    /// Commits all that waits; `false` when nothing does. [`WorkStep::Commit`] is the only work there is.
    pub fn step(&self, step: WorkStep) -> bool {
        let (Some(stepper), WorkStep::Commit) = (&self.stepper, step) else { return false };
        let mut slot = stepper.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(committer) = slot.as_mut() else { return false };
        let Some((works, commit_seq)) = self.shared.group_commit.queue.take_all() else { return false };
        if !committer.serve(works, commit_seq) {
            *slot = None;
        }
        true
    }
}
