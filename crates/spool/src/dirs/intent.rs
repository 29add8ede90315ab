//! An intent: what shall happen to several messages at once. Whole or not there, since it gets its name
//! only when it is synced; done again as often as one likes with the same end.

use super::line::{LineChecksum, Lines, hex, lines, number, unescape};
use crate::format::wire::Malformed;
use mail::QueueId;

/// In the first line of each intent; others are refused.
const VERSION: u32 = 1;
const MAGIC: &str = "postrider-intent";

/// One step, which can be done again after a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Rename the unfinished envelope file to its final name.
    Finish(QueueId),
    /// Write these bytes at this offset of the envelope file.
    Append(QueueId, u64, Vec<u8>),
    /// Remove the envelope file.
    Remove(QueueId),
}

impl Step {
    pub(super) fn id(&self) -> QueueId {
        match self {
            Self::Finish(id) | Self::Append(id, ..) | Self::Remove(id) => *id,
        }
    }
}

/// Appends the file of the intent with this number to `out`.
pub(super) fn write(out: &mut Vec<u8>, checksum: LineChecksum, number: u64, steps: &[Step]) {
    let mut to = Lines::new(out, checksum, 0);
    to.line(MAGIC, |w| {
        w.word(VERSION).word(format_args!("{number:016x}"));
    });
    for step in steps {
        match step {
            Step::Finish(id) => to.line("finish", |w| {
                w.word(id);
            }),
            Step::Append(id, offset, bytes) => to.line("append", |w| {
                w.word(id).word(offset).key("bytes", bytes);
            }),
            Step::Remove(id) => to.line("remove", |w| {
                w.word(id);
            }),
        }
    }
    to.line("whole", |w| {
        w.word(steps.len());
    });
}

/// Reads an intent's steps. An intent that is not whole is refused.
pub(super) fn read(name: u64, bytes: &[u8], checksum: LineChecksum) -> Result<Vec<Step>, Malformed> {
    let mut steps = Vec::new();
    for (count, line) in lines(bytes, checksum).enumerate() {
        let text = line.text.ok_or(Malformed("wrong checksum"))?;
        let mut words = text.split(' ');
        let mut next = || words.next().ok_or(Malformed("a word is missing"));
        match (count, next()?) {
            (0, MAGIC) => {
                if number::<u32>(next()?)? != VERSION || hex(next()?)? != name {
                    return Err(Malformed("another version or number"));
                }
            }
            (1.., "finish") => steps.push(Step::Finish(id(next()?)?)),
            (1.., "remove") => steps.push(Step::Remove(id(next()?)?)),
            (1.., "append") => {
                let (id, offset) = (id(next()?)?, number(next()?)?);
                let bytes = next()?.strip_prefix("bytes=").ok_or(Malformed("no bytes"))?;
                steps.push(Step::Append(id, offset, unescape(bytes)?));
            }
            (1.., "whole") if number::<usize>(next()?)? == steps.len() => return Ok(steps),
            _ => return Err(Malformed("unknown line")),
        }
    }
    Err(Malformed("cut short"))
}

fn id(word: &str) -> Result<QueueId, Malformed> {
    word.parse().map_err(|_| Malformed("queue id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps() -> Vec<Step> {
        let append = b"hold @409 3c708de1\n".to_vec();
        vec![Step::Finish(QueueId(9)), Step::Append(QueueId(5), 409, append), Step::Remove(QueueId(6))]
    }

    fn file() -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, LineChecksum::new(3), 3, &steps());
        out
    }

    #[test]
    fn the_bytes_are_those_of_the_document() {
        let document = include_str!("../../../../docs/spool-directories.md");
        let text = String::from_utf8(file()).unwrap();
        assert!(document.contains(&text), "{text}");
    }

    #[test]
    fn an_intent_is_read_whole_or_not_at_all() {
        let bytes = file();
        assert_eq!(read(3, &bytes, LineChecksum::new(3)), Ok(steps()));
        for cut in 0..bytes.len() {
            assert!(read(3, &bytes[..cut], LineChecksum::new(3)).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_and_damaged_bytes_never_panic(arbitrary: Vec<u8>, at in any::<usize>(), flip in 1u8..) {
            let _ = read(3, &arbitrary, LineChecksum::new(3));
            let mut bytes = file();
            let at = at % bytes.len();
            bytes[at] ^= flip;
            prop_assert!(read(3, &bytes, LineChecksum::new(3)).is_err());
        }
    }
}
