//! The two locks of a mailbox file, as other mail programs use them.

use rustix::{
    fs::{self, AtFlags, FlockOperation, Mode, OFlags, fcntl_lock},
    io::Errno,
    process::Pid,
    thread::sched_getaffinity,
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Interval between two attempts to lock.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Age at which a lock file is left by a program that has crashed. Nobody needs a lock for so long. One that names a process of this
/// host is known to be left as soon as that process has ended.
const STALE_AGE: Duration = Duration::from_secs(300);
/// A process and the name of a host are shorter.
const MARK_BYTES_MAX: u64 = 200;

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
        loop {
            match create_marked(dir, &name) {
                Ok(()) => return Ok(Self { dir, name }),
                Err(Errno::EXIST) if Instant::now() >= until => return Err(locked(&name)),
                Err(Errno::EXIST) => {}
                Err(e) => {
                    let what = format!("create {}: {}", name.display(), io::Error::from(e));
                    return Err(io::Error::new(io::Error::from(e).kind(), what));
                }
            }
            match stale(dir, &name) {
                Some(inode) => remove_stale(dir, &name, inode),
                None => std::thread::sleep(RETRY_INTERVAL),
            }
        }
    }
}

impl Drop for DotLock<'_> {
    fn drop(&mut self) {
        let _ = fs::unlinkat(self.dir, &self.name, AtFlags::empty());
    }
}

/// Creates a lock file that says whose it is from its first moment on. A process that is killed between the file and its mark would
/// leave a lock of nobody, which everybody has to take for one of another program.
fn create_marked(dir: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut draft = name.to_owned();
    draft.push(format!(".{}.{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    // One of a process that had the same number, and was killed here.
    let _ = fs::unlinkat(dir, &draft, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let open = |name: &OsStr| fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR).map(File::from);
    let mark = mark(std::process::id());
    // Without room for the mark, the lock holds all the same.
    let _ = open(&draft)?.write_all(mark.as_bytes());
    let linked = fs::linkat(dir, &draft, dir, name, AtFlags::empty());
    let _ = fs::unlinkat(dir, &draft, AtFlags::empty());
    match linked {
        // A file system without links.
        Err(Errno::PERM | Errno::NOTSUP | Errno::NOSYS | Errno::XDEV | Errno::MLINK) => {
            let _ = open(name)?.write_all(mark.as_bytes());
            Ok(())
        }
        linked => linked,
    }
}

/// Returns what a lock file of this process says: the process, and the host on which it runs.
fn mark(pid: u32) -> String {
    format!("{pid}\n{}\n", rustix::system::uname().nodename().to_string_lossy())
}

/// Returns the inode of a lock file whose owner has ended, or has certainly ended by its age.
fn stale(dir: impl AsFd, name: &OsStr) -> Option<u64> {
    let found = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let changed = u64::try_from(found.st_mtime).unwrap_or(0);
    let is_stale = now >= changed + STALE_AGE.as_secs() || owner_has_ended(dir, name);
    is_stale.then_some(found.st_ino)
}

/// Returns whether a lock file names a process of this host that has ended. The process of another host cannot be asked for.
fn owner_has_ended(dir: impl AsFd, name: &OsStr) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = fs::openat(dir, name, flags, Mode::empty()) else { return false };
    let mut text = String::new();
    if File::from(file).take(MARK_BYTES_MAX).read_to_string(&mut text).is_err() {
        return false;
    }
    // The sandbox permits no kill(2), not even one without a signal; this system call tells as well whether there is such a process.
    owner(&text).is_some_and(|pid| sched_getaffinity(Some(pid)).err() == Some(Errno::SRCH))
}

/// Returns the process of this host that a lock file names: its number alone, as liblockfile, dotlockfile and many others write it, or
/// with the name of the host, in a second line or behind a blank. procmail writes `0`, mutt_dotlock nothing: these name no process.
fn owner(text: &str) -> Option<Pid> {
    let mut words = text.split_ascii_whitespace();
    let pid = words.next()?.parse().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)?;
    let is_here = |host: &str| host.as_bytes() == rustix::system::uname().nodename().to_bytes();
    (words.next().is_none_or(is_here) && words.next().is_none()).then_some(pid)
}

