//! Archives of `postrider backup` and `postrider support-bundle`: a tar file that is compressed with zstd.
//!
//! The first entry says what the archive is, and the version of its format. After every [`GROUP`] entries a list
//! `checksums/NNNNNN` follows, in the form of sha256sum(1). The last entry, `end.json`, has the number of entries: without
//! it the archive is not whole.

use aws_lc_rs::digest::{Context, SHA256, digest};
use data_encoding::HEXLOWER;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    collections::VecDeque,
    fmt,
    io::{self, BufRead as _, Read, Write},
};
use tar::{EntryType, Header};

/// Members between two lists of checksums.
const GROUP: usize = 1000;
/// Octets of a list of checksums, and of the end. A list has a line for each entry of its group.
const LIST_BYTES_MAX: u64 = 16 << 20;
const END_BYTES_MAX: u64 = 1 << 10;
/// Longest name of an entry.
const NAME_BYTES_MAX: u64 = 8192;
/// Names of lists of checksums begin with it.
const CHECKSUMS: &str = "checksums/";
/// The last entry: an archive without it is not whole.
const END: &str = "end.json";
/// An entry that is longer takes memory as it is read, and not as its header says.
const TRUSTED_BYTES: u64 = 1 << 20;
/// Octets that are read at once of an entry that is not kept in memory.
const PIECE_BYTES: usize = 64 << 10;

/// Writes a compressed tar archive with a checksum for each entry.
pub(crate) struct ArchiveWriter<W: Write> {
    tar: tar::Builder<zstd::Encoder<'static, W>>,
    time_seconds: u64,
    sums: String,
    in_group: usize,
    groups: u64,
    entries: u64,
}

impl<W: Write> ArchiveWriter<W> {
    /// Begins an archive. `time_seconds` is the time of its entries.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(crate) fn begin(out: W, time_seconds: u64) -> io::Result<Self> {
        let mut encoder = zstd::Encoder::new(out, 3)?;
        encoder.include_checksum(true)?;
        let tar = tar::Builder::new(encoder);
        Ok(Self { tar, time_seconds, sums: String::new(), in_group: 0, groups: 0, entries: 0 })
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.append(name, bytes)?;
        self.sums.push_str(&HEXLOWER.encode(digest(&SHA256, bytes).as_ref()));
        self.sums.push_str("  ");
        self.sums.push_str(name);
        self.sums.push('\n');
        self.entries += 1;
        self.in_group += 1;
        if self.in_group == GROUP { self.end_group() } else { Ok(()) }
    }

    /// Adds a value as JSON.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(crate) fn add_json(&mut self, name: &str, value: &impl Serialize) -> io::Result<()> {
        self.add(name, &json(value)?)
    }

    fn end_group(&mut self) -> io::Result<()> {
        let (sums, name) = (std::mem::take(&mut self.sums), format!("{CHECKSUMS}{:06}", self.groups));
        (self.in_group, self.groups) = (0, self.groups + 1);
        self.append(&name, sums.as_bytes())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.time_seconds);
        header.set_entry_type(EntryType::Regular);
        self.tar.append_data(&mut header, name, bytes)
    }

    /// Ends the archive. Returns what it was written to.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        if self.in_group > 0 {
            self.end_group()?;
        }
        self.append(END, &json(&End { entries: self.entries })?)?;
        self.tar.into_inner()?.finish()
    }
}

fn json(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)?;
    bytes.push(b'\n');
    Ok(bytes)
}

#[derive(Debug, Serialize, serde::Deserialize)]
struct End {
    entries: u64,
}

/// Why an archive cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The system could not read the file.
    Io(io::Error),
    /// The file is something else, or not what was written.
    Broken(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

/// An entry that was read from an archive.
#[derive(Debug)]
pub(crate) struct ArchiveEntry {
    /// A relative path without `..`.
    pub(crate) name: String,
    /// Octets of its content.
    pub(crate) size_bytes: u64,
    /// Its octets; none of an entry of which only the checksum was asked for.
    pub(crate) bytes: Vec<u8>,
    sum: String,
}

/// What is asked for of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its octets; an archive with more of them is broken.
    AtMost(u64),
    /// Only that its checksum is right.
    Checksum,
}

