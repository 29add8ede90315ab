//! Proof that the other server is stopped.

use super::{super::CliError, refuse_special};
use control::Exit;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::{
    fs::{self, File},
    io::ErrorKind,
    path::Path,
};

/// No file with the number of a process is larger.
const PID_BYTES_MAX: u64 = 4096;

/// Locks that keep the other server from starting while its queue is read.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    _locks: Vec<File>,
}

impl Stopped {
    /// Takes a shared lock of a file that the server locks while it runs, by flock(2) or fcntl(2).
    ///
    /// # Errors
    /// The server has the lock.
    pub(super) fn lock(&mut self, path: &Path, running: &str) -> Result<(), CliError> {
        refuse_special(path)?;
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let text = format!("read {}, to see whether the server runs: {error}", path.display());
                return Err(CliError::new(Exit::NoPerm, text));
            }
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_err()
            || fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_err()
        {
            return Err(refused(running));
        }
        self._locks.push(file);
        Ok(())
    }

    /// Checks that the process of a file with its number is gone. `program`: a part of the name of the program.
    ///
    /// # Errors
    /// The process is there.
    pub(super) fn check_pid_file(path: &Path, program: &str, running: &str) -> Result<(), CliError> {
        refuse_special(path)?;
        let text = match config::read_regular_file(path, PID_BYTES_MAX) {
            Ok(text) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                let text = format!("read {}, to see whether the server runs: {error}", path.display());
                return Err(CliError::new(Exit::NoPerm, text));
            }
        };
        let pid = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
        let name = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        // The number may be another process's since.
        if name.is_some_and(|name| name.contains(program)) { Err(refused(running)) } else { Ok(()) }
    }
}

/// Returns whether another process has locked a file of a message.
pub(super) fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let by_flock = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    by_flock || fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_err()
}

fn refused(running: &str) -> CliError {
    CliError::new(Exit::TempFail, running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_hold_a_number_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exim.pid");
        File::create(&path).unwrap().set_len(PID_BYTES_MAX + 1).unwrap();
        let error = Stopped::check_pid_file(&path, "exim", "").unwrap_err();
        assert!(error.text.contains("a file of more than 4096 octets"), "{}", error.text);
        std::fs::write(&path, "1\n").unwrap();
        assert!(Stopped::check_pid_file(&path, "no such program", "").is_ok());
    }

    #[test]
    fn a_lock_of_the_server_is_seen_and_ours_keeps_it_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.pid");
        assert!(Stopped::default().lock(&path, "runs").is_ok(), "without the file nothing runs");
        fs::write(&path, "1\n").unwrap();
        let servers = File::open(&path).unwrap();
        flock(&servers, FlockOperation::LockExclusive).unwrap();
        let refused = Stopped::default().lock(&path, "runs").unwrap_err();
        assert_eq!((refused.exit, &*refused.text), (Exit::TempFail, "runs"));
        assert!(is_locked(&path));
        drop(servers);
        let mut stopped = Stopped::default();
        stopped.lock(&path, "runs").unwrap();
        let servers = File::open(&path).unwrap();
        assert!(flock(&servers, FlockOperation::NonBlockingLockExclusive).is_err());
    }

    #[test]
    fn a_process_of_another_name_is_not_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("exim.pid");
        fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(Stopped::check_pid_file(&path, own.trim(), "runs").is_err());
        assert!(Stopped::check_pid_file(&path, "no such program", "runs").is_ok());
        assert!(Stopped::check_pid_file(&dir.path().join("none"), "exim", "runs").is_ok());
    }
}
