//! Reasons why a recipient cannot be expanded now.

use std::fmt;

/// Why a recipient cannot be expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// A map or a file could not be read now.
    LookUp(Box<str>),
    /// This address or file leads back to itself.
    Loop(Box<str>),
    /// Too many aliases lead to one another.
    TooDeep {
        /// The alias at which the expansion stopped, or the included file with line and column.
        alias: Box<str>,
        /// How many levels are permitted.
        limit: u8,
    },
    /// One more target than permitted.
    TooMany {
        /// The alias whose target was one too many, or the included file with line and column.
        alias: Box<str>,
        /// How many targets are permitted.
        limit: usize,
    },
    /// A value that is no list of targets, or no address.
    Value {
        /// The key, or the path of an included file with line and column.
        key: Box<str>,
        /// What is wrong, and what would be right.
        what: Box<str>,
    },
    /// A program or file, which an alias must not name.
    NotAllowed {
        /// The alias that names the target, or the included file with line and column.
        alias: Box<str>,
        /// As it is written in the list.
        target: Box<str>,
    },
    /// A target in a local domain that no user has.
    NoSuchTarget {
        /// The alias with that target.
        alias: Box<str>,
        /// The address that does not exist.
        target: Box<str>,
    },
    /// A file that could not be read, or has faults.
    Include {
        /// As the alias names it.
        path: Box<str>,
        /// Why the file cannot be used.
        why: Box<str>,
    },
}

impl Trouble {
    pub(super) fn value(key: &str, what: impl Into<Box<str>>) -> Self {
        Self::Value { key: key.into(), what: what.into() }
    }

    /// Adds the place in an included file to the trouble of one of its targets.
    pub(super) fn in_file(mut self, path: &str, (line, column): (usize, usize)) -> Self {
        if let Self::Value { key: named, .. }
        | Self::NotAllowed { alias: named, .. }
        | Self::TooMany { alias: named, .. }
        | Self::TooDeep { alias: named, .. } = &mut self
            && **named == *path
        {
            *named = format!("{path}: line {line}, column {column}").into();
        }
        self
    }

    /// Returns whether nothing will be different at the next attempt: the aliases lead nowhere, in a circle, or to too many
    /// addresses. What cannot be read, and a value that is none, waits until it is repaired.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Loop(_) | Self::TooDeep { .. } | Self::TooMany { .. } | Self::NoSuchTarget { .. }
        )
    }

    /// Returns whether a map did not answer, which may repair itself.
    pub fn is_look_up(&self) -> bool {
        matches!(self, Self::LookUp(_))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LookUp(why) => f.write_str(why),
            Self::Loop(address) => write!(f, "{address} leads back to itself: remove one of the aliases"),
            Self::TooDeep { alias, limit } => {
                write!(
                    f,
                    "{alias}: more than {limit} aliases lead to one another: name the last target directly"
                )
            }
            Self::TooMany { alias, limit } => {
                write!(
                    f,
                    "{alias}: more than {limit} targets: raise `addresses.max_list_members`, or use a mailing list program"
                )
            }
            Self::Value { key, what } => write!(f, "{key}: {what}"),
            Self::NotAllowed { alias, target } => {
                write!(
                    f,
                    "{alias}: {target} is a program or a file that aliases may not name: add it to `addresses.programs` or `addresses.files`"
                )
            }
            Self::NoSuchTarget { alias, target } => {
                write!(f, "{alias}: {target} does not exist: add the user, or correct the alias")
            }
            Self::Include { path, why } => write!(f, ":include:{path}: {why}"),
        }
    }
}

impl std::error::Error for Trouble {}
