//! A constant data base on disk in the format of cdb(5): a head for each of 256 tables of hashes, the records, and the
//! tables. It is read with pread(2), two or three times a lookup, and nothing of it is kept but the heads.

use std::{
    fs::File,
    io::{self, BufWriter, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

/// An open file in the format of cdb.
#[derive(Debug)]
pub(super) struct Cdb {
    file: File,
    /// Offset of each table, and its number of places.
    heads: Vec<(u32, u32)>,
}

const TABLES: u32 = 256;
/// Two numbers of four octets: a head, a place of a table, or the lengths of a record.
const PAIR_BYTES: u32 = 8;

impl Cdb {
    /// Writes `pairs` to a new file, and opens it.
    pub(super) fn create(path: &Path, pairs: &[(String, String)]) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, "a cdb has at most 4 GB");
        let mut out = BufWriter::new(&file);
        let mut tables = vec![Vec::new(); TABLES as usize];
        let mut at = TABLES * PAIR_BYTES;
        out.seek(SeekFrom::Start(at.into()))?;
        for (key, value) in pairs {
            let hash = hash(key);
            tables[(hash % TABLES) as usize].push((hash, at));
            let (key_length, value_length) = (key.len() as u32, value.len() as u32);
            out.write_all(&pair(key_length, value_length))?;
            out.write_all(key.as_bytes())?;
            out.write_all(value.as_bytes())?;
            let record = key_length.checked_add(value_length).and_then(|n| n.checked_add(PAIR_BYTES));
            at = record.and_then(|record| at.checked_add(record)).ok_or_else(too_large)?;
        }
        let mut heads = Vec::new();
        for table in &tables {
            // Twice as many places as records keep the chains short.
            let places = table.len() as u32 * 2;
            heads.push((at, places));
            for (hash, position) in spread(table, places) {
                out.write_all(&pair(hash, position))?;
            }
            at = at.checked_add(places * PAIR_BYTES).ok_or_else(too_large)?;
        }
        out.seek(SeekFrom::Start(0))?;
        for (position, places) in &heads {
            out.write_all(&pair(*position, *places))?;
        }
        out.flush()?;
        drop(out);
        Self::open(file)
    }

    /// Opens a file that this or another program wrote.
    pub(super) fn open(file: File) -> io::Result<Self> {
        let heads = (0..TABLES).map(|i| read_pair(&file, i * PAIR_BYTES)).collect::<io::Result<_>>()?;
        Ok(Self { file, heads })
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &str) -> io::Result<Option<String>> {
        let hash = hash(key);
        let (begin, places) = self.heads[(hash % TABLES) as usize];
        for i in 0..places {
            let place = (hash / TABLES + i) % places;
            match read_pair(&self.file, begin.saturating_add(place * PAIR_BYTES))? {
                (_, 0) => return Ok(None),
                (found, position) if found == hash => {
                    if let Some(value) = self.record(position, key)? {
                        return Ok(Some(value));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The value at `position`, if the key there is ours.
    fn record(&self, position: u32, key: &str) -> io::Result<Option<String>> {
        let (key_length, value_length) = read_pair(&self.file, position)?;
        if key_length as usize != key.len() {
            return Ok(None);
        }
        let mut both = vec![0; key_length as usize + value_length as usize];
        self.file.read_exact_at(&mut both, u64::from(position) + u64::from(PAIR_BYTES))?;
        let value = both.split_off(key_length as usize);
        Ok((both == key.as_bytes()).then(|| String::from_utf8_lossy(&value).into_owned()))
    }
}

fn pair(a: u32, b: u32) -> [u8; PAIR_BYTES as usize] {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
}

fn read_pair(file: &File, at: u32) -> io::Result<(u32, u32)> {
    let mut bytes = [0; PAIR_BYTES as usize];
    file.read_exact_at(&mut bytes, at.into())?;
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    Ok((number(0), number(4)))
}

/// Each record at the first free place from its hash on.
fn spread(table: &[(u32, u32)], places: u32) -> Vec<(u32, u32)> {
    let mut out = vec![(0, 0); places as usize];
    for (hash, position) in table {
        let mut place = hash / TABLES % places;
        while out[place as usize].1 != 0 {
            place = (place + 1) % places;
        }
        out[place as usize] = (*hash, *position);
    }
    out
}

/// 5381, then times 33 and the next octet.
fn hash(key: &str) -> u32 {
    key.bytes().fold(5381, |h: u32, b| (h.wrapping_shl(5).wrapping_add(h)) ^ u32::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_found_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let pairs: Vec<_> = (0..1000).map(|i| (format!("key{i}"), format!("value {i}"))).collect();
        let cdb = Cdb::create(&directory.path().join("x.cdb"), &pairs).unwrap();
        for (key, value) in &pairs {
            assert_eq!(cdb.get(key).unwrap().as_ref(), Some(value));
        }
        assert_eq!(cdb.get("key1000").unwrap(), None);
        let empty = Cdb::create(&directory.path().join("empty.cdb"), &[]).unwrap();
        assert_eq!(empty.get("x").unwrap(), None);
    }

    /// Both ways with Debian's tinycdb.
    #[test]
    fn another_program_reads_what_was_written_and_writes_what_is_read() {
        use std::process::Command;
        let directory = tempfile::tempdir().unwrap();
        let (ours, theirs) = (directory.path().join("ours.cdb"), directory.path().join("theirs.cdb"));
        let pairs: Vec<_> = (0..700).map(|i| (format!("key{i}"), format!("value {i}"))).collect();
        let cdb = Cdb::create(&ours, &pairs).unwrap();
        let Ok(output) = Command::new("cdb").arg("-q").arg(&ours).arg("key699").output() else {
            eprintln!("SKIPPED: tinycdb is not installed");
            return;
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout), "value 699");
        let text = Command::new("cdb").arg("-d").arg(&ours).output().unwrap().stdout;
        let dump = directory.path().join("dump");
        std::fs::write(&dump, &text).unwrap();
        let made = Command::new("cdb").arg("-c").arg(&theirs).arg(&dump).status().unwrap();
        assert!(made.success());
        let other = Cdb::open(File::open(&theirs).unwrap()).unwrap();
        for (key, value) in &pairs {
            assert_eq!(other.get(key).unwrap().as_ref(), Some(value));
        }
        assert_eq!((other.get("key700").unwrap(), cdb.get("key700").unwrap()), (None, None));
    }
}
