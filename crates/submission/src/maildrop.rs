//! The drop directory: where local mail waits while the daemon is down.
//!
//! A file is one line of JSON ([`Header`]) and then the content, nothing else. It appears under its
//! final name, `*.mail`, only when all of it is on disk. Everybody may write here (mode 1733) but list
//! nothing, and names are random, so that no user finds another's mail; files can be read by all,
//! because the daemon may be neither their owner nor root. What is in a file, and what kind of file
//! it is, was decided by some local user: the daemon trusts neither.

mod quota;

pub use quota::{Quota, remove_excess};

use crate::envelope::{HEADER_BYTES_MAX, Header, Submission, has_too_many, is_trusted, wire_form};
use mail::{BodyType, Envelope, UnixMillis};
use quota::{OwnNames, USERS_MAX};
use rustix::{
    fs::{CWD, FileType, Mode, OFlags, fchmod, fstat, openat, renameat, unlinkat},
    io::Errno,
};
use std::{
    collections::{BinaryHeap, HashMap, HashSet},
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt as _},
    },
    path::{Path, PathBuf},
    time::Duration,
};

const SUFFIX: &str = ".mail";
const DRAFT_SUFFIX: &str = ".tmp";
/// Left alone: for an operator to look at.
const BAD_SUFFIX: &str = ".bad";
/// Sticky; everybody may enter and make files; only the owner may list.
const MODE: u32 = 0o1733;

/// A draft that is older than this was left by a writer that is gone.
const DRAFT_AGE: Duration = Duration::from_secs(24 * 3600);

/// Makes the directory, gives it the right permissions, and removes drafts whose writers died. For
/// the daemon, at its start. No symbolic link is followed: it would open another directory to everybody.
pub fn prepare(data_dir: &Path, dir: &Path) -> io::Result<()> {
    spool::disk::make_dir(dir, 0o755)?;
    let opened = open_dir(data_dir, dir, OFlags::RDONLY)?;
    fchmod(opened, Mode::from_raw_mode(MODE))?;
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if has_suffix(&path, DRAFT_SUFFIX) && is_old(&path) {
            // What cannot be removed does no harm but for its room.
            let _ = fs::remove_file(&path);
        }
    }
    Ok(())
}

fn is_old(path: &Path) -> bool {
    let modified = path.symlink_metadata().and_then(|meta| meta.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > DRAFT_AGE))
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.as_os_str().as_bytes().ends_with(suffix.as_bytes())
}

fn open_dir(data_dir: &Path, dir: &Path, access: OFlags) -> io::Result<OwnedFd> {
    config::open_below(data_dir, dir, access | OFlags::DIRECTORY | OFlags::CLOEXEC).map_err(|error| {
        match Errno::from_io_error(&error) {
            Some(Errno::LOOP) => io::Error::other("a symbolic link, which the daemon has not made"),
            _ => error,
        }
    })
}

/// Writes a message so that it survives a crash once this returns.
///
/// # Errors
/// The message cannot be written, or the user has as many there as the quota permits.
pub fn write(
    data_dir: &Path,
    dir: &Path,
    quota: Quota,
    envelope: &Envelope,
    content: &[u8],
) -> io::Result<()> {
    let folder = open_dir(data_dir, dir, OFlags::PATH)?;
    let name = format!("{:x}-{}", UnixMillis::now().0, random_name()?);
    let _names = OwnNames::add(&folder, quota, &format!("{name}{SUFFIX}"), content.len() as u64)?;
    let draft = format!("{name}{DRAFT_SUFFIX}");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(openat(&folder, &draft, flags, Mode::RUSR | Mode::WUSR)?);
    let written = write_file(&mut file, &Header::new(envelope, content.len() as u64), content)
        .and_then(|()| Ok(renameat(&folder, &draft, &folder, format!("{name}{SUFFIX}"))?));
    if let Err(error) = written {
        let _ = unlinkat(&folder, &draft, rustix::fs::AtFlags::empty());
        return Err(error);
    }
    sync_names(&file, &folder)
}

/// Writes a message of a spool under a name of the caller's choice, which must be free. Synced, but for its
/// name. Binary MIME is read back as it is.
pub fn write_named(path: &Path, envelope: &Envelope, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let header = Header::new(envelope, content.len() as u64);
    let verbatim = envelope.body == BodyType::Binary;
    write_file(&mut file, &Header { verbatim, ..header }, content)
}

