//! Delivery into files in the mbox format. A file is locked by `FILE.lock` and by fcntl(2). A message is appended, and
//! synced before the outcome is reported; where that fails, the file is cut to its length of before.

mod format;
mod lock;

use crate::{
    local::{ContentSource, Parcel},
    maildir::{
        Folder, Links, PIECES_AHEAD, Pieces, Unwritten, check_owner, folder, open_parent, refuse_owner,
    },
};
use format::{Quoted, from_line};
use lock::{DotLock, RETRY_INTERVAL, locked, try_lock_whole};
use mail::{Enhanced, Outcome, UnixMillis};
use rustix::{
    fs::{self, AtFlags, Mode, OFlags, Uid},
    io::Errno,
    process::geteuid,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Time to get both locks of a file; then the mail is deferred.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Delivers a message to the file of a recipient.
pub(crate) async fn deliver<S: ContentSource>(template: &str, parcel: &Parcel<'_, S>) -> Outcome {
    let recipient = parcel.recipient;
    let mailbox = recipient.mailbox();
    let Some(file) = mailbox.and_then(|mailbox| folder(template, mailbox, parcel.settings.separator)) else {
        return Outcome::failed(Enhanced(5, 1, 1), format!("{recipient} cannot have a mailbox file"));
    };
    let (pieces, inlet) = mpsc::channel(PIECES_AHEAD);
    let head = head(parcel);
    let links = parcel.settings.links;
    let writer = tokio::task::spawn_blocking(move || {
        let written = append(&file, links, &head, inlet);
        (file.path, written)
    });
    let sent = parcel.content.send_pieces(pieces).await;
    let written = writer.await;
    if let Err(outcome) = sent {
        return outcome;
    }
    match written {
        Ok((path, appended)) => outcome(&path, appended),
        Err(e) => Outcome::deferred(Enhanced(4, 3, 0), format!("append to a mailbox: {e}")),
    }
}

/// Returns the line in front of a message, and its first fields.
pub(crate) fn head<S>(parcel: &Parcel<'_, S>) -> String {
    from_line(parcel.sender, UnixMillis::now()) + &parcel.head()
}

fn outcome(path: &Path, appended: Result<(), Unwritten>) -> Outcome {
    match appended {
        // A report on success leaves the path out.
        Ok(()) => Outcome::delivered(Enhanced(2, 0, 0), format!("delivered to mailbox {}", path.display())),
        Err(why) => why.outcome(&format!("append to {}", path.display())),
    }
}

/// Appends one message, on a thread that may block.
pub(crate) fn append_blocking(place: &Folder, links: Links, head: &str, pieces: impl Pieces) -> Outcome {
    outcome(&place.path, append(place, links, head, pieces))
}

/// Runs on a thread that may block. If the message is not whole, nothing is delivered.
fn append(place: &Folder, links: Links, head: &str, mut pieces: impl Pieces) -> Result<(), Unwritten> {
    let (dir, name) = open_parent(place, links)?;
    let until = Instant::now() + LOCK_TIMEOUT;
    let (_lock, mut file) = loop {
        let dot_lock = DotLock::take(&dir, &name, until)?;
        let file = open(&dir, &name, place, links)?;
        if try_lock_whole(&file)? {
            break (dot_lock, file);
        }
        // Debian's programs take fcntl(2) first, and then wait for the other lock (Debian Policy 11.6): they get it.
        drop(dot_lock);
        if Instant::now() >= until {
            return Err(locked("the file".as_ref()).into());
        }
        std::thread::sleep(RETRY_INTERVAL);
    };
    let length = file.metadata()?.len();
    if length == 0 {
        // The name of a new file is in its directory. Before the message: whoever finds one here relies on the name.
        File::from(dir.try_clone()?).sync_all()?;
    }
    let written = write(&mut file, length, head, &mut pieces);
    if let Err(e) = written {
        // Half a message would be taken as a part of the one before it.
        file.set_len(length)?;
        file.sync_data()?;
        return Err(e.into());
    }
    Ok(())
}

/// Opens the file of a mailbox; makes it if it is missing.
fn open(dir: &OwnedFd, name: &OsStr, place: &Folder, links: Links) -> Result<File, Unwritten> {
    let follow = if links == Links::Follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | OFlags::CLOEXEC | follow;
    let file = match fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP) => return Err(Unwritten::link(links, &place.path)),
        Err(Errno::ACCESS) => {
            // Its owner is usually the reason, and says more than the permissions.
            if let Ok(found) = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                refuse_owner(Uid::from_raw(found.st_uid), geteuid(), &place.path)?;
            }
            return Err(Errno::ACCESS.into());
        }
        opened => File::from(opened?),
    };
    let found = fs::fstat(&file)?;
    let is_file = fs::FileType::from_raw_mode(found.st_mode).is_file();
    if !is_file || found.st_nlink > 1 {
        let what = "it must be a file with a single name (no device, pipe or hard link)";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what).into());
    }
    check_owner(&file, &place.path)?;
    Ok(file)
}

fn write(file: &mut File, length: u64, head: &str, pieces: &mut impl Pieces) -> io::Result<()> {
    let gap = gap(file, length)?;
    file.seek(SeekFrom::End(0))?;
    let mut out = Quoted::new(io::BufWriter::with_capacity(64 * 1024, file));
    out.plain(gap)?;
    out.plain(head.as_bytes())?;
    while let Some(bytes) = pieces.next_piece()? {
        out.content(&bytes)?;
    }
    let mut out = out.finish()?;
    out.flush()?;
    out.get_ref().sync_data()
}

