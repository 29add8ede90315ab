//! One table of any kind, read from a file.

use crate::{
    aliases::{Aliases, Included, Unpermitted},
    cdb::Cdb,
    cidr::CidrTable,
    fault::FileFault,
    file,
    lines::checked_text,
    patterns::Patterns,
    reference::Kind,
    text::TextTable,
};
use std::{
    io::{self, Read as _},
    path::Path,
};

/// Largest file that is read into memory.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Faults of a file that are told at once.
const FAULTS_MAX: usize = 10;

/// Makes comments of a line with a fault, counted from 1, and of the lines that it is continued by. Returns whether there is
/// such a line.
fn without(lines: &mut [String], number: usize) -> bool {
    let continues = |line: &String| line.starts_with([' ', '\t']);
    let Some(at) = number.checked_sub(1).filter(|at| *at < lines.len()) else { return false };
    let first = lines[..=at].iter().rposition(|line| !continues(line)).unwrap_or(at);
    for (index, line) in lines.iter_mut().enumerate().skip(first) {
        if index > at && !continues(line) {
            break;
        }
        line.insert(0, '#');
    }
    true
}

/// What a table is read for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// For its values: any width is permitted.
    Any,
    /// The clients in the table may relay: it is refused if they are half the Internet.
    Relaying,
    /// The values name programs and files: a pattern cannot put text of the address there.
    Aliases,
}

/// A table that was read from a file, by format.
#[derive(Debug)]
pub enum Table {
    /// `text:` and `accounts:`.
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
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or has a fault, which is told with its place.
    pub fn read(kind: Kind, path: &Path) -> Result<Self, FileFault> {
        Self::read_for(Purpose::Any, kind, path)
    }

