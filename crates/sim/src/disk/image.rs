//! One file's bytes: as they are on the medium, as they are read, and the writes between the two.

use super::PAGE;
use crate::seed::Rng;
use std::{collections::BTreeSet, ops::Range};

/// What the medium writes whole or not at all, mostly.
pub(super) const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    /// What a power cut leaves for sure.
    durable: Vec<u8>,
    /// What is read.
    pub(super) now: Vec<u8>,
    /// Changes since the last sync, in order.
    unsynced: Vec<Change>,
    /// What stood in its blocks before they were this file's.
    stale: Vec<u8>,
    /// Pages that cannot be read.
    lost_pages: BTreeSet<usize>,
    /// What rotted, until it is written anew.
    rotten: Vec<Range<usize>>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Cut(usize),
}

fn put(to: &mut Vec<u8>, at: usize, bytes: &[u8], stale: &[u8]) {
    let (old, end) = (to.len(), at + bytes.len());
    to.extend((old..end.max(old)).map(|i| stale.get(i).copied().unwrap_or(0)));
    to[at..end].copy_from_slice(bytes);
}

impl Image {
    pub(super) fn over(stale: Vec<u8>) -> Self {
        Self { stale, ..Self::default() }
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// Each byte of a range is mixed with something, where there is one.
    pub(super) fn mix(&mut self, range: Range<usize>, mut with: impl FnMut() -> u8) {
        for at in range.start..range.end.min(self.durable.len()) {
            let with = with();
            self.durable[at] ^= with;
            if let Some(byte) = self.now.get_mut(at) {
                *byte ^= with;
            }
        }
        self.rotten.push(range);
    }

    pub(super) fn lose_page(&mut self, page: usize) {
        self.lost_pages.insert(page);
    }

    /// Is there a page in the range that cannot be read?
    pub(super) fn is_lost(&self, range: &Range<usize>) -> bool {
        !range.is_empty()
            && self.lost_pages.range(range.start / PAGE..range.end.div_ceil(PAGE)).next().is_some()
    }

    /// Did it go bad, and was not written anew since?
    pub(super) fn is_bad(&self, range: &Range<usize>) -> bool {
        self.is_lost(range) || self.rotten.contains(range)
    }

    /// The same of the pages at its ends, which a write reads before it changes a part of them.
    pub(super) fn is_lost_at_the_ends(&self, range: &Range<usize>) -> bool {
        let part = |at: usize| !at.is_multiple_of(PAGE) && self.lost_pages.contains(&(at / PAGE));
        part(range.start) || part(range.end)
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        // A disk gives sectors that are written a better place.
        let written = at..at + bytes.len();
        self.lost_pages.retain(|page| !written.contains(&(page * PAGE)));
        self.rotten.retain(|range| !written.contains(&range.start));
        put(&mut self.now, at, bytes, &[]);
        self.unsynced.push(Change::Write(at, bytes.to_vec()));
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.now.truncate(length);
        self.unsynced.push(Change::Cut(length));
    }

    pub(super) fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write(at, bytes) => put(&mut self.durable, at, &bytes, &[]),
                Change::Cut(length) => self.durable.truncate(length),
            }
        }
    }

    /// The sync failed: the pages count as clean, and are not on the medium.
    pub(super) fn forget_unsynced(&mut self) {
        self.unsynced.clear();
    }

    /// Of the unsynced sectors each is kept, lost or torn. How many of each differs from cut to cut,
    /// as there are disks that write everything at once, and disks that write nothing until told. A
    /// file's first sector is not torn: the log relies on a header of 44 bytes being written or not,
    /// as disks promise for a sector, and torn ones stand for what they do all the same.
    pub(super) fn cut_power(&mut self, rng: &mut Rng) {
        let (kept, torn) = match rng.below(6) {
            0 => (0, 0),
            1 => (100, 0),
            2 => (50, 0),
            3 => (97, 1),
            _ => (rng.below(101), 2),
        };
        for change in std::mem::take(&mut self.unsynced) {
            let (at, bytes) = match change {
                Change::Write(at, bytes) => (at, bytes),
                Change::Cut(length) => {
                    if rng.below(100) < kept {
                        self.durable.truncate(length);
                    }
                    continue;
                }
            };
            for (n, sector) in bytes.chunks(SECTOR).enumerate() {
                let fate = rng.below(100);
                if fate < kept {
                    put(&mut self.durable, at + n * SECTOR, sector, &self.stale);
                } else if fate < kept + torn && at + n > 0 {
                    let half = rng.index(sector.len());
                    put(&mut self.durable, at + n * SECTOR, &sector[..half], &self.stale);
                }
            }
        }
        self.now.clone_from(&self.durable);
    }

    pub(super) fn flip_bit(&mut self, rng: &mut Rng) -> bool {
        let full: Vec<usize> = (0..self.durable.len()).filter(|at| self.durable[*at] != 0).collect();
        if full.is_empty() {
            return false;
        }
        let (at, bit) = (full[rng.index(full.len())], 1 << rng.below(8));
        self.durable[at] ^= bit;
        self.now[at] = self.durable[at];
        true
    }
}
