//! A spool as it lies there, read without changing anything, for commands while the daemon is down.

use crate::{
    Listed, Recovered, RecoveryReport, SpoolFailure,
    dirs::{find, name_only, reader::DirReader},
    disk::RealDisk,
    log::reader::LogReader,
};
use bytes::Bytes;
use mail::{ChunkId, QueueId, SharedMessage};
use std::path::Path;

/// Is this a spool of queue directories? Else it is a log, or not there.
pub fn has_queue_directories(dir: &Path) -> bool {
    find::has_queues(dir)
}

/// Every live message once, as [`crate::Spool::recover`] would give it. Takes no lock and writes
/// nothing; while another process writes, what it sees may be a little old.
///
/// # Errors
/// [`SpoolFailure::Unusable`] when another version wrote it, [`SpoolFailure::Io`] when it cannot be read.
pub fn inspect(dir: &Path, found: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
    inspect_by(dir, true, found)
}

/// Reads a spool as [`inspect`] does, but believes nothing that can be verified: of a log, every byte is read.
///
/// # Errors
/// As for [`inspect`].
pub fn inspect_all(dir: &Path, found: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
    inspect_by(dir, false, found)
}

fn inspect_by(
    dir: &Path,
    indexes: bool,
    found: &mut dyn FnMut(Recovered),
) -> Result<RecoveryReport, SpoolFailure> {
    SpoolReader::open_by(dir, indexes, found).map(|(_, report)| report)
}

/// A spool that is read and never changed, with the content of its messages.
pub struct SpoolReader(Backend);

enum Backend {
    Nothing,
    Log(Box<LogReader>),
    Dirs(Box<DirReader>),
}

impl SpoolReader {
    /// Passes on each live message once, as [`inspect`] does.
    ///
    /// # Errors
    /// As for [`inspect`].
    pub fn open(
        dir: &Path,
        found: &mut dyn FnMut(Recovered),
    ) -> Result<(Self, RecoveryReport), SpoolFailure> {
        Self::open_by(dir, true, found)
    }

    fn open_by(
        dir: &Path,
        indexes: bool,
        found: &mut dyn FnMut(Recovered),
    ) -> Result<(Self, RecoveryReport), SpoolFailure> {
        let failed = |e| SpoolFailure::Io(format!("open {}: {e}", dir.display()));
        if find::has_queues(dir) {
            let queues = find::to_inspect(dir).map_err(failed)?;
            if !queues.is_empty() {
                let (reader, report) = DirReader::open(queues, found)?;
                return Ok((Self(Backend::Dirs(Box::new(reader))), report));
            }
        } else if dir.is_dir() {
            let disk = RealDisk::new(dir).map_err(failed)?;
            let (reader, report) = LogReader::open(disk, indexes, found)?;
            return Ok((Self(Backend::Log(Box::new(reader))), report));
        }
        Ok((Self(Backend::Nothing), RecoveryReport::default()))
    }

    /// Reads a message, see [`crate::Spool::read`].
    ///
    /// # Errors
    /// As for [`crate::Spool::read`].
    pub fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        match &self.0 {
            Backend::Nothing => Err(SpoolFailure::Missing),
            Backend::Log(log) => log.read(id),
            Backend::Dirs(dirs) => dirs.read(id),
        }
    }

    /// Reads a chunk of content, see [`crate::Spool::load`].
    ///
    /// # Errors
    /// As for [`crate::Spool::load`].
    pub fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        match &self.0 {
            Backend::Nothing => Err(SpoolFailure::Missing),
            Backend::Log(log) => log.load(chunk_id),
            Backend::Dirs(dirs) => dirs.load(chunk_id),
        }
    }
}

/// Every live message of a spool of queue directories, by its name alone. Takes no lock, opens no
/// envelope and writes nothing.
///
/// # Errors
/// As for [`inspect`].
pub fn list(dir: &Path, with_times: bool) -> Result<(Vec<Listed>, RecoveryReport), SpoolFailure> {
    let queues = find::to_inspect(dir);
    let queues = queues.map_err(|e| SpoolFailure::Io(format!("open {}: {e}", dir.display())))?;
    if queues.is_empty() {
        return Ok((Vec::new(), RecoveryReport::default()));
    }
    name_only::inspect(queues, with_times)
}
