//! A map in a file, which is read again when the file changes.

use crate::{
    Looked, LookupError, Map,
    fault::FileFault,
    reference::{Kind, Reference},
    table::{Purpose, Table},
};
use mail::Answer;
use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{runtime::Handle, task::spawn_blocking, time::timeout};

/// Time between two looks at the file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A file that changed more recently may not be complete. It counts when it has not changed for this long.
const SETTLED: Duration = Duration::from_secs(1);
/// Time for one look-up that has to read the disk.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A map in a file. Cloning is cheap, and clones share the table.
///
/// The file is looked at by a look-up, at most once a second. When its modification time, size or inode differ, it is
/// read in a thread for blocking work, and the new table replaces the old one as a whole. A new file that cannot be
/// used leaves the old table in place; the error is logged once.
#[derive(Debug, Clone)]
pub struct FileMap(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    purpose: Purpose,
    kind: Kind,
    path: PathBuf,
    state: RwLock<State>,
    begun: Instant,
    /// In milliseconds since `begun`.
    next_check: AtomicU64,
    /// How often another table took the place of the one in use.
    replaced: AtomicU64,
}

#[derive(Debug)]
struct State {
    table: Result<Arc<Table>, LookupError>,
    /// The file that the table was read from; `None` if none could be read.
    read: Option<Identity>,
    /// The newest file that was seen, or the error instead of one.
    seen: Result<Identity, io::ErrorKind>,
    /// The file that was refused; it is not read twice.
    refused: Option<Identity>,
    /// Why that file was refused, for the log.
    fault: Option<String>,
}

/// Tells one content of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    modified_ns: i128,
    size_bytes: u64,
    inode: u64,
    device: u64,
}

impl Identity {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let meta = fs::metadata(path)?;
        let modified_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(Self { modified_ns, size_bytes: meta.size(), inode: meta.ino(), device: meta.dev() })
    }

    /// Returns whether the file has not changed for a while.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age_ns = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX) - self.modified_ns;
        age_ns >= i128::try_from(SETTLED.as_nanos()).unwrap_or(i128::MAX)
    }
}

impl FileMap {
    /// Reads the file. A file that cannot be used is logged, and each look-up fails until it is repaired.
    pub fn open(kind: Kind, path: &Path) -> Self {
        Self::open_for(Purpose::Any, kind, path)
    }

    /// As [`Self::open`], for a purpose: a file that is dangerous for it cannot be used.
    pub(crate) fn open_for(purpose: Purpose, kind: Kind, path: &Path) -> Self {
        let reference = Reference::File(kind, path.to_owned());
        // Before the table is read: a file that changes meanwhile is read again.
        let seen = Identity::of(path).map_err(|error| error.kind());
        let table = Table::read_for(purpose, kind, path).map(Arc::new).map_err(|fault| {
            tracing::error!("{reference}: {fault}; look-ups fail until the file is repaired");
            LookupError::new(&reference, fault)
        });
        let read = table.is_ok().then_some(seen.ok()).flatten();
        let refused = if table.is_ok() { None } else { seen.ok() };
        let fault = table.as_ref().err().map(ToString::to_string);
        let state = State { table, read, seen, refused, fault };
        Self(Arc::new(Inner {
            purpose,
            kind,
            path: path.to_owned(),
            state: RwLock::new(state),
            begun: Instant::now(),
            next_check: AtomicU64::new(millis(CHECK_INTERVAL)),
            replaced: AtomicU64::new(0),
        }))
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.0.purpose
    }

    /// Returns how often another table took the place of the one in use.
    pub(crate) fn replaced_count(&self) -> u64 {
        self.0.replaced.load(Ordering::Acquire)
    }

    /// The table in use.
    ///
    /// # Errors
    /// No usable file was there yet.
    pub fn table(&self) -> Result<Arc<Table>, LookupError> {
        self.0.table()
    }

