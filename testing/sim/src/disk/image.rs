//! One file's bytes: as they are on the medium, as they are read, and the writes between the two.

use super::PAGE;
use crate::seed::Rng;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    ops::Range,
};

/// Size of the unit that the medium writes whole or not at all, mostly.
pub(super) const SECTOR: usize = 512;

#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    /// The bytes that a power cut leaves for sure.
    durable: Vec<u8>,
    /// What reads return.
    pub(super) now: Vec<u8>,
    /// Changes since the last sync, in order.
    unsynced: Vec<Change>,
    /// The bytes in its blocks before they were this file's.
    stale: Vec<u8>,
    /// Pages that cannot be read; of those that heal by themselves, how many attempts fail yet.
    lost_pages: BTreeMap<usize, Option<u32>>,
    /// Pages that memory holds wrong: the medium has what was written.
    wrong_pages: BTreeSet<usize>,
    /// The bytes of pages before they were synced last.
    before: BTreeMap<usize, Vec<u8>>,
    /// Ranges that rotted, until they are written anew.
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

    /// Reading a page fails from now on: so many times, or until it is written anew.
    pub(super) fn lose_page(&mut self, page: usize, times: Option<u32>) {
        self.lost_pages.insert(page, times);
    }

    pub(super) fn lost_pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.lost_pages.keys().copied()
    }

    /// Makes every page readable again.
    pub(super) fn heal(&mut self) {
        self.lost_pages.clear();
    }

    /// Memory has something else for a page than the medium.
    pub(super) fn spoil_cache(&mut self, page: usize) {
        self.wrong_pages.insert(page);
    }

    pub(super) fn drop_cache(&mut self) {
        self.wrong_pages.clear();
    }

    /// Memory lets go of pages.
    pub(super) fn forget_cached(&mut self, range: &Range<usize>) {
        self.wrong_pages.retain(|page| page * PAGE >= range.end || (page + 1) * PAGE <= range.start);
    }

    /// Changes the bytes that were read in pages that memory holds wrong.
    pub(super) fn read_wrong(&self, at: usize, bytes: &mut [u8]) {
        for (offset, byte) in (at..).zip(bytes) {
            if self.wrong_pages.contains(&(offset / PAGE)) {
                *byte ^= 0x55;
            }
        }
    }

    /// A page has zeros from now on, or what it had before it was written last.
    pub(super) fn revert(&mut self, range: &Range<usize>, to_zeros: bool) {
        let before = self.before.get(&(range.start / PAGE)).filter(|_| !to_zeros);
        for at in range.start..range.end.min(self.durable.len()) {
            let old = before.and_then(|page| page.get(at % PAGE)).copied().unwrap_or(0);
            self.durable[at] = old;
            if let Some(byte) = self.now.get_mut(at) {
                *byte = old;
            }
        }
        self.rotten.push(range.clone());
    }

    pub(super) fn read(&mut self, at: usize, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.now.get(at..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        let range = at..at + count;
        if self.is_lost(&range) {
            for (_, times) in self.lost_pages.range_mut(range.start / PAGE..range.end.div_ceil(PAGE)) {
                *times = times.map(|left| left.saturating_sub(1));
            }
            self.lost_pages.retain(|_, times| *times != Some(0));
            return Err(super::eio());
        }
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Is there a page in the range that cannot be read?
    pub(super) fn is_lost(&self, range: &Range<usize>) -> bool {
        !range.is_empty()
            && self.lost_pages.range(range.start / PAGE..range.end.div_ceil(PAGE)).next().is_some()
    }

    /// Returns whether the byte is damaged and was not written again since.
    pub(super) fn is_bad(&self, range: &Range<usize>) -> bool {
        self.is_lost(range) || self.rotten.contains(range)
    }

    /// Returns whether the pages at the ends of a range are lost, which a write reads before it changes a part of them.
    pub(super) fn is_lost_at_the_ends(&self, range: &Range<usize>) -> bool {
        let part = |at: usize| !at.is_multiple_of(PAGE) && self.lost_pages.contains_key(&(at / PAGE));
        part(range.start) || part(range.end)
    }

    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        // A disk gives sectors that are written a better place.
        let written = at..at + bytes.len();
        self.lost_pages.retain(|page, _| !written.contains(&(page * PAGE)));
        self.wrong_pages.retain(|page| !written.contains(&(page * PAGE)));
        self.rotten.retain(|range| !written.contains(&range.start));
        put(&mut self.now, at, bytes, &[]);
        self.unsynced.push(Change::Write(at, bytes.to_vec()));
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.now.truncate(length);
        self.unsynced.push(Change::Cut(length));
    }

    pub(super) fn sync(&mut self) {
        let unsynced = std::mem::take(&mut self.unsynced);
        let pages = unsynced.iter().flat_map(|change| match change {
            Change::Write(at, bytes) => at / PAGE..(at + bytes.len()).div_ceil(PAGE),
            Change::Cut(_) => 0..0,
        });
        for page in pages.collect::<BTreeSet<_>>() {
            let end = self.durable.len().min((page + 1) * PAGE);
            let old = self.durable.get(page * PAGE..end).unwrap_or_default().to_vec();
            self.before.insert(page, old);
        }
        for change in unsynced {
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
    /// as there are disks that write everything at once, and disks that write nothing until a flush. A
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
