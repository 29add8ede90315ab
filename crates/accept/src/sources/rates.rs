//! How much was used of limits, in memory and in a file.

use super::kept::KeptFile;
use crate::logins::random;
use limits::{Spent, Table};
use policy::Limit;
use std::{
    io,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// In `data_dir`.
const FILE: &str = "limits";
/// Keys of all limits together that are kept, of 16 bytes each. The file may have 16 MiB.
const KEYS_MAX: usize = 1_000_000;

/// The state of all limits. It outlives a reload of the configuration.
pub(crate) struct RateTable {
    table: Mutex<Table>,
    /// In nanoseconds since 1970: the clock of the table goes on from there, and never back.
    started_ns: u64,
    started: Instant,
    file: KeptFile,
}

impl RateTable {
    /// Reads the file of an earlier start, if there are limits. Without it, nothing is used.
    pub(crate) fn open(data_dir: &Path, has_limits: bool) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let file = KeptFile::new(data_dir, FILE, "limits begin anew");
        let read = || file.read(|bytes| Table::from_bytes(bytes, KEYS_MAX, started_ns));
        let table = has_limits.then(read).flatten();
        let table = Mutex::new(table.unwrap_or_else(|| Table::new(random(), KEYS_MAX)));
        Self { table, started_ns, started: Instant::now(), file }
    }

    fn now(&self) -> u64 {
        let since = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.started_ns.saturating_add(since)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the limit is exceeded; nothing is spent then.
    pub(crate) fn spend(&self, limit: &Limit, key: &str, amount: u64) -> bool {
        let now = self.now();
        let key = (&limit.name, limit.per as u8, limit.measure as u8, key);
        match self.table().spend(&key, limit.rate, amount, now) {
            Spent::Within => false,
            Spent::Over(_) => true,
            Spent::Full => {
                tracing::warn!("{}: more than {KEYS_MAX} keys of limits are in use", limit.name);
                false
            }
        }
    }

    pub(crate) fn is_over(&self, limit: &Limit, key: &str) -> bool {
        let now = self.now();
        self.table().is_over(&(&limit.name, limit.per as u8, limit.measure as u8, key), limit.rate, 1, now)
    }

    /// Writes the file if something has changed. Waits for the disk.
    pub(super) fn save(&self) -> io::Result<()> {
        let now = self.now();
        let Some(bytes) = self.table().changed_bytes(now) else { return Ok(()) };
        self.file.write(&bytes).inspect_err(|_| self.table().note_change())
    }
}