    /// Reads the file again in a thread of its own, if it changed; looks at it at most once a second, and not outside of
    /// a runtime.
    pub fn refresh_later(&self) {
        if let Ok(runtime) = Handle::try_current()
            && self.0.is_check_due()
        {
            let inner = self.0.clone();
            runtime.spawn_blocking(move || inner.refresh());
        }
    }

    /// Looks a key up in the table in use, without a look at the file and without waiting for a disk that answers late:
    /// for decisions that cannot wait.
    ///
    /// # Errors
    /// There is no table, or its file cannot be read.
    pub fn get_now(&self, key: &str) -> Looked {
        let inner = &self.0;
        inner.table()?.get_blocking(key).map_err(|error| LookupError::new(&inner.reference(), error))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Inner {
    fn reference(&self) -> Reference {
        Reference::File(self.kind, self.path.clone())
    }

    fn table(&self) -> Result<Arc<Table>, LookupError> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).table.clone()
    }

    /// Returns true for one caller a second.
    fn is_check_due(&self) -> bool {
        let now = millis(self.begun.elapsed());
        let due = self.next_check.load(Ordering::Relaxed);
        now >= due
            && self
                .next_check
                .compare_exchange(due, now + millis(CHECK_INTERVAL), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Reads the file again if it changed.
    fn refresh(&self) {
        let now = Identity::of(&self.path).map_err(|error| error.kind());
        let seen_before = {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            let seen_before = std::mem::replace(&mut state.seen, now);
            if now.is_ok_and(|now| [state.read, state.refused].contains(&Some(now))) {
                if now.ok() == state.read {
                    state.fault = None;
                }
                return;
            }
            seen_before
        };
        match now {
            Err(kind) if seen_before != now => {
                // Its text names the cause; that of a kind alone does not.
                let error = fs::metadata(&self.path).err().unwrap_or_else(|| io::Error::from(kind));
                self.keep(None, &FileFault::of_file(error.to_string(), ""));
            }
            // A file that was written just now may not be complete: it is read when the next look finds it unchanged.
            Ok(identity) if identity.is_settled() || seen_before == now => self.replace(identity),
            _ => {}
        }
    }

    fn replace(&self, identity: Identity) {
        let read = Table::read_for(self.purpose, self.kind, &self.path);
        if Identity::of(&self.path).ok() != Some(identity) {
            return; // It changed meanwhile: the next look reads it.
        }
        match read {
            // A full disk leaves a file like this.
            Ok(table) if table.is_empty() && identity.size_bytes == 0 && self.has_entries() => {
                let help = "to remove all entries, leave a comment in the file";
                self.keep(Some(identity), &FileFault::of_file("the file is empty", help));
            }
            Ok(table) => {
                let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
                (state.table, state.read, state.fault) = (Ok(Arc::new(table)), Some(identity), None);
                drop(state);
                self.replaced.fetch_add(1, Ordering::Release);
                tracing::info!("{}: the changed file was read, and is in use", self.reference());
            }
            Err(fault) => self.keep(Some(identity), &fault),
        }
    }

    fn has_entries(&self) -> bool {
        self.table().is_ok_and(|table| !table.is_empty())
    }

    fn keep(&self, refused: Option<Identity>, fault: &FileFault) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.refused = refused;
        let consequence = match &state.table {
            Ok(table) if !table.is_intact() => "look-ups fail until the file is repaired",
            Ok(_) => "the table that was read before stays in use",
            Err(_) => "look-ups fail until the file is repaired",
        };
        let fault = format!("{}: {fault}; {consequence}", self.reference());
        tracing::error!("{fault}");
        state.fault = Some(fault);
    }

    /// Looks a key up in a thread that may wait for the disk.
    async fn get_later(self: Arc<Self>, table: Arc<Table>, key: Box<str>) -> Looked {
        let reference = self.reference();
        let looked = spawn_blocking(move || table.get_blocking(&key));
        match timeout(TIMEOUT, looked).await {
            Ok(Ok(looked)) => looked.map_err(|error| LookupError::new(&reference, error)),
            Ok(Err(_)) => Err(LookupError::new(&reference, "the look-up was given up")),
            Err(_) => Err(LookupError::new(&reference, format!("no answer of the disk in {TIMEOUT:?}"))),
        }
    }

    fn get<'a>(self: &'a Arc<Self>, key: &str) -> Answer<'a, Looked> {
        let table = match self.table() {
            Ok(table) => table,
            Err(error) => return Answer::Ready(Err(error)),
        };
        match table.get(key) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Handle::try_current().is_ok() => {
                Answer::later(self.clone().get_later(table, key.into()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Answer::Ready(
                table.get_blocking(key).map_err(|error| LookupError::new(&self.reference(), error)),
            ),
            looked => Answer::Ready(looked.map_err(|error| LookupError::new(&self.reference(), error))),
        }
    }
}

impl Map for FileMap {
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Looked> {
        if self.is_checked_now() { self.0.get(key) } else { Answer::later(self.check_and_get(key.into())) }
    }

