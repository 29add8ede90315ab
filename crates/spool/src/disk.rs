//! What an engine asks of a disk, and the real one. The simulator puts its own in this place.

use std::{
    fs, io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// One directory of files.
pub trait Disk: Send + Sync + 'static {
    /// Refuses a second process.
    ///
    /// # Errors
    /// `WouldBlock` when another process has it.
    fn lock(&self) -> io::Result<()>;
    /// The names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new, empty file, which must not exist.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// An existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, which no file has; durable after [`Disk::sync_dir`], whole or not at all.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; durable after [`Disk::sync_dir`].
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations and removals durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Makes everything durable that was written to the file system it lies on, names included.
    fn sync_all(&self) -> io::Result<()>;
    /// Room that is left for us.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Files that can still be made.
    fn free_files(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }
}

/// An open file.
pub trait File: Send + Sync {
    /// Writes all of it at an offset; durable after [`File::sync_data`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reads up to the buffer's length; less only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// Makes everything written so far durable. After an error nothing is known of it any more.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts it to a length; durable after [`File::sync_data`].
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// No bytes at all?
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A directory of the file system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    lock: OnceLock<fs::File>,
}

impl RealDisk {
    /// The directory is made when it is missing, its parents too, readable for its owner only.
    ///
    /// # Errors
    /// What the file system says.
    pub fn new(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        if !path.is_dir() {
            use std::os::unix::fs::DirBuilderExt as _;
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            // Its own name must survive, too.
            if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
                fs::File::open(parent)?.sync_all()?;
            }
        }
        Ok(Self { path, lock: OnceLock::new() })
    }
}

impl Disk for RealDisk {
    fn lock(&self) -> io::Result<()> {
        let file = fs::File::open(&self.path)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
        // Kept open as long as the disk is: that is the lock.
        let _ = self.lock.set(file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names =
            fs::read_dir(&self.path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        names.collect()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(no_follow)
            .open(self.path.join(name))?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.path)?.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(&self.path)?)?)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn free_files(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.path)?;
        // File systems that make inodes as they need them say that they have none.
        Ok(if stat.f_files == 0 { u64::MAX } else { stat.f_favail })
    }
}

struct RealFile(fs::File);

impl File for RealFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}
