//! Delivery into Maildirs. Each message is a file, which is written under `tmp`, synced, and renamed into `new`; the
//! directory is synced before the outcome is reported.

mod directories;
mod folder;
mod unix_lines;

use crate::local::{ContentSource, Parcel};
use bytes::Bytes;
use directories::Maildir;
pub(crate) use directories::{Links, check_owner, open_parent, refuse_owner};
pub(crate) use folder::{Folder, folder};
use mail::{Enhanced, Outcome};
use rustix::{
    fs::{self, AtFlags, Mode, OFlags},
    io::Errno,
};
use std::{
    fmt,
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc;
pub(crate) use unix_lines::UnixLines;

pub use folder::{can_have_maildir, mailbox_path};

/// The pieces of content that are read ahead of the writer.
pub(crate) const PIECES_AHEAD: usize = 2;

/// Makes names of files unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Delivers a message to the Maildir of a recipient.
pub(crate) async fn deliver<S: ContentSource>(template: &str, parcel: &Parcel<'_, S>) -> Outcome {
    let recipient = parcel.recipient;
    let mailbox = recipient.mailbox();
    match mailbox.and_then(|mailbox| folder(template, mailbox, parcel.settings.separator)) {
        Some(folder) => store(folder, parcel).await,
        None => Outcome::failed(Enhanced(5, 1, 1), format!("{recipient} cannot have a Maildir")),
    }
}

/// Writes one file; content that is in the spool is read while earlier pieces are written.
async fn store<S: ContentSource>(folder: Folder, parcel: &Parcel<'_, S>) -> Outcome {
    let (pieces, inlet) = mpsc::channel(PIECES_AHEAD);
    let head = parcel.head();
    let name = file_name(parcel.settings.hello);
    let links = parcel.settings.links;
    let writer = tokio::task::spawn_blocking(move || {
        let written = write(&folder, links, &name, &head, inlet);
        (folder.path, written)
    });
    let sent = parcel.content.send_pieces(pieces).await;
    let written = writer.await;
    if let Err(outcome) = sent {
        return outcome;
    }
    match written {
        Ok((path, written)) => outcome(&path, written),
        Err(e) => Outcome::deferred(Enhanced(4, 3, 0), format!("write to a Maildir: {e}")),
    }
}

fn outcome(path: &Path, written: Result<(), Unwritten>) -> Outcome {
    match written {
        // A report on success leaves the path out.
        Ok(()) => Outcome::delivered(Enhanced(2, 0, 0), format!("delivered to Maildir {}", path.display())),
        Err(why) => why.outcome(&format!("write to Maildir {}", path.display())),
    }
}

/// Writes one file, on a thread that may block.
pub(crate) fn store_blocking(
    folder: &Folder,
    links: Links,
    hello: &str,
    head: &str,
    pieces: impl Pieces,
) -> Outcome {
    outcome(&folder.path, write(folder, links, &file_name(hello), head, pieces))
}

/// Content, piece by piece, for a thread that may block.
pub(crate) trait Pieces {
    /// Returns the next piece; none behind the last.
    ///
    /// # Errors
    /// The content is not whole.
    fn next_piece(&mut self) -> io::Result<Option<Bytes>>;
}

impl Pieces for mpsc::Receiver<Option<Bytes>> {
    fn next_piece(&mut self) -> io::Result<Option<Bytes>> {
        let unread = || io::Error::new(io::ErrorKind::UnexpectedEof, "the content could not be read");
        self.blocking_recv().ok_or_else(unread)
    }
}

/// Returns a file name such as `1700000000.M123456P42Q7.host`, unique among all writers of the Maildir.
fn file_name(hostname: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let host = hostname.replace('/', "\\057").replace(':', "\\072");
    format!("{}.M{}P{}Q{count}.{host}", now.as_secs(), now.subsec_micros(), std::process::id())
}

/// The reason why a message is not in a Maildir or file.
#[derive(Debug)]
pub(crate) enum Unwritten {
    /// The path leads through this symbolic link, which must not be followed.
    SymbolicLink(PathBuf),
    /// The path leads through this symbolic link, and none is followed for another user.
    LinkOfUser(PathBuf),
    /// The file or folder belongs to another user than the mailbox.
    Foreign {
        path: PathBuf,
        owner: u32,
        own: u32,
    },
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
    /// The fault of a path with a symbolic link that is not followed.
    pub(crate) fn link(links: Links, path: &Path) -> Self {
        // Without the separator at the end, it is the link itself.
        let path = path.components().collect();
        if links == Links::None { Self::LinkOfUser(path) } else { Self::SymbolicLink(path) }
    }

    pub(crate) fn outcome(&self, doing: &str) -> Outcome {
        let status = match self {
            Self::SymbolicLink(_) | Self::LinkOfUser(_) => Enhanced(4, 3, 5),
            Self::Foreign { .. } => Enhanced(4, 2, 0),
            Self::Failed(e) => match e.kind() {
                io::ErrorKind::QuotaExceeded => Enhanced(4, 2, 2),
                io::ErrorKind::StorageFull => Enhanced(4, 3, 1),
                _ => Enhanced(4, 3, 0),
            },
        };
        Outcome::deferred(status, format!("{doing}: {self}"))
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Failed(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SymbolicLink(link) => {
                let link = link.display();
                write!(
                    f,
                    "{link} is a symbolic link: set follow_symlinks in [local], or put in its place what it leads to"
                )
            }
            Self::LinkOfUser(link) => {
                let link = link.display();
                write!(
                    f,
                    "{link} is a symbolic link, and none is followed for `user`: name the place to which it leads"
                )
            }
            Self::Foreign { path, owner, own } => {
                let path = path.display();
                write!(
                    f,
                    "{path} belongs to the user {owner}, not to {own}, who writes it: give it to its user with chown(1)"
                )
            }
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Runs on a thread that may block. If the message is not whole, nothing is delivered.
fn write(
    folder: &Folder,
    links: Links,
    name: &str,
    head: &str,
    mut pieces: impl Pieces,
) -> Result<(), Unwritten> {
    let maildir = Maildir::open(folder, links)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(&maildir.tmp, name, flags, Mode::RUSR | Mode::WUSR)?);
    let draft = Draft { maildir: &maildir, name, keep: false };
    let mut out = io::BufWriter::with_capacity(64 * 1024, &mut file);
    out.write_all(head.as_bytes())?;
    let mut lines = UnixLines::default();
    while let Some(bytes) = pieces.next_piece()? {
        lines.write(&bytes, &mut out)?;
    }
    lines.finish(&mut out)?;
    out.flush()?;
    drop(out);
    file.sync_data()?;
    // Dovecot counts quotas by this size, and complains where the file has another one.
    let size_bytes = file.metadata()?.len();
    Ok(draft.deliver(&format!("{name},S={size_bytes}"))?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Mailbox;

    /// Delivers a message to jane@b.test, and returns what is in `new` of the folder at `at`.
    fn deliver(template: &Path, links: Links, at: &Path) -> Result<Vec<(String, String)>, Unwritten> {
        let mailbox = Mailbox::parse("jane@b.test", false).unwrap();
        let folder = folder(template.to_str().unwrap(), &mailbox, None).unwrap();
        let (pieces, inlet) = mpsc::channel(4);
        for piece in [Some("Subject: x\r\n\r"), Some("\nbody\r\n"), None] {
            pieces.try_send(piece.map(Bytes::from)).unwrap();
        }
        write(&folder, links, &file_name("mx.test"), "Return-Path: <>\n", inlet)?;
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
            let files = deliver(&dir.path().join(template), Links::OfOperator, &at).unwrap();
            let [(name, text)] = &files[..] else { panic!("{files:?}") };
            assert_eq!(text, "Return-Path: <>\nSubject: x\n\nbody\n");
            assert!(name.ends_with(&format!(".mx.test,S={}", text.len())), "{name}");
            assert!(at.join("cur").is_dir());
            assert_eq!(deliver(&dir.path().join(template), Links::OfOperator, &at).unwrap().len(), 2);
        }
    }

    #[test]
    fn a_message_that_is_not_whole_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mailbox = Mailbox::parse("jane@b.test", false).unwrap();
        let folder = folder(&format!("{}/{{local}}", dir.path().display()), &mailbox, None).unwrap();
        let (pieces, inlet) = mpsc::channel(4);
        pieces.try_send(Some(Bytes::from("half"))).unwrap();
        drop(pieces);
        assert!(write(&folder, Links::OfOperator, &file_name("mx.test"), "", inlet).is_err());
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
        deliver(&dir.join("mail/{local}/Maildir"), Links::OfOperator, &dir.join("disk/jane/Maildir"))
            .unwrap();
        for (number, link) in ["home/jane", "home/jane/Maildir", "home/jane/Maildir/new"].iter().enumerate() {
            let dir = make(&number.to_string(), link, "other");
            let template = dir.join("home/{local}/Maildir");
            let refused = deliver(&template, Links::OfOperator, &dir).unwrap_err();
            let said = refused.to_string();
            assert!(matches!(refused, Unwritten::SymbolicLink(path) if path == dir.join(link)), "{said}");
            assert!(said.contains("follow_symlinks"), "{said}");
            assert_eq!(std::fs::read_dir(dir.join("other")).unwrap().count(), 0, "{link}");
            deliver(&template, Links::Follow, &dir.join("home/jane/Maildir")).unwrap();
            assert!(std::fs::read_dir(dir.join("other")).unwrap().count() > 0, "{link}");
        }
        let dir = make("lone", "box", "other");
        assert!(matches!(
            deliver(&dir.join("box"), Links::OfOperator, &dir),
            Err(Unwritten::SymbolicLink(_))
        ));
    }
}
