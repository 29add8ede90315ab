//! A spool as it lies there, read without changing anything, for commands while the daemon is down.

use crate::{
    DirSpool, Listed, LogSpool, Recovered, RecoveryReport, SpoolFailure,
    dirs::{find, name_only},
    disk::RealDisk,
};
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
    let failed = |e| SpoolFailure::Io(format!("open {}: {e}", dir.display()));
    if find::has_queues(dir) {
        let queues = find::to_inspect(dir).map_err(failed)?;
        return if queues.is_empty() {
            Ok(RecoveryReport::default())
        } else {
            DirSpool::inspect(queues, found)
        };
    }
    if !dir.is_dir() {
        return Ok(RecoveryReport::default());
    }
    let disk = RealDisk::new(dir).map_err(failed)?;
    LogSpool::inspect(disk, indexes, found)
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
