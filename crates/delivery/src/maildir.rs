//! Delivery into Maildirs: a file of its own for each message, written under `tmp`, synced, renamed
//! into `new`, and the directory synced before the queue hears of it.

use crate::{Job, Jobs, session::millis};
use bytes::Bytes;
use mail::{Attempt, Enhanced, Mailbox, Message, Outcome, Part};
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use tokio::sync::mpsc;

/// Pieces of content on their way from the spool to the file.
const PIECES_AHEAD: usize = 2;
/// Longest name of a file or folder.
const NAME_MAX: usize = 255;

/// Makes names of files unique within the process.
static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Delivers what is due, one message after another.
pub(crate) async fn serve<J: Jobs>(template: &str, hostname: &str, jobs: &J) {
    while let Some(job) = jobs.take() {
        let begun = Instant::now();
        let results = match jobs.message(&job).await {
            Ok(message) => deliver(template, hostname, jobs, &job, &message).await,
            Err(outcome) => job.recipients.iter().map(|index| (*index, outcome.clone())).collect(),
        };
        let attempt = Attempt {
            relay: "maildir".into(),
            queued_ms: job.queued_ms,
            transfer_ms: millis(begun.elapsed()),
            ..Attempt::default()
        };
        jobs.settle(job, results, &attempt);
    }
}

async fn deliver<J: Jobs>(
    template: &str,
    hostname: &str,
    jobs: &J,
    job: &Job,
    message: &Message,
) -> Vec<(u32, Outcome)> {
    let mut results = Vec::with_capacity(job.recipients.len());
    for index in &job.recipients {
        let recipient = &message.envelope.recipients[*index as usize].path;
        let outcome = match recipient.mailbox().and_then(|mailbox| folder(template, mailbox)) {
            _ if !jobs.knows(recipient) => {
                Outcome::failed(Enhanced(5, 1, 1), format!("{recipient}: no such user here"))
            }
            Some(folder) => store(folder, hostname, jobs, message, recipient.as_str()).await,
            None => Outcome::failed(Enhanced(5, 1, 1), format!("{recipient} cannot have a Maildir")),
        };
        results.push((*index, outcome));
    }
    results
}

/// Returns whether a Maildir can be named after this mailbox. Where it cannot, mail for it fails for good, and is
/// better refused than accepted.
pub fn can_have_maildir(mailbox: &Mailbox) -> bool {
    let local = mailbox.local();
    // Hardly any local part has these, and only they can lead to a name that is not safe. A character in lower
    // case has three times the octets at most.
    let is_odd = local.starts_with(['"', '.']) || local.contains('/') || local.len() > NAME_MAX / 3;
    !is_odd || folder("", mailbox).is_some()
}

/// The recipient's Maildir. None when its name would lead anywhere else: a local part is never
/// trusted to be a file name. What follows a `+` is the user's own business (RFC 5233).
pub(crate) fn folder(template: &str, mailbox: &Mailbox) -> Option<PathBuf> {
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
    // Both at once: what is put in is not looked at again.
    let mut path = String::with_capacity(template.len() + user.len() + domain.len());
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once('{') {
        let (name, behind) = behind.split_once('}')?;
        path.push_str(before);
        path.push_str(if name == "local" { user } else { &domain });
        rest = behind;
    }
    path.push_str(rest);
    Some(PathBuf::from(path))
}

