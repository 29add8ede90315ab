//! An envelope file: what was accepted, then what became of it, line by line. Whatever is read back is
//! taken for hostile.

mod options;
mod read;
#[cfg(test)]
mod tests;

pub(super) use read::{chunk_ids, read};

use super::{
    line::{LineChecksum, Lines, Words},
    note::Append,
};
use crate::RecipientState;
use mail::{AliasTarget, BodyType, ContentTraits, Envelope, Message, Notify, Part, Recipient, Ret};
use std::fmt;

/// The version of a file without options and expansions.
pub(super) const PLAIN: u32 = 1;
/// The version of other files. Both are read, and others are refused.
pub(super) const VERSION: u32 = 2;
const MAGIC: &str = "postrider-message";

/// A run of content, and the checksum of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// In the content file, behind the pieces before.
    Here { length_bytes: u32, sum: u32 },
    /// In a chunk's file.
    Chunk { chunk_id: u64, length_bytes: u32, sum: u32 },
}

/// What an envelope file says, its notes applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filed {
    /// The message; all parts of its content are stored, and those in the content file name no chunk.
    pub(super) message: Message,
    pub(super) pieces: Vec<Piece>,
    pub(super) states: Vec<RecipientState>,
    pub(super) held: Option<Box<str>>,
    /// The append that wrote the last line behind the envelope.
    pub(super) last: Option<Append>,
    /// Offset at which the next line belongs.
    pub(super) end: u64,
    /// Behind the end: an append that was under way.
    pub(super) torn_bytes: u64,
    /// Lines in the middle that cannot be read, by offset.
    pub(super) damaged: Vec<u64>,
}

impl Filed {
    /// Returns true if another reading of the same file has more: it ends later, or fewer of its lines are damaged.
    pub(super) fn says_less_than(&self, other: &Self) -> bool {
        (self.end, other.damaged.len()) < (other.end, self.damaged.len())
    }
}

/// The reason why an envelope file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Another version wrote it.
    Version(u32),
    /// Offset of the first line that does not match its checksum or cannot be parsed, and why.
    Damaged(u64, &'static str),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(other) => {
                write!(f, "format {other}; this version writes {VERSION} and reads what is older")
            }
            Self::Damaged(offset, what) => write!(f, "byte {offset}: {what}"),
        }
    }
}

/// Writes the lines of a message that is accepted. `sum_of` returns the checksums of its chunks.
pub(super) fn write(
    out: &mut Vec<u8>,
    checksum: LineChecksum,
    message: &Message,
    sum_of: impl Fn(u64) -> u32,
) {
    let e = &message.envelope;
    let mut to = Lines::new(out, checksum, 0);
    let is_bare = |r: &Recipient| r.options.is_none();
    let is_plain = e.options.is_none() && e.recipients.iter().all(is_bare);
    to.line(MAGIC, |w| {
        w.word(if is_plain { PLAIN } else { VERSION }).word(message.id);
    });
    to.line("arrived", |w| {
        w.word(message.arrived.0);
    });
    to.line("origin", |w| {
        w.key_display("text", &message.origin);
    });
    to.line("from", |w| write_sender(w, e));
    if let Some(options) = &e.options {
        options::write(&mut to, options);
    }
    for recipient in &e.recipients {
        to.line("to", |w| write_recipient(w, recipient));
    }
    to.line("facts", |w| {
        traits_words(message.content.traits).iter().for_each(|word| {
            w.word(word);
        });
    });
    for part in message.content.parts() {
        match part {
            Part::Memory(bytes) => {
                let sum = crc32c::crc32c(bytes);
                to.line("content", |w| {
                    w.word(bytes.len()).word(format_args!("{sum:08x}"));
                });
            }
            Part::Stored { chunk_id, length_bytes } => {
                let sum = sum_of(chunk_id.0);
                let name = format_args!("{:016x}", chunk_id.0);
                to.line("chunk", |w| {
                    w.word(length_bytes).word(format_args!("{sum:08x}")).word(name);
                });
            }
        }
    }
    to.line("accepted", |_| {});
}

fn write_sender(w: &mut Words<'_>, e: &Envelope) {
    let body = match e.body {
        BodyType::SevenBit => "7bit",
        BodyType::EightBit => "8bit",
        BodyType::Binary => "binary",
    };
    w.key("path", e.reverse_path.as_str().as_bytes()).key("body", body.as_bytes());
    if e.smtputf8 {
        w.word("smtputf8");
    }
    if let Some(ret) = e.ret {
        w.key("ret", if ret == Ret::Full { b"full" } else { b"headers" });
    }
    if let Some(envid) = &e.envid {
        w.key("envid", envid.as_bytes());
    }
}

fn write_recipient(w: &mut Words<'_>, recipient: &Recipient) {
    w.key("path", recipient.path.as_str().as_bytes());
    if recipient.notify != Notify::default() {
        let n = recipient.notify;
        let words =
            [(n.success, "success"), (n.failure, "failure"), (n.delay, "delay"), (n.explicit, "explicit")];
        let words: Vec<&str> = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        w.key("notify", words.join(",").as_bytes());
    }
    if let Some(orcpt) = &recipient.orcpt {
        w.key("orcpt", orcpt.as_bytes());
    }
    if let Some(expansion) = recipient.expansion() {
        w.key("original", expansion.original.as_str().as_bytes());
        expansion.through.iter().for_each(|mailbox| {
            w.key("through", mailbox.as_str().as_bytes());
        });
    }
    if let Some(own) = recipient.return_path() {
        let key = if own.is_list { "list-owner" } else { "return-path" };
        w.key(key, own.path.as_str().as_bytes());
    }
    if recipient.options.as_ref().is_some_and(|options| options.is_copy) {
        w.key("copy", b"yes");
    }
    match recipient.target() {
        None => {}
        Some(AliasTarget::Program(command)) => {
            w.key("program", command.as_bytes());
        }
        Some(AliasTarget::File(path)) => {
            w.key("file", path.as_bytes());
        }
        Some(AliasTarget::Route(name)) => {
            w.key("route", name.as_bytes());
        }
        Some(AliasTarget::Later) => {
            w.key("expand", b"later");
        }
    }
}

const FACTS: [&str; 6] = ["dot-line", "8bit", "binary", "no-final-crlf", "utf8-header", "long-line"];

fn traits_words(f: ContentTraits) -> Vec<&'static str> {
    let bits =
        [f.has_dot_line, f.is_8bit, f.is_binary, f.lacks_final_crlf, f.has_utf8_header, f.has_long_line];
    FACTS.into_iter().zip(bits).filter(|(_, is)| *is).map(|(word, _)| word).collect()
}
