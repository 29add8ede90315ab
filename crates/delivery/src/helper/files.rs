//! The writer of one message: a process that becomes the user, and then writes a Maildir or a file.

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
use serde::{Deserialize, Serialize};
use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt as _},
};

/// Octets that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;

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
    /// The path with its placeholders.
    pub template: String,
    pub(super) is_maildir: bool,
    pub(super) envelope: Addresses,
    pub(super) hello: String,
    pub(super) separator: Option<char>,
}

impl Job {
    /// Takes the job and the content from the socket of the helper.
    ///
    /// # Errors
    /// There is no job.
    pub fn receive(socket: &OwnedFd) -> io::Result<(Self, File)> {
        let bad = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let packet = receive(socket)?.ok_or_else(|| bad("no job"))?;
        let content = packet.descriptors.into_iter().next().map(File::from);
        let content = content.filter(is_sealed).ok_or_else(|| bad("no sealed content"))?;
        Ok((serde_json::from_slice(&packet.bytes)?, content))
    }

    /// Writes the message, and returns the outcome.
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

/// The content in a file in memory.
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
