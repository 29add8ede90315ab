//! One table of any kind, read from a file.

use crate::{
    aliases::{Aliases, Unpermitted},
    cdb::Cdb,
    cidr::CidrTable,
    fault::FileFault,
    lines::complete_text,
    patterns::Patterns,
    reference::Kind,
    text::TextTable,
};
use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// Largest file that is read into memory.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// The table of a file.
#[derive(Debug)]
pub enum Table {
    /// `text:`.
    Text(TextTable),
    /// `aliases:`.
    Aliases(Aliases),
    /// `regex:`.
    Regex(Patterns),
    /// `cidr:`.
    Cidr(CidrTable),
    /// `cdb:`.
    Cdb(Cdb),
}

impl Table {
    /// Reads a file. A text file must end with a newline: the end of a file that is being written may be missing.
    ///
    /// # Errors
    /// The file cannot be read, or has a fault, which is told with its place.
    pub fn read(kind: Kind, path: &Path) -> Result<Self, FileFault> {
        let failed = |error: io::Error| FileFault::of_file(error.to_string(), "");
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?;
        if !length.is_file() {
            return Err(FileFault::of_file("not a file", "name a regular file"));
        }
        if kind == Kind::Cdb {
            return Cdb::open(file).map(Self::Cdb).map_err(failed);
        }
        if length.len() > FILE_BYTES_MAX {
            return Err(FileFault::of_file("larger than 256 MiB", "use a cdb file"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length.len()).unwrap_or(0));
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(kind, complete_text(&bytes)?)
    }

    /// Reads the text of a file of any kind but `cdb`.
    fn parse(kind: Kind, text: &str) -> Result<Self, FileFault> {
        Ok(match kind {
            Kind::Text => Self::Text(TextTable::parse(text)?),
            Kind::Aliases => Self::Aliases(Aliases::parse(text)?),
            Kind::Regex => Self::Regex(Patterns::parse(text)?),
            Kind::Cidr => Self::Cidr(CidrTable::parse(text)?),
            Kind::Cdb => return Err(FileFault::of_file("not a text file", "")),
        })
    }

    /// Looks a key up without waiting for a disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if a cdb file has to be read from the disk; other errors of such a file.
    pub fn get(&self, key: &str) -> io::Result<Option<Box<str>>> {
        Ok(match self {
            Self::Text(table) => table.get(key).map(Box::from),
            Self::Aliases(table) => table.get(key).map(Box::from),
            Self::Regex(patterns) => patterns.get(key).map(Box::from),
            Self::Cidr(table) => table.get(key).map(Box::from),
            Self::Cdb(cdb) => return Ok(cdb.get_cached(&crate::text::fold(key))?.map(Box::from)),
        })
    }

    /// Looks a key up, and waits for the disk.
    ///
    /// # Errors
    /// Those of a cdb file.
    pub fn get_blocking(&self, key: &str) -> io::Result<Option<Box<str>>> {
        match self {
            Self::Cdb(cdb) => Ok(cdb.get(&crate::text::fold(key))?.map(Box::from)),
            table => table.get(key),
        }
    }

    /// Number of entries; none for a cdb file, which does not say it.
    pub fn len(&self) -> Option<usize> {
        match self {
            Self::Text(table) => Some(table.len()),
            Self::Aliases(table) => Some(table.len()),
            Self::Regex(patterns) => Some(patterns.len()),
            Self::Cidr(table) => Some(table.len()),
            Self::Cdb(_) => None,
        }
    }

    /// Returns whether the table is as it was read: a cdb file could be overwritten meanwhile.
    pub(crate) fn is_intact(&self) -> bool {
        match self {
            Self::Cdb(cdb) => cdb.is_unchanged(),
            _ => true,
        }
    }

    /// No entries?
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Entries that are read and not used, with the reason.
    pub fn warnings(&self) -> &[Unpermitted] {
        match self {
            Self::Aliases(table) => table.refused(),
            _ => &[],
        }
    }
}
