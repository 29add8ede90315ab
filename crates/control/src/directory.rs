//! Directories that a process with the rights of root opens by name, where other users may own parts of the path.

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat},
    io::Errno,
    process::geteuid,
};
use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStringExt as _},
    path::{Component, Path, PathBuf},
};

/// Links that are followed on one path, as by the kernel.
const LINKS_MAX: usize = 40;

/// Opens the directory of a file, as [`open_directory`] does.
///
/// # Errors
/// As for [`open_directory`].
pub fn open_parent_directory(file: &Path) -> io::Result<OwnedFd> {
    open_directory(file.parent().unwrap_or(Path::new("")))
}

/// Opens a directory (`O_PATH`). A process of root follows symbolic links only where nobody else could have put them: owned by root,
/// in a directory of root. Of another user's links it would make and give away what is not his.
///
/// # Errors
/// What the system says; [`io::ErrorKind::PermissionDenied`] with the link for one that is not followed.
pub fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if !geteuid().is_root() {
        return Ok(openat(CWD, path, DIRECTORY, Mode::empty())?);
    }
    let start =
        |path: &Path| openat(CWD, if path.is_absolute() { "/" } else { "." }, DIRECTORY, Mode::empty());
    let mut directory = start(path)?;
    let mut seen = PathBuf::from(if path.is_absolute() { "/" } else { "" });
    let mut links = 0;
    let mut rest: VecDeque<OsString> = names_of(path).collect();
    while let Some(name) = rest.pop_front() {
        seen.push(&name);
        let next = openat(&directory, &name, NO_LINK, Mode::empty())?;
        let found = fstat(&next)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => directory = next,
            FileType::Symlink => {
                links += 1;
                if !is_of_root(&found, &fstat(&directory)?) {
                    let text = format!(
                        "{} is a symbolic link that another user than root can change: write the path that it leads to",
                        seen.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
                }
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let target = PathBuf::from(OsString::from_vec(
                    readlinkat(&directory, &name, Vec::new())?.into_bytes(),
                ));
                if target.is_absolute() {
                    directory = start(&target)?;
                }
                let names: Vec<OsString> = names_of(&target).collect();
                names.into_iter().rev().for_each(|name| rest.push_front(name));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(directory)
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const NO_LINK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn names_of(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsStr::new("..").to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Returns whether only root can have made a link, and nobody else can replace it.
fn is_of_root(link: &Stat, directory: &Stat) -> bool {
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let mode = directory.st_mode;
    link.st_uid == 0 && directory.st_uid == 0 && (mode & OTHERS_WRITE == 0 || mode & STICKY != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, chown, symlink},
    };

    const OTHER: u32 = 65534;

    fn inode(path: &Path) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn links_of_root_are_followed_and_those_of_others_are_not() {
        if !geteuid().is_root() {
            println!("SKIPPED: links of other users: root is needed");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("target/below")).unwrap();
        symlink("target", at("relative")).unwrap();
        symlink(at("target"), at("absolute")).unwrap();
        symlink("relative/../absolute", at("both")).unwrap();
        for name in ["target", "relative", "absolute", "both"] {
            let found = open_directory(&at(name).join("below")).unwrap();
            assert_eq!(fstat(&found).unwrap().st_ino, inode(&at("target/below")), "{name}");
        }
        symlink("loop", at("loop")).unwrap();
        assert!(open_directory(&at("loop")).is_err());
        // His link, and root's link in his directory.
        fs::create_dir(at("his")).unwrap();
        symlink(at("target"), at("his/link")).unwrap();
        chown(at("his"), Some(OTHER), None).unwrap();
        let refused = |path: PathBuf| {
            let error = open_directory(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        };
        refused(at("his/link"));
        refused(at("his/link/below"));
        std::os::unix::fs::lchown(at("relative"), Some(OTHER), None).unwrap();
        refused(at("relative"));
        assert!(open_directory(&at("his")).is_ok());
    }
}
