//! A file read from front to back in pieces that stay in the processor's cache.

use crate::disk::File;
use std::{io, sync::Arc};

/// Read at once, unless more is asked for.
const PIECE_BYTES: usize = 512 * 1024;

/// Reads a file from front to back, in large pieces.
pub(crate) struct ReadAhead {
    file: Arc<dyn File>,
    /// Nothing behind it is read.
    end: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl ReadAhead {
    /// `buffer` is one that is not needed any more, to save making another.
    pub(crate) fn new(file: Arc<dyn File>, end: u64, mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { file, end, start: 0, bytes: buffer }
    }

    pub(crate) fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Returns `length` bytes from an offset; fewer only where the file ends.
    pub(crate) fn slice(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        self.slice_ahead(at, length, || PIECE_BYTES)
    }

    /// Returns `length` bytes from an offset, as [`ReadAhead::slice`] does. `ahead` returns how many bytes are worth
    /// reading when the file must be read.
    pub(crate) fn slice_ahead(
        &mut self,
        at: u64,
        length: usize,
        ahead: impl FnOnce() -> usize,
    ) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let length = length.min(left);
        let have = at >= self.start && at + length as u64 <= self.start + self.bytes.len() as u64;
        if !have {
            let want = length.max(ahead()).min(left);
            self.bytes.resize(want, 0);
            let read = self.file.read_at(at, &mut self.bytes);
            // After an error nothing of the old piece may be taken for what is there.
            self.bytes.truncate(*read.as_ref().unwrap_or(&0));
            self.start = at;
            read?;
        }
        let from = usize::try_from(at - self.start).unwrap_or(usize::MAX).min(self.bytes.len());
        let to = (from + length).min(self.bytes.len());
        Ok(&self.bytes[from..to])
    }
}

impl ReadAhead {
    /// Reads a piece again, past the page cache, and keeps it in place of what was read before.
    pub(crate) fn refresh(&mut self, at: u64, length: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        self.bytes.resize(length.min(left), 0);
        let read = self.file.read_uncached(at, &mut self.bytes);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        self.start = at;
        read?;
        Ok(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk as _, RealDisk};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slice_is_what_the_file_has_there(asks in prop::collection::vec((0u64..3000, 0usize..2000, 1usize..900), 1..20)) {
            let dir = tempfile::tempdir().unwrap();
            let disk = RealDisk::new(dir.path()).unwrap();
            let file = disk.create("f").unwrap();
            let content: Vec<u8> = (0..2500u32).map(|n| (n * 7 % 251) as u8).collect();
            file.write_at(0, &content).unwrap();
            let mut window = ReadAhead::new(file, 2500, vec![9; 10]);
            for (at, length, ahead) in asks {
                let from = (at as usize).min(content.len());
                let to = (from + length).min(content.len());
                prop_assert_eq!(window.slice_ahead(at, length, || ahead).unwrap(), &content[from..to]);
            }
        }
    }
}
