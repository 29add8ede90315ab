//! A directory whose calls fail as a test decides. Shared by the tests of `spool` and `sim`.

use spool::disk::{Disk, File, RealDisk};
use std::{io, sync::Arc};

/// The decisions of a test on the calls of a [`FaultDisk`]. Each method is called before the call on the file system; an
/// error is returned in place of that call. The defaults fail nothing.
pub(crate) trait Faults: Send + Sync + 'static {
    /// Before a file is read as a whole, by its name.
    fn read_file(&self, _name: &str) -> io::Result<()> {
        Ok(())
    }
    /// Before a range of an open file is read.
    fn read_at(&self, _offset: u64, _length: usize) -> io::Result<()> {
        Ok(())
    }
    /// Before a range of an open file is written. After an error the first half of the range is written.
    fn write_at(&self) -> io::Result<()> {
        Ok(())
    }
    /// Before a file, or the whole file system, is synced.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    /// Before the directory is synced.
    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }
    /// Before the directory is looked for under its name.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }
    /// The free bytes of the disk; `None` for the real number.
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }
}

/// A [`RealDisk`] with faults.
pub(crate) struct FaultDisk<F>(pub(crate) RealDisk, pub(crate) Arc<F>);

/// A file of a [`FaultDisk`].
struct FaultFile<F>(Arc<dyn File>, Arc<F>);

impl<F: Faults> FaultDisk<F> {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FaultFile(file, self.1.clone()))
    }
}

impl<F: Faults> Disk for FaultDisk<F> {
    fn lock(&self) -> io::Result<()> {
        self.0.lock()
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.1.read_file(name)?;
        self.0.read(name, max_bytes, buffer)
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
        self.1.sync_dir()?;
        self.0.sync_dir()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.1.sync()?;
        self.0.sync_all()
    }
    fn check_place(&self) -> io::Result<()> {
        self.1.check_place()?;
        self.0.check_place()
    }
    fn free_bytes(&self) -> io::Result<u64> {
        match self.1.free_bytes()? {
            Some(bytes) => Ok(bytes),
            None => self.0.free_bytes(),
        }
    }
}

impl<F: Faults> File for FaultFile<F> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.1.write_at() {
            Ok(()) => self.0.write_at(offset, bytes),
            Err(error) => self.0.write_at(offset, &bytes[..bytes.len() / 2]).and(Err(error)),
        }
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.1.read_at(offset, buffer.len())?;
        self.0.read_at(offset, buffer)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.1.sync()?;
        self.0.sync_data()
    }
    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.truncate(length)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
}
