//! The destinations that cannot be reached, in a file: after a restart `down since` goes on from there. Without the file a
//! destination is down since its first failure after the start.

use mail::UnixMillis;
use report::{Event, Sink, UnixMicros};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// In `data_dir`.
const FILE: &str = "unreachable.json";
/// The file is written no more often.
const INTERVAL: Duration = Duration::from_secs(1);
/// Destinations that the file keeps.
const DESTINATIONS_MAX: usize = 10_000;
/// A destination that was not tried for so long is not kept: most have no mail any more.
const KEPT: Duration = Duration::from_hours(30 * 24);

/// Since when a destination could not be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outage {
    /// Since then, in Unix milliseconds.
    pub(super) since_ms: u64,
    /// When the last attempt failed, in Unix milliseconds.
    pub(super) failed_ms: u64,
    /// The outcome of that attempt.
    #[serde(default = "unknown_reason")]
    pub(super) reason: Box<str>,
}

/// The reason of a file that has none, because an older version wrote it.
fn unknown_reason() -> Box<str> {
    "it could not be reached before the last start".into()
}

type Outages = BTreeMap<String, Outage>;

/// Reads the file of an earlier start. A file that is missing or damaged costs the times, and nothing else.
pub(super) fn load(data_dir: &Path) -> Outages {
    let path = data_dir.join(FILE);
    let read =
        || -> io::Result<Outages> { Ok(serde_json::from_slice(&config::read_state_file(data_dir, &path)?)?) };
    read().unwrap_or_else(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!("read {}: {error}: \"down since\" begins anew", path.display());
        }
        Outages::new()
    })
}

/// Follows the events, and keeps the file.
pub(super) struct OutageFile {
    data_dir: PathBuf,
    outages: Outages,
    is_changed: bool,
    written: Option<Instant>,
}

impl OutageFile {
    pub(super) fn new(data_dir: &Path) -> Self {
        let outages = load(data_dir);
        Self { data_dir: data_dir.to_owned(), outages, is_changed: false, written: None }
    }

    fn write_file(&mut self, now: UnixMillis) -> io::Result<()> {
        self.outages.retain(|_, outage| now.since(UnixMillis(outage.failed_ms)) <= KEPT);
        config::write_state_file(&self.data_dir, FILE, &serde_json::to_vec(&self.outages)?)
    }
}

impl Sink for OutageFile {
    fn write(&mut self, at: UnixMicros, event: &Event<'_>) {
        let at_ms = at.millis().0;
        match event {
            Event::Suspended { destination, reason, since, .. } => {
                let outage = Outage { since_ms: since.0, failed_ms: at_ms, reason: (*reason).into() };
                if let Some(known) = self.outages.get_mut(*destination) {
                    *known = outage;
                } else if self.outages.len() < DESTINATIONS_MAX {
                    self.outages.insert((*destination).to_owned(), outage);
                }
                self.is_changed = true;
            }
            Event::Resumed { destination } => self.is_changed |= self.outages.remove(*destination).is_some(),
            _ => {}
        }
    }

    fn flush(&mut self) -> bool {
        if self.is_changed && self.written.is_none_or(|at| at.elapsed() >= INTERVAL) {
            (self.is_changed, self.written) = (false, Some(Instant::now()));
            if let Err(error) = self.write_file(UnixMillis::now()) {
                tracing::warn!("write {FILE} in {}: {error}", self.data_dir.display());
            }
        }
        self.is_changed
    }
}

impl Drop for OutageFile {
    fn drop(&mut self) {
        self.written = None;
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_is_no_file_of_the_daemon_costs_the_times_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let text = r#"{"b.test":{"since_ms":1,"failed_ms":2}}"#;
        fs::write(&path, text).unwrap();
        assert_eq!(
            load(dir.path())["b.test"],
            Outage { since_ms: 1, failed_ms: 2, reason: unknown_reason() }
        );
        fs::rename(&path, dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(load(dir.path()).is_empty());
        fs::remove_file(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(load(dir.path()).is_empty());
    }
}
