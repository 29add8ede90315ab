//! Room for one more message, in the queue and in the spool. The last of both is kept for mail of this site: whoever fills them must not
//! stop it.

use crate::{acceptor::Acceptor, intake::Intake};
use mail::Reply;
use smtp::server::replies;
use spool::Pressure;
use std::sync::atomic::{AtomicU64, Ordering};

/// The share of the queue and of the spool that is kept for mail of this site: one part in so many.
pub const KEPT_SHARE: u64 = 20;

/// What has passed the checks of its room, and is not counted by the spool yet.
#[derive(Debug, Default)]
pub(super) struct Entering {
    messages: AtomicU64,
    bytes: AtomicU64,
}

/// Counts a message and its bytes in [`Entering`] until it is dropped: by then the spool counts them, or they
/// were refused.
pub(super) struct EnteringGuard<'a> {
    entering: &'a Entering,
    bytes: u64,
}

impl Drop for EnteringGuard<'_> {
    fn drop(&mut self) {
        self.entering.messages.fetch_sub(1, Ordering::Relaxed);
        self.entering.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<I: Intake> Acceptor<I> {
    /// Counts a message whose content has arrived, if there still is room for it: others may have taken the room that was there at
    /// MAIL.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub(super) fn enter(&self, is_stranger: bool, bytes: u64) -> Result<EnteringGuard<'_>, Reply> {
        self.entering.messages.fetch_add(1, Ordering::Relaxed);
        self.entering.bytes.fetch_add(bytes, Ordering::Relaxed);
        let guard = EnteringGuard { entering: &self.entering, bytes };
        // Itself it counts already.
        let pressure = self.spool.pressure();
        if self.message_count(&pressure) > self.messages_max(is_stranger) {
            return Err(replies::NO_ROOM);
        }
        if is_stranger {
            self.space_beside(&pressure, 0)?;
        }
        Ok(guard)
    }

    /// Is there room for one more?
    pub(super) fn room(&self) -> Result<(), Reply> {
        self.room_by(&self.spool.pressure())
    }

    fn room_by(&self, pressure: &Pressure) -> Result<(), Reply> {
        if pressure.poisoned {
            return Err(replies::LOCAL_ERROR);
        }
        if pressure.free_bytes == 0 || self.message_count(pressure) >= self.messages_max(false) {
            // A full disk may be why others are late.
            Err(replies::NO_ROOM)
        } else if self.late_count() > 0 {
            Err(replies::SPOOL_BUSY)
        } else {
            Ok(())
        }
    }

    /// Is there room for one more of a stranger?
    pub(super) fn room_for_strangers(&self) -> Result<(), Reply> {
        let pressure = self.spool.pressure();
        self.room_by(&pressure)?;
        if self.message_count(&pressure) >= self.messages_max(true) {
            return Err(replies::NO_ROOM);
        }
        self.space_beside(&pressure, 0)
    }

    /// Is there space for so many bytes of a stranger, beside what is entering?
    pub(super) fn space_for_strangers(&self, bytes: u64) -> Result<(), Reply> {
        self.space_beside(&self.spool.pressure(), bytes)
    }

    fn space_beside(&self, pressure: &Pressure, bytes: u64) -> Result<(), Reply> {
        let kept_bytes = self.intake.config().kept_bytes;
        // What is queued has taken no room yet.
        let entering_bytes = self.entering.bytes.load(Ordering::Relaxed);
        let wanted = [kept_bytes, pressure.queued_bytes, entering_bytes, bytes];
        if self.spool.room_bytes() < wanted.into_iter().fold(0, u64::saturating_add) {
            return Err(replies::NO_ROOM);
        }
        Ok(())
    }

    fn message_count(&self, pressure: &Pressure) -> u64 {
        pressure.message_count + self.entering.messages.load(Ordering::Relaxed)
    }

    /// Messages in the queue when no more are taken.
    fn messages_max(&self, of_strangers: bool) -> u64 {
        let max = self.intake.config().settings.queue.max_messages as u64;
        if of_strangers { max - max.div_ceil(KEPT_SHARE) } else { max }
    }
}
