//! The engine without its thread: the caller does the thread's work, so that a simulation decides what
//! happens before what, and can repeat it.

use super::{DirSettings, DirSpool, QueueDirectory};
use crate::{Mutation, SpoolFailure, Turn};
use std::sync::{Mutex, PoisonError};

impl DirSpool {
    /// The engine on these directories, without a thread: nothing happens but in [`DirSpool::turn`].
    ///
    /// # Errors
    /// As for [`DirSpool::on`].
    pub fn by_hand(
        queues: Vec<QueueDirectory>,
        settings: DirSettings,
        mutation: Mutation,
    ) -> Result<Self, SpoolFailure> {
        let mut spool = Self::on(queues, settings, mutation)?;
        spool.hand = Some(Mutex::default());
        // Whoever calls would wait for room that only he can make.
        spool.shared.closing.begin();
        Ok(spool)
    }

    /// Commits all that waits; `false` when nothing does. [`Turn::Commit`] is the only work there is.
    pub fn turn(&self, turn: Turn) -> bool {
        let (Some(hand), Turn::Commit) = (&self.hand, turn) else { return false };
        let mut slot = hand.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(committer) = slot.as_mut() else { return false };
        let Some((works, ticket)) = self.shared.inbox.take_all() else { return false };
        if !committer.serve(works, ticket) {
            *slot = None;
        }
        true
    }
}
