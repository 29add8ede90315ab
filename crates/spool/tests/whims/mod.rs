//! A disk that fails as it is told.

use spool::disk::{Disk, File, RealDisk};
use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// What a disk says and fails with; everything else is the file system's.
#[derive(Default)]
pub(crate) struct Whims {
    pub(crate) free_bytes: AtomicU64,
    /// The error of every write; zero: none.
    pub(crate) write_error: AtomicU64,
    /// Files that cannot be read, each with the error.
    pub(crate) unreadable: Mutex<Vec<(String, u64)>>,
    /// The block of every file that cannot be read; zero, where each has its header: none.
    pub(crate) unreadable_block: AtomicU64,
}

pub(crate) struct Whimsical(pub(crate) RealDisk, pub(crate) Arc<Whims>);

struct WhimsicalFile(Arc<dyn File>, Arc<Whims>);

impl Whimsical {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(WhimsicalFile(file, self.1.clone()))
    }
}

impl Disk for Whimsical {
    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        match self.1.unreadable.lock().unwrap().iter().find(|(unreadable, _)| unreadable == name) {
            Some((_, error)) => Err(io::Error::from_raw_os_error(*error as i32)),
            None => self.0.read(name, max_bytes, buffer),
        }
    }
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.create(name).map(|file| self.file(file))
    }
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.0.open(name).map(|file| self.file(file))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.0.sync_dir()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.1.free_bytes.load(Ordering::Relaxed))
    }
}

impl File for WhimsicalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.1.write_error.load(Ordering::Relaxed) {
            0 => self.0.write_at(offset, bytes),
            // A part has room.
            error => self
                .0
                .write_at(offset, &bytes[..bytes.len() / 2])
                .and(Err(io::Error::from_raw_os_error(error as i32))),
        }
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let block = self.1.unreadable_block.load(Ordering::Relaxed) * 4096;
        if block > 0 && offset < block + 4096 && offset + buffer.len() as u64 > block {
            return Err(io::Error::from_raw_os_error(5)); // EIO
        }
        self.0.read_at(offset, buffer)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.truncate(length)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
