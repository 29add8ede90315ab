//! Delivery into Maildirs. Each message is a file, which is written under `tmp`, synced, and renamed into `new`; the
//! directory is synced before the outcome is reported.

use crate::{DeliverySettings, LeasedMessage, WorkSource, session::millis};
use bytes::Bytes;
use mail::{Attempt, Enhanced, Mailbox, Message, Outcome, Part};
use rustix::{
    fs::{self, AtFlags, FileType, Mode, OFlags},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fmt,
    fs::File,
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc;

/// The pieces of content that are read ahead of the writer.
const PIECES_AHEAD: usize = 2;
/// Longest name of a file or folder.
const NAME_MAX: usize = 255;

/// Makes names of files unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Delivers jobs, one after the other.
pub(crate) async fn serve<J: WorkSource>(template: &str, settings: &DeliverySettings, source: &J) {
    while let Some(lease) = source.next_lease() {
        let begun = Instant::now();
        let results = match source.message(&lease).await {
            Ok(message) => deliver(template, settings, source, &lease, &message).await,
            Err(outcome) => lease.recipients.iter().map(|index| (*index, outcome.clone())).collect(),
        };
        let attempt = Attempt {
            relay: "maildir".into(),
            queued_ms: lease.queued_ms,
            transfer_ms: millis(begun.elapsed()),
            ..Attempt::default()
        };
        source.complete(lease, results, &attempt);
    }
}

async fn deliver<J: WorkSource>(
    template: &str,
    settings: &DeliverySettings,
    source: &J,
    lease: &LeasedMessage,
    message: &Message,
) -> Vec<(u32, Outcome)> {
    let mut results = Vec::with_capacity(lease.recipients.len());
    for index in &lease.recipients {
        let recipient = &message.envelope.recipients[*index as usize].path;
        let outcome = match recipient.mailbox().and_then(|mailbox| folder(template, mailbox)) {
            _ if !source.is_local_user(recipient) => {
                Outcome::failed(Enhanced(5, 1, 1), format!("{recipient}: no such user here"))
            }
            Some(folder) => store(folder, settings, source, message, recipient.as_str()).await,
            None => Outcome::failed(Enhanced(5, 1, 1), format!("{recipient} cannot have a Maildir")),
        };
        results.push((*index, outcome));
    }
    results
}

/// Returns whether a Maildir can be named after this mailbox. Mail for any other mailbox would fail, so it is rejected
/// before it is accepted.
pub fn can_have_maildir(mailbox: &Mailbox) -> bool {
    let local = mailbox.local();
    // Few local parts have these characters, and only they can lead to an unsafe name. A character in lower case has
    // three times the octets at most.
    let is_odd = local.starts_with(['"', '.']) || local.contains('/') || local.len() > NAME_MAX / 3;
    !is_odd || folder("", mailbox).is_some()
}

/// The path of a Maildir. Its beginning was written by the operator; the rest may be under the control of the
/// Maildir's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Octets of the operator's beginning.
    fixed_bytes: usize,
}

/// Returns the recipient's Maildir, or `None` when its name would lead anywhere else: a local part is never trusted to
/// be a file name. The part behind a `+` is for the user (RFC 5233).
pub(crate) fn folder(template: &str, mailbox: &Mailbox) -> Option<Folder> {
    let local = mailbox.local_unquoted().to_lowercase();
    let user = match local.split_once('+') {
        Some((user, _)) if !user.is_empty() => user,
        _ => &local,
    };
    let domain = mailbox.domain().key();
    let is_safe = |name: &str| {
        !name.is_empty()
            && name.len() <= NAME_MAX
            && !name.starts_with('.')
            && !name.contains(['/', '\0'])
            && !name.chars().any(char::is_control)
    };
    if !is_safe(user) || !is_safe(&domain) {
        return None;
    }
    // Both placeholders are replaced in one pass, so that inserted text is not searched for placeholders.
    let mut path = String::with_capacity(template.len() + user.len() + domain.len());
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}')?;
        path.push_str(before);
        path.push_str(if name == "local" { user } else { &domain });
        rest = behind;
    }
    path.push_str(rest);
    let fixed = template.split('{').next().unwrap_or_default();
    let fixed = if fixed.len() == template.len() { fixed.trim_end_matches('/') } else { fixed };
    let fixed_bytes = fixed.rfind('/').map_or(0, |at| at + 1);
    Some(Folder { path: PathBuf::from(path), fixed_bytes })
}

