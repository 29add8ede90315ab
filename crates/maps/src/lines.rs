//! Logical lines, as Postfix's tables and aliases(5) have them: a line that begins with a blank continues the one before.

use crate::fault::FileFault;
use std::borrow::Cow;

/// A line with those that continue it, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    /// The text; continuation lines are joined to it with their blanks.
    pub(crate) text: Cow<'a, str>,
    /// For each part of the text: its offset there, and its offset in the file.
    parts: Vec<(usize, usize)>,
}

impl Line<'_> {
    /// Returns the offset in the file of an offset in the text.
    pub(crate) fn offset(&self, at: usize) -> usize {
        let part = self.parts.iter().rev().find(|(from, _)| *from <= at);
        part.map_or(0, |(from, offset)| offset + at - from)
    }
}

/// The logical lines of a file that are neither empty nor comments. Comment lines begin with `#`, also between
/// continuation lines.
pub(crate) fn logical_lines(file: &str) -> impl Iterator<Item = Line<'_>> {
    let mut rest = file.split_inclusive('\n').peekable();
    let mut next_offset = 0;
    std::iter::from_fn(move || {
        let mut line: Option<Line<'_>> = None;
        while let Some(raw) = rest.peek() {
            let physical = raw.strip_suffix('\n').unwrap_or(raw);
            let physical = physical.strip_suffix('\r').unwrap_or(physical);
            let is_content = !physical.trim_start().is_empty() && !physical.trim_start().starts_with('#');
            let continues = physical.starts_with([' ', '\t']);
            if is_content && line.is_some() && !continues {
                break;
            }
            let offset = next_offset;
            next_offset += raw.len();
            rest.next();
            match &mut line {
                _ if !is_content => {}
                Some(line) => {
                    line.parts.push((line.text.len(), offset));
                    line.text.to_mut().push_str(physical);
                }
                none => *none = Some(Line { text: physical.into(), parts: vec![(0, offset)] }),
            }
        }
        line
    })
}

/// Returns the key and the value of a line, with the offset of the value. Both are trimmed; the value may be empty. A key
/// may have blanks in quotes, as a quoted local part has.
pub(crate) fn key_and_value(text: &str) -> (&str, &str, usize) {
    let mut is_quoted = false;
    let ends = |c: char| {
        is_quoted ^= c == '"';
        !is_quoted && matches!(c, ' ' | '\t')
    };
    let end = text.find(ends).unwrap_or(text.len());
    let value = text[end..].trim();
    let at = text.len() - text[end..].trim_start().len();
    (&text[..end], value, at)
}

/// Checks that a file is text. A byte order mark at its front, as some editors write, is not returned: it would be a part of
/// the first key. The last line may lack its end, as in Postfix.
///
/// # Errors
/// The file is not UTF-8, or has a NUL character.
pub fn checked_text(bytes: &[u8]) -> Result<&str, FileFault> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let readable = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        FileFault::at(
            readable,
            readable.len(),
            format!("the byte 0x{:02X} is not UTF-8", bytes[error.valid_up_to()]),
            "save the file as UTF-8",
        )
    })?;
    if let Some(at) = text.find('\0') {
        return Err(FileFault::at(text, at, "a NUL character", "this is not a text file"));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_first_key() {
        assert_eq!(checked_text(b"\xef\xbb\xbfa 1\n"), Ok("a 1\n"));
        assert_eq!(checked_text(b"a \xef\xbb\xbf1\n"), Ok("a \u{feff}1\n"));
        assert_eq!(checked_text(b"\xef\xbb\xbf"), Ok(""));
    }

    #[test]
    fn lines_are_continued_over_comments_and_keep_their_places() {
        let file = "# top\na 1\n\n  2\n# between\n\t3\r\nb x\n";
        let lines: Vec<_> = logical_lines(file).collect();
        let texts: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
        assert_eq!(texts, ["a 1  2\t3", "b x"]);
        let place = |line: &Line<'_>, at| &file[line.offset(at)..][..1];
        assert_eq!((place(&lines[0], 0), place(&lines[0], 5), place(&lines[0], 7)), ("a", "2", "3"));
        assert_eq!(place(&lines[1], 2), "x");
        assert_eq!(
            logical_lines("  first\n").map(|line| line.text.into_owned()).collect::<Vec<_>>(),
            ["  first"]
        );
        assert_eq!(logical_lines("\n # x\n").count(), 0);
    }

    #[test]
    fn a_line_is_cut_at_its_first_blank() {
        assert_eq!(key_and_value("a \t b c "), ("a", "b c", 4));
        assert_eq!(key_and_value("a"), ("a", "", 1));
        assert_eq!(key_and_value(" a"), ("", "a", 1));
        assert_eq!(key_and_value("\"a b\"@c x"), ("\"a b\"@c", "x", 8));
    }

    #[test]
    fn a_binary_file_is_refused_with_its_place() {
        let place = |bytes: &'static [u8]| checked_text(bytes).map_err(|fault| (fault.line, fault.column));
        assert_eq!(place(b"a 1\nb 2\n"), Ok("a 1\nb 2\n"));
        assert_eq!(place(b""), Ok(""));
        assert_eq!(place(b"a 1\nb"), Ok("a 1\nb"));
        assert_eq!(place(b"a\nb\xff\n"), Err((2, 2)));
        assert_eq!(place(b"a\n\0\n"), Err((2, 1)));
    }
}
