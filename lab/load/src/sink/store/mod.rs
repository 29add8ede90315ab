//! `--store`: what a message is kept in before the sink replies 250.
//!
//! A [`Store`] begins to keep a message and returns a [`Stored`], which resolves once the message would survive a power
//! cut. Models that may block wait for it; the others go on with other sessions.

mod files;
mod log;

use bytes::Bytes;
use clap::ValueEnum;
use mail::Envelope;
use measure::scratch::Scratch;
use spool::{DiskCallCounter, DiskCalls};
use std::{
    path::Path,
    pin::Pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum StoreKind {
    /// Messages are discarded
    #[default]
    None,
    /// A file for each message; the file and its directory are synced
    Files,
    /// Postrider's spool log, with group commit
    Log,
}

/// How the directories of `--store files` are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Files are spread over so many directories by a hash of their names.
    directory_count: u32,
}

/// More directories than that are a mistake: each stays open.
const DIRECTORIES_MAX: u32 = 10_000;

impl Layout {
    /// Everything in one directory.
    pub(crate) const FLAT: Self = Self { directory_count: 1 };

    /// Reads `flat` or `hashed:COUNT`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "flat" {
            return Ok(Self::FLAT);
        }
        let count = text.strip_prefix("hashed:").and_then(|count| count.parse().ok());
        match count {
            Some(directory_count @ 2..=DIRECTORIES_MAX) => Ok(Self { directory_count }),
            _ => Err(format!("write flat, or hashed:COUNT with 2 to {DIRECTORIES_MAX} directories")),
        }
    }
}

/// Resolves once a message is durable; an error says why it is not.
pub(crate) type Stored = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What a store has done for its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct StoreCounts {
    /// Messages that are durable.
    pub stored: u64,
    /// Messages that could not be stored, and were replied to with 451.
    pub failed: u64,
    /// Commits: of the log those of several messages together, of files one for each message.
    pub commits: u64,
    /// Syncs of files, those that prepare a segment of the log included.
    pub file_syncs: u64,
    /// Syncs of directories, so that names of files are durable.
    pub directory_syncs: u64,
    /// Writes to files.
    pub writes: u64,
}

impl StoreCounts {
    /// Returns the counts since an earlier moment.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            stored: self.stored - earlier.stored,
            failed: self.failed - earlier.failed,
            commits: self.commits - earlier.commits,
            file_syncs: self.file_syncs - earlier.file_syncs,
            directory_syncs: self.directory_syncs - earlier.directory_syncs,
            writes: self.writes - earlier.writes,
        }
    }

    /// Returns the counts in a sentence.
    pub(crate) fn text(&self) -> String {
        let each = |count: u64| count as f64 / self.stored.max(1) as f64;
        format!(
            "{} messages stored with {} commits ({:.1} messages each), {} syncs of files and {} of directories \
             ({:.3} syncs a message), {} writes; {} not stored",
            self.stored,
            self.commits,
            self.stored as f64 / self.commits.max(1) as f64,
            self.file_syncs,
            self.directory_syncs,
            each(self.syncs()),
            self.writes,
            self.failed,
        )
    }

    /// Returns syncs of files and directories.
    pub fn syncs(&self) -> u64 {
        self.file_syncs + self.directory_syncs
    }
}

/// Keeps messages in a directory of its own.
pub(crate) struct Store {
    backend: Backend,
    calls: DiskCallCounter,
    /// Calls that opened the store: the log prepares its first segments.
    opening: DiskCalls,
    stored: AtomicU64,
    failed: AtomicU64,
    /// Removed with the store.
    scratch: Mutex<Option<Scratch>>,
}

