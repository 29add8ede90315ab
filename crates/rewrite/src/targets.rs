//! The right side of an alias: a list of targets (aliases(5), virtual(5)).

use mail::{Domain, Mailbox};
use std::fmt;

/// The file of an alias whose mail is discarded, as by every other server: nothing is appended, and no key has to permit it.
pub const NULL_DEVICE: &str = "/dev/null";

/// What an alias may lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `user@example.com`.
    Mailbox(Mailbox),
    /// `joe`: a local user or another alias.
    Local(Box<str>),
    /// `\joe`: the local user, without further aliases.
    Final(Box<str>),
    /// `@example.com`: the same local part at this domain. As [`Domain::key`] gives it.
    Domain(Box<str>),
    /// `:include:/path`: the targets that the file lists.
    Include(Box<str>),
    /// `|program arguments`.
    Command(Box<str>),
    /// `/path`: a mailbox file.
    File(Box<str>),
}

/// What is wrong with a list of targets, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetError {
    /// Bytes of the text before the place of the fault.
    pub at: usize,
    /// What is wrong, in a few words.
    pub what: &'static str,
    /// What would be right.
    pub help: &'static str,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.help)
    }
}

impl std::error::Error for TargetError {}

/// Returns the line and the column of a byte of a text, both from 1. Columns count characters.
pub fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(at)];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

const HELP: &str = "write user@example.com, a local name, \\name, :include:/path, \"|program\" or /path, with commas between";

/// The targets of a list, one after another. Commas and blanks separate targets; quotes hold together.
#[derive(Debug, Clone)]
pub struct TargetList<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TargetList<'a> {
    /// Reads a list on one line.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Reads the content of an `:include:` file: lists on several lines, and comment lines that begin with `#`. Each target
    /// has the bytes of the text before it.
    pub fn of_file(text: &'a str) -> impl Iterator<Item = Result<(usize, Target), TargetError>> + use<'a> {
        let start = text.as_ptr() as usize;
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        lines.flat_map(move |line| {
            let offset = line.as_ptr() as usize - start;
            TargetList::new(line).placed().map(move |placed| match placed {
                Ok((at, target)) => Ok((at + offset, target)),
                Err(error) => Err(TargetError { at: error.at + offset, ..error }),
            })
        })
    }

    /// Returns the targets, each with the bytes of the text before it.
    pub fn placed(mut self) -> impl Iterator<Item = Result<(usize, Target), TargetError>> + use<'a> {
        std::iter::from_fn(move || self.next_placed())
    }

    fn next_placed(&mut self) -> Option<Result<(usize, Target), TargetError>> {
        let (at, item) = match self.next_item() {
            Ok(next) => next?,
            Err(error) => {
                self.at = self.text.len();
                return Some(Err(error));
            }
        };
        Some(target(item).map(|target| (at, target)).map_err(|what| {
            // One fault is enough: what follows may be a part of it.
            self.at = self.text.len();
            TargetError { at, what, help: HELP }
        }))
    }

    /// Returns the next item with its position; quotes are still in it.
    fn next_item(&mut self) -> Result<Option<(usize, &'a str)>, TargetError> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(|b| is_separator(*b)) {
            self.at += 1;
        }
        let start = self.at;
        // The arguments of a command may be written without quotes.
        let is_command = bytes.get(start) == Some(&b'|');
        let mut quote = None;
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\\' if quote.is_some() => self.at += 1,
                b'"' => quote = if quote.is_some() { None } else { Some(self.at) },
                b',' if quote.is_none() => break,
                b' ' | b'\t' | b'\r' | b'\n' if quote.is_none() && !is_command => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at = self.at.min(bytes.len());
        if let Some(at) = quote {
            return Err(TargetError { at, what: "a quote without its partner", help: "close the quote" });
        }
        let item = self.text[start..self.at].trim_end();
        Ok((!item.is_empty()).then_some((start, item)))
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b',' | b' ' | b'\t' | b'\r' | b'\n')
}

impl Iterator for TargetList<'_> {
    type Item = Result<Target, TargetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_placed().map(|placed| placed.map(|(_, target)| target))
    }
}

fn target(item: &str) -> Result<Target, &'static str> {
    if let Some(command) = item.strip_prefix('|') {
        return command_of(command.trim());
    }
    match whole_quoted(item) {
        Some(inner) => special(&inner).unwrap_or_else(|| local(item).map(|()| Target::Local(inner.into()))),
        None => special(item).unwrap_or_else(|| plain(item)),
    }
}

fn command_of(text: &str) -> Result<Target, &'static str> {
    let text = whole_quoted(text).unwrap_or_else(|| text.to_owned());
    if text.is_empty() || text.contains(char::is_control) {
        return Err("a command without a program, or with control characters");
    }
    Ok(Target::Command(text.into()))
}