    fn get_owned(&self, key: Box<str>) -> Answer<'_, Looked> {
        if self.is_checked_now() { self.0.get(&key) } else { Answer::later(self.check_and_get(key)) }
    }
}

impl FileMap {
    /// Reads the file now if it has changed, and returns the fault because of which it is not used. Waits for the disk.
    pub fn read_now(&self) -> Option<String> {
        self.0.refresh();
        // The second look takes a file for complete that the first one has seen so.
        self.0.refresh();
        self.fault()
    }

    /// Returns the fault because of which the newest file that was seen is not used.
    pub(crate) fn fault(&self) -> Option<String> {
        self.0.state.read().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }

    /// Returns whether the table in use need not be compared with its file. Outside of a runtime that is done at once.
    fn is_checked_now(&self) -> bool {
        if !self.0.is_check_due() {
            return true;
        }
        let is_outside = Handle::try_current().is_err();
        if is_outside {
            self.0.refresh();
        }
        is_outside
    }

    async fn check_and_get(&self, key: Box<str>) -> Looked {
        let inner = self.0.clone();
        if timeout(TIMEOUT, spawn_blocking(move || inner.refresh())).await.is_err() {
            tracing::warn!("{}: no answer of the disk in {TIMEOUT:?}", self.0.reference());
        }
        self.0.get(&key).wait().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};

    /// Writes a file as another program did some time ago.
    fn write(path: &Path, text: &str, age: Duration) {
        write_at(path, text, SystemTime::now() - age);
    }

    fn write_at(path: &Path, text: &str, time: SystemTime) {
        fs::write(path, text).unwrap();
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_times(FileTimes::new().set_modified(time))
            .unwrap();
    }

    fn get(map: &FileMap, key: &str) -> Result<Option<String>, LookupError> {
        map.get_now(key).map(|value| value.map(String::from))
    }

    fn value(text: &str) -> Result<Option<String>, LookupError> {
        Ok(Some(text.to_owned()))
    }

    const OLD: Duration = Duration::from_secs(60);

