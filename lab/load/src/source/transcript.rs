//! Transcripts of conversations: on standard error, or in files.

use std::{
    fs::File,
    io::Write as _,
    os::fd::AsFd as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// Files that get everything that one connection sends and receives.
pub(crate) type TranscriptSinks = Vec<Arc<File>>;

/// Places that the transcript of a session is written to.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    all: TranscriptSinks,
    /// A file of its own for each connection: this name with a number behind it.
    each: Option<PathBuf>,
    next: AtomicU64,
}

impl Transcript {
    /// To standard error, if `shows`; into the file `all`; with `each`, also into one for each connection.
    pub(crate) fn new(shows: bool, all: Option<PathBuf>, each: bool) -> Result<Self, String> {
        let mut sinks = TranscriptSinks::new();
        if shows {
            let copy = std::io::stderr().as_fd().try_clone_to_owned();
            sinks.push(Arc::new(copy.map_err(|e| format!("copy standard error: {e}"))?.into()));
        }
        if let Some(path) = &all {
            let file = File::create(path).map_err(|e| format!("write {}: {e}", path.display()))?;
            sinks.push(Arc::new(file));
        }
        Ok(Self { all: sinks, each: all.filter(|_| each), next: AtomicU64::new(0) })
    }

    /// For a new connection.
    pub(crate) fn sinks(&self) -> TranscriptSinks {
        let mut sinks = self.all.clone();
        if let Some(path) = &self.each {
            let mut name = path.clone().into_os_string();
            name.push(format!(":{}", self.next.fetch_add(1, Relaxed)));
            // The file of all of them has it too, if this one cannot be made.
            sinks.extend(File::create(name).ok().map(Arc::new));
        }
        sinks
    }
}

/// Shows one side's octets.
pub(crate) fn show(sinks: &TranscriptSinks, side: &str, bytes: &[u8]) {
    if sinks.is_empty() {
        return;
    }
    let text: String =
        String::from_utf8_lossy(bytes).lines().map(|line| format!("{side} {line}\n")).collect();
    for mut ear in sinks.iter().map(AsRef::as_ref) {
        // Nothing can be done where nobody can read it.
        let _ = ear.write_all(text.as_bytes());
    }
}