impl ArchiveEntry {
    /// Reads an entry that is JSON.
    ///
    /// # Errors
    /// The entry has something else.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Unusable> {
        serde_json::from_slice(&self.bytes)
            .map_err(|error| Unusable::Broken(format!("{} is not understood: {error}", self.name)))
    }
}

/// Reads a whole archive, and passes on its entries in order. An entry is passed on before its checksum is verified, which is
/// in a list behind it: nothing that is passed on may be believed before this returns. `wanted` is asked with the name and the octets
/// of each entry, so that a short file cannot fill the memory.
///
/// # Errors
/// The archive cannot be read, is not whole, or has another checksum; or `each` refuses an entry.
pub(crate) fn read(
    from: impl Read,
    wanted: &dyn Fn(&str, u64) -> Wanted,
    each: &mut dyn FnMut(ArchiveEntry) -> Result<(), Unusable>,
) -> Result<(), Unusable> {
    let decoder = zstd::Decoder::new(from).map_err(Unusable::Io)?;
    let mut tar = tar::Archive::new(decoder);
    let (mut open, mut entries, mut end) = (VecDeque::new(), 0, None);
    let mut name = None;
    // As they stand there: the library would take a long name of any length into memory.
    for entry in tar.entries().map_err(broken)?.raw(true) {
        let entry = entry.map_err(broken)?;
        if entry.header().entry_type() == EntryType::GNULongName && name.is_none() {
            name = Some(read_name(entry)?);
            continue;
        }
        let entry = read_entry(entry, name.take(), wanted)?;
        if end.is_some() {
            return Err(Unusable::Broken(format!("{} stands behind the end", entry.name)));
        }
        if entry.name == END {
            end = Some(entry.json::<End>()?);
        } else if entry.name.starts_with(CHECKSUMS) {
            verify(&entry, &mut open)?;
        } else {
            entries += 1;
            open.push_back((entry.name.clone(), entry.sum.clone()));
            if open.len() > GROUP {
                return Err(Unusable::Broken("a list of checksums is missing".to_owned()));
            }
            each(entry)?;
        }
    }
    // The checksum of the compressed bytes comes last, behind the zeros that fill the last block.
    let mut rest = io::BufReader::new(tar.into_inner());
    loop {
        let octets = rest.fill_buf().map_err(broken)?;
        if octets.is_empty() {
            break;
        }
        if octets.iter().any(|octet| *octet != 0) {
            return Err(Unusable::Broken(
                "something stands behind its end: it is two archives in one file".to_owned(),
            ));
        }
        let count = octets.len();
        rest.consume(count);
    }
    match end {
        Some(end) if end.entries == entries && open.is_empty() => Ok(()),
        Some(end) => Err(Unusable::Broken(format!("it has {entries} of {} entries", end.entries))),
        None => Err(Unusable::Broken("its end is missing".to_owned())),
    }
}

/// Reads a name that is too long for the header of its entry.
fn read_name(entry: tar::Entry<'_, impl Read>) -> Result<String, Unusable> {
    let bad = || Unusable::Broken("an entry has a bad name".to_owned());
    if entry.size() > NAME_BYTES_MAX {
        return Err(bad());
    }
    let mut bytes = Vec::new();
    entry.take(NAME_BYTES_MAX).read_to_end(&mut bytes).map_err(broken)?;
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| bad())
}

