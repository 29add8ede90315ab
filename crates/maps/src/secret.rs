//! Passwords in files and in the environment.

use crate::file::read_file;
use std::path::{Path, PathBuf};

/// Where a secret is read from, so that the configuration need not contain it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// The first line of the file, without its end.
    File(PathBuf),
    /// The value of an environment variable.
    Environment(String),
}

impl SecretPlace {
    /// Reads the secret.
    ///
    /// # Errors
    /// The secret is missing, unreadable or empty; the text names the file or the variable.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => first_line(path),
            Self::Environment(name) => match std::env::var_os(name) {
                Some(value) if !value.is_empty() => Ok(value.into_encoded_bytes()),
                Some(_) => Err(format!("the environment variable {name} is empty")),
                None => Err(format!("there is no environment variable {name}")),
            },
        }
    }
}

/// Reads the first line of a file, which is a secret.
///
/// # Errors
/// The file cannot be read, or the line is empty; the text names the file.
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
    fn a_secret_of_the_environment_is_there_and_not_empty() {
        // A test cannot set a variable without `unsafe`; PATH is there however the test is started.
        let path = std::env::var_os("PATH").unwrap().into_encoded_bytes();
        let read = |name: &str| SecretPlace::Environment(name.to_owned()).read();
        assert_eq!(read("PATH").unwrap(), path);
        assert_eq!(read("POSTRIDER_NONE").unwrap_err(), "there is no environment variable POSTRIDER_NONE");
    }

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
