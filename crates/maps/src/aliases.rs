//! The format of aliases(5): `name: target, target`, with continuation lines.

use crate::{
    fault::FileFault,
    lines::{Line, logical_lines},
    text::{Refused, TextBuilder, TextTable},
};
use rewrite::{NULL_DEVICE, Target, TargetList, split_command};

/// A program or a file among the targets of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpermitted {
    /// The warning.
    pub fault: FileFault,
    /// The path that `addresses.programs` or `addresses.files` has to have; none if nothing can permit the target.
    pub path: Option<Box<str>>,
}

/// The names of a file, each with its list of targets.
#[derive(Debug, Clone, Default)]
pub struct Aliases {
    table: TextTable,
    /// Targets that the configuration has to permit, for a warning.
    refused: Vec<Unpermitted>,
}

impl Aliases {
    /// Reads a file.
    ///
    /// # Errors
    /// The first fault with its place: a line without a colon, a name that is there twice, or a target that is none.
    pub fn parse(file: &str) -> Result<Self, FileFault> {
        let (mut table, mut refused) = (TextBuilder::default(), Vec::new());
        for line in logical_lines(file) {
            let (name, at) = name(file, &line)?;
            let value = &line.text[at..];
            check(file, &line, at, &mut refused)?;
            let fault = |what: &str, help: &str| FileFault::at(file, line.offset(0), what, help);
            table.add(&name, value.trim()).map_err(|why| match why {
                Refused::Twice => fault("this name is there already", "join the two lists in one line"),
                Refused::TooLarge => fault("the name is too long", "write at most 65,535 octets"),
            })?;
        }
        Ok(Self { table: table.finish(), refused })
    }

    /// The targets of a name, in upper or lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.table.get(name)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// No names?
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Targets that are programs or files: mail for their names is deferred unless the configuration permits them.
    pub fn refused(&self) -> &[Unpermitted] {
        &self.refused
    }
}

/// Returns the name of a line without its quotes, and the offset of its targets.
fn name(file: &str, line: &Line<'_>) -> Result<(String, usize), FileFault> {
    let text = &*line.text;
    let fault = |at: usize, what: &str, help: &str| FileFault::at(file, line.offset(at), what, help);
    if text.starts_with([' ', '\t']) {
        return Err(fault(0, "a line that begins with a blank, and none before it", "begin it with a name"));
    }
    let (name, colon) = if let Some(inner) = text.strip_prefix('"') {
        let end =
            inner.find('"').ok_or_else(|| fault(0, "a quote without its partner", "close the quote"))?;
        (&inner[..end], end + 2 + text[end + 2..].len() - text[end + 2..].trim_start().len())
    } else {
        let end = text.find([':', ' ', '\t', ',', '"']).unwrap_or(text.len());
        (&text[..end], end + text[end..].len() - text[end..].trim_start().len())
    };
    if !text[colon..].starts_with(':') {
        return Err(fault(colon, "the colon is missing behind the name", "write `name: target, target`"));
    }
    // `:include:/list` has an empty name, and so has a line that begins with a colon.
    if name.trim().is_empty() {
        return Err(fault(0, "the name is empty", "write `name: target, target`"));
    }
    Ok((name.trim().to_owned(), colon + 1))
}

/// Checks each target of a line, and notes those that are not used.
fn check(file: &str, line: &Line<'_>, at: usize, refused: &mut Vec<Unpermitted>) -> Result<(), FileFault> {
    let list = TargetList::new(&line.text[at..]);
    let mut count = 0;
    for target in list {
        count += 1;
        let (what, target, path) = match target {
            Ok(Target::Command(command)) => match split_command(&command) {
                Ok(words) => ("a program", format!("|{command}"), words.into_iter().next()),
                Err(why) => {
                    let what = format!("|{command} cannot be run, and mail for this name is deferred: {why}");
                    let fault = FileFault::at(file, line.offset(0), what, "");
                    refused.push(Unpermitted { fault, path: None });
                    continue;
                }
            },
            Ok(Target::File(path)) if *path == *NULL_DEVICE => continue,
            Ok(Target::File(path)) => ("a file", path.to_string(), Some(path)),
            Ok(Target::Domain(domain)) => {
                let what = format!("@{domain} is for virtual aliases");
                return Err(FileFault::at(file, line.offset(at), what, "write an address or a name"));
            }
            Ok(_) => continue,
            Err(error) => {
                return Err(FileFault::at(file, line.offset(at + error.at), error.what, error.help));
            }
        };
        let what = format!("{target} is {what}");
        let help =
            "mail for this name is deferred, unless `addresses.programs` or `addresses.files` has its path";
        refused.push(Unpermitted { fault: FileFault::at(file, line.offset(0), what, help), path });
    }
    if count == 0 {
        let help = "write a target, or remove the line";
        return Err(FileFault::at(file, line.offset(0), "the list of targets is empty", help));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# Basic aliases
mailer-daemon: postmaster
Postmaster:  root
\"odd name\" : joe,
   # not in the list
   jane@b.test
vacation: \"|/usr/bin/vacation joe\", \\joe
list: :include:/etc/mail/list
archive: /var/mail/archive
noreply: /dev/null
with:colon@b.test
";

    #[test]
    fn the_usual_lines_are_read() {
        let aliases = Aliases::parse(FILE).unwrap();
        for (name, value) in [
            ("MAILER-DAEMON", "postmaster"),
            ("postmaster", "root"),
            ("odd name", "joe,   jane@b.test"),
            ("vacation", "\"|/usr/bin/vacation joe\", \\joe"),
            ("list", ":include:/etc/mail/list"),
            ("with", "colon@b.test"),
        ] {
            assert_eq!(aliases.get(name), Some(value), "{name}");
        }
        assert_eq!((aliases.get("joe"), aliases.len()), (None, 8));
        let lines: Vec<usize> = aliases.refused().iter().map(|one| one.fault.line).collect();
        assert_eq!(lines, [7, 9], "the program and the file");
    }

    #[test]
    fn a_fault_is_told_with_line_and_column() {
        for (file, line, column) in [
            ("a: b\nc d\n", 2, 3),
            ("a: b\nA: c\n", 2, 1),
            ("a: b,\n  c@d@e\n", 2, 3),
            ("a:\n", 1, 1),
            ("\"open: b\n", 1, 1),
            (" a: b\n", 1, 1),
            (": b\n", 1, 1),
            ("a: @b.test\n", 1, 3),
            ("a: x\nb: :fail: gone\n", 2, 4),
            ("a: \"x\n", 1, 4),
        ] {
            let fault = Aliases::parse(file).unwrap_err();
            assert_eq!((fault.line, fault.column), (line, column), "{file:?}: {fault}");
        }
    }
}
