//! Reading past what a disk cannot read: the rest of a segment is as good as ever.

use crate::{disk::File, format::block::ALIGN};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What a block that cannot be read is filled with: it passes for no checksum, and not for unused.
const UNREADABLE: u8 = 0xa5;

/// A file in which a block that cannot be read is damage like any other.
pub(crate) struct Patient {
    file: Arc<dyn File>,
    /// That was told.
    is_told: AtomicBool,
}

impl Patient {
    pub(crate) fn over(file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(Self { file, is_told: AtomicBool::new(false) })
    }

    fn tell(&self, offset: u64, error: &io::Error) {
        if !self.is_told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "read the log at {offset} of a segment: {error}: what stands there is passed over"
            );
        }
    }
}

impl File for Patient {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self.file.read_at(offset, buffer) {
            Err(error) => self.tell(offset, &error),
            read => return read,
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let block = ALIGN - (at % ALIGN as u64) as usize;
            let end = buffer.len().min(done + block);
            match self.file.read_at(at, &mut buffer[done..end]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) => {
                    buffer[done..end].fill(UNREADABLE);
                    done = end;
                }
            }
        }
        Ok(done)
    }

    fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_cached(offset, buffer)
    }

    fn will_read(&self, from: u64, length: u64) {
        self.file.will_read(from, length);
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.write_zeros(offset, length)
    }

    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.fill(offset, length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
