//! A constant database on disk in the format of cdb(5): a head for each of 256 tables of hashes, the records, and the
//! tables. It is read with preadv2(2), two or three times a look-up, and nothing of it is kept but the heads.
//!
//! The whole file is compared with its tables when it is opened. A file that another program overwrites in place
//! afterwards has other times or another size; each look-up asks for them behind its last read, and fails.

mod structure;

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::{
    fs::File,
    io::{self, BufWriter, IoSliceMut, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::Path,
};

/// An open file in the format of cdb(5). Look-ups read from it.
#[derive(Debug)]
pub struct Cdb {
    file: File,
    /// Offset of each table, and its number of places.
    heads: Vec<(u32, u32)>,
    version: Version,
}

/// Tells one content of an open file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    size_bytes: u64,
    modified: (i64, i64),
}

impl Version {
    fn of(file: &File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { size_bytes: meta.size(), modified: (meta.mtime(), meta.mtime_nsec()) })
    }
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

/// Whether a look-up may wait for the disk.
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

    /// Opens a file that this or another program wrote, and reads it once to compare the tables with the records.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or was changed meanwhile.
    pub fn open(file: File) -> io::Result<Self> {
        let version = Version::of(&file)?;
        if version.size_bytes < u64::from(TABLES * PAIR_BYTES) {
            return Err(damaged("it is shorter than its heads"));
        }
        let cdb = Self { file, heads: Vec::new(), version };
        let head = |i| cdb.read_pair(i * PAIR_BYTES, Read::Waiting);
        let heads = (0..TABLES).map(head).collect::<io::Result<Vec<_>>>()?;
        let cdb = Self { heads, ..cdb };
        cdb.check_structure()?;
        cdb.check_version()?;
        Ok(cdb)
    }

    /// Returns whether the file has the content that was compared when it was opened.
    pub fn is_unchanged(&self) -> bool {
        self.check_version().is_ok()
    }

    fn check_version(&self) -> io::Result<()> {
        if Version::of(&self.file)? == self.version {
            return Ok(());
        }
        let what = "the file was overwritten in place; write a new file and rename it to this name";
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
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
        let found = self.search(key, read)?;
        // Behind the last read: the kernel sets the time of a file before the new content can be read.
        self.check_version()?;
        Ok(found)
    }

    fn search(&self, key: &str, read: Read) -> io::Result<Option<String>> {
        let hash = hash(key);
        let table @ (_, places) = self.heads[(hash % TABLES) as usize];
        if places == 0 {
            return Ok(None);
        }
        let mut known = Places { bytes: [0; _], first: 0, count: 0 };
        for i in 0..places.min(PLACES_MAX) {
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
        Err(damaged("a table has no empty place"))
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
        let within = self.version.size_bytes.saturating_sub(position.into());
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
fn hash(key: impl AsRef<[u8]>) -> u32 {
    key.as_ref().iter().fold(5381, |h: u32, b| (h.wrapping_shl(5).wrapping_add(h)) ^ u32::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a file with 300 keys; also returns its octets.
    fn example(directory: &tempfile::TempDir) -> (std::path::PathBuf, Vec<u8>) {
        let path = directory.path().join("x.cdb");
        let pairs: Vec<_> = (0..300).map(|i| (format!("key{i}"), format!("value {i}"))).collect();
        Cdb::create(&path, &pairs).unwrap();
        let whole = std::fs::read(&path).unwrap();
        (path, whole)
    }

    #[test]
    fn a_damaged_file_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (path, whole) = example(&directory);
        let open = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            Cdb::open(File::open(&path).unwrap())
        };
        for length in [0, 100, 2048, whole.len() / 2, whole.len() - 1] {
            assert!(open(&whole[..length]).is_err(), "{length}");
        }
        for zeros in
            [0..2048, 2048..whole.len(), 2048..4096, whole.len() - 4096..whole.len(), 2048..2056, 0..8]
        {
            let mut bytes = whole.clone();
            bytes[zeros.clone()].fill(0);
            assert_eq!(open(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "zeros at {zeros:?}");
        }
        // An octet of the keys, of the lengths, of the tables or of the heads.
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            let Ok(cdb) = open(&bytes) else { continue };
            for i in 0..300 {
                let value = cdb.get(&format!("key{i}")).unwrap();
                assert!(value.is_some(), "key{i} is missing with another octet at {at}");
            }
        }
        open(&whole).unwrap();
    }

    #[test]
    fn a_file_that_is_overwritten_in_place_fails_and_has_no_missing_keys() {
        let directory = tempfile::tempdir().unwrap();
        let (path, whole) = example(&directory);
        let is_error = |cdb: &Cdb, what: &str| {
            for i in 0..300 {
                assert_eq!(
                    cdb.get(&format!("key{i}")).unwrap_err().kind(),
                    io::ErrorKind::InvalidData,
                    "{what}"
                );
            }
            assert!(!cdb.is_unchanged());
        };
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        let fresh = || {
            std::fs::write(&path, &whole).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
            Cdb::open(File::open(&path).unwrap()).unwrap()
        };
        for zeros in [0..2048, 2048..whole.len(), 2048..4096, whole.len() - 4096..whole.len()] {
            let cdb = fresh();
            assert_eq!(cdb.get("key7").unwrap().as_deref(), Some("value 7"));
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(&vec![0; zeros.len()], zeros.start as u64).unwrap();
            is_error(&cdb, &format!("zeros at {zeros:?}"));
        }
        let cdb = fresh();
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        for i in 0..300 {
            cdb.get(&format!("key{i}")).unwrap_err();
        }
        // A new file under the same name changes nothing for the one that is open.
        let cdb = fresh();
        let new = directory.path().join("new");
        Cdb::create(&new, &[]).unwrap();
        std::fs::rename(&new, &path).unwrap();
        assert_eq!(cdb.get("key7").unwrap().as_deref(), Some("value 7"));
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