fn read_entry(
    mut entry: tar::Entry<'_, impl Read>,
    long_name: Option<String>,
    wanted: &dyn Fn(&str, u64) -> Wanted,
) -> Result<ArchiveEntry, Unusable> {
    let size = entry.size();
    let name = match long_name {
        Some(name) => Some(name),
        None => entry.path().map_err(broken)?.to_str().map(str::to_owned),
    };
    // No empty part: what is behind `files//` would be an absolute path.
    let is_plain = |name: &String| !name.split('/').any(|part| matches!(part, "" | "." | ".."));
    let name = name.filter(is_plain).ok_or_else(|| Unusable::Broken("an entry has a bad name".to_owned()))?;
    if entry.header().entry_type() != EntryType::Regular {
        return Err(Unusable::Broken(format!("{name} is not a file")));
    }
    let wanted = match &*name {
        END => Wanted::AtMost(END_BYTES_MAX),
        list if list.starts_with(CHECKSUMS) => Wanted::AtMost(LIST_BYTES_MAX),
        _ => wanted(&name, size),
    };
    let (mut bytes, mut sum, mut count) = (Vec::new(), Context::new(&SHA256), 0);
    match wanted {
        Wanted::AtMost(most) if size > most => {
            return Err(Unusable::Broken(format!(
                "{name} has {size} octets, and at most {most} are expected"
            )));
        }
        Wanted::AtMost(_) => {
            bytes.reserve(size.min(TRUSTED_BYTES) as usize);
            entry.take(size).read_to_end(&mut bytes).map_err(broken)?;
            sum.update(&bytes);
            count = bytes.len() as u64;
        }
        Wanted::Checksum => {
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                let length = entry.read(&mut piece).map_err(broken)?;
                if length == 0 {
                    break;
                }
                sum.update(&piece[..length]);
                count += length as u64;
            }
        }
    }
    if count != size {
        return Err(Unusable::Broken(format!("{name} is cut off")));
    }
    Ok(ArchiveEntry { name, size_bytes: size, bytes, sum: HEXLOWER.encode(sum.finish().as_ref()) })
}

/// Compares the entries since the last list with a list.
fn verify(list: &ArchiveEntry, open: &mut VecDeque<(String, String)>) -> Result<(), Unusable> {
    let wrong = |name: &str| Unusable::Broken(format!("the checksum of {name} is wrong"));
    for line in String::from_utf8_lossy(&list.bytes).lines() {
        let (sum, name) = line.split_once("  ").ok_or_else(|| wrong(&list.name))?;
        match open.pop_front() {
            Some((own, computed)) if own == name && computed == sum => {}
            Some((own, _)) => return Err(wrong(&own)),
            None => return Err(wrong(name)),
        }
    }
    match open.front() {
        Some((name, _)) => Err(wrong(name)),
        None => Ok(()),
    }
}

