//! The room that is left, known without asking the disk at every submit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The limits on the disk space of the directories.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    /// All files together; zero: what the disk has.
    pub(super) max_bytes: u64,
    /// Must stay free on the disk, so that outcomes and reports find room when mail does not.
    pub(super) keep_bytes: u64,
}

/// Bytes are whole blocks.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// For mail, when the disk was last asked.
    free_bytes: AtomicU64,
    /// Submitted since and not written yet.
    promised_bytes: AtomicU64,
    /// A write found none, whatever the disk says: it may not include quotas.
    is_lacking: AtomicBool,
}

impl Room {
    /// Notes the free bytes of the disk and the bytes of our files.
    pub(super) fn look(&self, allowed: Allowed, disk_bytes: u64, used_bytes: u64) {
        // Others use the disk as well, outcomes may use what is kept free, and the limit may be lower than it was.
        let of_disk = disk_bytes.saturating_sub(allowed.keep_bytes);
        let of_limit = match allowed.max_bytes {
            0 => u64::MAX,
            max => max.saturating_sub(used_bytes),
        };
        self.free_bytes.store(of_disk.min(of_limit), Ordering::Relaxed);
    }

    /// Returns the bytes that can still be promised.
    pub(super) fn free(&self) -> u64 {
        if self.is_lacking() {
            return 0;
        }
        let promised = self.promised_bytes.load(Ordering::Relaxed);
        // The disk may have less than when the promises were made.
        self.free_bytes.load(Ordering::Relaxed).saturating_sub(promised)
    }

    pub(super) fn is_lacking(&self) -> bool {
        self.is_lacking.load(Ordering::Relaxed)
    }

    /// Did a write find none? `true` when that is news.
    pub(super) fn set_lacking(&self, is_lacking: bool) -> bool {
        self.is_lacking.swap(is_lacking, Ordering::Relaxed) != is_lacking
    }

    pub(super) fn promise(&self, bytes: u64) {
        self.promised_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A promise was kept, and the disk was asked since.
    pub(super) fn settle(&self, bytes: u64) {
        self.promised_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_disk_and_limit_counts_and_promises_are_taken_off() {
        let room = Room::default();
        room.look(Allowed { max_bytes: 0, keep_bytes: 100 }, 1000, 500);
        assert_eq!(room.free(), 900);
        room.promise(300);
        assert_eq!(room.free(), 600);
        room.look(Allowed { max_bytes: 700, keep_bytes: 100 }, 1000, 500);
        assert_eq!(room.free(), 0);
        room.settle(300);
        assert_eq!(room.free(), 200);
        room.look(Allowed { max_bytes: 700, keep_bytes: 2000 }, 1000, 500);
        assert_eq!(room.free(), 0);
    }

    #[test]
    fn what_a_write_found_counts_more_than_what_the_disk_says() {
        let room = Room::default();
        assert!(room.set_lacking(true) && !room.set_lacking(true));
        room.look(Allowed { max_bytes: 0, keep_bytes: 0 }, 1000, 0);
        assert_eq!(room.free(), 0);
        assert!(room.set_lacking(false));
        assert_eq!(room.free(), 1000);
    }
}
