//! The choice of segments that are deleted: pure.

use report::UnixMicros;
use std::time::Duration;

/// What the decision to delete a segment needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Time of its newest event.
    pub(crate) last: UnixMicros,
}

/// Returns the segments to delete, given in the order of their numbers: those whose last event is too old, and the oldest
/// of the others while all are too large. `reserved_bytes`: what the segment in use may grow to.
pub(crate) fn expired(
    closed: &[Closed],
    now: UnixMicros,
    keep: Duration,
    max_bytes: u64,
    reserved_bytes: u64,
) -> Vec<u64> {
    let oldest = now.0.saturating_sub(u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
    let (old, mut young): (Vec<Closed>, Vec<Closed>) =
        closed.iter().partition(|segment| segment.last.0 < oldest);
    let mut deleted: Vec<u64> = old.iter().map(|segment| segment.number).collect();
    let mut bytes = reserved_bytes + young.iter().map(|segment| segment.bytes).sum::<u64>();
    young.reverse();
    while bytes > max_bytes
        && let Some(segment) = young.pop()
    {
        bytes -= segment.bytes;
        deleted.push(segment.number);
    }
    deleted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn closed(number: u64, bytes: u64, last: u64) -> Closed {
        Closed { number, bytes, last: UnixMicros(last * 1_000_000) }
    }

    #[test]
    fn old_segments_go_and_then_the_oldest_while_there_are_too_many_bytes() {
        let all = [closed(1, 10, 100), closed(2, 10, 50), closed(3, 10, 200), closed(4, 10, 300)];
        let deleted =
            |keep, max_bytes| expired(&all, UnixMicros(300_000_000), Duration::from_secs(keep), max_bytes, 5);
        assert!(deleted(1000, 1000).is_empty());
        assert_eq!(deleted(220, 1000), [2]);
        assert_eq!(deleted(1000, 25), [1, 2]);
        assert_eq!(deleted(220, 25), [2, 1]);
        assert_eq!(deleted(1000, 1), [1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn what_is_left_is_young_and_fits(
            all in proptest::collection::vec((0u64..1000, 0u64..1000), 0..20),
            keep in 0u64..1000,
            max_bytes in 0u64..10_000,
        ) {
            let all: Vec<_> =
                all.iter().enumerate().map(|(n, (bytes, last))| closed(n as u64, *bytes, *last)).collect();
            let deleted = expired(&all, UnixMicros(1_000_000_000), Duration::from_secs(keep), max_bytes, 0);
            let left: Vec<_> = all.iter().filter(|one| !deleted.contains(&one.number)).collect();
            prop_assert!(left.iter().all(|one| one.last.0 / 1_000_000 >= 1000 - keep));
            prop_assert!(left.iter().map(|one| one.bytes).sum::<u64>() <= max_bytes);
        }
    }
}
