//! A constant data base on disk in the format of cdb(5): a head for each of 256 tables of hashes, the records, and the
//! tables. It is read with preadv2(2), two or three times a look-up, and nothing of it is kept but the heads.

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::{
    fs::File,
    io::{self, BufWriter, IoSliceMut, Seek as _, SeekFrom, Write as _},
    os::unix::fs::FileExt as _,
    path::Path,
};

/// An open file in the format of cdb.
#[derive(Debug)]
pub struct Cdb {
    file: File,
    /// Offset of each table, and its number of places.
    heads: Vec<(u32, u32)>,
    end_bytes: u64,
}

const TABLES: u32 = 256;
/// Two numbers of four octets: a head, a place of a table, or the lengths of a record.
const PAIR_BYTES: u32 = 8;
/// Longest value that is read. A damaged file could claim any length.
const VALUE_MAX: u32 = 1 << 20;
/// Octets of a record that are read at once.
const FRONT_BYTES: usize = 256;
/// Places of a table that one look-up reads: a damaged file could have no empty one.
const PLACES_MAX: u32 = 10_000;

/// Places of a table that are read at once: a chain is seldom longer, and a call costs more than its octets.
const PLACES_AT_ONCE: u32 = 8;

/// Places of a table that were read.
struct Places {
    bytes: [u8; (PLACES_AT_ONCE * PAIR_BYTES) as usize],
    first: u32,
    count: u32,
}

/// A way to read the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Read {
    /// Only from memory, else [`io::ErrorKind::WouldBlock`].
    Cached,
    /// From the disk, too.
    Waiting,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file is damaged: {what}"))
}

impl Cdb {
    /// Writes `pairs` to a new file, and opens it.
    ///
    /// # Errors
    /// The file exists, cannot be written, or would be larger than 4 GB.
    pub fn create(path: &Path, pairs: &[(String, String)]) -> io::Result<Self> {
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
    ///
    /// # Errors
    /// The file cannot be read, or is none in this format: a table is not inside the file.
    pub fn open(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if length < u64::from(TABLES * PAIR_BYTES) {
            return Err(damaged("it is shorter than its heads"));
        }
        let cdb = Self { file, heads: Vec::new(), end_bytes: length };
        let head = |i| cdb.read_pair(i * PAIR_BYTES, Read::Waiting);
        let heads = (0..TABLES).map(head).collect::<io::Result<Vec<_>>>()?;
        let end = length.min(u32::MAX.into());
        let is_inside =
            |(at, places): &(u32, u32)| u64::from(*at) + u64::from(*places) * u64::from(PAIR_BYTES) <= end;
        if !heads.iter().all(is_inside) {
            return Err(damaged("a table lies behind its end"));
        }
        Ok(Self { heads, ..cdb })
    }

    /// Returns the value of `key`; reads from the disk if it must.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn get(&self, key: &str) -> io::Result<Option<String>> {
        self.find(key, Read::Waiting)
    }

    /// Returns the value of `key` without waiting for the disk.
    ///
    /// # Errors
    /// As for [`Cdb::get`]; [`io::ErrorKind::WouldBlock`] if a part of the file is not in memory.
    pub fn get_cached(&self, key: &str) -> io::Result<Option<String>> {
        self.find(key, Read::Cached)
    }

