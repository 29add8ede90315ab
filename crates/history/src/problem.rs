//! Files of the history that cannot be used as a whole.

use std::{fmt, io};

/// A file that could not be read, or a part of it that is damaged. All others are read nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// The system could not read the file.
    Unreadable {
        /// File name in the history's directory.
        file: String,
        /// As the system says it.
        error: String,
    },
    /// A checksum does not match, or a part is missing.
    Damaged {
        /// File name in the history's directory.
        file: String,
        /// The damaged part, or what is wrong, such as `its end is missing`.
        part: &'static str,
    },
    /// The segment has a format of a later version.
    Unknown {
        /// File name in the history's directory.
        file: String,
        /// The version that the file says it has.
        version: u16,
    },
}

impl Problem {
    pub(crate) fn io(file: &str, error: &io::Error) -> Self {
        // The file is shorter than what was written says.
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Self::damaged(file, "its end is missing");
        }
        Self::Unreadable { file: file.to_owned(), error: error.to_string() }
    }

    pub(crate) fn damaged(file: &str, part: &'static str) -> Self {
        Self::Damaged { file: file.to_owned(), part }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { file, error } => write!(f, "read the history file {file}: {error}"),
            Self::Damaged { file, part } => write!(f, "the history file {file} is damaged: {part}"),
            Self::Unknown { file, version } => {
                write!(f, "the history file {file} has format {version}, which a later version writes")
            }
        }
    }
}