enum Backend {
    Files(files::Files),
    Log(log::Log),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens a store in a new directory inside `parent`, which is removed by [`Store::close`].
    ///
    /// # Errors
    /// The directory cannot be made, or the log not be opened.
    pub(crate) fn open(
        kind: StoreKind,
        layout: Layout,
        writers: Option<u16>,
        parent: &Path,
    ) -> Result<Option<Self>, String> {
        if kind == StoreKind::None {
            return Ok(None);
        }
        let scratch = Scratch::without_signals(parent)?;
        let calls = DiskCallCounter::default();
        let backend = match kind {
            StoreKind::Log => Backend::Log(log::Log::open(&scratch.path().join("log"), &calls)?),
            _ => Backend::Files(files::Files::open(scratch.path(), layout.directory_count, writers, &calls)?),
        };
        let (stored, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let opening = calls.calls();
        Ok(Some(Self { backend, calls, opening, stored, failed, scratch: Mutex::new(Some(scratch)) }))
    }

    /// Begins to store a message. With `may_block`, files are written before this returns.
    pub(crate) fn store(&self, envelope: Envelope, content: Bytes, may_block: bool) -> Stored {
        match &self.backend {
            Backend::Files(files) => files.store(&envelope, &content, may_block),
            Backend::Log(log) => log.store(envelope, content),
        }
    }

    /// Counts the end of an attempt to store a message.
    pub(crate) fn note(&self, result: &Result<(), String>) {
        let counter = if result.is_ok() { &self.stored } else { &self.failed };
        // The first failure is enough to read; all are counted.
        if let Err(error) = result
            && self.failed.load(Relaxed) == 0
        {
            eprintln!("postlab: {error}");
        }
        counter.fetch_add(1, Relaxed);
    }

    /// Returns what the store did since it was opened.
    pub(crate) fn counts(&self) -> StoreCounts {
        let calls = self.calls.calls().since(self.opening);
        let stored = self.stored.load(Relaxed);
        StoreCounts {
            stored,
            failed: self.failed.load(Relaxed),
            commits: match &self.backend {
                Backend::Files(_) => stored,
                Backend::Log(log) => log.commit_count(),
            },
            file_syncs: calls.file_syncs,
            directory_syncs: calls.directory_syncs,
            writes: calls.writes,
        }
    }

    /// Ends the store and removes its directory.
    pub(crate) fn close(&self) {
        if let Backend::Log(log) = &self.backend {
            log.close();
        }
        drop(self.scratch.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope() -> Envelope {
        let mut envelope = Envelope::new(mail::ReversePath::parse("a@b.test", false).unwrap());
        envelope.recipients.push(mail::Recipient::new(mail::ForwardPath::parse("c@d.test", false).unwrap()));
        envelope
    }

    fn keep(store: &Store, text: &'static str) {
        let result = spool::block_on(store.store(envelope(), Bytes::from_static(text.as_bytes()), true));
        store.note(&result);
        result.unwrap();
    }

    #[test]
    fn a_layout_is_flat_or_hashed() {
        assert_eq!(Layout::parse("flat"), Ok(Layout::FLAT));
        assert_eq!(Layout::parse("hashed:16"), Ok(Layout { directory_count: 16 }));
        for bad in ["", "hashed", "hashed:1", "hashed:x", "hashed:10001", "Flat"] {
            assert!(Layout::parse(bad).unwrap_err().contains("hashed:COUNT"), "{bad}");
        }
    }

    #[test]
    fn files_are_synced_with_their_directory_and_hashed_over_all() {
        let parent = tempfile::tempdir().unwrap();
        let store = Store::open(StoreKind::Files, Layout::parse("hashed:4").unwrap(), None, parent.path());
        let store = store.unwrap().unwrap();
        (0..100).for_each(|_| keep(&store, "Subject: x\r\n\r\nbody\r\n"));
        let counts = store.counts();
        assert_eq!((counts.stored, counts.commits, counts.writes), (100, 100, 100));
        assert_eq!((counts.file_syncs, counts.directory_syncs), (100, 100));
        let scratch = std::fs::read_dir(parent.path()).unwrap().next().unwrap().unwrap().path();
        let files = std::fs::read_dir(&scratch).unwrap().map(|dir| {
            let files = std::fs::read_dir(dir.unwrap().path()).unwrap();
            files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect::<Vec<_>>()
        });
        let files: Vec<Vec<String>> = files.collect();
        assert_eq!((files.len(), files.iter().flatten().count()), (4, 100));
        assert!(files.iter().all(|dir| dir.len() > 5), "each directory has its share");
        let text = &files[0][0];
        assert_eq!(text, "MAIL FROM:<a@b.test>\nRCPT TO:<c@d.test>\n\nSubject: x\r\n\r\nbody\r\n");
        store.close();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "nothing stays behind");
    }

    #[test]
    fn messages_that_come_together_share_a_commit_of_the_log() {
        let parent = tempfile::tempdir().unwrap();
        let store = Store::open(StoreKind::Log, Layout::FLAT, None, parent.path()).unwrap().unwrap();
        let waiting: Vec<Stored> =
            (0..50).map(|_| store.store(envelope(), Bytes::from_static(b"x\r\n"), false)).collect();
        for one in waiting {
            let result = spool::block_on(one);
            store.note(&result);
            result.unwrap();
        }
        let counts = store.counts();
        assert_eq!(counts.stored, 50);
        assert!((1..=3).contains(&counts.commits), "{counts:?}");
        store.close();
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0, "nothing stays behind");
    }

    #[test]
    fn a_message_that_cannot_be_written_is_an_error_with_its_reason() {
        let parent = tempfile::tempdir().unwrap();
        let store = Store::open(StoreKind::Log, Layout::FLAT, None, parent.path()).unwrap().unwrap();
        store.close();
        let error = spool::block_on(store.store(envelope(), Bytes::from_static(b"x"), false)).unwrap_err();
        assert_eq!(error, "store a message in the log: the spool failed and stopped");
    }
}