/// Writes one file; content that is in the spool is read while earlier pieces are written.
async fn store<J: Jobs>(
    folder: PathBuf,
    hostname: &str,
    jobs: &J,
    message: &Message,
    recipient: &str,
) -> Outcome {
    let (pieces, inlet) = mpsc::channel(PIECES_AHEAD);
    let head = format!("Return-Path: <{}>\nDelivered-To: {recipient}\n", message.envelope.reverse_path);
    let name = file_name(hostname);
    let shown = folder.display().to_string();
    let writer = tokio::task::spawn_blocking(move || write(&folder, &name, &head, inlet));
    let mut unread = None;
    for part in message.content.parts() {
        let bytes = match part {
            Part::Memory(bytes) => bytes.clone(),
            Part::Stored { place, .. } => match jobs.chunk(*place).await {
                Ok(bytes) => bytes,
                Err(outcome) => {
                    unread = Some(outcome);
                    break;
                }
            },
        };
        // It has failed when it takes no more: it will say why.
        if pieces.send(Some(bytes)).await.is_err() {
            break;
        }
    }
    if unread.is_none() {
        let _ = pieces.send(None).await;
    }
    drop(pieces);
    let written = writer.await.unwrap_or_else(|e| Err(io::Error::other(e)));
    match (unread, written) {
        (Some(outcome), _) => outcome,
        (None, Ok(())) => Outcome::delivered(Enhanced(2, 0, 0), format!("delivered to Maildir {shown}")),
        (None, Err(e)) => {
            let status = match e.kind() {
                io::ErrorKind::QuotaExceeded => Enhanced(4, 2, 2),
                io::ErrorKind::StorageFull => Enhanced(4, 3, 1),
                _ => Enhanced(4, 3, 0),
            };
            Outcome::deferred(status, format!("write to Maildir {shown}: {e}"))
        }
    }
}

/// `1700000000.M123456P42Q7.host`: unique among all writers of the Maildir.
fn file_name(hostname: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let host = hostname.replace('/', "\\057").replace(':', "\\072");
    format!("{}.M{}P{}Q{count}.{host}", now.as_secs(), now.subsec_micros(), std::process::id())
}

/// Runs on a thread that may block. The pieces end with `None`; without it the message is not whole,
/// and nothing is delivered.
fn write(folder: &Path, name: &str, head: &str, mut pieces: mpsc::Receiver<Option<Bytes>>) -> io::Result<()> {
    prepare(folder)?;
    let draft = Draft { path: folder.join("tmp").join(name), keep: false };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft.path)?;
    let mut out = io::BufWriter::with_capacity(64 * 1024, &mut file);
    out.write_all(head.as_bytes())?;
    let mut lines = UnixLines::default();
    loop {
        match pieces.blocking_recv() {
            Some(Some(bytes)) => lines.write(&bytes, &mut out)?,
            Some(None) => break,
            None => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the content could not be read"));
            }
        }
    }
    lines.finish(&mut out)?;
    out.flush()?;
    drop(out);
    file.sync_data()?;
    // Dovecot counts quotas by it, and complains where the file has another.
    let size_bytes = file.metadata()?.len();
    draft.deliver(&folder.join("new"), &format!("{name},S={size_bytes}"))
}

/// A file under `tmp`, removed unless it is delivered.
struct Draft {
    path: PathBuf,
    keep: bool,
}

impl Draft {
    fn deliver(mut self, new: &Path, name: &str) -> io::Result<()> {
        fs::rename(&self.path, new.join(name))?;
        self.keep = true;
        File::open(new)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the Maildir if it is missing, durably.
fn prepare(folder: &Path) -> io::Result<()> {
    if folder.join("new").is_dir() && folder.join("tmp").is_dir() {
        return Ok(());
    }
    let mut missing: Vec<PathBuf> =
        folder.ancestors().take_while(|p| !p.is_dir()).map(Path::to_owned).collect();
    missing.reverse();
    missing.extend(["tmp", "cur", "new"].map(|sub| folder.join(sub)));
    for dir in missing {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(e) => return Err(e),
        }
        let parent = dir.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

/// CRLF becomes LF, also where it falls between two pieces; a lone CR or LF stays.
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
        folder("/mail/{domain}/{local}", &mailbox).map(|p| p.to_str().unwrap().to_owned())
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

    #[test]
    fn the_name_of_a_file_tells_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let (pieces, inlet) = mpsc::channel(4);
        for piece in [Some("Subject: x\r\n\r"), Some("\nbody\r\n"), None] {
            pieces.try_send(piece.map(Bytes::from)).unwrap();
        }
        write(folder.path(), &file_name("mx.test"), "Return-Path: <>\n", inlet).unwrap();
        let new = fs::read_dir(folder.path().join("new")).unwrap().next().unwrap().unwrap();
        let text = fs::read_to_string(new.path()).unwrap();
        assert_eq!(text, "Return-Path: <>\nSubject: x\n\nbody\n");
        let name = new.file_name().into_string().unwrap();
        assert!(name.ends_with(&format!(".mx.test,S={}", text.len())), "{name}");
        assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);
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
