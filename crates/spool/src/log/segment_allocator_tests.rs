//! Tests of the number of segments that the allocator counts.

use super::segment_allocator::{SegmentAllocator, SpaceLimits};
use crate::disk::RealDisk;
use std::{path::Path, sync::Arc};

const SEGMENT: u64 = 64 * 1024;
const MAX: u64 = 10;

fn allocator(dir: &Path) -> SegmentAllocator {
    let limits = SpaceLimits { segment_bytes: SEGMENT, max_bytes: MAX * SEGMENT, min_free_bytes: 0 };
    SegmentAllocator::new(Arc::new(RealDisk::new(dir).unwrap()), limits, true, 0, (1, 1), Vec::new())
}

fn work_off(allocator: &SegmentAllocator) {
    while !allocator.is_idle() {
        assert!(allocator.work());
    }
}

#[test]
fn a_segment_that_is_removed_or_set_aside_is_not_counted_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let allocator = allocator(dir.path());
    assert_eq!(allocator.unmade_bytes(), MAX * SEGMENT);
    let mut taken: Vec<_> = (0..6).map(|_| allocator.take().unwrap()).collect();
    work_off(&allocator);
    // Three are ready.
    assert_eq!(allocator.unmade_bytes(), (MAX - 9) * SEGMENT);
    taken[0].is_damaged = true;
    // At a start; in a running spool no damaged segment is recycled.
    allocator.quarantine(taken).unwrap();
    work_off(&allocator);
    assert_eq!(allocator.unmade_bytes(), (MAX - 3) * SEGMENT);
    let name_ends = |end: &str| {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(end)).count()
    };
    assert_eq!((name_ends(".seg"), name_ends(".quarantined")), (3, 1));
}

#[test]
fn room_that_removed_segments_leave_on_a_full_disk_is_counted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let allocator = allocator(dir.path());
    let mut taken: Vec<_> = (0..MAX).map(|_| allocator.take().unwrap()).collect();
    assert!(!allocator.work() && allocator.usable_count() == 0);
    taken.pop();
    allocator.recycle(taken);
    work_off(&allocator);
    // Three are used again, six are removed, and two are a reserve.
    assert_eq!(allocator.usable_count(), 3 + 6 - 2);
    assert!(allocator.has_next());
}
