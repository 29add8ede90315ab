//! What checks remember from one start to the next, each in a file of its own in `data_dir`.

use config::{read_state_file, write_state_file};
use std::{
    io,
    path::{Path, PathBuf},
};

/// A table in `data_dir` that outlives a restart.
pub(super) struct KeptFile {
    data_dir: PathBuf,
    name: &'static str,
    /// What is lost with the file, for the log.
    loss: &'static str,
}

impl KeptFile {
    pub(super) fn new(data_dir: &Path, name: &'static str, loss: &'static str) -> Self {
        Self { data_dir: data_dir.to_owned(), name, loss }
    }

    fn path(&self) -> PathBuf {
        self.data_dir.join(self.name)
    }

    /// Reads the table of an earlier start. Without a file, or from a damaged one, there is none.
    pub(super) fn read<T>(&self, table: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
        let why = match read_state_file(&self.data_dir, &self.path()) {
            Ok(bytes) => match table(&bytes) {
                Some(table) => return Some(table),
                None => "it is damaged, or of a later time".to_owned(),
            },
            // A command of another user may not read it.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                return None;
            }
            Err(error) => error.to_string(),
        };
        tracing::warn!("read {}: {why}: {}", self.path().display(), self.loss);
        None
    }

    /// Replaces the table in the file.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<()> {
        write_state_file(&self.data_dir, self.name, bytes)
    }
}
