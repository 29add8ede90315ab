//! The directories of a Maildir: opened without following links of users, and made where they are missing.

use super::{Folder, Unwritten};
use crate::open_without_links;
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags},
    io::Errno,
    process::{Uid, geteuid},
};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

/// The symbolic links in a path that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Links {
    /// Follow every link.
    Follow,
    /// The links in the part of the path that the operator has written.
    OfOperator,
    /// Follow none.
    None,
}

/// The folders of a Maildir. They are opened one below the other, and files are made, moved and removed relative to
/// them, so that nobody can put a symbolic link in their place in between.
pub(super) struct Maildir {
    pub(super) tmp: OwnedFd,
    pub(super) new: File,
}

impl Maildir {
    /// Opens a Maildir. A missing Maildir is made, durably.
    pub(super) fn open(folder: &Folder, links: Links) -> Result<Self, Unwritten> {
        let (at, dir) = open_each(folder, 0, links)?;
        check_owner(&dir, &folder.path)?;
        let open = || {
            let (tmp, new) = (at.sub(&dir, "tmp")?, at.sub(&dir, "new")?);
            check_owner(&tmp, &folder.path.join("tmp"))?;
            check_owner(&new, &folder.path.join("new"))?;
            Ok::<_, Unwritten>(Self { tmp, new: new.into() })
        };
        match open() {
            Err(e) if e.is_missing() => {
                ["tmp", "cur", "new"].iter().try_for_each(|name| make(&dir, name.as_ref()))?;
                open()
            }
            opened => opened,
        }
    }
}

/// Refuses an opened mailbox of another user, who could read the mail in it.
///
/// # Errors
/// It belongs to another user than this process, or cannot be asked.
pub(crate) fn check_owner(opened: impl AsFd, path: &Path) -> Result<(), Unwritten> {
    refuse_owner(Uid::from_raw(fs::fstat(opened)?.st_uid), geteuid(), path)
}

/// Root writes for users that it does not know, where no `user` is configured.
pub(crate) fn refuse_owner(owner: Uid, own: Uid, path: &Path) -> Result<(), Unwritten> {
    if own == owner || own.is_root() {
        return Ok(());
    }
    Err(Unwritten::Foreign { path: path.to_owned(), owner: owner.as_raw(), own: own.as_raw() })
}

/// Opens the folder in which a file is, and returns the name of the file. Missing folders are made, durably.
pub(crate) fn open_parent(folder: &Folder, links: Links) -> Result<(OwnedFd, OsString), Unwritten> {
    let Some(name) = folder.path.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no name of a file").into());
    };
    let (_, dir) = open_each(folder, 1, links)?;
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((fs::openat(&dir, ".", readable, Mode::empty())?, name.to_owned()))
}

/// Opens the folders of a path one below the other, but for the last ones that are left out. Missing ones are made.
fn open_each(folder: &Folder, left_out: usize, links: Links) -> Result<(FolderPath, OwnedFd), Unwritten> {
    let (fixed, rest) = folder.path.as_os_str().as_bytes().split_at(folder.fixed_bytes);
    let (fixed, rest) = (Path::new(OsStr::from_bytes(fixed)), Path::new(OsStr::from_bytes(rest)));
    let mut at = FolderPath { path: fixed.to_owned(), links };
    let mut dir = open_fixed(if fixed.as_os_str().is_empty() { Path::new(".") } else { fixed }, links)?;
    let count = rest.components().count();
    for name in rest.components().take(count.saturating_sub(left_out)) {
        at.path.push(name);
        let name = name.as_os_str();
        dir = match at.open(&dir, name, OFlags::PATH) {
            Err(e) if e.is_missing() => {
                make(&dir, name)?;
                at.open(&dir, name, OFlags::PATH)?
            }
            opened => opened?,
        };
    }
    Ok((at, dir))
}

/// The path of a folder for messages, and the symbolic links to it that are followed.
struct FolderPath {
    path: PathBuf,
    links: Links,
}

impl FolderPath {
    /// Opens the folder called `name` in `dir`, which is at this path.
    fn open(&self, dir: &OwnedFd, name: &OsStr, access: OFlags) -> Result<OwnedFd, Unwritten> {
        let follow = if self.links == Links::Follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened =
            fs::openat(dir, name, access | follow | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let is_link = || {
            let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
        };
        match opened {
            Err(Errno::LOOP | Errno::NOTDIR) if self.links != Links::Follow && is_link() => {
                Err(Unwritten::link(self.links, &self.path))
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a folder below this one, to work in it and to sync it.
    fn sub(&self, dir: &OwnedFd, name: &str) -> Result<OwnedFd, Unwritten> {
        let below = Self { path: self.path.join(name), links: self.links };
        below.open(dir, name.as_ref(), OFlags::RDONLY)
    }
}

/// Opens the folder that the operator named. A missing folder is made.
fn open_fixed(path: &Path, links: Links) -> Result<OwnedFd, Unwritten> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || match links {
        Links::None => open_without_links(None, path, flags),
        Links::Follow | Links::OfOperator => fs::open(path, flags, Mode::empty()),
    };
    match open() {
        Err(Errno::NOENT) => {
            let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !p.is_dir()).collect();
            while let Some(folder) = missing.pop() {
                let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let name = folder.file_name().unwrap_or(OsStr::new("."));
                make(&fs::open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, name)?;
            }
            Ok(open()?)
        }
        Err(Errno::LOOP) if links == Links::None => {
            let mut folders: Vec<&Path> = path.ancestors().collect();
            folders.reverse();
            let link = folders.into_iter().find(|folder| folder.is_symlink()).unwrap_or(path);
            Err(Unwritten::link(links, link))
        }
        opened => Ok(opened?),
    }
}

/// Makes a folder, durably. Another delivery may make it at the same time.
pub(super) fn make(dir: &OwnedFd, name: &OsStr) -> Result<(), Unwritten> {
    match fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(dir, ".", readable, Mode::empty())?).sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_that_belongs_to_another_user_is_refused_with_its_owner() {
        let refuse =
            |owner, own| refuse_owner(Uid::from_raw(owner), Uid::from_raw(own), Path::new("/var/mail/bob"));
        assert!(refuse(1001, 1001).is_ok() && refuse(1002, 0).is_ok());
        for owner in [0, 1002] {
            let outcome = refuse(owner, 1001).unwrap_err().outcome("append to /var/mail/bob");
            assert!(
                outcome.text.contains(&format!("/var/mail/bob belongs to the user {owner}, not to 1001"))
            );
            assert_eq!(outcome.disposition, mail::Disposition::Deferred);
        }
    }
}
