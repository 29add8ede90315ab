//! A disk that counts the calls that reach another disk: the figures of benchmarks, and the budgets that tests assert.

use crate::disk::{Disk, File};
use mail::UnixMillis;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The counters behind one or more [`CountingDisk`]s.
#[derive(Debug, Default)]
struct Counters {
    opened: AtomicU64,
    closed: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    file_syncs: AtomicU64,
    directory_syncs: AtomicU64,
    renames: AtomicU64,
    removes: AtomicU64,
}

/// Calls to the disk since the counter was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCalls {
    /// Files that were created or opened.
    pub opened: u64,
    /// Files of those that were closed.
    pub closed: u64,
    /// Writes to files; zeros that prepare a file count as one write.
    pub writes: u64,
    /// Bytes in these writes.
    pub written_bytes: u64,
    /// Syncs of files that succeeded.
    pub file_syncs: u64,
    /// Syncs of directories and of file systems that succeeded.
    pub directory_syncs: u64,
    /// Files that got another name.
    pub renames: u64,
    /// Files that were removed.
    pub removes: u64,
}

impl DiskCalls {
    /// Returns the calls since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            opened: self.opened - earlier.opened,
            closed: self.closed - earlier.closed,
            writes: self.writes - earlier.writes,
            written_bytes: self.written_bytes - earlier.written_bytes,
            file_syncs: self.file_syncs - earlier.file_syncs,
            directory_syncs: self.directory_syncs - earlier.directory_syncs,
            renames: self.renames - earlier.renames,
            removes: self.removes - earlier.removes,
        }
    }
}

/// Reads the counters of [`CountingDisk`]s.
#[derive(Debug, Clone, Default)]
pub struct DiskCallCounter(Arc<Counters>);

impl DiskCallCounter {
    /// Returns the calls so far.
    pub fn calls(&self) -> DiskCalls {
        let c = &self.0;
        DiskCalls {
            opened: c.opened.load(Relaxed),
            closed: c.closed.load(Relaxed),
            writes: c.writes.load(Relaxed),
            written_bytes: c.written_bytes.load(Relaxed),
            file_syncs: c.file_syncs.load(Relaxed),
            directory_syncs: c.directory_syncs.load(Relaxed),
            renames: c.renames.load(Relaxed),
            removes: c.removes.load(Relaxed),
        }
    }

    /// Puts a disk behind this counter.
    pub fn count(&self, disk: Arc<dyn Disk>) -> CountingDisk {
        CountingDisk { disk, counters: self.0.clone() }
    }
}

/// A disk whose calls are counted. Made by [`DiskCallCounter::count`].
pub struct CountingDisk {
    disk: Arc<dyn Disk>,
    counters: Arc<Counters>,
}

impl CountingDisk {
    fn counted(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        self.counters.opened.fetch_add(1, Relaxed);
        Arc::new(CountingFile { file, counters: self.counters.clone() })
    }
}

impl Disk for CountingDisk {
    fn lock(&self) -> io::Result<()> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn each_name(&self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        self.disk.each_name(each)
    }

    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.disk.read(name, max_bytes, buffer)
    }

    fn read_uncached(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.disk.read_uncached(name, max_bytes, buffer)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.create(name).map(|file| self.counted(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open(name).map(|file| self.counted(file))
    }

    fn changed(&self, name: &str) -> io::Result<UnixMillis> {
        self.disk.changed(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.counters.renames.fetch_add(1, Relaxed);
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.counters.removes.fetch_add(1, Relaxed);
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()?;
        self.counters.directory_syncs.fetch_add(1, Relaxed);
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.sync_all()?;
        self.counters.directory_syncs.fetch_add(1, Relaxed);
        Ok(())
    }

    fn check_place(&self) -> io::Result<()> {
        self.disk.check_place()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn clock(&self) -> Duration {
        self.disk.clock()
    }

    fn random(&self) -> io::Result<u64> {
        self.disk.random()
    }

    fn free_files(&self) -> io::Result<u64> {
        self.disk.free_files()
    }
}

struct CountingFile {
    file: Arc<dyn File>,
    counters: Arc<Counters>,
}

impl CountingFile {
    fn count_write(&self, length: u64) {
        self.counters.writes.fetch_add(1, Relaxed);
        self.counters.written_bytes.fetch_add(length, Relaxed);
    }
}

impl Drop for CountingFile {
    fn drop(&mut self) {
        self.counters.closed.fetch_add(1, Relaxed);
    }
}

impl File for CountingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.count_write(bytes.len() as u64);
        self.file.write_at(offset, bytes)
    }

    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        self.count_write(length);
        self.file.write_zeros(offset, length)
    }

    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        self.count_write(length);
        self.file.fill(offset, length)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_cached(offset, buffer)
    }

    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_uncached(offset, buffer)
    }

    fn will_read(&self, from: u64, length: u64) {
        self.file.will_read(from, length);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.counters.file_syncs.fetch_add(1, Relaxed);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
