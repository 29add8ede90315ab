//! The format of aliases(5): `name: target, target`, with continuation lines.

use crate::{
    fault::FileFault,
    lines::{Line, logical_lines},
    text::{Refused, TextBuilder, TextTable},
};
use rewrite::{NULL_DEVICE, Target, TargetError, TargetList, line_and_column, split_command};

/// A program or a file among the targets of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpermitted {
    /// Why the target would get no mail, with its place in the file.
    pub fault: FileFault,
    /// The path that `addresses.programs` or `addresses.files` has to have; none if nothing can permit the target.
    pub path: Option<Box<str>>,
}

/// An `:include:` among the targets of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// Counts from 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Path of the included file.
    pub path: Box<str>,
}

/// Remarks on a list of targets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remarks {
    /// Texts in the list that are no targets.
    pub faults: Vec<FileFault>,
    /// Targets that the configuration has to permit, for a warning.
    pub refused: Vec<Unpermitted>,
    /// Files that the list includes.
    pub included: Vec<Included>,
}

/// The names of a file, each with its list of targets.
#[derive(Debug, Clone, Default)]
pub struct Aliases {
    table: TextTable,
    /// Without faults.
    remarks: Remarks,
}

/// A line of a file of aliases, its continuation lines joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasLine {
    /// In front of the colon, as written.
    pub name: Box<str>,
    /// Behind the colon, as written.
    pub targets: Box<str>,
    /// Of its first part, from 1.
    pub line: usize,
}

/// Returns the lines of a file without those that have a fault.
pub fn lines(file: &str) -> impl Iterator<Item = AliasLine> + '_ {
    logical_lines(file).filter_map(|line| {
        let (name, at) = name(file, &line).ok()?;
        let place = FileFault::at(file, line.offset(0), "", "");
        Some(AliasLine { name: (&*name).into(), targets: line.text[at..].trim().into(), line: place.line })
    })
}

impl Aliases {
    /// Reads a file.
    ///
    /// # Errors
    /// The first fault with its place: a line without a colon, a name that is there twice, or a target that is none.
    pub fn parse(file: &str) -> Result<Self, FileFault> {
        let (mut table, mut remarks) = (TextBuilder::default(), Remarks::default());
        for line in logical_lines(file) {
            let (name, at) = name(file, &line)?;
            let value = &line.text[at..];
            check(file, &line, at, &mut remarks)?;
            let fault = |what: &str, help: &str| FileFault::at(file, line.offset(0), what, help);
            table.add(&name, value.trim()).map_err(|why| match why {
                Refused::Twice => fault("this name is there already", "join the two lists in one line"),
                Refused::TooLarge => fault("the name is too long", "write at most 65,535 octets"),
            })?;
        }
        Ok(Self { table: table.finish(), remarks })
    }

    /// The targets of a name, in upper or lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.table.get(name)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether the file has no name.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Targets that are programs or files: mail for their names is deferred unless the configuration permits them.
    pub fn refused(&self) -> &[Unpermitted] {
        &self.remarks.refused
    }

    /// Files that targets include, in the order of the file.
    pub fn included(&self) -> &[Included] {
        &self.remarks.included
    }
}

/// Checks the content of an `:include:` file. Each line shows its first fault.
pub fn check_included(text: &str) -> Remarks {
    let mut remarks = Remarks::default();
    for target in TargetList::of_file(text) {
        if let Err(fault) = remarks.note(text, target, |at| at) {
            remarks.faults.push(fault);
        }
    }
    remarks
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

/// Checks each target of a line, and notes those that need something else than the file.
fn check(file: &str, line: &Line<'_>, at: usize, remarks: &mut Remarks) -> Result<(), FileFault> {
    let mut count = 0;
    for target in TargetList::new(&line.text[at..]).placed() {
        count += 1;
        remarks.note(file, target, |offset| line.offset(at + offset))?;
    }
    if count == 0 {
        let help = "write a target, or remove the line";
        return Err(FileFault::at(file, line.offset(0), "the list of targets is empty", help));
    }
    Ok(())
}

impl Remarks {
    /// Notes one target; `offset` leads from its place in the list to that in the file.
    ///
    /// # Errors
    /// The target is none.
    fn note(
        &mut self,
        file: &str,
        target: Result<(usize, Target), TargetError>,
        offset: impl Fn(usize) -> usize,
    ) -> Result<(), FileFault> {
        let (at, target) = match target {
            Ok((at, target)) => (offset(at), target),
            Err(error) => return Err(FileFault::at(file, offset(error.at), error.what, error.help)),
        };
        let (what, target, path) = match target {
            Target::Command(command) => match split_command(&command) {
                Ok(words) => ("a program", format!("|{command}"), words.into_iter().next()),
                Err(why) => {
                    let what = format!("|{command} cannot be run, and mail for this name is deferred: {why}");
                    let fault = FileFault::at(file, at, what, "");
                    self.refused.push(Unpermitted { fault, path: None });
                    return Ok(());
                }
            },
            Target::File(path) if *path == *NULL_DEVICE => return Ok(()),
            Target::File(path) => ("a file", path.to_string(), Some(path)),
            Target::Domain(domain) => {
                let what = format!("@{domain} is for virtual aliases");
                return Err(FileFault::at(file, at, what, "write an address or a name"));
            }
            Target::Include(path) => {
                let (line, column) = line_and_column(file, at);
                self.included.push(Included { line, column, path });
                return Ok(());
            }
            Target::Mailbox(_) | Target::Local(_) | Target::Final(_) => return Ok(()),
        };
        let what = format!("{target} is {what}");
        let help =
            "mail for this name is deferred, unless `addresses.programs` or `addresses.files` has its path";
        self.refused.push(Unpermitted { fault: FileFault::at(file, at, what, help), path });
        Ok(())
    }
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
        let included = Included { line: 8, column: 7, path: "/etc/mail/list".into() };
        assert_eq!(aliases.included(), [included]);
    }

    #[test]
    fn each_line_of_an_included_file_shows_its_first_fault() {
        let text = "joe\n a@b@c, \"\n@b.test\n|/bin/true, :include:/more\n:fail:\n";
        let remarks = check_included(text);
        let places: Vec<_> = remarks.faults.iter().map(|fault| (fault.line, fault.column)).collect();
        assert_eq!(places, [(2, 2), (3, 1), (5, 1)]);
        let refused: Vec<_> =
            remarks.refused.iter().map(|one| (one.fault.line, one.path.as_deref())).collect();
        assert_eq!(refused, [(4, Some("/bin/true"))]);
        assert_eq!(remarks.included, [Included { line: 4, column: 13, path: "/more".into() }]);
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
            ("a: @b.test\n", 1, 4),
            ("a: x\nb: :fail: gone\n", 2, 4),
            ("a: \"x\n", 1, 4),
        ] {
            let fault = Aliases::parse(file).unwrap_err();
            assert_eq!((fault.line, fault.column), (line, column), "{file:?}: {fault}");
        }
    }
}
