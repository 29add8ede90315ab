//! Opening files that a configuration names.

use rustix::fs::OFlags;
use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Opens a file for reading. A FIFO is refused: an open would wait for its writer, for ever. A device is refused, too: a read of it
/// may not end.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?;
    if kind.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file, but a FIFO or a device"));
    }
    Ok(file)
}

/// Returns whether an error of [`open`] says that the path is not that of a regular file.
pub fn is_no_file(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput)
}

/// Reads a file, as [`open`] opens it.
///
/// # Errors
/// As for [`open`], or the file cannot be read.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file of text, as [`open`] opens it.
///
/// # Errors
/// As for [`open`], or the file cannot be read, or is not in UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_fifo_a_device_and_a_folder_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for (path, why) in
            [(&*fifo, "not a file"), (Path::new("/dev/zero"), "not a file"), (dir.path(), "folder")]
        {
            let error = read_file(path).unwrap_err();
            assert!(error.to_string().contains(why), "{}: {error}", path.display());
        }
        std::fs::write(dir.path().join("file"), "text").unwrap();
        assert_eq!(read_file(&dir.path().join("file")).unwrap(), b"text");
    }
}
