//! Listening on a Unix socket that is never open to more users than it should be.

use rustix::fs::{Gid, Mode, Uid, chmod, chown};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::{
        fs::FileTypeExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
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
            format!("somebody listens at {}", path.display()),
        ));
    }
    // Permissions are set under another name: with its own, the socket is there with the right ones or not at all.
    let draft = draft_name(path);
    for path in [path, &draft] {
        if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
            let text =
                format!("{} is there and is no socket: name another path, or remove it", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
    }
    let _ = fs::remove_file(&draft);
    let listener = UnixListener::bind(&draft)?;
    let renamed = permit(&draft, mode, owner, group).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = renamed {
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Beside the socket, so that it can be renamed; one byte longer at most, so that it still fits.
fn draft_name(path: &Path) -> PathBuf {
    let mut name = OsString::from("~");
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

fn permit(path: &Path, mode: u32, owner: Option<u32>, group: Option<u32>) -> io::Result<()> {
    if let Some(owner) = owner {
        chown(path, Some(Uid::from_raw(owner)), None)
            .map_err(|e| io::Error::new(e.kind(), format!("give it to user {owner} (`owner`): {e}")))?;
    }
    if let Some(group) = group {
        chown(path, None, Some(Gid::from_raw(group)))
            .map_err(|e| io::Error::new(e.kind(), format!("give it to group {group} (`group`): {e}")))?;
    }
    Ok(chmod(path, Mode::from_raw_mode(mode))?)
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
    use std::os::unix::fs::{MetadataExt, symlink};

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
    fn a_socket_is_bound_with_its_mode_and_a_dead_one_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(bind(&path, 0o600, None).unwrap());
        let listener = bind(&path, 0o666, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(bind(&path, 0o600, None).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
