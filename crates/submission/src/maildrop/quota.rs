//! The limits of a user in the drop directory. Nobody but the daemon can list it, so each user has a file `UID.names` there with the
//! names of this user's own messages. It stops `sendmail`; what is written past it is removed by the daemon ([`remove_excess`]).

use super::{DRAFT_SUFFIX, SUFFIX, has_suffix, is_old};
use crate::envelope::is_trusted;
use rustix::{
    fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat},
    process::geteuid,
};
use std::{
    collections::HashMap,
    fmt::Write as _,
    fs::{self, File, Metadata},
    io::{self, Read as _, Seek as _, Write as _},
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
    path::Path,
};

const NAMES_SUFFIX: &str = ".names";
/// Users whose files are counted; others wait until these have fewer.
pub(super) const USERS_MAX: usize = 4096;
/// Octets of a file of names that are read.
const NAMES_BYTES_MAX: u64 = 4 << 20;
/// Room that the daemon leaves a user beyond the limits that `sendmail` keeps.
const SLACK: u64 = 2;

/// The most that a user other than root and the daemon's own may have in the drop directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// How many messages may wait at once.
    pub messages: u64,
    /// Octets that they may take together.
    pub bytes: u64,
}

impl Quota {
    fn check(self, messages: u64, bytes: u64) -> io::Result<()> {
        let what = if messages >= self.messages {
            format!(
                "{messages} of your messages wait there, and a user may have {} (`control.maildrop_max_messages`)",
                self.messages
            )
        } else if bytes > self.bytes {
            format!(
                "with this one, your messages there have {bytes} octets, and a user may have {} \
                 (`control.maildrop_max_size`)",
                self.bytes
            )
        } else {
            return Ok(());
        };
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, what))
    }
}

/// The names of a user's own messages, locked until this is dropped.
pub(super) struct OwnNames(File);

impl OwnNames {
    /// Notes one more message under this name.
    ///
    /// # Errors
    /// The user has too much in the directory already. Root never has. If another user has made the file, nothing can be counted, and
    /// the message is taken.
    pub(super) fn add(dir: &OwnedFd, quota: Quota, name: &str, size_bytes: u64) -> io::Result<Option<Self>> {
        let own = geteuid();
        if own.is_root() {
            return Ok(None);
        }
        let path = format!("{}{NAMES_SUFFIX}", own.as_raw());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(file) = openat(dir, path, flags, Mode::RUSR | Mode::WUSR) else { return Ok(None) };
        let found = fstat(&file)?;
        if found.st_uid != own.as_raw() || FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        flock(&file, FlockOperation::LockExclusive)?;
        let mut names = Self(File::from(file));
        names.add_locked(dir, quota, name, size_bytes)?;
        Ok(Some(names))
    }

    fn add_locked(&mut self, dir: &OwnedFd, quota: Quota, name: &str, size_bytes: u64) -> io::Result<()> {
        let mut text = String::new();
        (&self.0).take(NAMES_BYTES_MAX).read_to_string(&mut text)?;
        let (mut left, mut messages, mut bytes) = (String::new(), 0, size_bytes);
        for name in text.lines().filter(|name| !name.contains('/')) {
            if let Ok(found) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                messages += 1;
                bytes = bytes.saturating_add(u64::try_from(found.st_size).unwrap_or(0));
                let _ = writeln!(left, "{name}");
            }
        }
        quota.check(messages, bytes)?;
        let _ = writeln!(left, "{name}");
        self.0.rewind()?;
        self.0.set_len(0)?;
        self.0.write_all(left.as_bytes())
    }
}

/// What the files of a user in the directory use.
#[derive(Debug, Clone, Copy, Default)]
struct Use {
    files: u64,
    bytes: u64,
}

impl Use {
    fn is_over(self, quota: Quota) -> bool {
        self.files > quota.messages.saturating_mul(SLACK) || self.bytes > quota.bytes.saturating_mul(SLACK)
    }
}