/// Writes one file; content that is in the spool is read while earlier pieces are written.
async fn store<J: WorkSource>(
    folder: Folder,
    settings: &DeliverySettings,
    source: &J,
    message: &Message,
    recipient: &str,
) -> Outcome {
    let (pieces, inlet) = mpsc::channel(PIECES_AHEAD);
    let head = format!("Return-Path: <{}>\nDelivered-To: {recipient}\n", message.envelope.reverse_path);
    let name = file_name(&settings.hello);
    let shown = folder.path.display().to_string();
    let may_follow = settings.follow_symlinks;
    let writer = tokio::task::spawn_blocking(move || write(&folder, may_follow, &name, &head, inlet));
    let mut unread = None;
    for part in message.content.parts() {
        let bytes = match part {
            Part::Memory(bytes) => bytes.clone(),
            Part::Stored { chunk_id, .. } => match source.chunk(*chunk_id).await {
                Ok(bytes) => bytes,
                Err(outcome) => {
                    unread = Some(outcome);
                    break;
                }
            },
        };
        // The writer has failed, and returns the reason.
        if pieces.send(Some(bytes)).await.is_err() {
            break;
        }
    }
    if unread.is_none() {
        let _ = pieces.send(None).await;
    }
    drop(pieces);
    let written = writer.await.unwrap_or_else(|e| Err(io::Error::other(e).into()));
    match (unread, written) {
        (Some(outcome), _) => outcome,
        (None, Ok(())) => Outcome::delivered(Enhanced(2, 0, 0), format!("delivered to Maildir {shown}")),
        (None, Err(e @ Unwritten::SymbolicLink(_))) => {
            Outcome::deferred(Enhanced(4, 3, 5), format!("write to Maildir {shown}: {e}"))
        }
        (None, Err(Unwritten::Failed(e))) => {
            let status = match e.kind() {
                io::ErrorKind::QuotaExceeded => Enhanced(4, 2, 2),
                io::ErrorKind::StorageFull => Enhanced(4, 3, 1),
                _ => Enhanced(4, 3, 0),
            };
            Outcome::deferred(status, format!("write to Maildir {shown}: {e}"))
        }
    }
}

/// Returns a file name such as `1700000000.M123456P42Q7.host`, unique among all writers of the Maildir.
fn file_name(hostname: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let host = hostname.replace('/', "\\057").replace(':', "\\072");
    format!("{}.M{}P{}Q{count}.{host}", now.as_secs(), now.subsec_micros(), std::process::id())
}

