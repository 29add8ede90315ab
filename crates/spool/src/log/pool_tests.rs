//! How many segments the pool counts.

use super::pool::{Pool, Room};
use crate::disk::RealDisk;
use std::{path::Path, sync::Arc};

const SEGMENT: u64 = 64 * 1024;
const MAX: u64 = 10;

fn pool(dir: &Path) -> Pool {
    let room = Room { segment_bytes: SEGMENT, max_bytes: MAX * SEGMENT, min_free_bytes: 0 };
    Pool::new(Arc::new(RealDisk::new(dir).unwrap()), room, true, 0, (1, 1), Vec::new())
}

fn work_off(pool: &Pool) {
    while !pool.is_idle() {
        assert!(pool.work());
    }
}

#[test]
fn a_segment_that_is_removed_or_set_aside_is_not_counted_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let pool = pool(dir.path());
    assert_eq!(pool.unmade_bytes(), MAX * SEGMENT);
    let mut taken: Vec<_> = (0..6).map(|_| pool.take().unwrap()).collect();
    work_off(&pool);
    // Three are ready.
    assert_eq!(pool.unmade_bytes(), (MAX - 9) * SEGMENT);
    taken[0].is_damaged = true;
    // At a start; in a running spool no damaged segment is given back.
    pool.quarantine(taken).unwrap();
    work_off(&pool);
    assert_eq!(pool.unmade_bytes(), (MAX - 3) * SEGMENT);
    let name_ends = |end: &str| {
        let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(end)).count()
    };
    assert_eq!((name_ends(".seg"), name_ends(".bad")), (3, 1));
}
