//! The sizes of a spool on its disk: the usual ones are for disks of some gigabytes, and smaller ones are used on a small disk.

use config::Spool;
use rustix::fs::statvfs;
use std::path::{Path, absolute};

/// The defaults of `spool.segment_size` and `spool.min_free`. Other values are the operator's, and stay.
const USUAL_SEGMENT: u64 = 64 << 20;
const USUAL_MIN_FREE: u64 = 256 << 20;
/// The log needs room for eight segments, and leaves as much to others.
const SEGMENT_PART: u64 = 16;
const MIN_FREE_PART: u64 = 8;
const SEGMENT_MIN: u64 = 1 << 20;

/// How large a spool's segments and its reserve are, for the room of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolRoom {
    /// Octets of a segment of the log.
    pub segment_bytes: u64,
    /// What stays free on the disk.
    pub min_free_bytes: u64,
}

impl SpoolRoom {
    /// Returns the sizes of a spool on the disk where its path is, or will be made.
    pub fn of(spool: &Spool) -> Self {
        let configured = Self { segment_bytes: spool.segment_size.0, min_free_bytes: spool.min_free.0 };
        disk_bytes(&spool.path).map_or(configured, |disk| configured.on(disk))
    }

    fn on(self, disk_bytes: u64) -> Self {
        let mut fitted = self;
        if self.segment_bytes == USUAL_SEGMENT {
            fitted.segment_bytes = (disk_bytes / SEGMENT_PART).clamp(SEGMENT_MIN, USUAL_SEGMENT);
        }
        if self.min_free_bytes == USUAL_MIN_FREE {
            fitted.min_free_bytes = (disk_bytes / MIN_FREE_PART).min(USUAL_MIN_FREE);
        }
        fitted
    }
}

fn disk_bytes(path: &Path) -> Option<u64> {
    let path = absolute(path).ok()?;
    let folder = path.ancestors().find(|path| path.is_dir())?;
    let found = statvfs(folder).ok()?;
    Some(found.f_blocks * found.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_disk_has_small_segments_and_what_the_operator_wrote_stays() {
        let usual = SpoolRoom { segment_bytes: USUAL_SEGMENT, min_free_bytes: USUAL_MIN_FREE };
        assert_eq!(usual.on(4 << 30), usual);
        assert_eq!(usual.on(64 << 20), SpoolRoom { segment_bytes: 4 << 20, min_free_bytes: 8 << 20 });
        assert_eq!(usual.on(1 << 20).segment_bytes, SEGMENT_MIN);
        let written = SpoolRoom { segment_bytes: 32 << 20, min_free_bytes: 512 << 20 };
        assert_eq!(written.on(1 << 30), written);
    }
}
