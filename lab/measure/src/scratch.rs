//! A directory of our own inside the measured one; it goes when the measurement ends, however it ends.

use rustix::fs::IFlags;
use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A private directory inside the measured one, removed when it is dropped or at a signal.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    /// Removing it takes a while.
    is_large: AtomicBool,
}

/// Octets above which the removal of a directory is announced: a hundred thousand files take a minute on some disks.
const LARGE_BYTES: u64 = 200_000_000;

impl Scratch {
    /// A new directory in `parent`, and an ear for Ctrl-C.
    pub fn new(parent: &Path) -> Result<Self, String> {
        let scratch = Self::without_signals(parent)?;
        let stop = scratch.stop.clone();
        crate::signals::on_end(move || stop.store(true, Relaxed))?;
        Ok(scratch)
    }

    /// A new directory in `parent`, for a caller that watches for signals itself.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn without_signals(parent: &Path) -> Result<Self, String> {
        // Programs that are started there may have another current directory.
        let parent = fs::canonicalize(parent).map_err(|e| format!("find {}: {e}", parent.display()))?;
        let path = parent.join(format!("postlab-{}-{:08x}", std::process::id(), fastrand::u32(..)));
        fs::create_dir(&path).map_err(|e| format!("create {}: {e}", path.display()))?;
        Ok(Self { path, stop: Arc::default(), is_large: AtomicBool::new(false) })
    }

    /// Returns the directory, which is removed when this is dropped.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says so when there is no room for so many octets.
    pub fn needs(&self, bytes: u64) -> Result<(), String> {
        let say = |e: rustix::io::Errno| format!("look at {}: {}", self.path.display(), io::Error::from(e));
        self.is_large.store(bytes > LARGE_BYTES, Relaxed);
        let stat = rustix::fs::statvfs(&self.path).map_err(say)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if bytes > free {
            let (path, free) = (self.path.display(), free / 1_000_000);
            return Err(format!("write {} MB to {path}: only {free} MB are free", bytes / 1_000_000));
        }
        Ok(())
    }

    /// Ctrl-C was pressed.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Makes ext4 take the inodes of each directory in this one from another part of the disk, by its name: the same name, the same part.
/// For a minute ext4 looks at every inode of a file that was removed before it takes another one: what one measurement removes would
/// make the next one slower.
pub fn spread(directory: &Path) {
    let set = || -> io::Result<()> {
        let directory = fs::File::open(directory)?;
        let flags = rustix::fs::ioctl_getflags(&directory)?;
        Ok(rustix::fs::ioctl_setflags(&directory, flags | IFlags::TOPDIR)?)
    };
    // Other file systems have no such flag, and no need of it.
    let _ = set();
}

/// Names a file to which a scratch directory adds its path, instead of being removed. For a minute ext4 looks at every inode of
/// a file that was removed before it takes another one, so that removing a queue makes the next one slower: a program that
/// starts several measurements removes what they leave when all of them are over.
pub const KEEP: &str = "POSTLAB_KEEP_SCRATCH";

/// Removes the scratch directories that were kept, and the file that lists them.
///
/// # Errors
/// One cannot be removed.
pub fn remove_kept(list: &Path) -> Result<(), String> {
    let Ok(text) = fs::read_to_string(list) else { return Ok(()) };
    // Whatever stands in the file, nothing but a scratch directory is removed.
    let is_ours =
        |path: &&Path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("postlab-"));
    for path in text.lines().map(Path::new).filter(is_ours).filter(|path| path.is_dir()) {
        fs::remove_dir_all(path).map_err(|e| format!("remove {}: {e}", path.display()))?;
    }
    fs::remove_file(list).map_err(|e| format!("remove {}: {e}", list.display()))
}

impl Scratch {
    /// Adds the path to the list of those that are kept; false if there is no list, or no writing to it.
    fn keep(&self) -> bool {
        let Some(list) = std::env::var_os(KEEP) else { return false };
        let file = fs::OpenOptions::new().create(true).append(true).open(list);
        file.and_then(|mut file| writeln!(file, "{}", self.path.display())).is_ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.keep() {
            return;
        }
        // No `eprintln!`: a panic in a destructor can abort the process.
        if self.is_large.load(Relaxed) {
            let _ = writeln!(io::stderr(), "postlab: removing {}", self.path.display());
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            let _ = writeln!(io::stderr(), "postlab: remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_scratch_directories_on_the_list_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (ours, other) = (directory.path().join("postlab-1-2"), directory.path().join("mail"));
        let list = directory.path().join("list");
        [&ours, &other].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::write(&list, format!("{}\n{}\n/no/postlab-x\n", ours.display(), other.display())).unwrap();
        remove_kept(&list).unwrap();
        assert!(!ours.exists() && other.exists() && !list.exists());
        remove_kept(&list).unwrap();
    }
}
