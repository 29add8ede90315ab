//! Looks for batches behind the end of the log.

use super::{
    index::chunks_of,
    recover::{Found, io_error, take_batch},
    scan_range::RecordRef,
    window::Window,
};
use crate::{
    SpoolFailure,
    format::block::{ALIGN, BATCH_HEAD_BYTES, read_batch, read_head},
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
    let mut window = Window::new(segment.file.clone(), end, Vec::new());
    while let Some(next) = next_anywhere(&mut window, at, seed, found.last_sequence()).map_err(failed)? {
        if !found.is_unread(number, at, next) {
            found
                .report
                .corrupt
                .push(format!("{name}: bytes {at} to {next}: batches are lost before later ones"));
            found.mark_damaged(number);
        }
        at = next;
        loop {
            let length = read_head(window.slice(at, BATCH_HEAD_BYTES).map_err(failed)?, at, seed)
                .map_or(BATCH_HEAD_BYTES, |head| head.length);
            let Ok((head, records)) = read_batch(window.slice(at, length).map_err(failed)?, at, seed, whole)
            else {
                break;
            };
            let rows = records.iter().map(|placed| RecordRef::new(placed, chunks_of(&placed.2)));
            let bodies = records.iter().map(|placed| placed.2.body.to_vec()).collect();
            take_batch(found, name, head.sequence, number, rows, Some(bodies));
            at += head.padded();
        }
    }
    Ok(())
}

/// Returns the offset of a batch with a higher number anywhere behind an offset.
fn next_anywhere(window: &mut Window, from: u64, seed: u64, last: u64) -> io::Result<Option<u64>> {
    let mut at = from + ALIGN as u64;
    while at < window.end() {
        if read_head(window.slice(at, ALIGN)?, at, seed).is_ok_and(|head| head.sequence > last) {
            return Ok(Some(at));
        }
        at += ALIGN as u64;
    }
    Ok(None)
}