/// Distinguishes a disk that does not answer from bytes that are wrong.
fn broken(error: io::Error) -> Unusable {
    if error.raw_os_error().is_some() { Unusable::Io(error) } else { Unusable::Broken(error.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY_BYTES_MAX: u64 = 4 << 20;

    fn archive(count: usize) -> Vec<u8> {
        let mut writer = ArchiveWriter::begin(Vec::new(), 1).unwrap();
        writer.add_json("about.json", &"an archive").unwrap();
        let long = "x/".repeat(200);
        for number in 0..count {
            writer.add(&format!("{long}{number}"), format!("content {number}\n").as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<ArchiveEntry>, Unusable> {
        let mut entries = Vec::new();
        read(bytes, &|_, _| Wanted::AtMost(ENTRY_BYTES_MAX), &mut |entry| {
            entries.push(entry);
            Ok(())
        })?;
        Ok(entries)
    }

    #[test]
    fn an_archive_has_the_members_that_were_added() {
        for count in [0, 1, GROUP - 1, GROUP, 2 * GROUP + 5] {
            let entries = read_all(&archive(count)).unwrap();
            assert_eq!(entries.len(), count + 1);
            assert_eq!(entries[0].json::<String>().unwrap(), "an archive");
            for (number, entry) in entries[1..].iter().enumerate() {
                assert!(entry.name.ends_with(&format!("x/{number}")), "{}", entry.name);
                assert_eq!(entry.bytes, format!("content {number}\n").as_bytes());
            }
        }
    }

    #[test]
    fn two_archives_in_one_file_are_broken() {
        let twice = [archive(3), archive(3)].concat();
        assert!(matches!(read_all(&twice), Err(Unusable::Broken(why)) if why.contains("two archives")));
    }

    #[test]
    fn an_archive_that_is_cut_anywhere_is_broken() {
        let whole = archive(20);
        for length in 0..whole.len() {
            let read = read_all(&whole[..length]);
            assert!(matches!(read, Err(Unusable::Broken(_))), "{length} of {} bytes: {read:?}", whole.len());
        }
    }

    #[test]
    fn an_archive_with_another_byte_is_broken_or_has_the_same_members() {
        let whole = archive(20);
        let entries = |bytes: &[u8]| {
            let all = read_all(bytes).ok()?;
            Some(all.into_iter().map(|entry| (entry.name, entry.bytes)).collect::<Vec<_>>())
        };
        let (expected, mut broken) = (entries(&whole), 0);
        for at in 0..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 4;
            // The same bytes can be repeated from more than one place.
            match entries(&other) {
                None => broken += 1,
                same => assert!(same == expected, "byte {at}"),
            }
        }
        assert!(broken > whole.len() * 9 / 10, "{broken} of {}", whole.len());
    }

    #[test]
    fn a_member_that_was_replaced_is_found_by_its_checksum() {
        let mut plain = Vec::new();
        zstd::Decoder::new(&*archive(3)).unwrap().read_to_end(&mut plain).unwrap();
        let at = plain.windows(9).position(|bytes| bytes == b"content 1").unwrap();
        plain[at] = b'C';
        let read = read_all(&zstd::encode_all(&*plain, 3).unwrap());
        assert!(
            matches!(&read, Err(Unusable::Broken(why)) if why.contains("the checksum of x/")),
            "{read:?}"
        );
    }

    #[test]
    fn names_that_lead_out_of_the_archive_are_refused() {
        for name in ["../x", "/etc/passwd", "a/../../b", "files//etc/passwd", "./x", "x/"] {
            let mut header = Header::new_gnu();
            header.set_size(0);
            header.set_entry_type(EntryType::Regular);
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            let mut tar = tar::Builder::new(Vec::new());
            tar.append(&header, &[][..]).unwrap();
            let bytes = zstd::encode_all(&*tar.into_inner().unwrap(), 3).unwrap();
            let read = read_all(&bytes);
            assert!(
                matches!(&read, Err(Unusable::Broken(why)) if why.contains("bad name")),
                "{name}: {read:?}"
            );
        }
    }

    /// Compresses a tar file with one entry of so many zeros, which has this header.
    fn bomb(kind: EntryType, zeros: u64) -> Vec<u8> {
        let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
        let mut header = Header::new_gnu();
        header.set_size(zeros);
        header.set_entry_type(kind);
        header.as_gnu_mut().unwrap().name[..4].copy_from_slice(b"zero");
        header.set_cksum();
        encoder.write_all(header.as_bytes()).unwrap();
        io::copy(&mut io::repeat(0).take(zeros + 1024), &mut encoder).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_short_file_never_fills_the_memory() {
        for (kind, why) in [
            (EntryType::Regular, "octets, and at most 4194304 are expected"),
            (EntryType::GNULongName, "bad name"),
            (EntryType::XHeader, "not a file"),
            (EntryType::GNUSparse, "not a file"),
            (EntryType::Symlink, "not a file"),
        ] {
            let bytes = bomb(kind, ENTRY_BYTES_MAX + 1);
            assert!(bytes.len() < 1 << 20);
            let read = read_all(&bytes);
            assert!(
                matches!(&read, Err(Unusable::Broken(found)) if found.contains(why)),
                "{kind:?}: {read:?}"
            );
        }
        // The size of an entry that is not there.
        let mut header = Header::new_gnu();
        header.set_path("zero").unwrap();
        header.set_entry_type(EntryType::Regular);
        header.set_size(1 << 40);
        header.set_cksum();
        let bytes = zstd::encode_all(&header.as_bytes()[..], 1).unwrap();
        assert!(matches!(read_all(&bytes), Err(Unusable::Broken(why)) if why.contains("are expected")));
    }

    #[test]
    fn an_entry_that_nobody_wants_takes_no_memory_and_its_checksum_is_compared() {
        let mut writer = ArchiveWriter::begin(Vec::new(), 1).unwrap();
        writer.add("long", &vec![b'x'; 9 << 20]).unwrap();
        let bytes = writer.finish().unwrap();
        let sizes = |bytes: &[u8]| {
            let mut sizes = Vec::new();
            read(bytes, &|_, _| Wanted::Checksum, &mut |entry| {
                sizes.push((entry.size_bytes, entry.bytes.len()));
                Ok(())
            })?;
            Ok::<_, Unusable>(sizes)
        };
        assert_eq!(sizes(&bytes).unwrap(), [(9 << 20, 0)]);
        let mut plain = zstd::decode_all(&*bytes).unwrap();
        plain[5 << 20] = b'y';
        let other = zstd::encode_all(&*plain, 3).unwrap();
        assert!(matches!(sizes(&other), Err(Unusable::Broken(why)) if why.contains("checksum of long")));
    }
}
