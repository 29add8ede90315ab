//! Opening a path without following a symbolic link, by system calls whose arguments a filter sees
//! (docs/decisions/sandbox.md): openat2(2) has its flags and its mode in memory.

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

/// Opens what is there already, as openat2(2) with RESOLVE_NO_SYMLINKS: below `top`, which no `..` may leave (RESOLVE_BENEATH), or
/// without one anywhere, from the working directory. With `O_PATH`, `flags` need `O_DIRECTORY`, too.
///
/// Each name is opened in the directory before it. Somebody who renames directories meanwhile can change which directory a name
/// leads to, but neither have a link followed nor lead out of `top`: `..` returns to a directory that is open.
///
/// # Errors
/// As openat2(2): `ELOOP` for a symbolic link, `EXDEV` for a path out of `top`.
pub fn open_without_links(top: Option<&OwnedFd>, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(Errno::NOENT);
    }
    let mut names: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let (mut start, mut last_flags) = (None, flags);
    if bytes.starts_with(b"/") {
        if top.is_some() {
            return Err(Errno::XDEV);
        }
        start = Some(openat(CWD, "/", STEP, Mode::empty())?);
    }
    if bytes.ends_with(b"/") {
        last_flags |= OFlags::DIRECTORY;
    }
    let last = names.pop().unwrap_or(b".");
    let mut above: Vec<OwnedFd> = start.into_iter().collect();
    let open_in = |above: &[OwnedFd], name: &[u8], flags| match (above.last(), top) {
        (Some(dir), _) => open_name(dir, name, flags),
        (None, Some(top)) => open_name(top, name, flags),
        (None, None) => open_name(CWD, name, flags),
    };
    for name in names {
        if name == b".." && top.is_some() {
            above.pop().ok_or(Errno::XDEV)?;
        } else if name != b"." {
            above.push(open_in(&above, name, STEP)?);
        }
    }
    if last == b".." && top.is_some() {
        above.pop().ok_or(Errno::XDEV)?;
        return open_in(&above, b".", last_flags);
    }
    open_in(&above, last, last_flags)
}

/// For a directory on the way, which may be searched though not be read.
const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn open_name(dir: impl std::os::fd::AsFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let name = OsStr::from_bytes(name);
    openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| {
        // With O_DIRECTORY, a link is not a directory.
        let is_link = || {
            statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
        };
        if error == Errno::NOTDIR && is_link() { Errno::LOOP } else { error }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{ResolveFlags, fstat, open, openat2};
    use std::{
        fs,
        os::{
            fd::{AsFd as _, BorrowedFd},
            unix::fs::symlink,
        },
    };

    /// Makes a tree in which each name leads to a file, to a directory with the same names, or to a link.
    fn make_tree(dir: &Path, depth: u32) {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("f"), "text").unwrap();
        for (name, to) in
            [("lf", "f"), ("ld", "d"), ("l.", "."), ("lu", ".."), ("lx", "missing"), ("ll", "ld")]
        {
            symlink(to, dir.join(name)).unwrap();
        }
        symlink("/", dir.join("l0")).unwrap();
        if depth > 0 {
            make_tree(&dir.join("d"), depth - 1);
        }
    }

    fn path_text() -> impl Strategy<Value = String> {
        let name = prop_oneof![
            6 => Just("d"),
            2 => Just("f"),
            2 => Just(".."),
            1 => Just("."),
            1 => Just("x"),
            3 => prop::sample::select(vec!["lf", "ld", "l.", "lu", "lx", "ll", "l0"]),
        ];
        let slash = prop_oneof![4 => Just("/"), 1 => Just("//")];
        let end = prop_oneof![3 => Just(""), 1 => Just("/"), 1 => Just("//"), 1 => Just("/.")];
        let start = prop_oneof![6 => Just(""), 1 => Just("/"), 1 => Just("./")];
        (start, prop::collection::vec((name, slash), 0..6), end).prop_map(|(start, names, end)| {
            let names: Vec<String> = names.iter().map(|(name, slash)| format!("{name}{slash}")).collect();
            format!("{start}{}{end}", names.concat().trim_end_matches('/'))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn a_walk_opens_what_openat2_opens_and_fails_as_it_does(text in path_text()) {
            thread_local!(static TREE: tempfile::TempDir = {
                let dir = tempfile::tempdir().unwrap();
                make_tree(&dir.path().join("d"), 3);
                dir
            });
            TREE.with(|tree| {
                let found = |opened: Result<OwnedFd, Errno>| {
                    opened.map(|fd| fstat(&fd).map(|found| (found.st_dev, found.st_ino)).unwrap())
                };
                // While something else on the machine is renamed or mounted, the kernel says for `..` that it should be asked again.
                let openat2 = |top: BorrowedFd<'_>, text: &str, flags, resolve| loop {
                    match openat2(top, text, flags, Mode::empty(), resolve) {
                        Err(Errno::AGAIN) => {}
                        opened => break found(opened),
                    }
                };
                let top = open(tree.path().join("d"), STEP, Mode::empty()).unwrap();
                let absolute = format!("{}/{text}", tree.path().display());
                for flags in [
                    STEP,
                    OFlags::RDONLY | OFlags::CLOEXEC,
                    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
                    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                ] {
                    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                    prop_assert_eq!(
                        found(open_without_links(Some(&top), Path::new(&text), flags)),
                        openat2(top.as_fd(), &text, flags, beneath),
                        "{} below, {:?}", text, flags
                    );
                    // Relative ones from the working directory find little; `/` and `..` are all the same.
                    for text in [&text, &absolute] {
                        prop_assert_eq!(
                            found(open_without_links(None, Path::new(text), flags)),
                            openat2(CWD, text, flags, ResolveFlags::NO_SYMLINKS),
                            "{}, {:?}", text, flags
                        );
                    }
                }
                Ok(())
            })?;
        }
    }

    #[test]
    fn a_directory_that_is_moved_away_leads_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("top/a/b")).unwrap();
        let top = open(dir.path().join("top"), STEP, Mode::empty()).unwrap();
        fs::rename(dir.path().join("top/a/b"), dir.path().join("b")).unwrap();
        symlink(dir.path().join("b"), dir.path().join("top/a/b")).unwrap();
        let open = |path: &str| open_without_links(Some(&top), Path::new(path), STEP).map(drop);
        assert_eq!(open("a/b"), Err(Errno::LOOP));
        assert_eq!(open("a/../../b"), Err(Errno::XDEV));
    }
}