/// Returns the line ends that are missing at the end of a file: a message begins behind an empty line. They are missing
/// where a program or a machine has crashed in the middle of a message.
fn gap(file: &mut File, length: u64) -> io::Result<&'static [u8]> {
    let count = length.min(2);
    file.seek(SeekFrom::Start(length - count))?;
    let mut end = Vec::new();
    file.take(count).read_to_end(&mut end)?;
    Ok(match &end[..] {
        [] | [b'\n', b'\n'] => b"",
        [.., b'\n'] => b"\n",
        _ => b"\n\n",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use mail::Mailbox;
    use std::fs as files;

    fn append_to(path: &Path, pieces: &[Option<&str>]) -> Result<(), Unwritten> {
        let mailbox = Mailbox::parse("jane@b.test", false).unwrap();
        let place = folder(path.to_str().unwrap(), &mailbox, None).unwrap();
        let (inlet, outlet) = mpsc::channel(9);
        for piece in pieces {
            inlet.try_send(piece.map(|text| Bytes::from(text.to_owned()))).unwrap();
        }
        drop(inlet);
        append(&place, Links::OfOperator, "From a@b.test Mon Nov 23 10:00:00 2026\n", outlet)
    }

    #[test]
    fn messages_are_appended_with_quoted_lines_and_an_empty_line_between() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("box/{local}");
        let text = [Some("Subject: x\r\n\r\nFr"), Some("om here\r\n>From there\r\nFromage\r\nend"), None];
        append_to(&path, &text).unwrap();
        append_to(&path, &[Some("\r\nFrom \r\n"), None]).unwrap();
        let head = "From a@b.test Mon Nov 23 10:00:00 2026\n";
        let first = "Subject: x\n\n>From here\n>>From there\nFromage\nend\n\n";
        let expected = format!("{head}{first}{head}\n>From \n\n");
        assert_eq!(files::read_to_string(dir.path().join("box/jane")).unwrap(), expected);
        assert_eq!(files::read_dir(dir.path().join("box")).unwrap().count(), 1, "no lock is left");
    }

    #[test]
    fn half_a_message_leaves_the_file_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jane");
        for before in ["", "From x\n\nold\n\n"] {
            files::write(&path, before).unwrap();
            assert!(append_to(&path, &[Some("Subject: x\r\n\r\nbegin")]).is_err());
            assert_eq!(files::read_to_string(&path).unwrap(), before);
        }
    }

    #[test]
    fn what_a_crash_has_left_is_separated_from_the_next_message() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jane");
        for (before, gap) in
            [("From x\n\nhal", "\n\n"), ("From x\n\nhalf\n", "\n"), ("From x\n\nold\n\n", "")]
        {
            files::write(&path, before).unwrap();
            append_to(&path, &[Some("S: x\r\n\r\ny\r\n"), None]).unwrap();
            let text = files::read_to_string(&path).unwrap();
            assert!(text.starts_with(&format!("{before}{gap}From a@b.test")), "{text}");
        }
    }

    /// Returns whether this process has a lock of fcntl(2) on a whole file.
    fn is_locked_whole(path: &Path) -> bool {
        let inode = std::os::unix::fs::MetadataExt::ino(&files::metadata(path).unwrap());
        let locks = files::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1..5] == ["POSIX", "ADVISORY", "WRITE", &std::process::id().to_string()]
                && words[5].ends_with(&format!(":{inode}"))
                && words[6..] == ["0", "EOF"]
        })
    }

    #[test]
    fn both_locks_are_held_from_the_first_octet_to_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let (path, lock) = (dir.path().join("jane"), dir.path().join("jane.lock"));
        let mailbox = Mailbox::parse("jane@b.test", false).unwrap();
        let place = folder(path.to_str().unwrap(), &mailbox, None).unwrap();
        // Without room for a second piece, a send returns when the first has been taken.
        let (inlet, outlet) = mpsc::channel(1);
        let writer = std::thread::spawn(move || append(&place, Links::OfOperator, "From x\n", outlet));
        for piece in ["Subject: x\r\n\r\n", "one\r\n", "two\r\n"] {
            inlet.blocking_send(Some(Bytes::from(piece))).unwrap();
        }
        assert!(is_locked_whole(&path) && lock.exists());
        inlet.blocking_send(None).unwrap();
        writer.join().unwrap().unwrap();
        assert!(!is_locked_whole(&path) && !lock.exists());
        assert_eq!(files::read_to_string(&path).unwrap(), "From x\nSubject: x\n\none\ntwo\n\n");
    }

    #[test]
    fn links_and_devices_are_no_mailboxes() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link, hard) =
            (dir.path().join("target"), dir.path().join("link"), dir.path().join("hard"));
        files::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(append_to(&link, &[None]), Err(Unwritten::SymbolicLink(_))));
        for links in [Links::OfOperator, Links::None] {
            let advice = Unwritten::link(links, &link).to_string();
            assert!(advice.contains("it leads") && !advice.contains("folder"), "{advice}");
        }
        files::hard_link(&target, &hard).unwrap();
        assert!(matches!(append_to(&hard, &[None]), Err(Unwritten::Failed(_))));
        assert!(append_to(Path::new("/dev/null"), &[None]).is_err());
        assert_eq!(files::read_to_string(&target).unwrap(), "");
    }
}
