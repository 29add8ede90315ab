//! The file of users, read again when it has changed.

use super::lock;
use auth::PasswdFile;
use config::{PasswdFileError, read_passwd};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// A change of the file is seen after this time at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// A file of users.
pub(crate) struct UsersFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    users: Arc<PasswdFile>,
    stamp: Option<Stamp>,
    looked: Instant,
}

/// The facts by which a changed file is known: its number, its length, and the time of its last change.
type Stamp = (u64, u64, i64, i64);

impl UsersFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has lines that cannot be used.
    pub(crate) fn open(path: &Path) -> Result<Self, PasswdFileError> {
        let stamp = stamp(path).ok();
        let users = Arc::new(read_passwd(path)?);
        let state = Mutex::new(State { users, stamp, looked: Instant::now() });
        Ok(Self { path: path.to_owned(), state })
    }

    /// Returns the users as the file was when it was read first.
    pub(crate) fn users(&self) -> Arc<PasswdFile> {
        lock(&self.state).users.clone()
    }

    /// Returns the users, and whether the file was read again. A file that cannot be used changes nothing, and is logged.
    pub(crate) async fn current(&self) -> (Arc<PasswdFile>, bool) {
        let old = {
            let mut state = lock(&self.state);
            let now = Instant::now();
            if now.duration_since(state.looked) < INTERVAL {
                return (state.users.clone(), false);
            }
            // Others do not look while this one does.
            state.looked = now;
            state.stamp
        };
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || look(&path, old)).await.ok().flatten();
        let mut state = lock(&self.state);
        let Some((stamp, users)) = read else { return (state.users.clone(), false) };
        state.stamp = stamp;
        match users {
            Ok(users) => {
                tracing::info!("{}: read again, {} users", self.path.display(), users.count());
                state.users = Arc::new(users);
                (state.users.clone(), true)
            }
            Err(error) => {
                tracing::error!("the users stay as they were: {error}");
                (state.users.clone(), false)
            }
        }
    }
}

/// Reads the file if it is another one than before.
fn look(path: &Path, old: Option<Stamp>) -> Option<(Option<Stamp>, Result<PasswdFile, PasswdFileError>)> {
    let new = stamp(path).ok();
    (new != old).then(|| (new, read_passwd(path)))
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let of = |meta: Metadata| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    fs::metadata(path).map(of)
}
