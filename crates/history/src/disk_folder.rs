//! The folder of the history on a disk.

use crate::{Folder, ReadAt};
use rustix::fs::OFlags;
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// Files that are kept open to be written: those of a segment that grows, and of one that is being sealed.
const OPEN_FILES_MAX: usize = 8;

/// A folder on a disk. Its files are readable for their owner and group only, because they have addresses of people.
#[derive(Debug)]
pub struct DiskFolder {
    dir: PathBuf,
    /// Files that were written lately, the last one at the end.
    open: Vec<(String, File)>,
    /// A file was made since the folder was synced.
    has_new_file: bool,
}

impl DiskFolder {
    /// Names a folder to read it.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: Vec::new(), has_new_file: false }
    }

    /// Makes the folder if it is missing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn make(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        Ok(Self::new(dir))
    }

    /// Returns a file to write to it. `may_make`: one that is missing is made.
    fn writable(&mut self, name: &str, may_make: bool) -> io::Result<&File> {
        let known = self.open.iter().position(|(open, _)| open == name);
        let file = match known {
            Some(at) => self.open.remove(at).1,
            None => self.open_to_write(name, may_make)?,
        };
        if self.open.len() == OPEN_FILES_MAX {
            self.open.remove(0);
        }
        self.open.push((name.to_owned(), file));
        Ok(&self.open[self.open.len() - 1].1)
    }

    fn open_to_write(&mut self, name: &str, may_make: bool) -> io::Result<File> {
        let path = self.dir.join(name);
        let open = |create| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(create).mode(0o640).custom_flags(OFlags::NOFOLLOW.bits() as i32);
            options.open(&path)
        };
        match open(false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && may_make => {
                self.has_new_file = true;
                open(true)
            }
            other => other,
        }
    }

    /// Forgets a file that is open.
    fn close(&mut self, name: &str) {
        self.open.retain(|(open, _)| open != name);
    }
}

struct OpenFile(File);

impl ReadAt for OpenFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(into, offset)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

impl Folder for DiskFolder {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            // A file that is gone in the meantime is not listed.
            if let (Ok(name), Ok(meta)) = (entry.file_name().into_string(), entry.metadata()) {
                files.push((name, meta.len()));
            }
        }
        Ok(files)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(OpenFile(File::open(self.dir.join(name))?)))
    }

    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.writable(name, true)?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        self.writable(name, false)?.set_len(length)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let file = self.writable(name, false)?;
        file.sync_data()?;
        // Somebody has removed it: what is written to it is seen by nobody.
        if file.metadata()?.nlink() == 0 {
            self.close(name);
            return Err(io::ErrorKind::NotFound.into());
        }
        if self.has_new_file {
            File::open(&self.dir)?.sync_all()?;
            self.has_new_file = false;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.close(name);
        fs::remove_file(self.dir.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_written_at_any_place_and_are_not_for_everybody() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = DiskFolder::make(&dir.path().join("a/b")).unwrap();
        folder.write_at("x", 0, b"hello").unwrap();
        folder.write_at("x", 3, b"p me").unwrap();
        folder.sync("x").unwrap();
        let mut read = [0; 7];
        folder.open("x").unwrap().read_at(0, &mut read).unwrap();
        assert_eq!(&read, b"help me");
        assert!(folder.open("x").unwrap().read_at(1, &mut read).is_err(), "the file is shorter");
        assert_eq!(folder.list().unwrap(), [("x".to_owned(), 7)]);
        folder.truncate("x", 5).unwrap();
        assert_eq!(folder.open("x").unwrap().length().unwrap(), 5);
        let mode = fs::metadata(dir.path().join("a/b/x")).unwrap().permissions().mode();
        assert_eq!(mode & 0o007, 0, "{mode:o}");
        folder.remove("x").unwrap();
        assert!(folder.open("x").is_err() && folder.list().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_somebody_removes_is_noticed_and_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = DiskFolder::make(dir.path()).unwrap();
        folder.write_at("x", 0, b"hello").unwrap();
        fs::remove_file(dir.path().join("x")).unwrap();
        assert_eq!(folder.sync("x").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(folder.truncate("x", 1).is_err(), "only a write makes a file");
        folder.write_at("x", 0, b"hello").unwrap();
        folder.sync("x").unwrap();
        assert_eq!(fs::read(dir.path().join("x")).unwrap(), b"hello");
        for number in 0..2 * OPEN_FILES_MAX {
            folder.write_at(&number.to_string(), 0, b"y").unwrap();
        }
        assert_eq!(folder.open.len(), OPEN_FILES_MAX);
    }
}
