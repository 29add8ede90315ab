//! Names of the files in a queue directory.

use mail::QueueId;

/// A file of a queue directory, as its name tells: its kind and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// An envelope file: its message is accepted.
    Envelope(u64),
    /// An envelope file whose message is not accepted yet, and perhaps never will be.
    Unfinished(u64),
    /// A message's content.
    Content(u64),
    /// A piece of content that came while the message was still arriving.
    Chunk(u64),
    /// An intent that is complete.
    Intent(u64),
    /// An intent that is still being written: a crash leaves it without effect.
    Draft(u64),
    /// The one file with the totals.
    Totals,
}

impl Named {
    pub(super) fn file(self) -> String {
        match self {
            Self::Envelope(id) => format!("{}.env", QueueId(id)),
            Self::Unfinished(id) => format!("{}.new", QueueId(id)),
            Self::Content(id) => format!("{}.msg", QueueId(id)),
            Self::Chunk(chunk_id) => format!("{chunk_id:016x}.chunk"),
            Self::Intent(number) => format!("{number:016x}.intent"),
            Self::Draft(number) => format!("{number:016x}.draft"),
            Self::Totals => "totals".to_owned(),
        }
    }

    /// None for what is not ours, and for the totals, which no listing looks for.
    pub(super) fn of(file: &str) -> Option<Self> {
        let (stem, kind) = file.rsplit_once('.')?;
        // In another letter case or with fewer digits it is somebody else's.
        let is_ours = |b: u8| b.is_ascii_digit() || b.is_ascii_lowercase();
        if !stem.bytes().all(is_ours) {
            return None;
        }
        let id = || stem.parse::<QueueId>().ok().map(|id| id.0);
        let number = || if stem.len() == 16 { u64::from_str_radix(stem, 16).ok() } else { None };
        Some(match kind {
            "env" => Self::Envelope(id()?),
            "new" => Self::Unfinished(id()?),
            "msg" => Self::Content(id()?),
            "chunk" => Self::Chunk(number()?),
            "intent" => Self::Intent(number()?),
            "draft" => Self::Draft(number()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_given_and_no_others() {
        for number in [0, 5, u64::MAX] {
            use Named::{Chunk, Content, Draft, Envelope, Intent, Unfinished};
            for named in [Envelope, Unfinished, Content, Chunk, Intent, Draft].map(|named| named(number)) {
                assert_eq!(Named::of(&named.file()), Some(named));
            }
        }
        for other in [
            "x",
            ".env",
            "000000000000A.env",
            "5.chunk",
            "000000000000000A.chunk",
            "+00000000000000a.chunk",
            "00000000000000005.chunk",
            "lost+found",
            "qfAA12345",
            "é.msg",
        ] {
            assert_eq!(Named::of(other), None, "{other}");
        }
    }
}
