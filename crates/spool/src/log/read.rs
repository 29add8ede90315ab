//! Reads records of the log, and checks them.

use super::{index::Location, tolerant::with_retries};
use crate::{
    SpoolFailure,
    disk::File,
    format::record::{self, Kind},
};
use mail::{Outcome, UnixMillis};

/// More is not copied and looked through at a read_cached: a thread of its own begins sooner.
pub(super) const CACHED_READ_MAX: usize = 512 * 1024;

/// From where a record is read.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Disk,
    /// The page cache only; a read never waits for the disk.
    Cache,
}

impl Source {
    pub(super) fn read(self, file: &dyn File, at: u64, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Disk => file.read_at(at, into),
            Self::Cache if into.len() > CACHED_READ_MAX => Err(std::io::ErrorKind::WouldBlock.into()),
            Self::Cache => file.read_cached(at, into),
        }
    }
}

/// A note on a message: the reason of the hold that follows, a hold or a release, or outcomes.
pub(super) enum Note {
    HoldReason(Box<str>),
    Hold(bool),
    Outcome(UnixMillis, Vec<(u32, Outcome)>),
}

/// Where a note is, and its record or why it cannot be read.
pub(super) type ReadNote = (Location, Result<(Kind, Vec<u8>), SpoolFailure>);

/// Does the same outcome come again later?
pub(super) fn is_repeated(notes: &[ReadNote], number: usize) -> bool {
    let Ok((Kind::Outcome, body)) = &notes[number].1 else { return false };
    notes[number + 1..].iter().any(|(_, later)| matches!(later, Ok((Kind::Outcome, other)) if other == body))
}

/// Reads and checks one record of a message or chunk.
pub(super) fn read_record(
    source: Source,
    file: &dyn File,
    seed: u64,
    segment: &str,
    at: Location,
    name: u64,
) -> Result<(Kind, Vec<u8>), SpoolFailure> {
    let mut bytes = vec![0; at.length as usize];
    let place = || format!("{segment} at {}", at.offset);
    let offset = u64::from(at.offset);
    let failed = |e: std::io::Error| SpoolFailure::Io(format!("read {}: {e}", place()));
    let mut length = match source {
        Source::Disk => with_retries(|| source.read(file, offset, &mut bytes)),
        Source::Cache => source.read(file, offset, &mut bytes),
    }
    .map_err(failed)?;
    if matches!(source, Source::Disk) && record::read(&bytes[..length], offset, seed).is_err() {
        // Perhaps only memory has it wrong.
        length = with_retries(|| file.read_uncached(offset, &mut bytes)).map_err(failed)?;
    }
    let read = record::read(&bytes[..length], offset, seed);
    let (found, _, _) = read.map_err(|m| SpoolFailure::Corrupt(format!("{}: {}", place(), m.0)))?;
    if found.name != name {
        return Err(SpoolFailure::Corrupt(format!("{}: another record than expected", place())));
    }
    let (kind, body) = (found.kind, found.body.len());
    let end = bytes.len() - 4;
    bytes.truncate(end);
    bytes.drain(..end - body);
    Ok((kind, bytes))
}