/// The reason why a message is not in a Maildir.
#[derive(Debug)]
enum Unwritten {
    /// The path leads through this symbolic link, which must not be followed.
    SymbolicLink(PathBuf),
    Failed(io::Error),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Unwritten {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl Unwritten {
    fn is_missing(&self) -> bool {
        matches!(self, Self::Failed(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SymbolicLink(link) => {
                let link = link.display();
                write!(f, "{link} is a symbolic link: set follow_symlinks in [local], or make it a folder")
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Runs on a thread that may block. The pieces end with `None`; without it the message is not whole,
/// and nothing is delivered.
fn write(
    folder: &Folder,
    may_follow: bool,
    name: &str,
    head: &str,
    mut pieces: mpsc::Receiver<Option<Bytes>>,
) -> Result<(), Unwritten> {
    let maildir = Maildir::open(folder, may_follow)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(&maildir.tmp, name, flags, Mode::RUSR | Mode::WUSR)?);
    let draft = Draft { maildir: &maildir, name, keep: false };
    let mut out = io::BufWriter::with_capacity(64 * 1024, &mut file);
    out.write_all(head.as_bytes())?;
    let mut lines = UnixLines::default();
    loop {
        match pieces.blocking_recv() {
            Some(Some(bytes)) => lines.write(&bytes, &mut out)?,
            Some(None) => break,
            None => {
                let unread = io::Error::new(io::ErrorKind::UnexpectedEof, "the content could not be read");
                return Err(unread.into());
            }
        }
    }
    lines.finish(&mut out)?;
    out.flush()?;
    drop(out);
    file.sync_data()?;
    // Dovecot counts quotas by this size, and complains where the file has another one.
    let size_bytes = file.metadata()?.len();
    Ok(draft.deliver(&format!("{name},S={size_bytes}"))?)
}

/// The folders of a Maildir. They are opened one below the other, and files are made, moved and removed relative to
/// them, so that nobody can put a symbolic link in their place in between.
struct Maildir {
    tmp: OwnedFd,
    new: File,
}

impl Maildir {
    /// Opens a Maildir. A missing Maildir is made, durably.
    fn open(folder: &Folder, may_follow: bool) -> Result<Self, Unwritten> {
        let (fixed, rest) = folder.path.as_os_str().as_bytes().split_at(folder.fixed_bytes);
        let (fixed, rest) = (Path::new(OsStr::from_bytes(fixed)), Path::new(OsStr::from_bytes(rest)));
        let mut at = FolderPath { path: fixed.to_owned(), may_follow };
        let mut dir = open_fixed(if fixed.as_os_str().is_empty() { Path::new(".") } else { fixed })?;
        for name in rest.components() {
            at.path.push(name);
            let name = name.as_os_str();
            dir = match at.open(&dir, name, OFlags::PATH) {
                Err(e) if e.is_missing() => {
                    make(&dir, name)?;
                    at.open(&dir, name, OFlags::PATH)?
                }
                opened => opened?,
            };
        }
        let open =
            || Ok::<_, Unwritten>(Self { tmp: at.sub(&dir, "tmp")?, new: at.sub(&dir, "new")?.into() });
        match open() {
            Err(e) if e.is_missing() => {
                ["tmp", "cur", "new"].iter().try_for_each(|name| make(&dir, name.as_ref()))?;
                open()
            }
            opened => opened,
        }
    }
}

/// The path of a folder for messages, and whether symbolic links to it are followed.
struct FolderPath {
    path: PathBuf,
    may_follow: bool,
}

impl FolderPath {
    /// Opens the folder called `name` in `dir`, which is at this path.
    fn open(&self, dir: &OwnedFd, name: &OsStr, access: OFlags) -> Result<OwnedFd, Unwritten> {
        let follow = if self.may_follow { OFlags::empty() } else { OFlags::NOFOLLOW };
        let opened =
            fs::openat(dir, name, access | follow | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let is_link = || {
            let found = fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode).is_symlink())
        };
        match opened {
            Err(Errno::LOOP | Errno::NOTDIR) if !self.may_follow && is_link() => {
                Err(Unwritten::SymbolicLink(self.path.clone()))
            }
            opened => Ok(opened?),
        }
    }

    /// Opens a folder below this one, to work in it and to sync it.
    fn sub(&self, dir: &OwnedFd, name: &str) -> Result<OwnedFd, Unwritten> {
        let below = Self { path: self.path.join(name), may_follow: self.may_follow };
        below.open(dir, name.as_ref(), OFlags::RDONLY)
    }
}

/// Opens the folder that the operator named. A missing folder is made.
fn open_fixed(path: &Path) -> Result<OwnedFd, Unwritten> {
    let open = || fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    match open() {
        Err(Errno::NOENT) => {
            let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !p.is_dir()).collect();
            while let Some(folder) = missing.pop() {
                let parent = folder.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                let name = folder.file_name().unwrap_or(OsStr::new("."));
                make(&fs::open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?, name)?;
            }
            Ok(open()?)
        }
        opened => Ok(opened?),
    }
}

/// Makes a folder, durably. Another delivery may make it at the same time.
fn make(dir: &OwnedFd, name: &OsStr) -> Result<(), Unwritten> {
    match fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e.into()),
    }
    let readable = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(File::from(fs::openat(dir, ".", readable, Mode::empty())?).sync_all()?)
}

/// A file in `tmp`, removed unless it is delivered.
struct Draft<'a> {
    maildir: &'a Maildir,
    name: &'a str,
    keep: bool,
}

impl Draft<'_> {
    fn deliver(mut self, name: &str) -> io::Result<()> {
        fs::renameat(&self.maildir.tmp, self.name, &self.maildir.new, name)?;
        self.keep = true;
        self.maildir.new.sync_all()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::unlinkat(&self.maildir.tmp, self.name, AtFlags::empty());
        }
    }
}

