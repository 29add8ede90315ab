//! Faults of a map's file, with their place.

use std::fmt;

/// A fault in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// The line, from 1; 0 when the fault has no place.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The fault.
    pub what: String,
    /// The correct form; may be empty.
    pub help: String,
}

impl FileFault {
    /// A fault without a place.
    pub(crate) fn of_file(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { line: 0, column: 0, what: what.into(), help: help.into() }
    }

    /// A fault at this byte of a text.
    pub(crate) fn at(text: &str, at: usize, what: impl Into<String>, help: impl Into<String>) -> Self {
        let mut at = at.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            what: what.into(),
            help: help.into(),
        }
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
