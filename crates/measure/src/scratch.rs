//! A directory of our own inside the measured one; it goes when the measurement ends, however it ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// See the module's text.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    stop: Arc<AtomicBool>,
}

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
        Ok(Self { path, stop: Arc::default() })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Says so when there is no room for so many octets.
    pub fn needs(&self, bytes: u64) -> Result<(), String> {
        let say = |e: rustix::io::Errno| format!("look at {}: {}", self.path.display(), io::Error::from(e));
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

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("postlab: remove {}: {error}", self.path.display());
        }
    }
}
