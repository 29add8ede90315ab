//! One template: literal text and placeholders, compiled and filled in.

use super::TemplateError;

/// What `{name}` in a template stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholder {
    /// This server's host name.
    Hostname,
    /// Where readers can ask.
    Postmaster,
    /// Who gets the notification.
    Sender,
    /// The time at which the message was accepted.
    Arrived,
    /// The time at which a delayed message expires.
    Expires,
    /// The time by which the sender asked for the delivery (RFC 2852), where the notification is about that time.
    Deadline,
    /// The queue id of the message.
    Id,
    /// The subject of the message.
    Subject,
    /// The owner of the mailing list that sent the message, if one did.
    List,
    /// A paragraph for each recipient, by the section `recipient`.
    Recipients,
    /// The recipient's address.
    Address,
    /// The address that the sender wrote, where it is another one.
    Given,
    /// The sentences of the section `reason` for the status.
    Reason,
    /// Such as 5.1.1.
    Status,
    /// Host name of the server that answered.
    Server,
    /// The answer of a host.
    Reply,
    /// The remark of this server, where no host answered.
    Remark,
}

use Placeholder::{
    Address, Arrived, Deadline, Expires, Given, Hostname, Id, List, Postmaster, Reason, Recipients, Remark,
    Reply, Sender, Server, Status, Subject,
};

/// Placeholders of the sections for whole notifications.
pub(super) const OF_MESSAGE: [Placeholder; 10] =
    [Hostname, Postmaster, Sender, Arrived, Expires, Deadline, Id, Subject, List, Recipients];
/// Those that a subject may have.
pub(super) const OF_SUBJECT: [Placeholder; 2] = [Hostname, Id];
/// Those that the section of a recipient may have.
pub(super) const OF_RECIPIENT: [Placeholder; 7] = [Address, Given, Reason, Status, Server, Reply, Remark];

impl Placeholder {
    fn name(self) -> &'static str {
        match self {
            Hostname => "hostname",
            Postmaster => "postmaster",
            Sender => "sender",
            Arrived => "arrived",
            Expires => "expires",
            Deadline => "deadline",
            Id => "id",
            Subject => "subject",
            List => "list",
            Recipients => "recipients",
            Address => "address",
            Given => "given",
            Reason => "reason",
            Status => "status",
            Server => "server",
            Reply => "reply",
            Remark => "remark",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Placeholder(Placeholder),
}

/// One line of a template, split into text and placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line(Vec<Piece>);

impl Line {
    /// Compiles a line of a file, whose number counts from 1. `allowed` are the placeholders of its section. What is a fault
    /// is left out.
    pub(super) fn parse(
        text: &str,
        number: usize,
        allowed: &[Placeholder],
        faults: &mut Vec<TemplateError>,
    ) -> Self {
        let (mut pieces, mut literal) = (Vec::new(), String::new());
        let mut chars = text.char_indices().peekable();
        let mut fault = |at: usize, what: String, help: String| {
            let column = text[..at].chars().count() + 1;
            faults.push(TemplateError { line: number, column, what, help });
        };
        while let Some((at, c)) = chars.next() {
            match c {
                '{' | '}' if chars.next_if(|(_, next)| *next == c).is_some() => literal.push(c),
                '{' => {
                    let Some(length) = text[at..].find('}') else {
                        let help = "close it with }, or write {{ for a brace".to_owned();
                        fault(at, "a placeholder that does not end".to_owned(), help);
                        continue;
                    };
                    let name = &text[at + 1..at + length];
                    while chars.next_if(|(inner, _)| *inner <= at + length).is_some() {}
                    let known = allowed.iter().find(|placeholder| placeholder.name() == name);
                    let Some(placeholder) = known else {
                        let what = format!("unknown placeholder {{{}}}", name.escape_debug());
                        fault(at, what, one_of(allowed));
                        continue;
                    };
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal).into()));
                    }
                    pieces.push(Piece::Placeholder(*placeholder));
                }
                '}' => {
                    let help = "write }} for a brace".to_owned();
                    fault(at, "a brace without its partner".to_owned(), help);
                }
                c if c.is_control() => {
                    let what = "a control character".to_owned();
                    fault(at, what, "write blanks to indent a line".to_owned());
                }
                c => literal.push(c),
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into()));
        }
        Self(pieces)
    }

    /// Returns whether the line is this placeholder, and nothing else.
    pub(crate) fn is(&self, placeholder: Placeholder) -> bool {
        self.0 == [Piece::Placeholder(placeholder)]
    }

    pub(super) fn has(&self, placeholder: Placeholder) -> bool {
        self.0.contains(&Piece::Placeholder(placeholder))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the line with the values of its placeholders; `None` if one of the values is empty: then there is
    /// nothing to say.
    pub(crate) fn fill<'a>(
        &self,
        value: impl Fn(Placeholder) -> std::borrow::Cow<'a, str>,
    ) -> Option<String> {
        let mut out = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Placeholder(placeholder) => {
                    let value = value(*placeholder);
                    if value.is_empty() {
                        return None;
                    }
                    out.push_str(&value);
                }
            }
        }
        Some(out)
    }
}

fn one_of(allowed: &[Placeholder]) -> String {
    if allowed.is_empty() {
        return "this section has no placeholders; write {{ for a brace".to_owned();
    }
    let names: Vec<String> =
        allowed.iter().map(|placeholder| format!("{{{}}}", placeholder.name())).collect();
    format!("write one of {}, or {{{{ for a brace", names.join(", "))
}