/// Targets that are no addresses; `None` for all others.
fn special(text: &str) -> Option<Result<Target, &'static str>> {
    if let Some(command) = text.strip_prefix('|') {
        return Some(command_of(command.trim()));
    }
    if let Some(path) = text.strip_prefix(":include:") {
        return Some(file(path, Target::Include));
    }
    if text.starts_with(':') {
        return Some(Err("an unknown directive"));
    }
    text.starts_with('/').then(|| file(text, Target::File))
}

fn file(path: &str, target: fn(Box<str>) -> Target) -> Result<Target, &'static str> {
    if !path.starts_with('/') || path.contains(char::is_control) {
        return Err("a path that is not absolute, or has control characters");
    }
    Ok(target(path.into()))
}

fn plain(item: &str) -> Result<Target, &'static str> {
    if let Some(domain) = item.strip_prefix('@') {
        let domain = Domain::parse(domain).map_err(|_| "not a domain behind the @")?;
        return Ok(Target::Domain(domain.key().into()));
    }
    if let Some(name) = item.strip_prefix('\\') {
        return local(name).map(|()| Target::Final(name.into()));
    }
    match Mailbox::parse(item, true) {
        Ok(mailbox) => Ok(Target::Mailbox(mailbox)),
        Err(_) if item.contains('@') => Err("not a mail address"),
        Err(_) => local(item).map(|()| Target::Local(item.into())),
    }
}

/// Checks that the text is a local part, quotes included.
fn local(text: &str) -> Result<(), &'static str> {
    match Mailbox::parse(&format!("{text}@localhost"), true) {
        Ok(mailbox) if mailbox.local() == text => Ok(()),
        _ => Err("not a local name"),
    }
}

/// The text inside the quotes, where they enclose the whole item.
fn whole_quoted(item: &str) -> Option<String> {
    let inner = item.strip_prefix('"')?.strip_suffix('"')?;
    let (mut out, mut chars) = (String::with_capacity(inner.len()), inner.chars());
    while let Some(c) = chars.next() {
        match c {
            // A quote in the middle: `"a"b"c"` is not quoted as a whole.
            '"' => return None,
            '\\' => out.push(chars.next()?),
            c => out.push(c),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Target>, TargetError> {
        TargetList::new(text).collect()
    }

    fn mailbox(text: &str) -> Target {
        Target::Mailbox(Mailbox::parse(text, true).unwrap())
    }

    #[test]
    fn each_form_of_target_is_read() {
        let text = "joe, jane@b.test , \\root,@c.test,:include:/etc/list \"|/bin/vacation -a 'x, y' joe\", |\"/bin/a b\"";
        assert_eq!(
            read(text).unwrap(),
            [
                Target::Local("joe".into()),
                mailbox("jane@b.test"),
                Target::Final("root".into()),
                Target::Domain("c.test".into()),
                Target::Include("/etc/list".into()),
                Target::Command("/bin/vacation -a 'x, y' joe".into()),
                Target::Command("/bin/a b".into()),
            ]
        );
        let text = "/var/mail/x, \"/var/mail/a b\" \"odd name\" \"odd name\"@b.test, |/bin/a -b c, joe";
        assert_eq!(
            read(text).unwrap(),
            [
                Target::File("/var/mail/x".into()),
                Target::File("/var/mail/a b".into()),
                Target::Local("odd name".into()),
                mailbox("\"odd name\"@b.test"),
                Target::Command("/bin/a -b c".into()),
                Target::Local("joe".into()),
            ]
        );
        assert_eq!(read(" ,, ").unwrap(), []);
    }

    #[test]
    fn a_bad_target_is_told_with_its_place() {
        for (text, at) in [
            ("joe, a@b@c", 5),
            ("joe \"open", 4),
            (":fail: no", 0),
            (":include:relative", 0),
            ("@-", 0),
            ("|", 0),
            ("Joe <joe@b.test>", 4),
            ("\\", 0),
            ("a\u{1}b", 0),
        ] {
            assert_eq!(read(text).unwrap_err().at, at, "{text}");
        }
    }

    #[test]
    fn a_file_has_a_target_on_each_line_and_comments() {
        let text = "# the list\njoe@a.test\n\n  # more\njane, bob\n";
        let read: Vec<_> = TargetList::of_file(text).map(Result::unwrap).collect();
        let wanted = [mailbox("joe@a.test"), Target::Local("jane".into()), Target::Local("bob".into())];
        assert!(read.iter().map(|(_, target)| target).eq(&wanted), "{read:?}");
        let places: Vec<_> = read.iter().map(|(at, _)| line_and_column(text, *at)).collect();
        assert_eq!(places, [(2, 1), (5, 1), (5, 7)]);
        let error = TargetList::of_file("joe\na@b@c\n").find_map(Result::err).unwrap();
        assert_eq!(error.at, 4);
    }
}
