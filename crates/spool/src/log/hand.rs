//! The log without threads: the caller does their work, in the order it likes. So a simulation
//! decides what happens before what, and can repeat it.

use super::{
    LogSettings, LogSpool, Shared,
    clean::{self, Cleaning},
    commit::Committer,
    digest,
};
use crate::{Mutation, SpoolFailure, Ticket, disk::Disk};
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    task::{Context, Poll, Waker},
};

/// One round of what a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Prepare or remove one segment.
    Prepare,
    /// Commit all that waits.
    Commit,
    /// Have one record moved out of the oldest segment.
    Clean,
    /// Write the digest of one segment. Once the log is closed and committed, the last one's too.
    Digest,
}

/// What the threads hold between their rounds.
pub(super) struct Hand {
    committer: Committer,
    cleaning: Option<Cleaning>,
    /// The move that is under way.
    moving: Option<Ticket>,
}

impl Hand {
    pub(super) fn new(committer: Committer) -> Self {
        Self { committer, cleaning: None, moving: None }
    }

    fn clean(&mut self, shared: &Shared) -> Result<bool, SpoolFailure> {
        if let Some(ticket) = self.moving {
            let mut wait = shared.progress.wait(ticket);
            match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => return Ok(false),
                Poll::Ready(moved) => moved?,
            }
        }
        let cleaning = match &mut self.cleaning {
            Some(cleaning) => cleaning,
            None => self.cleaning.insert(Cleaning::of_oldest(shared)?),
        };
        self.moving = cleaning.next(shared)?;
        Ok(self.moving.is_some())
    }
}

impl LogSpool {
    /// The log on a disk, without threads: nothing happens but in [`LogSpool::turn`]. Where a thread
    /// would wait for room, the log fails.
    ///
    /// # Errors
    /// As for [`LogSpool::on`].
    pub fn by_hand(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        mutation: Mutation,
    ) -> Result<Self, SpoolFailure> {
        Self::opened(disk, settings, mutation, true)
    }

    /// Does one round of a thread's work; `false` when there was none, or no room for it. Only for a
    /// log [`LogSpool::by_hand`], after its recovery.
    pub fn turn(&self, turn: Turn) -> bool {
        let mut slot = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        if turn == Turn::Digest {
            let is_over = self.shared.inbox.is_drained();
            // Nobody may write to a segment that has one.
            slot.take_if(|_| is_over);
            return digest::make_one(&self.shared, is_over);
        }
        let Some(hand) = slot.as_mut() else { return false };
        match turn {
            Turn::Prepare => !self.shared.pool.is_idle() && self.shared.pool.work(),
            Turn::Commit => {
                let Some((works, ticket)) = self.shared.inbox.take_all() else { return false };
                if !hand.committer.serve(works, ticket) {
                    self.shared.pool.close();
                    *slot = None;
                }
                true
            }
            Turn::Clean if !self.shared.cleaning.load(Ordering::Relaxed) => false,
            Turn::Clean => {
                let moved = hand.clean(&self.shared);
                if moved.is_err() || hand.moving.is_none() {
                    let compacted = hand.cleaning.take().map(|cleaning| cleaning.segment);
                    hand.moving = None;
                    self.shared.give_back_dead();
                    let goes_on = compacted.is_some_and(|number| clean::goes_on(&self.shared, number));
                    self.shared.cleaning.store(moved.is_ok() && goes_on, Ordering::Relaxed);
                }
                let has_moved = matches!(moved, Ok(true));
                if hand.moving.is_none() {
                    self.shared.note_compaction(moved.map(drop));
                }
                has_moved
            }
            Turn::Digest => false,
        }
    }
}
