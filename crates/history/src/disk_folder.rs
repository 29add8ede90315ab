//! The folder of the history on a disk.

use crate::{Folder, ReadAt};
use rustix::fs::OFlags;
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// A folder on a disk. Its files are readable for their owner and group only, because they have addresses of people.
#[derive(Debug)]
pub struct DiskFolder {
    dir: PathBuf,
    /// A file was made since the folder was synced.
    has_new_file: bool,
}

impl DiskFolder {
    /// Names a folder to read it.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), has_new_file: false }
    }

    /// Makes the folder if it is missing.
    ///
    /// # Errors
    /// Those of the system.
    pub fn make(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o750).create(dir)?;
        Ok(Self::new(dir))
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
        let path = self.dir.join(name);
        let open = |create| {
            let mut options = OpenOptions::new();
            options.write(true).create_new(create).mode(0o640).custom_flags(OFlags::NOFOLLOW.bits() as i32);
            options.open(&path)
        };
        let file = match open(false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.has_new_file = true;
                open(true)?
            }
            other => other?,
        };
        file.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, name: &str, length: u64) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .custom_flags(OFlags::NOFOLLOW.bits() as i32)
            .open(self.dir.join(name))?;
        file.set_len(length)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        File::open(self.dir.join(name))?.sync_data()?;
        if self.has_new_file {
            File::open(&self.dir)?.sync_all()?;
            self.has_new_file = false;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
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
}
