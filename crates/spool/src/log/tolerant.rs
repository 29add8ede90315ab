//! Reading past what a disk cannot read: recovery takes the rest of a segment, and notes what it could not read.

use crate::{disk::File, format::block::ALIGN};
use std::{
    collections::BTreeSet,
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// The byte that fills a block which cannot be read: such a block has no valid checksum and does not look unused.
const UNREADABLE: u8 = 0xa5;
/// A read that fails is tried so many times in all: some errors heal at once.
pub(super) const ATTEMPTS: usize = 3;

/// Repeats a call that failed, unless the file does not exist.
pub(crate) fn with_retries<T>(mut run: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut result = run();
    for _ in 1..ATTEMPTS {
        match &result {
            Err(e) if e.kind() != io::ErrorKind::NotFound => result = run(),
            _ => break,
        }
    }
    result
}

/// A file in which a block that cannot be read is filled with bytes that pass for no checksum, and remembered.
///
/// Only for recovery and for looking at a spool. What is read in a running spool fails with the disk's error.
pub(crate) struct FaultTolerantFile {
    file: Arc<dyn File>,
    /// Offsets of the blocks that could not be read, each with the error.
    unread: Mutex<BTreeSet<u64>>,
    error: Mutex<Option<String>>,
}

impl FaultTolerantFile {
    pub(crate) fn over(file: Arc<dyn File>) -> Arc<Self> {
        Arc::new(Self { file, unread: Mutex::default(), error: Mutex::default() })
    }

    /// Returns the file without the tolerance.
    pub(crate) fn inner(&self) -> Arc<dyn File> {
        self.file.clone()
    }

    /// Describes the blocks that could not be read. `None` when all blocks could.
    pub(crate) fn unread(&self) -> Option<String> {
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let first = *unread.first()?;
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let count = unread.len();
        let blocks = if count == 1 { "block" } else { "blocks" };
        Some(format!("{count} {blocks} of {ALIGN} bytes cannot be read, the first at {first}: {error}"))
    }

    /// Is a block in this range one that could not be read?
    pub(crate) fn has_unread_in(&self, from: u64, to: u64) -> bool {
        let first = from / ALIGN as u64 * ALIGN as u64;
        let unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        unread.range(first..to.max(first + 1)).next().is_some()
    }

    fn note(&self, offset: u64, error: &io::Error) {
        self.unread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(offset / ALIGN as u64 * ALIGN as u64);
        let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| error.to_string());
    }

    /// A block that could be read when it was read again.
    fn forget(&self, offset: u64) {
        self.unread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&(offset / ALIGN as u64 * ALIGN as u64));
    }

    /// Reads a range block by block; what cannot be read is filled.
    fn read_blocks(
        &self,
        offset: u64,
        buffer: &mut [u8],
        read: impl Fn(&dyn File, u64, &mut [u8]) -> io::Result<usize>,
    ) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let block = ALIGN - (at % ALIGN as u64) as usize;
            let end = buffer.len().min(done + block);
            match with_retries(|| read(&*self.file, at, &mut buffer[done..end])) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) => {
                    self.note(at, &error);
                    buffer[done..end].fill(UNREADABLE);
                    done = end;
                }
            }
        }
        done
    }
}

impl File for FaultTolerantFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match with_retries(|| self.file.read_at(offset, buffer)) {
            Err(_) => Ok(self.read_blocks(offset, buffer, |file, at, into| file.read_at(at, into))),
            read => read,
        }
    }

    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_uncached(offset, buffer);
        let Ok(count) = read else {
            return Ok(self.read_blocks(offset, buffer, |file, at, into| file.read_uncached(at, into)));
        };
        for at in (offset..offset + count as u64).step_by(ALIGN) {
            self.forget(at);
        }
        Ok(count)
    }

    fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_cached(offset, buffer)
    }

    fn will_read(&self, from: u64, length: u64) {
        self.file.will_read(from, length);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.write_zeros(offset, length)
    }

    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.fill(offset, length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn len(&self) -> io::Result<u64> {
        with_retries(|| self.file.len())
    }
}
