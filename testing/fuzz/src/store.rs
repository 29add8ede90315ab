//! Reading from a disk that anybody may have written to.

use spool::{
    LogSettings, LogSpool, Spool as _, WorkStep,
    disk::{Disk, File},
};
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex},
};

/// Small, so that a few records fill it.
const SEGMENT_BYTES: usize = 64 * 1024;

/// Batches, records and their bodies, one by one.
pub fn spool_format(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    spool::fuzz::framing(bytes, u64::from(*choice) * 4096, u64::from(*choice));
    spool::fuzz::batch(&records(bytes), 4096, u64::from(*choice));
    spool::fuzz::bodies(bytes);
    spool::fuzz::bodies(&mostly_right(bytes));
}

/// A digest: bytes as they are, and rows that are mostly right.
pub fn spool_digest(bytes: &[u8]) {
    let [batches, rows, rest @ ..] = bytes else { return };
    let (batches, rows) = (u32::from(*batches % 8), u32::from(*rows % 8));
    spool::fuzz::index_file(rest, batches, rows);
    // Counts, kinds and chunk ids that mean something; the rest is as it came.
    let mut table = Vec::new();
    let byte = |at: usize| rest.get(at).copied().unwrap_or(0);
    for batch in 0..batches {
        table.extend((u64::from(batch) + 1).to_le_bytes());
        table.extend((if batch == 0 { rows } else { 0 }).to_le_bytes());
    }
    for row in 0..rows {
        let kind = byte(row as usize) % 6;
        table.push(kind);
        table.extend(u64::from(row).to_le_bytes());
        table.extend((4096 + u32::from(byte(row as usize + 8)) * 64).to_le_bytes());
        table.extend((17 + u32::from(byte(row as usize + 16))).to_le_bytes());
        if kind == 1 {
            let chunk_ids = u32::from(byte(row as usize + 24) % 3);
            table.extend(chunk_ids.to_le_bytes());
            (0..chunk_ids).for_each(|chunk_id| table.extend(u64::from(chunk_id).to_le_bytes()));
            table.extend(u32::from(byte(row as usize + 32)).to_le_bytes());
            table.extend([0; 4]);
        }
    }
    spool::fuzz::index_file(&table, batches, rows);
}

/// Recovery from segments whose checksums are right and whose contents are anything, and from one
/// that is arbitrary: it ends, says what is wrong, and what it hands over can be read or is refused.
pub fn spool_recovery(bytes: &[u8]) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    let body = mostly_right(bytes);
    let mut batches: Vec<Vec<(u8, u64, &[u8])>> = records(bytes).chunks(2).map(<[_]>::to_vec).collect();
    batches.push(vec![(0, 7, &body[..])]);
    let disk = Memory::default();
    disk.put("0000000000000001.seg", spool::fuzz::segment(&batches, 1, SEGMENT_BYTES));
    let mut second = spool::fuzz::segment(&batches[batches.len() - 1..], 2, SEGMENT_BYTES);
    if choice.is_multiple_of(2) {
        let at = usize::from(*choice) * 64 % (SEGMENT_BYTES - bytes.len().min(SEGMENT_BYTES - 1));
        let length = bytes.len().min(SEGMENT_BYTES - at);
        second[at..at + length].copy_from_slice(&bytes[..length]);
    }
    disk.put("0000000000000002.seg", second);
    disk.put("0000000000000002.dig", bytes.to_vec());
    let settings =
        LogSettings { segment_bytes: SEGMENT_BYTES as u64, min_free_bytes: 0, ..LogSettings::default() };
    let Ok(mut spool) = LogSpool::single_stepped(Arc::new(disk), settings) else { return };
    let mut ids = Vec::new();
    if spool.recover(&mut |found| ids.push(found.message.id)).is_err() {
        return;
    }
    for id in ids {
        if let Ok(message) = spool.read(id) {
            let chunk_ids = message.content.parts().iter().filter_map(mail::Part::chunk_id);
            chunk_ids.for_each(|chunk_id| drop(spool.load(chunk_id)));
        }
    }
    for step in [WorkStep::Prepare, WorkStep::Commit, WorkStep::Compact] {
        spool.step(step);
    }
}

