//! Epochs: numbers far above all that were used before. A start that cannot read everything begins one, so that
//! no number of a batch, a segment or a chunk is used twice when what could not be read can be read again.
//!
//! An epoch is the upper part of each number. The epoch in use is in the name of an empty file, too: the name can
//! be read when no segment can.

/// Numbers of batches and segments that an epoch has, as a power of two.
const SHIFT: u32 = 40;
/// Numbers of chunks that an epoch has: with 24 bits of epochs they stay within the 56 bits that one of several
/// spools has for its own.
const CHUNK_SHIFT: u32 = 32;
/// Ending of the name of the file that says which epoch is in use.
const MARKER: &str = ".epoch";

/// The epoch of a batch's or a segment's number.
pub(super) fn of(number: u64) -> u64 {
    number >> SHIFT
}

/// Returns the first batch number of an epoch.
pub(super) fn first(epoch: u64) -> u64 {
    epoch << SHIFT | 1
}

/// The number of a batch or a segment within its epoch.
pub(super) fn within(number: u64) -> u64 {
    number & ((1 << SHIFT) - 1)
}

/// Returns whether the number is the first of its epoch.
pub(super) fn is_first(number: u64) -> bool {
    number == first(of(number))
}

/// Returns the first chunk id of an epoch.
pub(super) fn first_chunk(epoch: u64) -> u64 {
    epoch << CHUNK_SHIFT
}

/// Returns the epoch that a chunk id was given out in.
pub(super) fn of_chunk(chunk_id: u64) -> u64 {
    chunk_id >> CHUNK_SHIFT
}

/// The name of the file that says that an epoch is in use.
pub(super) fn marker(epoch: u64) -> String {
    format!("{epoch:016x}{MARKER}")
}

/// The epoch that a file's name says is in use, if it does.
pub(super) fn of_marker(name: &str) -> Option<u64> {
    u64::from_str_radix(name.strip_suffix(MARKER)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_found_in_its_numbers_and_its_marker() {
        for epoch in [0, 1, 7, (1 << 24) - 1] {
            assert_eq!((of(first(epoch)), of_chunk(first_chunk(epoch))), (epoch, epoch));
            assert_eq!(of_marker(&marker(epoch)), Some(epoch));
            assert_eq!(within(first(epoch) + 6), 7);
            assert!(is_first(first(epoch)) && !is_first(first(epoch) + 1));
            assert!(first_chunk(epoch) >> 56 == 0);
        }
        assert_eq!(of_marker("0000000000000001.seg"), None);
    }
}
