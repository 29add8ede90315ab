//! The moments of a session that an option can name: commands, CONNECT for the greeting, `.` for the
//! end of the content.

use std::fmt;

/// A moment of a session that rules can name: a command, the connection, the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verb {
    Connect,
    Helo,
    Ehlo,
    Lhlo,
    Starttls,
    Xclient,
    Xforward,
    Auth,
    Mail,
    Rcpt,
    Data,
    Bdat,
    Dot,
    Rset,
    Noop,
    Vrfy,
    Quit,
    Other,
}

/// Number of verbs: the length of a table with one entry for each.
pub(crate) const COUNT: usize = Verb::Other as usize + 1;

/// Verbs that have a name.
const NAMES: &[(&str, Verb)] = &[
    ("CONNECT", Verb::Connect),
    ("HELO", Verb::Helo),
    ("EHLO", Verb::Ehlo),
    ("LHLO", Verb::Lhlo),
    ("STARTTLS", Verb::Starttls),
    ("XCLIENT", Verb::Xclient),
    ("XFORWARD", Verb::Xforward),
    ("AUTH", Verb::Auth),
    ("MAIL", Verb::Mail),
    ("RCPT", Verb::Rcpt),
    ("DATA", Verb::Data),
    ("BDAT", Verb::Bdat),
    (".", Verb::Dot),
    ("RSET", Verb::Rset),
    ("NOOP", Verb::Noop),
    ("VRFY", Verb::Vrfy),
    ("QUIT", Verb::Quit),
];

impl Verb {
    /// The command that a line begins with. CONNECT and `.` are no commands.
    pub(crate) fn of_line(line: &[u8]) -> Self {
        let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
        let word = &line[..end];
        let known = NAMES.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
        known
            .map(|(_, verb)| *verb)
            .filter(|v| !matches!(v, Self::Connect | Self::Dot))
            .unwrap_or(Self::Other)
    }

    /// As an option names it.
    ///
    /// # Errors
    /// No such moment; the text lists them.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        let known = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        known.map(|(_, verb)| *verb).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
            format!("`{name}` is not a command; known are {}", names.join(" "))
        })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, verb)| verb == self).map_or("another command", |(name, _)| name);
        f.write_str(name)
    }
}

/// A set of such moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct VerbSet(u32);

impl VerbSet {
    /// From a list: `MAIL,RCPT` or `"MAIL RCPT"`.
    ///
    /// # Errors
    /// A name is not known.
    pub(crate) fn parse(list: &str) -> Result<Self, String> {
        let words = list.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|w| !w.is_empty());
        words.map(Verb::parse).try_fold(Self::default(), |set, verb| Ok(set.with(verb?)))
    }

    /// Returns the set with one more verb.
    pub(crate) fn with(self, verb: Verb) -> Self {
        Self(self.0 | 1 << verb as u8)
    }

    /// Returns the verbs of both sets.
    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the set has this one.
    pub(crate) fn has(self, verb: Verb) -> bool {
        self.0 & 1 << verb as u8 != 0
    }

    /// Returns whether the set has none.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_commas_or_spaces_and_any_case() {
        let set = VerbSet::parse("mail, RCPT .").unwrap();
        assert!(set.has(Verb::Mail) && set.has(Verb::Rcpt) && set.has(Verb::Dot) && !set.has(Verb::Data));
    }

    #[test]
    fn an_unknown_name_is_told_with_those_that_are_known() {
        let error = VerbSet::parse("MAIL,SEND").unwrap_err();
        assert!(error.starts_with("`SEND` is not a command; known are CONNECT"), "{error}");
    }

    #[test]
    fn a_dot_or_connect_on_a_line_is_no_command() {
        assert_eq!(Verb::of_line(b".\r\n"), Verb::Other);
        assert_eq!(Verb::of_line(b"connect\r\n"), Verb::Other);
        assert_eq!(Verb::of_line(b"quit\r\n"), Verb::Quit);
        assert_eq!(Verb::of_line(b"MAIL FROM:<>\r\n"), Verb::Mail);
    }
}