    fn find(&self, key: &str, read: Read) -> io::Result<Option<String>> {
        let hash = hash(key);
        let table @ (_, places) = self.heads[(hash % TABLES) as usize];
        let mut known = Places { bytes: [0; _], first: 0, count: 0 };
        for i in 0..places {
            if i == PLACES_MAX {
                return Err(damaged("a table has no empty place"));
            }
            let place = (hash / TABLES % places + i) % places;
            match self.place(table, place, &mut known, read)? {
                (_, 0) => return Ok(None),
                (found, position) if found == hash => {
                    if let Some(value) = self.record(position, key, read)? {
                        return Ok(Some(value));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns a place of a table, with those behind it in the same call.
    fn place(
        &self,
        (begin, places): (u32, u32),
        place: u32,
        known: &mut Places,
        read: Read,
    ) -> io::Result<(u32, u32)> {
        if !(known.first..known.first + known.count).contains(&place) {
            known.count = 0;
            let count = PLACES_AT_ONCE.min(places - place);
            let bytes = &mut known.bytes[..(count * PAIR_BYTES) as usize];
            self.read_at(bytes, u64::from(begin) + u64::from(place) * u64::from(PAIR_BYTES), read)?;
            (known.first, known.count) = (place, count);
        }
        let at = ((place - known.first) * PAIR_BYTES) as usize;
        Ok(numbers(&known.bytes[at..]))
    }

    /// The value at `position`, if the key there is ours.
    fn record(&self, position: u32, key: &str, read: Read) -> io::Result<Option<String>> {
        // Most records are short: one read has the lengths, the key and the value.
        let mut front = [0; FRONT_BYTES];
        let within = self.end_bytes.saturating_sub(position.into());
        let front = &mut front[..FRONT_BYTES.min(usize::try_from(within).unwrap_or(FRONT_BYTES))];
        self.read_at(front, position.into(), read)?;
        let (lengths, rest) =
            front.split_at_checked(PAIR_BYTES as usize).ok_or_else(|| damaged("a record is cut off"))?;
        let (key_length, value_length) = numbers(lengths);
        if key_length as usize != key.len() {
            return Ok(None);
        }
        if value_length > VALUE_MAX {
            return Err(damaged("a value is longer than 1 MiB"));
        }
        let length = key.len() + value_length as usize;
        let mut whole = Vec::new();
        let both = match rest.get(..length) {
            Some(both) => both,
            None => {
                whole.resize(length, 0);
                self.read_at(&mut whole, u64::from(position) + u64::from(PAIR_BYTES), read)?;
                &whole
            }
        };
        let (found, value) = both.split_at(key.len());
        if found != key.as_bytes() {
            return Ok(None);
        }
        let value = std::str::from_utf8(value).map_err(|_| damaged("a value is not UTF-8"))?;
        Ok(Some(value.to_owned()))
    }

    fn read_pair(&self, at: u32, read: Read) -> io::Result<(u32, u32)> {
        let mut bytes = [0; PAIR_BYTES as usize];
        self.read_at(&mut bytes, at.into(), read)?;
        Ok(numbers(&bytes))
    }

    fn read_at(&self, bytes: &mut [u8], at: u64, read: Read) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let wanted = bytes.len();
        let read_bytes = match read {
            Read::Waiting => return self.file.read_exact_at(bytes, at),
            Read::Cached => preadv2(&self.file, &mut [IoSliceMut::new(bytes)], at, ReadWriteFlags::NOWAIT),
        };
        match read_bytes {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) if count == wanted => Ok(()),
            // The rest is not in memory, or the file system does not say.
            Ok(_) | Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the two numbers at the front of octets, of which there are enough.
fn numbers(bytes: &[u8]) -> (u32, u32) {
    let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
    (number(0), number(4))
}

fn pair(a: u32, b: u32) -> [u8; PAIR_BYTES as usize] {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
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
    fn a_damaged_file_is_an_error_and_never_a_missing_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.cdb");
        let pairs: Vec<_> = (0..100).map(|i| (format!("key{i}"), format!("value {i}"))).collect();
        Cdb::create(&path, &pairs).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Cdb::open(File::open(&path).unwrap())
        };
        for length in [0, 100, 2048, whole.len() - 1] {
            assert!(open(&whole[..length]).is_err(), "{length}");
        }
        let mut long = whole.clone();
        long[2048 + 4..2048 + 8].fill(0xff);
        assert_eq!(open(&long).unwrap().get("key0").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_in_memory_is_read_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.cdb");
        let cdb = Cdb::create(&path, &[("key".to_owned(), "value".to_owned())]).unwrap();
        match cdb.get_cached("key") {
            Ok(value) => assert_eq!(value.as_deref(), Some("value")),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
        assert_eq!(cdb.get("key").unwrap().as_deref(), Some("value"));
    }

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
