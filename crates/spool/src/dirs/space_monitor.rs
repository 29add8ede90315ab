//! Room comes and goes without us: other programs fill the disk and empty it. It is looked for now and then,
//! by a thread of its own, since a disk may be slow to answer; so is a commit that found none tried again.

use super::{Shared, pending_sync::Unwritten};
use crate::SpoolFailure;
use std::time::Duration;

/// The age of what is known of the room while nothing is committed.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// So many directories are looked at each time, besides those of the queues themselves.
const PLACES_A_LOOK: usize = 64;

impl Shared {
    /// The thread: until closed or failed. A disk that does not tell its room is not full, it is gone.
    pub(super) fn watch_room(&self) {
        let mut look_count = 0;
        while self.group_commit.closing.wait(LOOK_EVERY) {
            if let Err(failure) = self.look(look_count) {
                self.poison(failure);
                return;
            }
            look_count += 1;
        }
    }

    fn look(&self, look_count: usize) -> Result<(), SpoolFailure> {
        self.look_for_room().map_err(|e| SpoolFailure::Io(format!("ask for room: {e}")))?;
        let dirs = &self.queues.dirs;
        // All of them in turn: there may be thousands.
        let first = look_count * PLACES_A_LOOK % dirs.len();
        let some = dirs.iter().skip(first).take(PLACES_A_LOOK);
        self.queues.queue_dirs().chain(some).try_for_each(|dir| {
            dir.disk.check_place().map_err(|e| SpoolFailure::Io(format!("look for {}: {e}", dir.name)))
        })
    }

    /// After a write that found no room, and of which nothing is left that counts: no mail is taken, and in a
    /// while it may be tried again. Outcomes wait behind it; what they free is not missing for long, since
    /// mail is refused before it takes the reserve.
    pub(super) fn await_room(&self, unwritten: Unwritten) -> Result<(), SpoolFailure> {
        if !unwritten.lacks_room {
            return Err(unwritten.failure);
        }
        if self.room.set_lacking(true) {
            tracing::error!("{}: mail is refused until it has", unwritten.failure);
        }
        let may_retry = self.group_commit.closing.wait(LOOK_EVERY) && !self.group_commit.is_poisoned();
        if may_retry { Ok(()) } else { Err(unwritten.failure) }
    }
}