    /// As [`Self::read`], for a purpose.
    ///
    /// # Errors
    /// Those of [`Self::read`], and content that is dangerous for the purpose.
    pub(crate) fn read_for(purpose: Purpose, kind: Kind, path: &Path) -> Result<Self, FileFault> {
        let failed = |error: io::Error| {
            FileFault::of_file(
                error.to_string(),
                if file::is_no_file(&error) { "name a regular file" } else { "" },
            )
        };
        let file = file::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?;
        if kind == Kind::Cdb {
            return Cdb::open(file).map(Self::Cdb).map_err(failed);
        }
        if length.len() > FILE_BYTES_MAX {
            return Err(FileFault::of_file("larger than 256 MiB", "use a cdb file"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length.len()).unwrap_or(0));
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        match (purpose, kind) {
            (Purpose::Relaying, Kind::Cidr) => {
                CidrTable::parse_for_relaying(checked_text(&bytes)?).map(Self::Cidr)
            }
            (Purpose::Aliases, Kind::Regex) => {
                Patterns::parse_for_aliases(checked_text(&bytes)?).map(Self::Regex)
            }
            _ => Self::parse(kind, checked_text(&bytes)?),
        }
    }

    /// Reads the text of a file of any kind but `cdb`.
    fn parse(kind: Kind, text: &str) -> Result<Self, FileFault> {
        Ok(match kind {
            Kind::Text => Self::Text(TextTable::parse(text)?),
            Kind::Accounts => Self::Text(TextTable::parse_accounts(text)?),
            Kind::Aliases => Self::Aliases(Aliases::parse(text)?),
            Kind::Regex => Self::Regex(Patterns::parse(text)?),
            Kind::Cidr => Self::Cidr(CidrTable::parse(text)?),
            Kind::Cdb => return Err(FileFault::of_file("not a text file", "")),
        })
    }

    /// Returns the faults of a file, at most [`FAULTS_MAX`]: after one, the lines behind it are read.
    pub fn faults(kind: Kind, path: &Path) -> Vec<FileFault> {
        let mut faults = Vec::new();
        let Err(first) = Self::read(kind, path) else { return faults };
        let text = file::read_text(path).ok().filter(|_| kind != Kind::Cdb && first.line > 0);
        let mut line = first.line;
        faults.push(first);
        let mut lines: Vec<String> = text.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
        while faults.len() < FAULTS_MAX && without(&mut lines, line) {
            match Self::parse(kind, &(lines.join("\n") + "\n")) {
                Err(fault) if fault.line > line => {
                    line = fault.line;
                    faults.push(fault);
                }
                _ => break,
            }
        }
        faults
    }

    /// Looks a key up without waiting for a disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if a cdb file has to be read from the disk; other errors of such a file; a key with text that
    /// the value of a pattern cannot have.
    pub fn get(&self, key: &str) -> io::Result<Option<Box<str>>> {
        Ok(match self {
            Self::Text(table) => table.get(key).map(Box::from),
            Self::Aliases(table) => table.get(key).map(Box::from),
            Self::Regex(patterns) => patterns.get(key).map_err(io::Error::other)?.map(Box::from),
            Self::Cidr(table) => table.get(key).map(Box::from),
            Self::Cdb(cdb) => return Ok(cdb.get_cached(&mail::fold(key))?.map(Box::from)),
        })
    }

    /// Looks a key up, and waits for the disk.
    ///
    /// # Errors
    /// Those of a cdb file and of patterns.
    pub fn get_blocking(&self, key: &str) -> io::Result<Option<Box<str>>> {
        match self {
            Self::Cdb(cdb) => Ok(cdb.get(&mail::fold(key))?.map(Box::from)),
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

    /// Returns whether the table has no entry. False if the number is not known.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Files that the targets of aliases include.
    pub fn included(&self) -> &[Included] {
        match self {
            Self::Aliases(table) => table.included(),
            _ => &[],
        }
    }

    /// Entries that are read and not used, with the reason.
    pub fn warnings(&self) -> &[Unpermitted] {
        match self {
            Self::Aliases(table) => table.refused(),
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_a_text_file_needs_no_newline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        for (kind, text, key, value) in [
            (Kind::Text, "a 1\nb 2", "b", "2"),
            (
                Kind::Accounts,
                "root:x:0:0::/root:/bin/sh\njoe:x:1000:1000::/home/joe:/bin/sh",
                "joe",
                "/home/joe",
            ),
            (Kind::Aliases, "a: b\nroot: joe", "root", "joe"),
            (Kind::Aliases, "root: ann,\n joe", "root", "ann, joe"),
            (Kind::Regex, "/a/ 1\n/b/ 2", "b", "2"),
            (Kind::Cidr, "10.0.0.0/8 1\n192.0.2.0/24 2", "192.0.2.1", "2"),
        ] {
            std::fs::write(&path, text).unwrap();
            let found = Table::read(kind, &path).unwrap().get(key).unwrap();
            assert_eq!(found.as_deref(), Some(value), "{kind:?} {text:?}");
            assert_eq!(Table::faults(kind, &path), [], "{text:?}");
        }
    }

    #[test]
    fn the_faults_of_a_file_are_found_together() {
        let dir = tempfile::tempdir().unwrap();
        let places = |kind, text: &str| {
            let path = dir.path().join("map");
            std::fs::write(&path, text).unwrap();
            let faults = Table::faults(kind, &path);
            faults.iter().map(|fault| (fault.line, fault.column)).collect::<Vec<_>>()
        };
        let fifo = dir.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        let [fault] = &Table::faults(Kind::Text, &fifo)[..] else { panic!("one fault") };
        assert!(fault.what.contains("not a file") && fault.help == "name a regular file", "{fault:?}");
        assert_eq!(places(Kind::Text, "a 1\nb 2\n"), []);
        assert_eq!(places(Kind::Text, "a 1\na 2\n 3\n# x\nb 3\nb 4\n"), [(2, 1), (6, 1)]);
        assert_eq!(places(Kind::Cidr, "300.0.0.1 x\n10.0.0.0/8 y\n10.0.0.1/8 z\n"), [(1, 1), (3, 1)]);
        assert_eq!(places(Kind::Regex, "/(/ x\n/a/ y\n/[/ z\n").len(), 2);
        assert_eq!(places(Kind::Text, "a 1\na 2\na 3"), [(2, 1), (3, 1)]);
        assert_eq!(places(Kind::Text, &"a 1\n".repeat(50)).len(), FAULTS_MAX);
        assert_eq!(places(Kind::Cdb, "x"), [(0, 0)]);
    }
}
