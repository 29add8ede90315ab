//! Listening on a Unix socket that is never open to more users than it should be.

use crate::open_parent_directory;
use rustix::{
    fs::{
        AtFlags, FileType, Gid, Mode, OFlags, Uid, chmod, chownat, fstat, openat, renameat, statat, unlinkat,
    },
    process::{geteuid, umask},
    thread::UnshareFlags,
};
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::{
            fs::FileTypeExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    thread,
};

/// Listens at `path` with these permissions. A socket without a listener is replaced;
/// when somebody does, the error is [`io::ErrorKind::AddrInUse`].
pub fn bind(path: &Path, mode: u32, group: Option<u32>) -> io::Result<UnixListener> {
    bind_for(path, mode, None, group)
}

/// Listens at `path` with these permissions, for this owner and group, as [`bind`].
///
/// # Errors
/// As for [`bind`]; only root may give a socket to others.
pub fn bind_for(path: &Path, mode: u32, owner: Option<u32>, group: Option<u32>) -> io::Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another program is listening there: stop it, or choose another place",
        ));
    }
    // Another user may own the directory, such as the daemon's user where root binds: the directory and the socket are held by
    // descriptors, since a name could lead elsewhere a moment later.
    let directory = Directory::of(path)?;
    // Permissions are set under another name: with its own, the socket is there with the right ones or not at all.
    let draft = draft_name(path);
    for name in [path, &draft] {
        directory.check_is_socket_or_absent(name)?;
    }
    directory.remove(&draft);
    let listener = UnixListener::bind(directory.path_of(&draft)).map_err(|e| directory.explained(e, path))?;
    let renamed = directory.permit(&draft, mode, owner, group).and_then(|()| directory.rename(&draft, path));
    if let Err(error) = renamed {
        directory.remove(&draft);
        return Err(error);
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// As [`bind_for`], in a daemon whose sandbox forbids chmod(2): the socket is made with its permissions, by a thread with a umask of
/// its own. Not before a change of the user, which wants a process with one thread.
///
/// # Errors
/// As for [`bind_for`].
pub fn bind_in_sandbox(
    path: &Path,
    mode: u32,
    owner: Option<u32>,
    group: Option<u32>,
) -> io::Result<UnixListener> {
    let bind = || {
        #[allow(deprecated)] // its successor is unsafe for the sake of UnshareFlags::FILES
        let has_own_umask = rustix::thread::unshare(UnshareFlags::FS).is_ok();
        if has_own_umask {
            umask(Mode::from_raw_mode(!mode & 0o777));
        }
        bind_for(path, mode, owner, group)
    };
    thread::scope(|scope| scope.spawn(bind).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread has panicked")))
}

/// Beside the socket, so that it can be renamed.
fn draft_name(path: &Path) -> PathBuf {
    let mut name = OsString::from("~");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Holds the socket's directory open, so that nobody can put another in its place.
struct Directory(OwnedFd);

impl Directory {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self(open_parent_directory(path)?))
    }

    /// A path that leads into this directory, whatever has become of its name.
    fn path_of(&self, path: &Path) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string()).join(name_of(path))
    }

    fn explained(&self, error: io::Error, path: &Path) -> io::Error {
        if error.kind() == io::ErrorKind::NotFound && !Path::new("/proc/self/fd").exists() {
            return io::Error::new(error.kind(), format!("bind {}: /proc is not mounted", path.display()));
        }
        error
    }

    fn check_is_socket_or_absent(&self, path: &Path) -> io::Result<()> {
        let found = statat(&self.0, name_of(path), AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) != FileType::Socket) {
            let text =
                format!("{} exists and is not a socket: name another path, or remove it", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(())
    }

    /// Gives owner, group and mode to the socket that was bound a moment ago, and to nothing else.
    fn permit(&self, path: &Path, mode: u32, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&self.0, name_of(path), flags, Mode::empty())?;
        let found = fstat(&socket)?;
        let is_own = FileType::from_raw_mode(found.st_mode) == FileType::Socket
            && found.st_uid == geteuid().as_raw()
            && found.st_nlink == 1;
        if !is_own {
            let text = format!(
                "{} was replaced while it was made: another user can write to its directory",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        let give = |owner, group| chownat(&socket, "", owner, group, AtFlags::EMPTY_PATH);
        if let Some(owner) = owner {
            give(Some(Uid::from_raw(owner)), None)
                .map_err(|e| io::Error::new(e.kind(), format!("give it to user {owner} (`owner`): {e}")))?;
        }
        if let Some(group) = group {
            give(None, Some(Gid::from_raw(group)))
                .map_err(|e| io::Error::new(e.kind(), format!("give it to group {group} (`group`): {e}")))?;
        }
        if found.st_mode & 0o7777 == mode {
            return Ok(());
        }
        // fchmod(2) refuses a descriptor of O_PATH.
        Ok(chmod(format!("/proc/self/fd/{}", socket.as_raw_fd()), Mode::from_raw_mode(mode))?)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Ok(renameat(&self.0, name_of(from), &self.0, name_of(to))?)
    }

    /// Removes a name, which may be gone already.
    fn remove(&self, path: &Path) {
        let _ = unlinkat(&self.0, name_of(path), AtFlags::empty());
    }
}

fn name_of(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

/// Removes a socket. Anything else with this name stays.
pub fn remove(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        // It may be gone already.
        let _ = fs::remove_file(path);
    }
}

/// The next connection. Out of descriptors, accepting at once again would only burn the processor.
pub async fn accept(listener: &tokio::net::UnixListener) -> Option<tokio::net::UnixStream> {
    match listener.accept().await {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            tracing::warn!(%error, "accept on a local socket");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt as _, symlink};

    #[test]
    fn only_a_socket_is_replaced_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("passwd"), dir.path().join("link"));
        fs::write(&file, "root").unwrap();
        symlink(&file, &link).unwrap();
        for path in [&file, &link] {
            assert_eq!(bind(path, 0o600, None).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            remove(path);
        }
        fs::write(dir.path().join("~s"), "draft").unwrap();
        assert!(bind(&dir.path().join("s"), 0o600, None).is_err());
        assert_eq!(fs::read_to_string(&link).unwrap(), "root");
        let socket = dir.path().join("t");
        drop(bind(&socket, 0o600, None).unwrap());
        remove(&socket);
        assert!(!socket.exists());
    }

    #[test]
    fn what_has_taken_the_place_of_a_draft_is_given_to_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let (secret, other) = (dir.path().join("secret"), dir.path().join("other"));
        fs::write(&secret, "root's").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let _other = UnixListener::bind(&other).unwrap();
        let path = dir.path().join("s");
        let directory = Directory::of(&path).unwrap();
        let draft = draft_name(&path);
        // Links that another process has put there between bind(2) and chown(2).
        symlink(&secret, &draft).unwrap();
        assert!(directory.permit(&draft, 0o666, None, None).is_err());
        fs::remove_file(&draft).unwrap();
        for target in [&secret, &other] {
            fs::hard_link(target, &draft).unwrap();
            let error = directory.permit(&draft, 0o666, None, None).unwrap_err();
            assert!(error.to_string().contains("was replaced"), "{error}");
            fs::remove_file(&draft).unwrap();
        }
        assert_eq!(fs::metadata(&secret).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_directory_that_becomes_a_link_does_not_lead_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (run, moved, etc) = (dir.path().join("run"), dir.path().join("moved"), dir.path().join("etc"));
        fs::create_dir(&run).unwrap();
        fs::create_dir(&etc).unwrap();
        let directory = Directory::of(&run.join("s")).unwrap();
        fs::rename(&run, &moved).unwrap();
        symlink(&etc, &run).unwrap();
        let _listener = UnixListener::bind(directory.path_of(&run.join("~s"))).unwrap();
        directory.permit(&run.join("~s"), 0o600, None, None).unwrap();
        directory.rename(&run.join("~s"), &run.join("s")).unwrap();
        assert!(moved.join("s").exists() && fs::read_dir(&etc).unwrap().count() == 0);
    }

    #[test]
    fn a_socket_is_bound_with_its_mode_and_a_dead_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(bind(&path, 0o600, None).unwrap());
        let listener = bind(&path, 0o666, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(bind(&path, 0o600, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        drop(bind_in_sandbox(&path, 0o662, None, None).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o662);
        fs::write(dir.path().join("file"), "").unwrap();
        let mode = fs::metadata(dir.path().join("file")).unwrap().mode();
        assert_eq!(mode & 0o111, 0, "the umask of other threads is as before");
        fs::remove_file(dir.path().join("file")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
