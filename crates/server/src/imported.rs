//! The list of messages that were imported from another server's queue: `imported` in `data_dir`.
//!
//! A message is in the spool before it is in the list, and its origin names it. Whoever opens the spool for delivery adds
//! the messages of the spool to the list first. So a message leaves the spool only after the list has it, and no second
//! import adds it again, whenever a process was killed.

use mail::Origin;
use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The beginning of the origin of an imported message.
const ORIGIN: &str = "import ";
/// No list is larger.
const LIST_BYTES_MAX: u64 = 1 << 30;

/// Returns the origin of a message with this key: `postfix 4Fx… 1700000000.000042`.
pub fn origin(key: &str) -> Origin {
    Origin::Other(format!("{ORIGIN}{key}").into())
}

/// Returns the key of a message that was imported.
pub fn key_of(origin: &Origin) -> Option<&str> {
    match origin {
        Origin::Other(text) => text.strip_prefix(ORIGIN),
        _ => None,
    }
}

/// The list, with what it had when it was opened and what was added.
#[derive(Debug)]
pub struct ImportList {
    path: PathBuf,
    known: HashSet<String>,
    /// The last line is not whole: a write was cut off.
    has_torn_line: bool,
    file: Option<File>,
}

impl ImportList {
    /// Reads the list of a data directory; one that does not exist is empty.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn open(data_dir: &Path) -> io::Result<Self> {
        let path = data_dir.join("imported");
        let text = match config::read_regular_file(&path, LIST_BYTES_MAX) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let known = text[..whole].lines().map(str::to_owned).collect();
        Ok(Self { path, known, has_torn_line: whole < text.len(), file: None })
    }

    /// Returns whether the message with this key was imported before.
    pub fn contains(&self, key: &str) -> bool {
        self.known.contains(key)
    }

    /// Adds keys; they are durable when this returns.
    ///
    /// # Errors
    /// The list cannot be written.
    pub fn add(&mut self, keys: impl IntoIterator<Item = String>) -> io::Result<()> {
        let mut text = String::new();
        for key in keys {
            if !self.known.contains(&key) {
                text.push_str(&key);
                text.push('\n');
                self.known.insert(key);
            }
        }
        if text.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.has_torn_line) {
            text.insert(0, '\n');
        }
        if self.file.is_none() {
            self.file = Some(OpenOptions::new().create(true).append(true).open(&self.path)?);
            if let Some(dir) = self.path.parent() {
                File::open(dir)?.sync_all()?;
            }
        }
        if let Some(file) = &mut self.file {
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
        }
        Ok(())
    }
}

/// Adds the imported messages that a recovery has found, before any of them can leave.
///
/// # Errors
/// The list cannot be read or written, in words.
pub fn note_recovered(data_dir: &Path, keys: Vec<String>) -> Result<(), String> {
    if keys.is_empty() {
        return Ok(());
    }
    let noted = ImportList::open(data_dir).and_then(|mut list| list.add(keys));
    noted.map_err(|error| format!("write {}: {error}", data_dir.join("imported").display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_and_a_torn_line_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut list = ImportList::open(dir.path()).unwrap();
        list.add(["postfix A 1.000001".to_owned(), "postfix A 1.000001".to_owned()]).unwrap();
        let path = dir.path().join("imported");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "postfix A 1.000001\n");
        std::fs::write(&path, "postfix A 1.000001\npostfix B 1.0").unwrap();
        let mut list = ImportList::open(dir.path()).unwrap();
        assert!(list.contains("postfix A 1.000001") && !list.contains("postfix B 1.0"));
        list.add(["postfix C 2.000000".to_owned()]).unwrap();
        let list = ImportList::open(dir.path()).unwrap();
        assert!(list.contains("postfix A 1.000001") && list.contains("postfix C 2.000000"));
    }

    #[test]
    fn a_list_that_is_no_file_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("imported"), rustix::fs::Mode::RWXU).unwrap();
        let error = ImportList::open(dir.path()).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }

    #[test]
    fn the_origin_of_an_imported_message_has_its_key() {
        let origin = origin("exim 1abc 5.000000");
        assert_eq!(key_of(&Origin::parse(&origin.to_string())), Some("exim 1abc 5.000000"));
        assert_eq!(key_of(&Origin::Dsn), None);
    }
}
