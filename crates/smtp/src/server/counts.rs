//! Counts of the commands of a connection, for the log.

use crate::Command;
use mail::Reply;
use std::fmt;

/// A verb that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// HELO.
    Helo,
    /// EHLO.
    Ehlo,
    /// LHLO.
    Lhlo,
    /// XCLIENT.
    XClient,
    /// XFORWARD.
    XForward,
    /// STARTTLS.
    StartTls,
    /// AUTH.
    Auth,
    /// MAIL.
    Mail,
    /// RCPT.
    Rcpt,
    /// DATA.
    Data,
    /// BDAT.
    Bdat,
    /// RSET.
    Rset,
    /// NOOP.
    Noop,
    /// VRFY.
    Vrfy,
    /// EXPN.
    Expn,
    /// ETRN.
    Etrn,
    /// HELP.
    Help,
    /// QUIT.
    Quit,
    /// A line that is no command.
    Unknown,
}

/// The verbs with the names that Postfix's log has for them, in its order.
const NAMES: [(Verb, &str); 19] = [
    (Verb::Helo, "helo"),
    (Verb::Ehlo, "ehlo"),
    (Verb::Lhlo, "lhlo"),
    (Verb::XClient, "xclient"),
    (Verb::XForward, "xforward"),
    (Verb::StartTls, "starttls"),
    (Verb::Auth, "auth"),
    (Verb::Mail, "mail"),
    (Verb::Rcpt, "rcpt"),
    (Verb::Data, "data"),
    (Verb::Bdat, "bdat"),
    (Verb::Rset, "rset"),
    (Verb::Noop, "noop"),
    (Verb::Vrfy, "vrfy"),
    (Verb::Expn, "expn"),
    (Verb::Etrn, "etrn"),
    (Verb::Help, "help"),
    (Verb::Quit, "quit"),
    (Verb::Unknown, "unknown"),
];

impl Verb {
    /// Returns the verb of a command.
    pub fn of(command: &Command) -> Self {
        match command {
            Command::Helo(_) => Self::Helo,
            Command::Ehlo(_) => Self::Ehlo,
            Command::Lhlo(_) => Self::Lhlo,
            Command::Mail(..) => Self::Mail,
            Command::Rcpt(_) => Self::Rcpt,
            Command::Data => Self::Data,
            Command::Bdat { .. } => Self::Bdat,
            Command::StartTls => Self::StartTls,
            Command::Auth { .. } => Self::Auth,
            Command::Rset => Self::Rset,
            Command::Noop => Self::Noop,
            Command::Vrfy(_) => Self::Vrfy,
            Command::Expn(_) => Self::Expn,
            Command::Etrn(_) => Self::Etrn,
            Command::XClient(_) => Self::XClient,
            Command::XForward(_) => Self::XForward,
            Command::Help => Self::Help,
            Command::Quit => Self::Quit,
        }
    }

    /// Returns the verb of a line that has an error; [`Verb::Unknown`] if it has none.
    pub fn of_line(line: &[u8]) -> Self {
        let end = line.iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(line.len());
        let is_verb = |(verb, name): &&(Verb, &str)| {
            *verb != Self::Unknown && name.as_bytes().eq_ignore_ascii_case(&line[..end])
        };
        NAMES.iter().find(is_verb).map_or(Self::Unknown, |(verb, _)| *verb)
    }

    /// Returns the verb as it stands in `lost connection after RCPT`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Helo => "HELO",
            Self::Ehlo => "EHLO",
            Self::Lhlo => "LHLO",
            Self::XClient => "XCLIENT",
            Self::XForward => "XFORWARD",
            Self::StartTls => "STARTTLS",
            Self::Auth => "AUTH",
            Self::Mail => "MAIL",
            Self::Rcpt => "RCPT",
            Self::Data => "DATA",
            Self::Bdat => "BDAT",
            Self::Rset => "RSET",
            Self::Noop => "NOOP",
            Self::Vrfy => "VRFY",
            Self::Expn => "EXPN",
            Self::Etrn => "ETRN",
            Self::Help => "HELP",
            Self::Quit => "QUIT",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// The commands of a connection: those that came, and those that were refused.
#[derive(Debug, Clone, Default)]
pub struct CommandCounts {
    /// By [`Verb`].
    counts: [(u16, u16); NAMES.len()],
    last: Option<Verb>,
}

impl CommandCounts {
    /// Counts a command.
    pub(super) fn begin(&mut self, verb: Verb) {
        let (came, _) = &mut self.counts[verb as usize];
        *came = came.saturating_add(1);
        self.last = Some(verb);
    }

    /// Counts a reply to the last command that refuses it.
    pub(super) fn note(&mut self, reply: &Reply) {
        if let Some(verb) = self.last.filter(|_| reply.code >= 400) {
            let (came, refused) = &mut self.counts[verb as usize];
            // A command of LMTP has several replies.
            *refused = refused.saturating_add(1).min(*came);
        }
    }

    /// Returns the last command.
    pub fn last(&self) -> Option<Verb> {
        self.last
    }
}

/// As Postfix's log has them: ` ehlo=1 mail=1 rcpt=1/2 quit=1 commands=4/5`. A number behind a slash counts all commands, that
/// before it those that were not refused.
impl fmt::Display for CommandCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut write = |name: &str, came: u32, refused: u32| match refused {
            0 => write!(f, " {name}={came}"),
            _ => write!(f, " {name}={}/{came}", came - refused),
        };
        let (mut all_came, mut all_refused) = (0, 0);
        for (verb, name) in NAMES {
            let (came, refused) = self.counts[verb as usize];
            if came > 0 {
                write(name, u32::from(came), u32::from(refused))?;
            }
            all_came += u32::from(came);
            all_refused += u32::from(refused);
        }
        write("commands", all_came, all_refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::replies;

    #[test]
    fn refused_commands_stand_before_the_slash_as_missing() {
        let mut counts = CommandCounts::default();
        assert_eq!(counts.to_string(), " commands=0");
        for (verb, reply) in [
            (Verb::Ehlo, &replies::OK),
            (Verb::Rcpt, &replies::OK),
            (Verb::Rcpt, &replies::OUT_OF_SYNC),
            (Verb::Unknown, &replies::OUT_OF_SYNC),
        ] {
            counts.begin(verb);
            counts.note(reply);
        }
        assert_eq!(counts.to_string(), " ehlo=1 rcpt=1/2 unknown=0/1 commands=2/4");
        assert_eq!(counts.last(), Some(Verb::Unknown));
    }

    #[test]
    fn the_verb_of_a_bad_line_is_the_one_that_it_begins_with() {
        assert_eq!(Verb::of_line(b"rcpt TO:<a"), Verb::Rcpt);
        assert_eq!(Verb::of_line(b"RCPTX TO:<a>"), Verb::Unknown);
        assert_eq!(Verb::of_line(b"unknown x"), Verb::Unknown);
        assert_eq!(Verb::of_line(b""), Verb::Unknown);
        assert!(NAMES.iter().enumerate().all(|(place, (verb, _))| NAMES[place].0 == *verb));
    }
}
