//! A new file that appears under its name only when all of it is on the disk, or standard output.

use console::CliError;
use control::Exit;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, open, renameat_with},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, IsTerminal as _, Write as _},
    os::{
        fd::{AsFd as _, AsRawFd as _},
        unix::fs::OpenOptionsExt as _,
    },
    path::{Path, PathBuf},
};

/// A file that is being written, readable by its owner only. Dropped before [`OutputFile::finish`], nothing is left.
pub(crate) struct OutputFile {
    path: PathBuf,
    state: Draft,
    file: File,
}

enum Draft {
    /// A file without a name: if this process is killed, nothing is left.
    Unnamed,
    /// The name until it is whole, where the file system has no files without one.
    Named(PathBuf),
    StandardOutput,
}

/// Stands for standard output in place of a path.
const STANDARD_OUTPUT: &str = "-";

impl OutputFile {
    /// Creates the file `to`, or a file with the usual name if `to` is a folder. `-` is standard output.
    ///
    /// # Errors
    /// The file exists, or cannot be created; or standard output is a terminal.
    pub(crate) fn create(to: &Path, usual_name: &str) -> Result<Self, CliError> {
        if to == Path::new(STANDARD_OUTPUT) {
            let out = io::stdout();
            if out.is_terminal() {
                return Err(CliError::new(
                    Exit::Usage,
                    "an archive is not written to a terminal: name a file, or a pipe",
                ));
            }
            let file = out.as_fd().try_clone_to_owned()?.into();
            return Ok(Self { path: to.to_owned(), state: Draft::StandardOutput, file });
        }
        let path = if to.is_dir() { to.join(usual_name) } else { to.to_owned() };
        let failed = |error: io::Error| {
            let exit = match error.kind() {
                io::ErrorKind::PermissionDenied => Exit::NoPerm,
                _ => Exit::CantCreate,
            };
            CliError::new(exit, format!("create {}: {error}", path.display()))
        };
        if path.symlink_metadata().is_ok() {
            let text =
                format!("create {}: it exists already: name another file, or a folder", path.display());
            return Err(CliError::new(Exit::CantCreate, text));
        }
        let folder = folder_of(&path);
        let mode = Mode::RUSR | Mode::WUSR;
        match open(folder, OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC, mode) {
            Ok(file) => return Ok(Self { path, state: Draft::Unnamed, file: file.into() }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let draft = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
        Ok(Self { path, state: Draft::Named(draft), file })
    }

    pub(crate) fn is_standard_output(&self) -> bool {
        matches!(self.state, Draft::StandardOutput)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn writer(&mut self) -> BufWriter<&mut File> {
        BufWriter::with_capacity(256 * 1024, &mut self.file)
    }

    /// Gives the file its name, once all of it is on the disk. Returns its size in bytes.
    ///
    /// # Errors
    /// The disk fails, or another file has taken the name.
    pub(crate) fn finish(self) -> Result<u64, CliError> {
        if self.is_standard_output() {
            return Ok(0);
        }
        let named = || {
            self.file.sync_all()?;
            match &self.state {
                Draft::Unnamed => {
                    let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                    linkat(CWD, own, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
                }
                Draft::Named(draft) => renameat_with(CWD, draft, CWD, &self.path, RenameFlags::NOREPLACE)?,
                Draft::StandardOutput => {}
            }
            File::open(folder_of(&self.path))?.sync_all()?;
            Ok(self.file.metadata()?.len())
        };
        named().map_err(|error: io::Error| {
            CliError::new(Exit::IoErr, format!("write {}: {error}", self.path.display()))
        })
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        // After a rename there is none.
        if let Draft::Named(draft) = &self.state {
            let _ = fs::remove_file(draft);
        }
    }
}

/// Writes a file in place of the one that has its name. No link is followed: the folder may belong to another user.
///
/// # Errors
/// The file cannot be written.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let draft = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn names(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_appears_whole_and_private_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = OutputFile::create(dir.path(), "usual").unwrap();
        file.writer().write_all(b"half").unwrap();
        assert!(!dir.path().join("usual").exists());
        drop(file);
        assert_eq!(names(dir.path()), [""; 0]);
        let mut file = OutputFile::create(dir.path(), "usual").unwrap();
        file.writer().write_all(b"all").unwrap();
        assert_eq!(file.finish().unwrap(), 3);
        assert_eq!(names(dir.path()), ["usual"]);
        let mode = fs::metadata(dir.path().join("usual")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = OutputFile::create(&dir.path().join("usual"), "x").err().unwrap();
        assert!(again.exit == Exit::CantCreate && again.text.contains("exists already"), "{}", again.text);
    }

    #[test]
    fn a_file_that_is_replaced_is_not_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (other, page) = (dir.path().join("other"), dir.path().join("page.1"));
        fs::write(&other, "other").unwrap();
        for link in
            [|a: &Path, b: &Path| std::os::unix::fs::symlink(a, b), |a: &Path, b: &Path| fs::hard_link(a, b)]
        {
            let _ = fs::remove_file(&page);
            link(&other, &page).unwrap();
            replace_file(&page, b"page").unwrap();
            assert_eq!(fs::read(&page).unwrap(), b"page");
            assert_eq!(fs::read(&other).unwrap(), b"other");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no draft is left");
    }
}
