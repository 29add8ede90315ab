//! Finds segments whose files are missing: somebody removed a file of the log.
//!
//! A gap between two batches that were read shows a missing segment by itself. The oldest or the newest segment leaves
//! no gap; only its index file shows that the segment was there. An index file without its segment may also be the remains of a
//! crash: the removal of the segment was durable, and the removal of its index file was not. Then nothing is lost: each of
//! its messages was ended, or written again, by a later batch. So a segment counts as missing only where all batches
//! behind it were read and some of its messages occur in none of them.

use super::{
    epoch,
    recover::follows,
    scan_range::RecordRef,
    segment_allocator::{Mark, mark_of, quarantined_names},
    segment_index,
};
use crate::{disk::Disk, format::record::Kind};
use std::collections::HashSet;

/// What the index file of a missing segment says of it.
pub(super) struct Orphan {
    /// File name that the segment had.
    pub(super) segment: String,
    /// The numbers of its first and its last batch.
    batches: (u64, u64),
    /// Queue ids of the messages that were stored in it.
    pub(super) ids: HashSet<u64>,
    /// Messages in the segment that no batch has ended or stored again.
    left: HashSet<u64>,
    /// An earlier start found that the segment is missing.
    is_known: bool,
}

impl Orphan {
    /// Reads the index file of a segment that is not there. `None` when the index file cannot be believed, or the segment was
    /// quarantined.
    pub(super) fn read(disk: &dyn Disk, segment: &str, names: &HashSet<&String>) -> Option<Self> {
        if quarantined_names(segment).iter().any(|name| names.contains(name)) {
            return None;
        }
        let read = segment_index::read_without_segment(disk, segment)?;
        let numbers = || read.batches.iter().map(|batch| batch.sequence);
        let messages = read.rows.iter().filter(|row| row.kind == Kind::Message);
        let ids: HashSet<u64> = messages.map(|row| row.name).collect();
        let mut orphan = Self {
            segment: segment.to_owned(),
            batches: (numbers().min()?, numbers().max()?),
            left: ids.clone(),
            ids,
            is_known: names.contains(&mark_of(segment, Mark::Damaged)),
        };
        let ended = read.rows.iter().filter(|row| row.kind == Kind::Tombstone);
        ended.for_each(|row| orphan.note(row));
        Some(orphan)
    }

    /// Takes note of a record that was read from the log.
    pub(super) fn note(&mut self, row: &RecordRef) {
        if matches!(row.kind, Kind::Tombstone | Kind::Message) {
            self.left.remove(&row.name);
        }
    }

    /// Is the segment missing, and not freed? `numbers` are the ranges of the batches that were read, sorted.
    /// `is_uncertain` says that batches behind the segment may be unread, or freed before it.
    pub(super) fn is_missing(&self, numbers: &[(u64, u64)], is_uncertain: bool) -> bool {
        let (first, last) = self.batches;
        if self.is_known || is_uncertain {
            return self.is_known;
        }
        if numbers.iter().any(|(from, to)| *from <= last && *to >= first) {
            return false; // its batches were written again elsewhere
        }
        let behind = numbers.iter().position(|(from, _)| *from > last).unwrap_or(numbers.len());
        let (before, behind) = numbers.split_at(behind);
        if behind.is_empty() {
            // The last batch of a log is never freed.
            return before.last().is_none_or(|(_, to)| follows(*to, first));
        }
        // Segments are freed in the order of the log. Where an epoch begins behind the segment, batches between the two may
        // have been freed with it.
        let mut end = last;
        let has_all_behind = behind[0].0 <= last + 1
            && behind.iter().all(|(from, to)| {
                let is_next = *from <= end || follows(end, *from);
                end = end.max(*to);
                is_next
            });
        has_all_behind && !self.left.is_empty()
    }

    /// Describes the missing segment and what is lost with it, for the operator.
    pub(super) fn describe(&self) -> String {
        let Self { segment, batches: (first, last), left, .. } = self;
        let index_file = segment_index::name_of(segment);
        let (first, last) = (epoch::within(*first), epoch::within(*last));
        format!(
            "{segment}: the file is missing (batches {first} to {last}, {} messages that are stored nowhere else): \
             restore it, or remove {index_file} to give up on it",
            left.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index file of batches 11 to 20 with one message.
    fn orphan() -> Orphan {
        let ids = HashSet::from([1]);
        Orphan { segment: "1.seg".into(), batches: (11, 20), left: ids.clone(), ids, is_known: false }
    }

    fn row(kind: Kind, name: u64) -> RecordRef {
        RecordRef { kind, name, offset: 4096, length: 17, chunks: Vec::new() }
    }

    #[test]
    fn the_oldest_segment_is_missing_when_all_behind_it_was_read_and_a_message_is_nowhere() {
        let mut orphan = orphan();
        orphan.note(&row(Kind::Outcome, 1));
        orphan.note(&row(Kind::Tombstone, 2));
        for behind in
            [vec![(21, 30)], vec![(21, 25), (26, 30)], vec![(21, 30), (epoch::first(1), epoch::first(1) + 5)]]
        {
            assert!(orphan.is_missing(&behind, false), "{behind:?}");
            assert!(!orphan.is_missing(&behind, true));
        }
        // The batch that ended the message may have been in between.
        for behind in [
            vec![(22, 30)],
            vec![(21, 25), (27, 30)],
            vec![(1, 10), (22, 30)],
            vec![(epoch::first(1), epoch::first(1) + 5)],
        ] {
            assert!(!orphan.is_missing(&behind, false), "{behind:?}");
        }
        for kind in [Kind::Tombstone, Kind::Message] {
            let mut freed = self::orphan();
            freed.note(&row(kind, 1));
            assert!(!freed.is_missing(&[(21, 30)], false));
        }
    }

    #[test]
    fn the_newest_segment_is_missing_when_its_batches_follow_the_last_that_was_read() {
        let mut orphan = orphan();
        orphan.note(&row(Kind::Tombstone, 1));
        assert!(orphan.is_missing(&[(1, 10)], false) && orphan.is_missing(&[], false));
        assert!(!orphan.is_missing(&[(1, 9)], false));
        assert!(!orphan.is_missing(&[(1, 10)], true));
    }

    #[test]
    fn a_segment_whose_batches_were_read_elsewhere_is_not_missing() {
        assert!(!orphan().is_missing(&[(1, 20)], false));
        assert!(!orphan().is_missing(&[(1, 10), (20, 20)], false));
        assert!(Orphan { is_known: true, ..orphan() }.is_missing(&[(25, 30)], true));
    }
}