fn write_file(file: &mut File, header: &Header, content: &[u8]) -> io::Result<()> {
    let header = header.to_line();
    // A longer one would not be read back.
    if header.len() > HEADER_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many recipients at once"));
    }
    file.write_all(&header)?;
    file.write_all(content)?;
    // Whatever the umask says: the daemon must be able to read it.
    fchmod(&*file, Mode::from_raw_mode(0o644))?;
    file.sync_all()
}

/// Without this a crash keeps the bytes and loses their name. Who may not list a directory cannot
/// open it for reading, and only what is open can be synced: then the whole file system is.
fn sync_names(file: &File, dir: &OwnedFd) -> io::Result<()> {
    match openat(dir, ".", OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty()) {
        Ok(readable) => File::from(readable).sync_all(),
        Err(rustix::io::Errno::ACCESS) => Ok(rustix::fs::syncfs(file)?),
        Err(error) => Err(error.into()),
    }
}

/// 128 random bits: the name of another's mail cannot be guessed.
fn random_name() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// The reason why a file gives no message, by what the daemon does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// The message can never be read: [`set_aside`].
    Bad(String),
    /// It is not a file, such as a FIFO or a link, and has nothing that anybody would miss: [`remove`].
    NoFile(String),
    /// Try again later: it may be gone, or descriptors or memory are short.
    Later(String),
}

/// A file in the drop directory, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Id of the user who owns the file.
    pub uid: u32,
    /// Path of the file.
    pub path: PathBuf,
}

/// Returns so many dropped messages at most, of each user in turn, and each user's in the order of their names, which begin with the
/// time. Behind the file that `after` names for a user come the later ones first, and then the earlier ones. Anybody may have filled
/// the directory: no more names of a user are kept than are asked for.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path, after: &HashMap<u32, PathBuf>, most: usize) -> io::Result<Vec<Dropped>> {
    let mut users = HashMap::<u32, BinaryHeap<(bool, PathBuf)>>::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if !has_suffix(&path, SUFFIX) {
            continue;
        }
        // It may be gone.
        let Ok(found) = entry.metadata() else { continue };
        if users.len() >= USERS_MAX && !users.contains_key(&found.uid()) {
            continue;
        }
        let first = users.entry(found.uid()).or_default();
        first.push((after.get(&found.uid()).is_some_and(|after| path <= *after), path));
        if first.len() > most {
            first.pop();
        }
    }
    let mut users: Vec<_> =
        users.into_iter().map(|(uid, first)| (uid, first.into_sorted_vec().into_iter())).collect();
    users.sort_unstable_by_key(|(uid, _)| *uid);
    let mut files = Vec::new();
    while !users.is_empty() && files.len() < most {
        users.retain_mut(|(uid, own)| {
            let next = own.next().map(|(_, path)| Dropped { uid: *uid, path });
            let is_there = next.is_some();
            files.extend(next);
            is_there
        });
    }
    files.truncate(most);
    Ok(files)
}

/// Returns what users other than root and the daemon's own have made there and what is neither a file nor named like a message, so many
/// at most, directories last. What was passed over is left out.
///
/// # Errors
/// The directory cannot be read.
pub fn list_odd(dir: &Path, passed_over: &HashSet<PathBuf>, most: usize) -> io::Result<Vec<Dropped>> {
    let (mut odd, mut dirs) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if has_suffix(&path, SUFFIX) || entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        // It may be gone.
        let Ok(found) = entry.metadata() else { continue };
        if is_trusted(found.uid()) || passed_over.contains(&path) {
            continue;
        }
        let kind = if found.is_dir() { &mut dirs } else { &mut odd };
        if kind.len() < most {
            kind.push(Dropped { uid: found.uid(), path });
        }
    }
    odd.append(&mut dirs);
    odd.truncate(most);
    Ok(odd)
}

/// What is in the drop directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Messages that wait to be accepted.
    pub messages: u64,
    /// Files that were set aside, because no message could be accepted from them.
    pub set_aside: u64,
    /// Directories that could not be removed, because they are not empty.
    pub directories: u64,
    /// The user who has most of the directories, with their number.
    pub most: Option<(u32, u64)>,
}

