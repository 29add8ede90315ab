//! Room comes and goes without us: other programs fill the disk and empty it. It is looked for now and then,
//! by a thread of its own, since a disk may be slow to answer; so is a commit that found none tried again.

use super::{Shared, written::Unwritten};
use crate::SpoolFailure;
use std::{
    sync::{Condvar, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

/// The age of what is known of the room while nothing is committed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Whether the spool is being closed, for threads that would wait otherwise.
#[derive(Default)]
pub(super) struct Closing {
    is_closing: Mutex<bool>,
    bell: Condvar,
}

impl Closing {
    /// Nobody waits any more.
    pub(super) fn begin(&self) {
        *self.is_closing.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }

    /// Waits so long; `false` when the spool is being closed.
    fn wait(&self, most: Duration) -> bool {
        let guard = self.is_closing.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.bell.wait_timeout_while(guard, most, |is_closing| !*is_closing);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Shared {
    /// The thread: until closed.
    pub(super) fn watch_room(&self) {
        while self.closing.wait(LOOK_EVERY) {
            // Should the disk be gone, the next commit says so.
            if let Err(e) = self.look_for_room() {
                tracing::debug!("ask for room: {e}");
            }
        }
    }

    /// After a write that found no room, and of which nothing is left that counts: no mail is taken, and in a
    /// while it may be tried again. Outcomes wait behind it; what they free is not missing for long, since
    /// mail is refused before it takes the reserve.
    pub(super) fn await_room(&self, unwritten: Unwritten) -> Result<(), SpoolFailure> {
        if !unwritten.lacks_room {
            return Err(unwritten.failure);
        }
        if self.room.set_lacking(true) {
            tracing::error!("{}: no mail is taken until it has", unwritten.failure);
        }
        let may_retry = self.closing.wait(LOOK_EVERY) && !self.poisoned.load(Ordering::Relaxed);
        if may_retry { Ok(()) } else { Err(unwritten.failure) }
    }
}