/// Removes a lock file, unless another process has already replaced it by its own.
fn remove_stale(dir: &OwnedFd, name: &OsStr, inode: u64) {
    let mut aside = name.to_owned();
    aside.push(format!(".{}", std::process::id()));
    if fs::renameat(dir, name, dir, &aside).is_err() {
        return;
    }
    let is_same = fs::statat(dir, &aside, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|found| found.st_ino == inode);
    if !is_same {
        let _ = fs::linkat(dir, &aside, dir, name, AtFlags::empty());
    }
    let _ = fs::unlinkat(dir, &aside, AtFlags::empty());
}

/// Locks a whole file by fcntl(2), until it is closed. Returns false if another program has the lock.
///
/// # Errors
/// The file cannot be locked at all.
pub(super) fn try_lock_whole(file: &File) -> io::Result<bool> {
    match fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::AGAIN) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

pub(super) fn locked(name: &OsStr) -> io::Error {
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

    #[test]
    fn the_lock_of_a_process_that_was_killed_is_taken_over_at_once_and_others_are_not() {
        let at = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(at.path()).unwrap().into();
        let path = at.path().join("box.lock");
        // A take that has no time left fails whosever the lock is.
        let is_left = || stale(&dir, "box.lock".as_ref()).is_some();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        std::fs::write(&path, mark(pid)).unwrap();
        assert!(!is_left(), "the process runs");
        child.kill().unwrap();
        child.wait().unwrap();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for unknown in [
            format!("{pid}\nother.host\n"),
            format!("{pid} {host} x\n"),
            format!("-{pid}\n"),
            "0".to_owned(),
            String::new(),
        ] {
            std::fs::write(&path, &unknown).unwrap();
            assert!(!is_left(), "{unknown:?}");
        }
        for known in [format!("{pid}\n"), format!("{pid}"), format!("  {pid}\n"), format!("{pid} {host}\n")] {
            std::fs::write(&path, &known).unwrap();
            assert!(is_left(), "{known:?}");
        }
        std::fs::write(&path, format!("{}\n", std::process::id())).unwrap();
        assert!(!is_left(), "this process runs");
        std::fs::write(&path, mark(pid)).unwrap();
        assert!(is_left());
        let until = Instant::now() + Duration::from_secs(60);
        let held = DotLock::take(&dir, "box".as_ref(), until).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), mark(std::process::id()));
        drop(held);
        assert_eq!(std::fs::read_dir(at.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_that_another_process_has_taken_over_meanwhile_stays() {
        let at = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(at.path()).unwrap().into();
        let path = at.path().join("box.lock");
        std::fs::write(&path, "1\n").unwrap();
        let inode = std::os::unix::fs::MetadataExt::ino(&path.metadata().unwrap());
        remove_stale(&dir, "box.lock".as_ref(), inode + 1);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        remove_stale(&dir, "box.lock".as_ref(), inode);
        assert_eq!(std::fs::read_dir(at.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_file_says_whose_it_is_from_its_first_moment_on() {
        let at = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(at.path()).unwrap().into();
        let (path, own) = (at.path().join("box.lock"), mark(std::process::id()));
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let reader = std::thread::spawn(move || {
            let mut count = 0;
            while count < 3000 {
                match std::fs::read_to_string(&path) {
                    Ok(text) => assert_eq!(text, own),
                    Err(e) => assert_eq!(e.kind(), io::ErrorKind::NotFound),
                }
                count += 1;
            }
            drop(begin);
        });
        while begun.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            drop(DotLock::take(&dir, "box".as_ref(), Instant::now() + Duration::from_secs(60)).unwrap());
        }
        reader.join().unwrap();
        assert_eq!(std::fs::read_dir(at.path()).unwrap().count(), 0);
    }
}