/// Counts what is in the drop directory.
///
/// # Errors
/// The directory cannot be read.
pub fn tally(dir: &Path) -> io::Result<Tally> {
    let (mut tally, mut users) = (Tally::default(), HashMap::<u32, u64>::new());
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (name, kind) = (PathBuf::from(entry.file_name()), entry.file_type());
        let is_file = kind.as_ref().is_ok_and(fs::FileType::is_file);
        tally.messages += u64::from(is_file && has_suffix(&name, SUFFIX));
        if kind.is_ok_and(|kind| kind.is_dir()) {
            tally.directories += 1;
            // It may be gone.
            let Ok(uid) = entry.metadata().map(|found| found.uid()) else { continue };
            if users.len() < USERS_MAX || users.contains_key(&uid) {
                *users.entry(uid).or_default() += 1;
            }
        } else {
            tally.set_aside += u64::from(has_suffix(&name, BAD_SUFFIX));
        }
    }
    tally.most = users.into_iter().max_by_key(|(uid, count)| (*count, *uid));
    Ok(tally)
}

/// The message in a file. One over `message_bytes_max` is bad. Anything can stand there, so this follows
/// no link and waits for nothing but the disk.
pub fn read(path: &Path, message_bytes_max: u64) -> Result<Submission, Unreadable> {
    let (file, file_bytes, uid) = open_message(path, message_bytes_max)?;
    parse(file, file_bytes, uid, message_bytes_max)
}

/// The bytes of a file as [`read`] opens it, for a backup. They need not be a message.
pub fn read_bytes(path: &Path, message_bytes_max: u64) -> Result<Vec<u8>, Unreadable> {
    let (file, file_bytes, _) = open_message(path, message_bytes_max)?;
    let mut bytes = Vec::new();
    let read = file.take(file_bytes).read_to_end(&mut bytes);
    read.map_err(|error| Unreadable::Later(error.to_string()))?;
    Ok(bytes)
}

/// Returns the file, its size and its owner.
fn open_message(path: &Path, message_bytes_max: u64) -> Result<(File, u64, u32), Unreadable> {
    let bad = |why: &str| Unreadable::Bad(why.to_owned());
    let no_file = |why: &str| Unreadable::NoFile(why.to_owned());
    // Not to block on a FIFO, not to follow a link to someone else's file.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::LOOP) => return Err(no_file("a symbolic link")),
        Err(rustix::io::Errno::NXIO) => return Err(no_file("not a regular file")),
        Err(rustix::io::Errno::ACCESS) if path.is_dir() => return Err(no_file("not a regular file")),
        Err(rustix::io::Errno::ACCESS) => return Err(bad("permission denied")),
        Err(error) => return Err(Unreadable::Later(error.to_string())),
    };
    let stat = fstat(&file).map_err(|error| Unreadable::Later(error.to_string()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(no_file("not a regular file"));
    }
    // A second name: a link to a file of somebody who did not send it.
    if stat.st_nlink != 1 {
        return Err(bad("it has another name elsewhere"));
    }
    let file_bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if file_bytes > message_bytes_max.saturating_add(HEADER_BYTES_MAX as u64) {
        return Err(bad("larger than a message may be"));
    }
    Ok((File::from(file), file_bytes, stat.st_uid))
}

/// The file may change while it is read: what counts is what was read.
fn parse(file: File, file_bytes: u64, uid: u32, message_bytes_max: u64) -> Result<Submission, Unreadable> {
    let torn = || Unreadable::Bad("its length is not what its first line says".to_owned());
    let later = |error: io::Error| Unreadable::Later(error.to_string());
    let mut from = BufReader::new(file);
    let mut line = Vec::new();
    (&mut from).take(HEADER_BYTES_MAX as u64).read_until(b'\n', &mut line).map_err(later)?;
    let header = Header::parse(&line).map_err(Unreadable::Bad)?;
    let envelope = header.envelope().map_err(Unreadable::Bad)?;
    if has_too_many(&envelope, uid) {
        return Err(Unreadable::Bad("too many recipients at once".to_owned()));
    }
    let is_verbatim = header.verbatim && envelope.body == BodyType::Binary;
    if header.verbatim && !(is_verbatim && is_trusted(uid)) {
        let text = "only binarymime of root or of the daemon's own user may be verbatim";
        return Err(Unreadable::Bad(text.to_owned()));
    }
    if header.size_bytes > message_bytes_max {
        return Err(Unreadable::Bad("larger than a message may be".to_owned()));
    }
    // A hole costs who makes it nothing: what does not fit is not read.
    if file_bytes.saturating_sub(line.len() as u64) != header.size_bytes {
        return Err(torn());
    }
    let mut content = Vec::new();
    (&mut from).take(header.size_bytes + 1).read_to_end(&mut content).map_err(later)?;
    if content.len() as u64 != header.size_bytes {
        return Err(torn());
    }
    let content = if is_verbatim { content } else { wire_form(content) };
    Ok(Submission { envelope, content: content.into(), uid })
}