/// Records with small names, so that they meet: kind, name, length, body.
fn records(mut bytes: &[u8]) -> Vec<(u8, u64, &[u8])> {
    let mut records = Vec::new();
    while let [kind, name, length, rest @ ..] = bytes {
        let (body, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        records.push((*kind, u64::from(name % 8), body));
        bytes = rest;
    }
    records
}

/// A message's body as docs/spool-format.md has it, its choices made by the bytes; one time in four
/// with a byte changed. Arbitrary bytes hardly ever get past the first count.
fn mostly_right(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes.iter().copied();
    let mut next = || rest.next().unwrap_or_default();
    let mut out = vec![0; 8];
    out.extend_from_slice(b"\x01\0o\x03\0a@b");
    let (body, ret, more) = (next() % 3, next() % 3, next());
    out.push(body | ret << 2 | (more & 1) << 4 | (more & 2) << 5);
    if more & 2 == 2 {
        let extensions = extensions(&mut next);
        out.extend((extensions.len() as u32).to_le_bytes());
        out.extend(extensions);
    }
    out.push(next());
    let recipient_count = next() % 4;
    out.extend([recipient_count, 0, 0, 0]);
    for _ in 0..recipient_count {
        out.extend_from_slice(b"\x03\0c@d");
        out.push(next() & 0x0f);
    }
    let past = next() % 4;
    out.push(past);
    for _ in 0..recipient_count * (past & 1) {
        let flags = next() % 4;
        out.extend([flags, next(), 0, 0, 0]);
        if flags & 2 == 2 {
            out.extend([0; 8]);
            out.extend([next() % 3, next(), next(), 0, next(), 0, 2, 0, b'w', b'x']);
        }
    }
    let part_count = next() % 4;
    out.extend([part_count, 0, 0, 0]);
    for _ in 0..part_count {
        let kind = next() % 2;
        let length = next() % 8;
        out.extend([kind, length, 0, 0, 0]);
        let place = u64::from(next() % 8).to_le_bytes();
        out.extend_from_slice(if kind == 0 { &place[..usize::from(length)] } else { &place });
    }
    if next() % 4 == 0 {
        let at = usize::from(next()) % out.len();
        out[at] ^= next();
    }
    out
}

/// Extensions of a message record: known and unknown tags with bodies that mostly mean something.
fn extensions(next: &mut impl FnMut() -> u8) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..next() % 5 {
        let (tag, body) = match next() % 9 {
            0 => (1, b"al".to_vec()),
            1 => (2, b"a@b".to_vec()),
            2 => (3, vec![next() % 20]),
            3 => (4, [&[next() % 4, 0, 0, 0][..], b"\x03\0l@b\x03\0m@b"].concat()),
            4 => (128, Vec::new()),
            5 => (129, [&[0; 8][..], &[next() % 8]].concat()),
            6 => (130, vec![next(); 8]),
            7 => (99, vec![next(); 3]),
            _ => (next(), vec![next()]),
        };
        out.push(tag);
        out.extend((body.len() as u32).to_le_bytes());
        out.extend(body);
    }
    out
}

/// Files in memory.
#[derive(Default)]
struct Memory {
    files: Mutex<BTreeMap<String, Arc<Kept>>>,
}

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl Memory {
    fn put(&self, name: &str, bytes: Vec<u8>) {
        self.files.lock().expect("one thread").insert(name.to_owned(), Arc::new(Kept(Mutex::new(bytes))));
    }
}

impl Disk for Memory {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().expect("one thread").keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        assert!(!self.list()?.contains(&name.to_owned()), "{name} is there");
        self.put(name, Vec::new());
        self.open(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let files = self.files.lock().expect("one thread");
        let file = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(file.clone())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock().expect("one thread");
        let file = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        assert!(files.insert(to.to_owned(), file).is_none(), "{to} is there");
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().expect("one thread").remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(1 << 20)
    }
}

impl File for Kept {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut kept = self.0.lock().expect("one thread");
        let end = offset as usize + bytes.len();
        let length = kept.len().max(end);
        kept.resize(length, 0);
        kept[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let kept = self.0.lock().expect("one thread");
        let rest = kept.get(offset as usize..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.lock().expect("one thread").truncate(length as usize);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().expect("one thread").len() as u64)
    }
}
