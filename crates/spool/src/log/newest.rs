//! Looks for batches behind the end of the log.

use super::{
    read_ahead::ReadAhead,
    recover::{Found, io_error, take_batch_at},
};
use crate::{
    SpoolFailure,
    format::block::{ALIGN, read_head},
};
use std::io;

/// Looks through the rest of the newest segment. Where a disk lost a stretch of batches, the stretch looks unused, and
/// no later segment tells that batches are missing. A segment with an index file was complete when it was closed.
///
/// # Errors
/// When the segment cannot be read.
pub(super) fn scan_rest(found: &mut Found, whole: bool) -> Result<(), SpoolFailure> {
    let Some((number, mut at)) = found.end_of_last() else { return Ok(()) };
    let Some(segment) = found.index.segment(number).filter(|segment| !segment.is_indexed).cloned() else {
        return Ok(());
    };
    let (seed, name) = (segment.header.seed, &segment.name);
    let failed = |e: io::Error| io_error("read", name, &e);
    let end = segment.header.end().min(segment.file.len().map_err(failed)?);
    let mut window = ReadAhead::new(segment.file.clone(), end, Vec::new());
    while let Some(next) = next_anywhere(&mut window, at, seed, found.last_sequence()).map_err(failed)? {
        if !found.is_unread(number, at, next) {
            found
                .report
                .corrupt
                .push(format!("{name}: bytes {at} to {next}: batches are lost before later ones"));
            found.mark_damaged(number);
        }
        at = next;
        let place = (number, name.as_str(), seed);
        while let Ok(behind) = take_batch_at(found, &mut window, at, place, whole).map_err(failed)? {
            at = behind;
        }
    }
    Ok(())
}

/// Returns the offset of a batch with a higher number anywhere behind an offset.
fn next_anywhere(window: &mut ReadAhead, from: u64, seed: u64, last: u64) -> io::Result<Option<u64>> {
    let mut at = from + ALIGN as u64;
    while at < window.end() {
        if read_head(window.slice(at, ALIGN)?, at, seed).is_ok_and(|head| head.sequence > last) {
            return Ok(Some(at));
        }
        at += ALIGN as u64;
    }
    Ok(None)
}
