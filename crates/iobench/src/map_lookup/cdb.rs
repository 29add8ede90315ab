//! A constant data base on disk, as cdb has it: 256 tables of hashes behind the records. It is read with
//! pread(2), two or three times a lookup, and nothing of it is kept but the heads of the tables.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

/// See the module's text.
#[derive(Debug)]
pub(super) struct Cdb {
    file: File,
    /// Offset of each table, and its number of places.
    heads: Vec<(u64, u64)>,
}

const TABLES: u64 = 256;
/// Hash and position of a record.
const PLACE_BYTES: u64 = 16;

impl Cdb {
    /// Writes `pairs` to a new file, and opens it.
    pub(super) fn create(path: &Path, pairs: &[(String, String)]) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        let mut out = BufWriter::new(&file);
        let mut tables = vec![Vec::new(); TABLES as usize];
        let mut at = 0u64;
        for (key, value) in pairs {
            let hash = hash(key);
            // Position zero stands for an empty place.
            tables[(hash % TABLES) as usize].push((hash, at + 1));
            out.write_all(&(key.len() as u32).to_le_bytes())?;
            out.write_all(&(value.len() as u32).to_le_bytes())?;
            out.write_all(key.as_bytes())?;
            out.write_all(value.as_bytes())?;
            at += 8 + key.len() as u64 + value.len() as u64;
        }
        let mut heads = Vec::new();
        for table in &tables {
            // Twice as many places as records keep the chains short.
            let places = table.len() as u64 * 2;
            heads.push((at, places));
            for (hash, position) in spread(table, places) {
                out.write_all(&hash.to_le_bytes())?;
                out.write_all(&position.to_le_bytes())?;
            }
            at += places * PLACE_BYTES;
        }
        out.flush()?;
        drop(out);
        Ok(Self { file, heads })
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &str) -> io::Result<Option<String>> {
        let hash = hash(key);
        let (begin, places) = self.heads[(hash % TABLES) as usize];
        for i in 0..places {
            let place = (hash / TABLES + i) % places;
            let mut bytes = [0; PLACE_BYTES as usize];
            self.file.read_exact_at(&mut bytes, begin + place * PLACE_BYTES)?;
            let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
            match (number(0), number(8)) {
                (_, 0) => return Ok(None),
                (found, position) if found == hash => {
                    if let Some(value) = self.record(position - 1, key)? {
                        return Ok(Some(value));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// The value at `position`, if the key there is ours.
    fn record(&self, position: u64, key: &str) -> io::Result<Option<String>> {
        let mut head = [0; 8];
        self.file.read_exact_at(&mut head, position)?;
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i])) as usize;
        let (key_length, value_length) = (number(0), number(4));
        let mut both = vec![0; key_length + value_length];
        self.file.read_exact_at(&mut both, position + 8)?;
        let value = both.split_off(key_length);
        Ok((both == key.as_bytes()).then(|| String::from_utf8_lossy(&value).into_owned()))
    }
}

/// Each record at the first free place from its hash on.
fn spread(table: &[(u64, u64)], places: u64) -> Vec<(u64, u64)> {
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

/// cdb's: 5381, then times 33 and the next octet.
fn hash(key: &str) -> u64 {
    key.bytes().fold(5381, |h: u64, b| (h.wrapping_shl(5).wrapping_add(h)) ^ u64::from(b))
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
}