/// Removes drafts of writers that are gone, and what users have there beyond twice their limits, messages last. Returns the number of
/// removed files for each of these users.
///
/// # Errors
/// The directory cannot be read.
pub fn remove_excess(dir: &Path, quota: Quota) -> io::Result<HashMap<u32, u64>> {
    let mut uses = HashMap::<u32, Use>::new();
    each_file(dir, |path, found| {
        if has_suffix(path, DRAFT_SUFFIX) && is_old(path) {
            // What cannot be removed does no harm but for its room.
            let _ = fs::remove_file(path);
        } else if uses.len() < USERS_MAX || uses.contains_key(&found.uid()) {
            let own = uses.entry(found.uid()).or_default();
            own.files += 1;
            own.bytes += bytes_of(found);
        }
    })?;
    uses.retain(|_, own| own.is_over(quota));
    let mut removed = HashMap::new();
    for takes_messages in [false, true] {
        if uses.values().all(|own| !own.is_over(quota)) {
            break;
        }
        each_file(dir, |path, found| {
            let Some(own) = uses.get_mut(&found.uid()).filter(|own| own.is_over(quota)) else { return };
            let is_message = has_suffix(path, SUFFIX) || has_suffix(path, NAMES_SUFFIX);
            if is_message == takes_messages && fs::remove_file(path).is_ok() {
                own.files -= 1;
                own.bytes = own.bytes.saturating_sub(bytes_of(found));
                *removed.entry(found.uid()).or_default() += 1;
            }
        })?;
    }
    Ok(removed)
}

/// Passes on what users have made there and nobody else has a name for: a link to a file of another user is not that user's.
fn each_file(dir: &Path, mut each: impl FnMut(&Path, &Metadata)) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(found) = entry.metadata() else { continue };
        if !found.is_dir() && found.nlink() == 1 && !is_trusted(found.uid()) {
            each(&entry.path(), &found);
        }
    }
    Ok(())
}

/// Returns the room on the disk: holes in a file take none.
fn bytes_of(found: &Metadata) -> u64 {
    found.blocks() * 512
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    const QUOTA: Quota = Quota { messages: 2, bytes: 1 << 20 };

    #[test]
    fn names_of_messages_that_are_gone_are_forgotten_and_those_that_are_there_count() {
        let at = tempfile::tempdir().unwrap();
        let dir: OwnedFd = File::open(at.path()).unwrap().into();
        let add = |name: &str, size: u64| {
            let path = at.path().join("1.names");
            let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
            let mut names = OwnNames(file.unwrap());
            names.add_locked(&dir, QUOTA, name, size)?;
            fs::write(at.path().join(name), "12345")
        };
        add("1.mail", 5).unwrap();
        add("2.mail", 5).unwrap();
        let why = add("3.mail", 5).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::QuotaExceeded);
        assert!(why.to_string().contains("a user may have 2 (`control.maildrop_max_messages`)"), "{why}");
        fs::remove_file(at.path().join("1.mail")).unwrap();
        let why = add("3.mail", 1 << 20).unwrap_err();
        assert!(why.to_string().contains("1048581 octets"), "{why}");
        add("3.mail", 5).unwrap();
        assert_eq!(fs::read_to_string(at.path().join("1.names")).unwrap(), "2.mail\n3.mail\n");
    }

    #[test]
    fn what_a_user_has_beyond_twice_the_limits_is_removed_and_messages_come_last() {
        if !geteuid().is_root() {
            println!("SKIPPED: only root can make files of other users");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let make = |name: String, uid: u32, size: usize| {
            fs::write(dir.path().join(&name), vec![1; size]).unwrap();
            chown(dir.path().join(name), Some(uid), None).unwrap();
        };
        (0..5).for_each(|n| make(format!("{n}.mail"), 1001, 10));
        (0..50).for_each(|n| make(format!("junk{n}"), 1001, 10));
        (0..3).for_each(|n| make(format!("{n}.mail.bad"), 1002, 10));
        make("large.mail".into(), 1003, 3 << 20);
        (0..9).for_each(|n| make(format!("own{n}.mail"), 0, 10));
        let removed = remove_excess(dir.path(), QUOTA).unwrap();
        assert_eq!(removed, [(1001, 51), (1003, 1)].into());
        let of = |uid: u32| {
            let files = fs::read_dir(dir.path()).unwrap().flatten();
            files.filter(|file| file.metadata().unwrap().uid() == uid).count()
        };
        assert_eq!([1001, 1002, 1003, 0].map(of), [4, 3, 0, 9]);
        assert!(remove_excess(dir.path(), QUOTA).unwrap().is_empty());
    }
}
