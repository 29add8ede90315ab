//! The files of the history, below everything that decides.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An open file that is read at any offset.
pub trait ReadAt: Send {
    /// Fills the buffer with the bytes from `offset` on.
    ///
    /// # Errors
    /// Also when the file ends before the buffer is full.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// Those of the system.
    fn length(&self) -> io::Result<u64>;
}

/// The directory that holds the history's files.
pub trait Folder: Send {
    /// Returns names and lengths of all files.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Opens a file to read it.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>>;

    /// Writes at a place of a file, which is made if there is none.
    ///
    /// # Errors
    /// Those of the system; a part of the bytes may have been written.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Removes the bytes of a file from `length` on.
    ///
    /// # Errors
    /// Those of the system.
    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()>;

    /// Makes a file durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&mut self, name: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// A folder in memory, for tests: all its clones have the same files. It can have a size, as a disk has.
#[derive(Debug, Clone, Default)]
pub struct MemoryFolder(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    files: BTreeMap<String, Vec<u8>>,
    size_bytes: Option<usize>,
}

impl MemoryFolder {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits the bytes of all files; a write beyond fails.
    pub fn set_size(&self, bytes: Option<usize>) {
        self.files().size_bytes = bytes;
    }

    /// Returns a file's content; `None` if there is no such file.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.files().files.get(name).cloned()
    }

    /// Replaces the content of a file.
    pub fn put(&self, name: &str, content: Vec<u8>) {
        self.files().files.insert(name.to_owned(), content);
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = begin.checked_add(into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(self.get(begin..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl Folder for MemoryFolder {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.files().files.iter().map(|(name, content)| (name.clone(), content.len() as u64)).collect())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(self.content(name).ok_or(io::ErrorKind::NotFound)?))
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut files = self.files();
        let used: usize = files.files.values().map(Vec::len).sum();
        let (begin, size) = (offset as usize, files.size_bytes);
        let file = files.files.entry(name.to_owned()).or_default();
        let grown = (begin + bytes.len()).saturating_sub(file.len());
        // As a disk does, it takes what it has room for.
        let room = size.map_or(grown, |size| size.saturating_sub(used)).min(grown);
        let taken = bytes.len() - (grown - room);
        file.resize(file.len().max(begin + taken), 0);
        file[begin..begin + taken].copy_from_slice(&bytes[..taken]);
        if taken < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let mut files = self.files();
        let file = files.files.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        file.truncate(length as usize);
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.files().files.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}
