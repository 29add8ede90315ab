//! A map in Berkeley DB, which looks up in the process that asks.

use crate::berkeley::{Driver, is_missing};
use std::{ffi::OsStr, fmt::Write as _, io, path::Path};

/// The process that looks up. The call from Python is a part of each lookup.
pub(super) struct Berkeley(Driver);

impl Berkeley {
    /// Makes the map and hands `keys` to the process, which looks all of them up in each round; nothing where
    /// Berkeley DB is not installed.
    pub(super) fn create(path: &Path, pairs: &[(String, String)], keys: &[&str]) -> io::Result<Option<Self>> {
        let count = pairs.len().to_string();
        let mut driver =
            match Driver::start(include_str!("berkeley.py"), &[path.as_os_str(), OsStr::new(&count)]) {
                Ok(driver) => driver,
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) => return Err(io::Error::other(error)),
            };
        let mut lines = String::new();
        for (key, value) in pairs {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{key} {value}");
        }
        for key in keys {
            let _ = writeln!(lines, "{key}");
        }
        driver.ask(&lines).map_err(io::Error::other)?;
        Ok(Some(Self(driver)))
    }

    /// Looks all keys up; how many were there.
    pub(super) fn get_all(&mut self) -> io::Result<usize> {
        let answer = self.0.ask("again").map_err(io::Error::other)?;
        answer.parse().map_err(|_| io::Error::other(format!("Berkeley DB answered `{answer}`")))
    }
}
