//! Files below `data_dir`, whose owner is the daemon's user. Root reads some of them at the start, and commands of root others: the
//! daemon's user must neither lead them elsewhere nor keep them waiting.

use delivery::open_without_links;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt as _},
    path::Path,
};

/// A FIFO would be waited for.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// No such file is larger.
const BYTES_MAX: u64 = 16 << 20;

/// Reads a file of the daemon. Below `data_dir` no symbolic link is followed; the administrator may place `data_dir` itself behind one.
///
/// # Errors
/// The file cannot be opened, is not a regular file with a single name, or is too large.
pub fn read_state_file(data_dir: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let file = open_below(data_dir, path, FLAGS)?;
    if fstat(&file)?.st_nlink != 1 {
        return Err(unusable("a file with a second name, which the daemon has not made"));
    }
    read(file, BYTES_MAX)
}

/// Replaces a file of the daemon, which only its user may read. It is whole or the old one, but not synced: a power cut may cost it.
///
/// # Errors
/// The file cannot be written.
pub fn write_state_file(data_dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = data_dir.join(format!("{name}.new"));
    // A link that stands there is not followed.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(new, data_dir.join(name))
}

/// Reads a file that somebody else has written, of so many octets at most. A FIFO is not waited for.
///
/// # Errors
/// The file cannot be opened, is not a regular file, or is larger.
pub fn read_regular_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    read(open(path, FLAGS, Mode::empty())?, bytes_max)
}

fn read(file: OwnedFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    let found = fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(unusable("no regular file"));
    }
    let too_large = || Err(unusable(&format!("a file of more than {bytes_max} octets")));
    // A hole costs nobody anything.
    if u64::try_from(found.st_size).unwrap_or(u64::MAX) > bytes_max {
        return too_large();
    }
    // It may grow while it is read.
    let mut bytes = Vec::new();
    File::from(file).take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { too_large() } else { Ok(bytes) }
}

fn unusable(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("it is {what}"))
}

/// Opens a file or a folder that is there. Below `data_dir` no symbolic link is followed, and elsewhere none at the end of the path:
/// the daemon's user could make one, and lead root to another place.
///
/// # Errors
/// As open(2): `ELOOP` for a symbolic link below `data_dir`.
pub fn open_below(data_dir: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    match path.strip_prefix(data_dir) {
        Ok(below) if !below.as_os_str().is_empty() => {
            let above = open(data_dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            Ok(open_without_links(Some(&above), below, flags)?)
        }
        _ => Ok(open(path, flags | OFlags::NOFOLLOW, Mode::empty())?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn what_the_daemon_has_not_made_is_neither_followed_nor_waited_for() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (data, file) = (dir.path().join("link"), |name: &str| dir.path().join("data").join(name));
        fs::create_dir(dir.path().join("data")).unwrap();
        symlink(dir.path().join("data"), &data).unwrap();
        fs::write(other.path().join("secret"), "root's").unwrap();
        fs::write(file("own"), "text").unwrap();
        let read = |name: &str| read_state_file(&data, &data.join(name));
        assert_eq!(read("own").unwrap(), b"text");
        symlink(other.path().join("secret"), file("soft")).unwrap();
        symlink(other.path(), file("folder")).unwrap();
        fs::write(file("one"), "text").unwrap();
        fs::hard_link(file("one"), file("two")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, file("fifo"), Mode::RUSR).unwrap();
        File::create(file("large")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        for name in ["soft", "folder/secret", "two", "fifo", "large", "../../etc/passwd", "missing"] {
            assert!(read(name).is_err(), "{name}");
        }
        assert_eq!(read("missing").unwrap_err().kind(), io::ErrorKind::NotFound);
        for (name, bytes_max, is_read) in
            [("own", 4, true), ("own", 3, false), ("fifo", 9, false), ("large", 9, false)]
        {
            assert_eq!(read_regular_file(&file(name), bytes_max).is_ok(), is_read, "{name}");
        }
    }
}