/// Removes a file whose message is durable in the spool, or what is not a file. It need not be synced: after a crash the
/// message is taken in once more, which is allowed. A directory that is not empty stays.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::IsADirectory => fs::remove_dir(path),
        removed => removed,
    }
}

/// Renames a bad file so that it is not tried again; its bytes stay for an operator.
pub fn set_aside(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(BAD_SUFFIX);
    fs::rename(path, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{ForwardPath, Recipient, ReversePath};
    use std::os::unix::fs::{MetadataExt, symlink};

    fn envelope() -> Envelope {
        let mut e = Envelope::new(ReversePath::Null);
        e.recipients.push(Recipient::new(ForwardPath::parse("bob@b.test", false).unwrap()));
        e
    }

    const QUOTA: Quota = Quota { messages: 10, bytes: 1 << 20 };

    fn all(dir: &Path) -> Vec<PathBuf> {
        paths(list(dir, &HashMap::new(), 100))
    }

    fn paths(listed: io::Result<Vec<Dropped>>) -> Vec<PathBuf> {
        listed.unwrap().into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn a_link_in_the_folder_of_the_data_leads_no_message_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (data, other) = (dir.path().join("data"), dir.path().join("other"));
        fs::create_dir_all(data.join("deep")).unwrap();
        fs::create_dir(&other).unwrap();
        symlink(&other, data.join("drop")).unwrap();
        let error = write(&data, &data.join("drop"), QUOTA, &envelope(), b"x\n").unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        let mode = || fs::metadata(&other).unwrap().mode();
        let before = mode();
        assert!(
            prepare(&data, &data.join("drop")).is_err() && mode() == before,
            "the other folder stays closed"
        );
        for path in ["deep/../../other", "../other"] {
            assert!(write(&data, &data.join(path), QUOTA, &envelope(), b"x\n").is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        // The administrator may place the data behind a link.
        symlink(&data, dir.path().join("link")).unwrap();
        let deep = dir.path().join("link/deep");
        write(&dir.path().join("link"), &deep, QUOTA, &envelope(), b"x\n").unwrap();
        assert_eq!(all(&data.join("deep")).len(), 1);
    }

    #[test]
    fn a_dropped_message_is_found_with_its_envelope_and_user() {
        let dir = tempfile::tempdir().unwrap();
        let maildrop_dir = dir.path().join("drop");
        prepare(Path::new("/nonexistent"), &maildrop_dir).unwrap();
        assert_eq!(fs::metadata(&maildrop_dir).unwrap().mode() & 0o7777, 0o1733);
        write(Path::new("/nonexistent"), &maildrop_dir, QUOTA, &envelope(), b"Subject: x\n\n.\n").unwrap();
        let [path] = &all(&maildrop_dir)[..] else { panic!() };
        let submission = read(path, 1000).unwrap();
        assert_eq!(submission.envelope, envelope());
        assert_eq!(&submission.content[..], b"Subject: x\r\n\r\n.\r\n");
        assert_eq!(submission.uid, rustix::process::geteuid().as_raw());
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o644);
        remove(path).unwrap();
        assert!(all(&maildrop_dir).is_empty());
    }

    #[test]
    fn messages_come_in_the_order_of_their_arrival() {
        let dir = tempfile::tempdir().unwrap();
        for (name, subject) in
            [("2-b.mail", "second"), ("1-a.mail", "first"), ("0.tmp", "torn"), ("x", "junk")]
        {
            let mut bytes = Header::new(&envelope(), subject.len() as u64).to_line();
            bytes.extend_from_slice(subject.as_bytes());
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let contents: Vec<_> = all(dir.path()).iter().map(|path| read(path, 1000).unwrap().content).collect();
        assert_eq!(contents, [&b"first"[..], b"second"]);
    }

    #[test]
    fn binary_mime_of_a_spool_is_read_back_byte_for_byte_and_other_mail_is_not_verbatim() {
        let dir = tempfile::tempdir().unwrap();
        let content = b"Content-Type: image/x\r\nContent-Transfer-Encoding: binary\r\n\r\n\0a\nb\rc\0";
        let binary = Envelope { body: BodyType::Binary, ..envelope() };
        write_named(&dir.path().join("1.mail"), &binary, content).unwrap();
        write_named(&dir.path().join("2.mail"), &envelope(), b"a\0\nb").unwrap();
        let contents: Vec<_> = all(dir.path()).iter().map(|path| read(path, 1000).unwrap().content).collect();
        assert_eq!(contents, [&content[..], b"a\r\nb"]);
    }

    #[test]
    fn a_file_of_another_user_or_of_text_that_claims_to_be_verbatim_is_set_aside() {
        let with = |body: BodyType| {
            let envelope = Envelope { body, ..envelope() };
            let mut bytes = Header { verbatim: true, ..Header::new(&envelope, 2) }.to_line();
            bytes.extend_from_slice(b"\0\n");
            bytes
        };
        let expected = "only binarymime of root or of the daemon's own user may be verbatim";
        assert_eq!(why_bad(|path, _| fs::write(path, with(BodyType::SevenBit)).unwrap()), expected);
        let stranger = rustix::process::geteuid().as_raw() + 1;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1");
        let bytes = with(BodyType::Binary);
        fs::write(&path, &bytes).unwrap();
        let parsed = |uid| parse(File::open(&path).unwrap(), bytes.len() as u64, uid, 1000);
        assert_eq!(parsed(stranger), Err(Unreadable::Bad(expected.to_owned())));
        assert_eq!(&parsed(0).unwrap().content[..], b"\0\n");
    }

    #[test]
    fn few_of_many_are_listed_and_the_others_behind_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = |n: u32| dir.path().join(format!("{n}.mail"));
        [4, 2, 5, 1, 3].into_iter().for_each(|n| fs::write(path(n), b"").unwrap());
        let own = rustix::process::geteuid().as_raw();
        let listed = |after: Option<u32>| {
            let after = after.map(|n| (own, path(n))).into_iter().collect();
            paths(list(dir.path(), &after, 2))
        };
        assert_eq!(listed(None), [1, 2].map(path));
        assert_eq!(listed(Some(2)), [3, 4].map(path));
        assert_eq!(listed(Some(4)), [5, 1].map(path), "and then the first ones again");
    }

    #[test]
    fn users_take_turns_however_many_files_one_of_them_has() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, uid| {
            fs::write(dir.path().join(name), "").unwrap();
            std::os::unix::fs::chown(dir.path().join(name), Some(uid), None).unwrap();
        };
        (0..500).for_each(|n| make(&format!("0{n:03}.mail"), 1001));
        (0..3).for_each(|n| make(&format!("9{n}.mail"), 1002));
        let listed = list(dir.path(), &HashMap::new(), 8).unwrap();
        let users: Vec<u32> = listed.iter().map(|file| file.uid).collect();
        assert_eq!(users, [1001, 1002, 1001, 1002, 1001, 1002, 1001, 1001]);
    }

    /// The reason why the one file in the directory is bad.
    fn why_bad(make: impl FnOnce(&Path, &Path)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir_in(dir.path()).unwrap();
        make(&dir.path().join("1.mail"), elsewhere.path());
        let [path] = &all(dir.path())[..] else { panic!("one file") };
        let Err(Unreadable::Bad(why) | Unreadable::NoFile(why)) = read(path, 1000) else {
            panic!("a message")
        };
        set_aside(path).unwrap();
        assert!(all(dir.path()).is_empty() && dir.path().join("1.mail.bad").symlink_metadata().is_ok());
        why
    }

    fn good_file() -> Vec<u8> {
        let mut bytes = Header::new(&envelope(), 2).to_line();
        bytes.extend_from_slice(b"hi");
        bytes
    }

    #[test]
    fn links_and_odd_files_are_not_read() {
        assert_eq!(
            why_bad(|path, elsewhere| {
                fs::write(elsewhere.join("secret"), good_file()).unwrap();
                symlink(elsewhere.join("secret"), path).unwrap();
            }),
            "a symbolic link"
        );
        assert_eq!(
            why_bad(|path, elsewhere| {
                fs::write(elsewhere.join("secret"), good_file()).unwrap();
                fs::hard_link(elsewhere.join("secret"), path).unwrap();
            }),
            "it has another name elsewhere"
        );
        assert_eq!(why_bad(|path, _| fs::create_dir(path).unwrap()), "not a regular file");
        let fifo = |path: &Path| {
            rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        };
        assert_eq!(why_bad(|path, _| fifo(path)), "not a regular file");
    }

    #[test]
    fn torn_long_and_senseless_files_are_set_aside() {
        let write = |bytes: Vec<u8>| why_bad(|path, _| fs::write(path, bytes).unwrap());
        assert_eq!(
            write([good_file(), b"!".to_vec()].concat()),
            "its length is not what its first line says"
        );
        assert_eq!(
            write(good_file()[..good_file().len() - 1].to_vec()),
            "its length is not what its first line says"
        );
        assert_eq!(write(vec![b'x'; HEADER_BYTES_MAX + 1001]), "larger than a message may be");
        assert_eq!(write(Header::new(&envelope(), u64::MAX).to_line()), "larger than a message may be");
        assert!(write(Vec::new()).starts_with("bad envelope"));
        assert!(write(b"From: x\n\nhello\n".to_vec()).starts_with("bad envelope"));
    }

    #[test]
    fn a_file_that_shrinks_or_grows_while_it_is_read_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.mail");
        let length = good_file().len() as u64;
        for changed in [length - 1, length + 1, length + (1 << 40)] {
            fs::write(&path, good_file()).unwrap();
            let (file, file_bytes, uid) = open_message(&path, 1000).unwrap();
            File::options().write(true).open(&path).unwrap().set_len(changed).unwrap();
            let why = parse(file, file_bytes, uid, 1000).unwrap_err();
            assert_eq!(why, Unreadable::Bad("its length is not what its first line says".to_owned()));
        }
    }

    /// Bytes that this thread has taken from files.
    fn read_bytes() -> u64 {
        let io = fs::read_to_string("/proc/thread-self/io").unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    }

    #[test]
    fn of_other_users_so_many_recipients_at_once_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.mail");
        let mut long = envelope();
        long.recipients.resize(1001, long.recipients[0].clone());
        write_named(&path, &long, b"hi").unwrap();
        let own = rustix::process::geteuid().as_raw();
        let parsed = |uid| {
            let file = File::open(&path).unwrap();
            let bytes = file.metadata().unwrap().len();
            parse(file, bytes, uid, 1000)
        };
        assert_eq!(parsed(own + 1), Err(Unreadable::Bad("too many recipients at once".to_owned())));
        assert_eq!(parsed(own).unwrap().envelope, long);
    }

    #[test]
    fn a_file_that_is_mostly_a_hole_is_set_aside_unread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.mail");
        fs::write(&path, Header::new(&envelope(), 40_000_000).to_line()).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(50_000_000).unwrap();
        let before = read_bytes();
        let why = read(&path, 60_000_000).unwrap_err();
        assert_eq!(why, Unreadable::Bad("its length is not what its first line says".to_owned()));
        assert!(read_bytes() - before < 1_000_000, "{}", read_bytes() - before);
    }

    #[test]
    fn drafts_of_writers_that_died_are_removed_and_young_ones_left() {
        let dir = tempfile::tempdir().unwrap();
        let two_days_ago = std::time::SystemTime::now() - 2 * DRAFT_AGE;
        for (name, is_old) in [("1.tmp", true), ("2.tmp", false), ("3.mail", true)] {
            let file = File::create(dir.path().join(name)).unwrap();
            if is_old {
                file.set_modified(two_days_ago).unwrap();
            }
        }
        prepare(Path::new("/nonexistent"), dir.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["2.tmp", "3.mail"]);
    }

    #[test]
    fn a_message_that_cannot_be_written_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), &dir.path().join("missing"), QUOTA, &envelope(), b"x").is_err());
        write(Path::new("/nonexistent"), dir.path(), QUOTA, &envelope(), b"x").unwrap();
        assert!(
            fs::read_dir(dir.path()).unwrap().all(|e| e
                .unwrap()
                .path()
                .extension()
                .is_some_and(|e| e == "mail"))
        );
    }
}
