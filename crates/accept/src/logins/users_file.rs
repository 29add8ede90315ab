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
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A change of the file is seen after this time at most.
const INTERVAL: Duration = Duration::from_secs(1);

/// Users in a file, which is read again when it changes.
pub struct UsersFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    users: Arc<PasswdFile>,
    stamp: Option<Stamp>,
    /// The file that the last look found while it was being written.
    unsettled: Option<Stamp>,
    looked: Instant,
}

/// The facts by which a changed file is known: its number, its length, and the time of its last change.
type Stamp = (u64, u64, i64, i64);

impl UsersFile {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or has lines that cannot be used.
    pub fn open(path: &Path) -> Result<Self, PasswdFileError> {
        let stamp = stamp(path).ok();
        let users = Arc::new(read_passwd(path)?);
        let state = Mutex::new(State { users, stamp, unsettled: None, looked: Instant::now() });
        Ok(Self { path: path.to_owned(), state })
    }

    /// Returns the users as the file was when it was read first.
    pub fn users(&self) -> Arc<PasswdFile> {
        lock(&self.state).users.clone()
    }

    /// Returns the users, and whether the file was read again. A file that cannot be used changes nothing, and is logged.
    pub async fn current(&self) -> (Arc<PasswdFile>, bool) {
        let old = {
            let mut state = lock(&self.state);
            let now = Instant::now();
            if now.duration_since(state.looked) < INTERVAL {
                return (state.users.clone(), false);
            }
            // Others do not look while this one does.
            state.looked = now;
            (state.stamp, state.unsettled)
        };
        let path = self.path.clone();
        let (known, unsettled) = old;
        let read = tokio::task::spawn_blocking(move || look(&path, known, unsettled)).await;
        let mut state = lock(&self.state);
        let (stamp, users) = match read {
            Ok(Look::New(stamp, users)) => (stamp, users),
            Ok(Look::Unsettled(stamp)) => {
                state.unsettled = Some(stamp);
                return (state.users.clone(), false);
            }
            Ok(Look::Same) | Err(_) => return (state.users.clone(), false),
        };
        (state.stamp, state.unsettled) = (stamp, None);
        match users {
            // A full disk leaves a file like this.
            Ok(users) if stamp.is_some_and(|(_, length, ..)| length == 0) && state.users.count() > 0 => {
                debug_assert_eq!(users.count(), 0);
                tracing::error!(
                    "the users stay as they were: {}: the file is empty; to remove all users, leave a comment in the file",
                    self.path.display()
                );
                (state.users.clone(), false)
            }
            Ok(users) => {
                tracing::info!(
                    "{}: read again, {}",
                    self.path.display(),
                    mail::counted(users.count() as u64, "user")
                );
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

enum Look {
    Same,
    /// The file was changed just now, and may not be complete. The file counts when the next look finds it unchanged.
    Unsettled(Stamp),
    New(Option<Stamp>, Result<PasswdFile, PasswdFileError>),
}

/// Reads the file if it is another one than before.
fn look(path: &Path, old: Option<Stamp>, unsettled: Option<Stamp>) -> Look {
    let new = stamp(path).ok();
    match new {
        _ if new == old => Look::Same,
        Some(stamp) if unsettled != new && !is_settled(stamp) => Look::Unsettled(stamp),
        _ => Look::New(new, read_passwd(path)),
    }
}

/// Returns whether the file has not changed for a second.
fn is_settled((.., seconds, nanoseconds): Stamp) -> bool {
    let age = || {
        let changed = Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?);
        SystemTime::now().duration_since(UNIX_EPOCH + changed).ok()
    };
    age().is_some_and(|age| age >= Duration::from_secs(1))
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let of = |meta: Metadata| (meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec());
    fs::metadata(path).map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Writes a file as another program did a minute ago, or later by `seconds`, and returns the number of users then.
    async fn count_with(users: &UsersFile, text: &str, seconds: u64) -> usize {
        fs::write(&users.path, text).unwrap();
        let time = SystemTime::now() - Duration::from_secs(60) + Duration::from_secs(seconds);
        File::options().write(true).open(&users.path).unwrap().set_modified(time).unwrap();
        look_again(users).await
    }

    async fn look_again(users: &UsersFile) -> usize {
        lock(&users.state).looked = Instant::now().checked_sub(INTERVAL).unwrap();
        users.current().await.0.count()
    }

    #[tokio::test]
    async fn a_file_that_is_empty_or_cut_changes_no_users() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        fs::write(&path, "jane:{PLAIN}secret\njoe:{PLAIN}secret\n").unwrap();
        let users = UsersFile::open(&path).unwrap();
        assert_eq!(users.users().count(), 2);
        for (text, count) in [
            ("", 2),
            ("jane:{PLAIN}secret\njoe:{PLAIN}sec", 2),
            ("jane:{PLAIN}secret\n", 1),
            ("", 1),
            ("# nobody\n", 0),
            ("", 0),
        ] {
            assert_eq!(count_with(&users, text, count as u64).await, count, "{text:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_being_written_counts_when_it_has_not_changed_for_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        fs::write(&path, "jane:{PLAIN}secret\njoe:{PLAIN}secret\n").unwrap();
        let users = UsersFile::open(&path).unwrap();
        assert_eq!(count_with(&users, "jane:{PLAIN}secret\n", 3660).await, 2);
        assert_eq!(look_again(&users).await, 1);
    }
}
