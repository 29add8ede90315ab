//! Passwords in files.

use crate::file::read_file;
use std::path::Path;

/// Reads the first line of a file, which is a secret.
///
/// # Errors
/// In words, naming the file: it cannot be read, or the line is empty.
pub fn first_line(path: &Path) -> Result<Vec<u8>, String> {
    let mut text = read_file(path).map_err(|e| format!("read {}: {e}", path.display()))?;
    // Some editors write a byte order mark.
    if text.starts_with(b"\xef\xbb\xbf") {
        text.drain(..3);
    }
    text.truncate(text.iter().position(|b| *b == b'\n').unwrap_or(text.len()));
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    if text.is_empty() { Err(format!("read {}: its first line is empty", path.display())) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_secret_has_no_byte_order_mark_and_no_line_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        for (content, secret) in [
            (&b"pw x\n"[..], Some(&b"pw x"[..])),
            (b"pw", Some(b"pw")),
            (b"\xef\xbb\xbfpw\r\nmore\n", Some(b"pw")),
            (b"\xef\xbb\xbf\n", None),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(first_line(&path).ok().as_deref(), secret);
        }
    }
}
