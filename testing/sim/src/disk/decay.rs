//! Damage to bytes that were synced: bits flip, or their sectors can no longer be read.

use super::SimDisk;
use crate::seed::Rng;
use std::ops::Range;

/// Size of the unit that the kernel reads at once: where one sector cannot be read, none of its page can.
pub const PAGE: usize = 4096;

/// How synced bytes are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// A single bit is flipped.
    Bit,
    /// Something else stands in a sector.
    Garbage,
    /// Reading answers EIO until the whole page was written anew.
    Unreadable,
    /// Reading answers EIO some times, and then what was written.
    Hiccup,
    /// Memory has the page wrong; the medium has it right.
    Cache,
    /// A sector reads as zeros.
    ZeroSector,
    /// A page reads as zeros.
    ZeroPage,
    /// The last write to a page was never done, although it was synced.
    LostWrite,
}

impl Decay {
    /// Damage that stays.
    pub const LASTING: [Self; 6] =
        [Self::Bit, Self::Garbage, Self::Unreadable, Self::ZeroSector, Self::ZeroPage, Self::LostWrite];
    /// Damage that passes, by itself or when [`SimDisk::heal`] is called.
    pub const PASSING: [Self; 3] = [Self::Unreadable, Self::Hiccup, Self::Cache];

    /// The bytes that are damaged together with this one.
    fn extent(self, at: usize) -> Range<usize> {
        let bytes = match self {
            Self::Bit => 1,
            Self::Garbage | Self::ZeroSector => super::image::SECTOR,
            Self::Unreadable | Self::Hiccup | Self::Cache | Self::ZeroPage | Self::LostWrite => PAGE,
        };
        let from = at / bytes * bytes;
        from..from + bytes
    }
}

impl SimDisk {
    /// The synced bytes of a file. Looking is no operation.
    pub fn synced(&self, path: &str) -> Vec<u8> {
        let state = self.state();
        let image = state.names.get(path).and_then(|id| state.images.get(id));
        image.map_or(Vec::new(), |image| image.durable().to_vec())
    }

    /// Damages a synced byte of a file, and returns the bytes that were damaged with it.
    pub fn decay(&self, path: &str, at: usize, how: Decay, rng: &mut Rng) -> Range<usize> {
        let mut guard = self.state();
        let state = &mut *guard;
        let extent = how.extent(at);
        let Some(image) = state.names.get(path).and_then(|id| state.images.get_mut(id)) else {
            return extent;
        };
        match how {
            Decay::Bit => image.mix(at..at + 1, || 1 << rng.below(8)),
            Decay::Garbage => image.mix(extent.clone(), || rng.bits() as u8),
            Decay::Unreadable => image.lose_page(at / PAGE, None),
            Decay::Hiccup => image.lose_page(at / PAGE, Some(1 + rng.below(6) as u32)),
            Decay::Cache => image.spoil_cache(at / PAGE),
            Decay::ZeroSector | Decay::ZeroPage => image.revert(&extent, true),
            Decay::LostWrite => image.revert(&extent, false),
        }
        extent
    }

    /// Everything can be read again as it was written.
    pub fn heal(&self) {
        self.state().images.values_mut().for_each(|image| {
            image.heal();
            image.drop_cache();
        });
    }

    /// Pages of a file that cannot be read now.
    pub fn unreadable(&self, path: &str) -> Vec<Range<usize>> {
        let state = self.state();
        let image = state.names.get(path).and_then(|id| state.images.get(id));
        image.map_or(Vec::new(), |image| {
            image.lost_pages().map(|page| page * PAGE..(page + 1) * PAGE).collect()
        })
    }

    /// Returns whether these bytes are still as they were damaged, and were not written again.
    pub fn is_bad(&self, path: &str, bytes: &Range<usize>) -> bool {
        let state = self.state();
        let image = state.names.get(path).and_then(|id| state.images.get(id));
        image.is_some_and(|image| image.is_bad(bytes))
    }

    /// Has a write ended since the start because a page it lies in could not be read?
    pub fn has_met_decay(&self) -> bool {
        self.state().has_met_decay
    }
}
