//! What each setting of another server means here: tables of names.

use crate::{Effect, Verdict};

/// The treatment of a setting that no reader has judged.
#[derive(Clone, Copy)]
pub(crate) enum Treatment {
    /// Postrider needs no such setting, always does this, or has a key that a reader writes.
    Mapped,
    /// The same; mail is treated in another way where the reader finds no counterpart.
    MappedOr(Effect),
    Note(&'static str),
    Missing(&'static str),
    /// Without a counterpart, and mail is treated in another way because of it.
    Matters(Effect, &'static str),
}

/// Names, several where they are treated alike, each with the treatment. A name may end in `*`.
pub(crate) type Meanings = [(&'static str, Treatment)];

/// Returns whether the list has the word; `*` at the end of one stands for any ending.
pub(crate) fn is_in(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|one| match one.strip_suffix('*') {
        Some(begin) => word.starts_with(begin),
        None => one == word,
    })
}

/// Returns how a setting is treated; `None` if the table does not have it.
pub(crate) fn treatment(meanings: &Meanings, name: &str) -> Option<Treatment> {
    meanings.iter().find(|(names, _)| is_in(names, name)).map(|(_, treatment)| *treatment)
}

impl Treatment {
    pub(crate) fn verdict(self) -> Verdict {
        match self {
            Self::Mapped | Self::MappedOr(_) => Verdict::Mapped,
            Self::Note(text) => Verdict::Note(text.to_owned()),
            Self::Missing(text) | Self::Matters(_, text) => Verdict::Missing(text.to_owned()),
        }
    }

    pub(crate) fn effect(self) -> Option<Effect> {
        match self {
            Self::MappedOr(effect) | Self::Matters(effect, _) => Some(effect),
            Self::Mapped | Self::Note(_) | Self::Missing(_) => None,
        }
    }
}
