//! A disk in memory that never fails: what is left is the work of whoever writes.

use spool::disk::{Disk, File};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A directory of files in memory, whose syncs cost nothing.
#[derive(Default)]
pub struct MemoryDisk(Mutex<BTreeMap<String, Arc<MemoryFile>>>);

#[derive(Default)]
struct MemoryFile(Mutex<Vec<u8>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk for MemoryDisk {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.0).keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let file = Arc::<MemoryFile>::default();
        lock(&self.0).insert(name.to_owned(), file.clone());
        Ok(file)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        Ok(lock(&self.0).get(name).cloned().ok_or(io::ErrorKind::NotFound)?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = lock(&self.0);
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        lock(&self.0).remove(name);
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(u64::MAX / 2)
    }
}

impl File for MemoryFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut held, at) = (lock(&self.0), offset as usize);
        let end = at + bytes.len();
        if held.len() < end {
            held.resize(end, 0);
        }
        held[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let held = lock(&self.0);
        let rest = held.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        lock(&self.0).truncate(length as usize);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }
}