    #[test]
    fn a_changed_file_is_read_and_a_bad_one_keeps_the_old_table() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        write(&path, "a 1\n", OLD);
        let map = FileMap::open(Kind::Text, &path);
        assert_eq!(get(&map, "A"), value("1"));
        for (text, now) in
            [("a 2\nb 1\n", "2"), ("a 3\na 4\n", "2"), ("", "2"), ("a 5\n", "5"), ("b 6\na 6", "6")]
        {
            write(&path, text, OLD + Duration::from_secs(text.len() as u64));
            map.0.refresh();
            assert_eq!(get(&map, "a"), value(now), "{text:?}");
        }
        fs::remove_file(&path).unwrap();
        map.0.refresh();
        assert_eq!(get(&map, "a"), value("6"));
        write(&path, "# nothing left\n", OLD);
        map.0.refresh();
        assert_eq!(get(&map, "a"), Ok(None));
    }

    #[test]
    fn a_file_that_is_being_written_counts_when_it_has_not_changed_for_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        write(&path, "a 1\n", OLD);
        let map = FileMap::open(Kind::Text, &path);
        // However late the look at it is.
        write_at(&path, "a 2\n", SystemTime::now() + Duration::from_secs(3600));
        map.0.refresh();
        assert_eq!(get(&map, "a"), value("1"));
        // The next look, a second later, finds the same file.
        map.0.refresh();
        assert_eq!(get(&map, "a"), value("2"));
    }

    #[test]
    fn a_missing_file_is_an_error_until_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        let map = FileMap::open(Kind::Text, &path);
        let error = get(&map, "a").unwrap_err();
        assert!(error.to_string().contains("text:") && error.to_string().contains("No such file"), "{error}");
        assert_eq!(map.fault(), Some(error.to_string()));
        write(&path, "a 1\n", OLD);
        map.0.refresh();
        assert_eq!(get(&map, "a"), value("1"));
        assert_eq!(map.fault(), None);
    }

    #[tokio::test]
    async fn a_look_up_finds_the_change_within_a_second_or_two() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        write(&path, "a 1\n", OLD);
        let map = FileMap::open(Kind::Text, &path);
        map.0.next_check.store(u64::MAX, Ordering::Relaxed);
        assert!(matches!(map.get("a"), Answer::Ready(Ok(Some(_)))), "no look at the file yet");
        write(&path, "a 2\n", OLD / 2);
        map.0.next_check.store(0, Ordering::Relaxed);
        assert_eq!(map.get("a").wait().await.unwrap().as_deref(), Some("2"));
        assert!(map.0.next_check.load(Ordering::Relaxed) >= millis(CHECK_INTERVAL), "one look a second");
    }

    #[tokio::test]
    async fn a_cdb_file_is_replaced_too() {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("map.cdb"), dir.path().join("new.cdb"));
        let create = |path: &Path, value: &str| {
            crate::cdb::Cdb::create(path, &[("a".to_owned(), value.to_owned())]).unwrap();
        };
        create(&path, "1");
        let map = FileMap::open(Kind::Cdb, &path);
        assert_eq!(map.get("A").wait().await.unwrap().as_deref(), Some("1"));
        create(&new, "2");
        fs::rename(&new, &path).unwrap();
        map.0.refresh();
        map.0.refresh();
        assert_eq!(map.get("a").wait().await.unwrap().as_deref(), Some("2"));
        assert_eq!(map.get("b").wait().await, Ok(None));
    }

    #[tokio::test]
    async fn a_cdb_file_that_is_damaged_in_place_fails_until_a_good_one_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (path, new) = (dir.path().join("map.cdb"), dir.path().join("new.cdb"));
        let create = |path: &Path| {
            let pairs: Vec<_> = (0..50).map(|i| (format!("u{i}"), "1".to_owned())).collect();
            crate::cdb::Cdb::create(path, &pairs).unwrap();
        };
        create(&path);
        let map = FileMap::open(Kind::Cdb, &path);
        let whole = fs::read(&path).unwrap();
        let mut zeros = whole.clone();
        zeros[2048..].fill(0);
        for damage in [&zeros[..], &vec![0; whole.len()], &whole[..3000]] {
            write(&path, "", OLD);
            fs::write(&path, damage).unwrap();
            for _ in 0..3 {
                for i in 0..50 {
                    let looked = map.get(&format!("u{i}")).wait().await;
                    assert!(looked.is_err(), "{looked:?}");
                }
                map.0.refresh();
            }
            create(&new);
            fs::rename(&new, &path).unwrap();
            map.0.refresh();
            map.0.refresh();
            assert_eq!(map.get("u7").wait().await.unwrap().as_deref(), Some("1"));
        }
    }
}
