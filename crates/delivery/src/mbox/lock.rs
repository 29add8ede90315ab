//! The two locks of a mailbox file, as other mail programs use them.

use rustix::{
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, fcntl_lock},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Write as _},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Interval between two attempts to lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Age at which a lock file is left by a program that has crashed. Nobody needs a lock for so long.
const STALE_AGE: Duration = Duration::from_secs(300);

/// `FILE.lock`, which is removed when this is dropped.
pub(super) struct DotLock<'a> {
    dir: &'a OwnedFd,
    name: OsString,
}

impl<'a> DotLock<'a> {
    /// Creates the lock file of a file; waits while another program has it.
    ///
    /// # Errors
    /// The lock file cannot be created, or not in time.
    pub(super) fn take(dir: &'a OwnedFd, file: &OsStr, until: Instant) -> io::Result<Self> {
        let mut name = file.to_owned();
        name.push(".lock");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            match fs::openat(dir, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(created) => {
                    let lock = Self { dir, name };
                    // Other programs look for the process; the lock holds without it, too.
                    let _ = writeln!(File::from(created), "{}", std::process::id());
                    return Ok(lock);
                }
                Err(Errno::EXIST) if Instant::now() >= until => return Err(locked(&name)),
                Err(Errno::EXIST) => {}
                Err(e) => {
                    let what = format!("create {}: {}", name.display(), io::Error::from(e));
                    return Err(io::Error::new(io::Error::from(e).kind(), what));
                }
            }
            if is_stale(dir, &name) {
                let _ = fs::unlinkat(dir, &name, AtFlags::empty());
            } else {
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
    }
}

impl Drop for DotLock<'_> {
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.dir, &self.name, AtFlags::empty());
    }
}

fn is_stale(dir: impl AsFd, name: &OsStr) -> bool {
    let Ok(found) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let changed = u64::try_from(found.st_mtime).unwrap_or(0);
    now >= changed + STALE_AGE.as_secs()
}

/// Locks a whole file by fcntl(2), until it is closed.
///
/// # Errors
/// Another program has the lock until then.
pub(super) fn lock_whole(file: &File, until: Instant) -> io::Result<()> {
    loop {
        match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::ACCESS | Errno::AGAIN) if Instant::now() >= until => {
                return Err(locked("the file".as_ref()));
            }
            Err(Errno::ACCESS | Errno::AGAIN) => std::thread::sleep(RETRY_INTERVAL),
            Err(e) => return Err(e.into()),
        }
    }
}

fn locked(name: &OsStr) -> io::Error {
    let what = format!("another program holds the lock {}", name.display());
    io::Error::new(io::ErrorKind::WouldBlock, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_held_once_and_a_stale_one_is_removed() {
        let at = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(at.path()).unwrap().into();
        let take = || DotLock::take(&dir, "box".as_ref(), Instant::now() + Duration::from_millis(150));
        let held = take().unwrap();
        let Err(refused) = take() else { panic!("locked twice") };
        assert!(refused.to_string().contains("box.lock"), "{refused}");
        drop(held);
        std::mem::forget(take().unwrap());
        let old = SystemTime::now() - STALE_AGE - Duration::from_secs(1);
        File::options().write(true).open(at.path().join("box.lock")).unwrap().set_modified(old).unwrap();
        drop(take().unwrap());
        assert!(!at.path().join("box.lock").exists());
    }
}
