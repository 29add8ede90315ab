//! Passwords in files.

use std::{fs, path::Path};

/// Reads the first line of a file, which is a secret.
///
/// # Errors
/// In words, naming the file: it cannot be read, or the line is empty.
pub fn first_line(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = fs::read(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    text.truncate(text.iter().position(|b| *b == b'\n').unwrap_or(text.len()));
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    if text.is_empty() { Err(format!("read {}: its first line is empty", path.display())) } else { Ok(text) }
}
