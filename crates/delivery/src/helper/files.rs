//! The writer of one message: a process that becomes the user, and then writes a Maildir or a file. Another reads the user's `.forward`.

use super::{
    packet::{is_sealed, receive, send},
    protocol::{Addresses, Answer},
};
use crate::{
    local::{LocalSettings, Parcel},
    maildir::{self, Links, Pieces, folder},
    mbox,
};
use bytes::Bytes;
use mail::{Enhanced, Outcome};
use rewrite::Separator;
use rustix::{
    fs::{Mode, OFlags, open},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::fs::{FileExt as _, MetadataExt as _},
    },
    path::PathBuf,
};

/// Octets that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// What is done as a user.
#[derive(Debug, Serialize, Deserialize)]
pub enum Task {
    /// Write a message into a mailbox.
    Write(Job),
    /// Read a user's `.forward`.
    Forward(ForwardJob),
}

/// Whose `.forward` is read, resolved by the helper: the daemon only gives the name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardJob {
    /// User name, for messages.
    pub user: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// The home directory whose files are read.
    pub home: PathBuf,
}

/// Octets of a `.forward` file.
const FORWARD_MAX: u64 = 64 * 1024;

impl ForwardJob {
    /// Reads the file; none if it does not count, as in Postfix: mail goes to the mailbox then.
    ///
    /// # Errors
    /// The disk does not say what is there.
    pub fn read(&self) -> Result<Option<String>, String> {
        let path = self.home.join(".forward");
        // A FIFO must not block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => return Ok(None),
            Err(e) => return Err(format!("read {}: {e}", path.display())),
        };
        let failed = |e: io::Error| format!("read {}: {e}", path.display());
        let meta = file.metadata().map_err(failed)?;
        let is_own = meta.uid() == self.uid || meta.uid() == 0;
        if !meta.is_file() || !is_own || meta.mode() & 0o002 != 0 || meta.len() > FORWARD_MAX {
            return Ok(None);
        }
        let mut text = Vec::new();
        file.take(FORWARD_MAX).read_to_end(&mut text).map_err(failed)?;
        Ok(String::from_utf8(text).ok())
    }

    /// Sends what was read to the helper.
    ///
    /// # Errors
    /// The helper has ended.
    pub fn answer(socket: &OwnedFd, read: &Result<Option<String>, String>) -> io::Result<()> {
        send(socket, &serde_json::to_vec(read)?, &[])
    }
}

impl Task {
    /// Takes the task, and the content of a message, from the socket of the helper.
    ///
    /// # Errors
    /// There is no task, or a message without content.
    pub fn receive(socket: &OwnedFd) -> io::Result<(Self, Option<File>)> {
        let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let packet = receive(socket)?.ok_or_else(|| bad("no task"))?;
        let task = serde_json::from_slice(&packet.bytes)?;
        let content = packet.descriptors.into_iter().next().map(File::from).filter(is_sealed);
        match (&task, &content) {
            (Self::Write(_), None) => Err(bad("no sealed content")),
            _ => Ok((task, content)),
        }
    }
}

/// One message for one mailbox, and the user as whom it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// User name, for messages.
    pub user: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Path as configured, with `{local}` and `{domain}` in it.
    pub template: String,
    pub(super) is_maildir: bool,
    pub(super) envelope: Addresses,
    pub(super) hello: String,
    pub(super) separator: Option<char>,
}

impl Job {
    /// Writes the message and returns the recipient's outcome. Blocks.
    pub fn write(&self, content: &File) -> Outcome {
        let Some(addresses) = self.envelope.check() else {
            return Outcome::deferred(Enhanced(4, 3, 5), "the addresses cannot be read");
        };
        let separator = self.separator.and_then(|one| Separator::parse(one.encode_utf8(&mut [0; 4])));
        let settings = LocalSettings { hello: &self.hello, links: Links::None, separator };
        let parcel = Parcel {
            settings,
            content: (),
            id: addresses.id,
            recipient: &addresses.recipient,
            sender: &addresses.sender,
        };
        let place = parcel.recipient.mailbox().and_then(|own| folder(&self.template, own, separator));
        let Some(place) = place else {
            let text = format!("{} cannot have a mailbox", parcel.recipient);
            return Outcome::failed(Enhanced(5, 1, 1), text);
        };
        let pieces = FilePieces { file: content, at: 0 };
        if self.is_maildir {
            maildir::store_blocking(&place, Links::None, &self.hello, &parcel.head(), pieces)
        } else {
            mbox::append_blocking(&place, Links::None, &mbox::head(&parcel), pieces)
        }
    }

    /// Sends the outcome to the helper.
    ///
    /// # Errors
    /// The helper has ended.
    pub fn answer(socket: &OwnedFd, outcome: &Outcome) -> io::Result<()> {
        send(socket, &serde_json::to_vec(&Answer::from(outcome))?, &[])
    }
}

/// Reads the content from a file in memory that the daemon passed.
pub(super) struct FilePieces<'a> {
    pub(super) file: &'a File,
    pub(super) at: u64,
}

impl Pieces for FilePieces<'_> {
    fn next_piece(&mut self) -> io::Result<Option<Bytes>> {
        let mut bytes = vec![0; PIECE_BYTES];
        let count = self.file.read_at(&mut bytes, self.at)?;
        bytes.truncate(count);
        self.at += count as u64;
        Ok((count > 0).then(|| bytes.into()))
    }
}
