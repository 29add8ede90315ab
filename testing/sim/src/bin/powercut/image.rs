//! The contents of a medium, in pages that copies share until one of them is written.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path, sync::Arc};

/// Size of the unit that a disk writes whole, here: the physical sector of today's.
pub(crate) const PAGE: usize = 4096;

type Page = Option<Arc<[u8; PAGE]>>;

/// The content of a device; clones share their pages.
#[derive(Clone)]
pub(crate) struct Image(Vec<Page>);

impl Image {
    /// Reads a file as the content of a device.
    pub(crate) fn of_file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let count = file.metadata()?.len() / PAGE as u64;
        let page = |n: u64| {
            let mut bytes = [0; PAGE];
            file.read_exact_at(&mut bytes, n * PAGE as u64)?;
            Ok((bytes != [0; PAGE]).then(|| Arc::new(bytes)))
        };
        (0..count).map(page).collect::<io::Result<_>>().map(Self)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        (self.0.len() * PAGE) as u64
    }

    /// Appends what stands there, as far as the medium goes.
    pub(crate) fn read(&self, offset: u64, length: usize, out: &mut Vec<u8>) {
        let end = (offset as usize + length).min(self.0.len() * PAGE);
        let mut at = offset as usize;
        while at < end {
            let (page, from) = (at / PAGE, at % PAGE);
            let count = (PAGE - from).min(end - at);
            match &self.0[page] {
                Some(bytes) => out.extend_from_slice(&bytes[from..from + count]),
                None => out.resize(out.len() + count, 0),
            }
            at += count;
        }
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset as usize;
        let mut rest = bytes;
        while !rest.is_empty() && at < self.0.len() * PAGE {
            let (page, from) = (at / PAGE, at % PAGE);
            let (now, later) = rest.split_at(rest.len().min(PAGE - from));
            let page = self.0[page].get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[from..from + now.len()].copy_from_slice(now);
            at += now.len();
            rest = later;
        }
    }

    /// Takes over the pages that a write touched.
    pub(crate) fn take_over(&mut self, from: &Self, offset: u64, length: usize) {
        let first = offset as usize / PAGE;
        let behind = (offset as usize + length).div_ceil(PAGE).min(self.0.len());
        self.0[first..behind].clone_from_slice(&from.0[first..behind]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_a_copy_stays_there() {
        let mut one = Image(vec![None; 3]);
        one.write(4000, &[1; 200]);
        let mut two = one.clone();
        two.write(4090, &[2; 12]);
        let mut read = Vec::new();
        one.read(4088, 16, &mut read);
        assert_eq!(read, [1; 16]);
        read.clear();
        two.read(4088, 16, &mut read);
        assert_eq!(read, [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1]);
        one.take_over(&two, 4096, 1);
        read.clear();
        one.read(4094, 4, &mut read);
        assert_eq!(read, [1, 1, 2, 2]);
    }
}
