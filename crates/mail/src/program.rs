//! Programs that mail is delivered to.

use std::{fmt, path::Path, time::Duration};

/// A program with its arguments, without a shell. Cheap to compare.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program {
    /// The program and its arguments; never empty.
    pub argv: Box<[Argument]>,
    /// The user that runs the program; none: the user of the daemon, unless that is root.
    pub user: Option<RunAs>,
    /// The longest run; then the program is killed.
    pub time_limit: Duration,
}

/// The user as whom a program is run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunAs {
    /// User name.
    pub name: Box<str>,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// `HOME` of the program. Its working directory is `/`.
    pub home: Box<Path>,
}

/// An argument of a program: a fixed text, or a part of the envelope. A part is never a part of an argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Argument {
    /// A fixed text.
    Text(Box<str>),
    /// A part of the envelope.
    Field(EnvelopeField),
}

/// A part of the envelope that a program may be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EnvelopeField {
    /// The reverse-path; empty for the null reverse-path.
    Sender,
    /// The address of the recipient.
    Recipient,
    /// The local part of the recipient, without quotes.
    Local,
    /// The local part up to the delimiter of details.
    User,
    /// The local part behind the delimiter; empty if there is none.
    Detail,
    /// What stands behind the `@` of the recipient.
    Domain,
    /// The queue id.
    Id,
}

impl EnvelopeField {
    /// All fields.
    pub const ALL: [Self; 7] =
        [Self::Sender, Self::Recipient, Self::Local, Self::User, Self::Detail, Self::Domain, Self::Id];

    /// Returns the name in braces, as it is written.
    pub fn placeholder(self) -> &'static str {
        match self {
            Self::Sender => "{sender}",
            Self::Recipient => "{recipient}",
            Self::Local => "{local}",
            Self::User => "{user}",
            Self::Detail => "{detail}",
            Self::Domain => "{domain}",
            Self::Id => "{id}",
        }
    }
}

impl Argument {
    /// Returns the argument as it is written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Field(field) => field.placeholder(),
        }
    }
}

impl Program {
    /// Returns the name of the program, as it is shown.
    pub fn name(&self) -> &str {
        self.argv.first().map_or("", Argument::as_str)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
