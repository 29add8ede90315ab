//! Faults of a map's file, with their place.

use std::fmt;

/// A fault in a file, for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// The line, from 1; 0 when the fault has no place.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right; may be empty.
    pub help: String,
}

impl FileFault {
    /// Returns a fault of the file as a whole.
    pub(crate) fn of_file(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { line: 0, column: 0, what: what.into(), help: help.into() }
    }

    /// Returns a fault with line and column of this octet.
    pub(crate) fn at(text: &str, at: usize, what: impl Into<String>, help: impl Into<String>) -> Self {
        let (line, column) = rewrite::line_and_column(text, at);
        Self { line, column, what: what.into(), help: help.into() }
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        f.write_str(&self.what)?;
        if self.help.is_empty() { Ok(()) } else { write!(f, "; {}", self.help) }
    }
}

impl std::error::Error for FileFault {}