/// Turns CRLF into LF, also at the border of two pieces. A lone CR or LF stays.
#[derive(Default)]
struct UnixLines {
    ends_in_cr: bool,
}

impl UnixLines {
    fn write(&mut self, bytes: &[u8], out: &mut impl io::Write) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if std::mem::take(&mut self.ends_in_cr) && bytes[0] != b'\n' {
            out.write_all(b"\r")?;
        }
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|b| *b == b'\r') {
            out.write_all(&rest[..at])?;
            match rest.get(at + 1) {
                Some(b'\n') => {}
                Some(_) => out.write_all(b"\r")?,
                None => self.ends_in_cr = true,
            }
            rest = &rest[at + 1..];
        }
        out.write_all(rest)
    }

    fn finish(self, out: &mut impl io::Write) -> io::Result<()> {
        if self.ends_in_cr { out.write_all(b"\r") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(address: &str) -> Option<String> {
        let mailbox = Mailbox::parse(address, true).unwrap();
        folder("/mail/{domain}/{local}", &mailbox).map(|f| f.path.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_recipient_has_one_folder_whatever_its_case_and_extension() {
        for address in ["Jane@B.Test", "jane+lists@b.test", "\"jane\"@b.test"] {
            assert_eq!(path(address).as_deref(), Some("/mail/b.test/jane"), "{address}");
        }
        assert_eq!(path("+x@b.test").as_deref(), Some("/mail/b.test/+x"));
        assert_eq!(path("{domain}@b.test").as_deref(), Some("/mail/b.test/{domain}"));
    }

    #[test]
    fn no_recipient_leads_out_of_its_folder() {
        for address in
            ["\"..\"@b.test", "\"../../etc\"@b.test", "a/b@b.test", "\".\"@b.test", "\".hidden\"@b.test"]
        {
            assert_eq!(path(address), None, "{address}");
            assert!(!can_have_maildir(&Mailbox::parse(address, true).unwrap()), "{address}");
        }
    }

    /// Delivers a message to jane@b.test, and returns what is in `new` of the folder at `at`.
    fn deliver(template: &Path, may_follow: bool, at: &Path) -> Result<Vec<(String, String)>, Unwritten> {
        let mailbox = Mailbox::parse("jane@b.test", false).unwrap();
        let folder = folder(template.to_str().unwrap(), &mailbox).unwrap();
        let (pieces, inlet) = mpsc::channel(4);
        for piece in [Some("Subject: x\r\n\r"), Some("\nbody\r\n"), None] {
            pieces.try_send(piece.map(Bytes::from)).unwrap();
        }
        write(&folder, may_follow, &file_name("mx.test"), "Return-Path: <>\n", inlet)?;
        assert_eq!(std::fs::read_dir(at.join("tmp")).unwrap().count(), 0);
        let files = std::fs::read_dir(at.join("new")).unwrap().map(|file| {
            let file = file.unwrap();
            (file.file_name().into_string().unwrap(), std::fs::read_to_string(file.path()).unwrap())
        });
        Ok(files.collect())
    }

    #[test]
    fn a_missing_maildir_is_made_and_the_name_of_a_file_tells_its_size() {
        let dir = tempfile::tempdir().unwrap();
        for template in ["a/b/{domain}/{local}/Maildir", "mail-{local}", "shared/box/", "lone"] {
            let at = dir.path().join(template.replace("{domain}", "b.test").replace("{local}", "jane"));
            let files = deliver(&dir.path().join(template), false, &at).unwrap();
            let [(name, text)] = &files[..] else { panic!("{files:?}") };
            assert_eq!(text, "Return-Path: <>\nSubject: x\n\nbody\n");
            assert!(name.ends_with(&format!(".mx.test,S={}", text.len())), "{name}");
            assert!(at.join("cur").is_dir());
            assert_eq!(deliver(&dir.path().join(template), false, &at).unwrap().len(), 2);
        }
    }

    #[test]
    fn a_message_that_is_not_whole_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::parse("jane@b.test", false).unwrap();
        let folder = folder(&format!("{}/{{local}}", dir.path().display()), &mailbox).unwrap();
        let (pieces, inlet) = mpsc::channel(4);
        pieces.try_send(Some(Bytes::from("half"))).unwrap();
        drop(pieces);
        assert!(write(&folder, false, &file_name("mx.test"), "", inlet).is_err());
        for sub in ["tmp", "new"] {
            assert_eq!(std::fs::read_dir(dir.path().join("jane").join(sub)).unwrap().count(), 0);
        }
    }

    #[test]
    fn symbolic_links_are_followed_where_the_operator_made_them_or_said_so() {
        use std::{fs::create_dir_all, os::unix::fs::symlink};
        let root = tempfile::tempdir().unwrap();
        let make = |name: &str, link: &str, to: &str| {
            let dir = root.path().join(name);
            let (link, to) = (dir.join(link), dir.join(to));
            create_dir_all(&to).unwrap();
            create_dir_all(link.parent().unwrap()).unwrap();
            symlink(to, link).unwrap();
            dir
        };
        let dir = make("operator", "mail", "disk");
        deliver(&dir.join("mail/{local}/Maildir"), false, &dir.join("disk/jane/Maildir")).unwrap();
        for (number, link) in ["home/jane", "home/jane/Maildir", "home/jane/Maildir/new"].iter().enumerate() {
            let dir = make(&number.to_string(), link, "other");
            let template = dir.join("home/{local}/Maildir");
            let refused = deliver(&template, false, &dir).unwrap_err();
            let said = refused.to_string();
            assert!(matches!(refused, Unwritten::SymbolicLink(path) if path == dir.join(link)), "{said}");
            assert!(said.contains("follow_symlinks"), "{said}");
            assert_eq!(std::fs::read_dir(dir.join("other")).unwrap().count(), 0, "{link}");
            deliver(&template, true, &dir.join("home/jane/Maildir")).unwrap();
            assert!(std::fs::read_dir(dir.join("other")).unwrap().count() > 0, "{link}");
        }
        let dir = make("lone", "box", "other");
        assert!(matches!(deliver(&dir.join("box"), false, &dir), Err(Unwritten::SymbolicLink(_))));
    }

    proptest! {
        #[test]
        fn whether_a_recipient_can_have_a_maildir_is_known_without_its_name(
            local in "[a./+ä]{1,8}|\"[a./+ ]{0,8}\"|a{60,64}",
            domain in "[a-z]{1,3}\\.test|\\[192\\.0\\.2\\.1\\]|bücher\\.test",
        ) {
            if let Ok(mailbox) = Mailbox::parse(&format!("{local}@{domain}"), true) {
                prop_assert_eq!(can_have_maildir(&mailbox), folder("/m/{domain}/{local}", &mailbox).is_some());
            }
        }

        #[test]
        fn line_ends_are_the_same_at_every_split(text in "[a\r\n]{0,40}", at in 0usize..40) {
            let at = at.min(text.len());
            let mut out = Vec::new();
            let mut lines = UnixLines::default();
            lines.write(&text.as_bytes()[..at], &mut out).unwrap();
            lines.write(&text.as_bytes()[at..], &mut out).unwrap();
            lines.finish(&mut out).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace("\r\n", "\n"));
        }
    }
}
