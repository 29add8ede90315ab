//! Changes to a header: fields added, replaced and removed, without a copy of the body.

use super::header::{HeaderLine, field_name, header_line};
use std::fmt;

/// Longest line of a field, without its CRLF (RFC 5322 §2.1.1).
const LINE_MAX_BYTES: usize = super::header::LINE_LENGTH_MAX;

/// One header field, checked: it can neither end the header nor begin another field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    name: Box<str>,
    value: Box<str>,
}

/// Why a text is refused as a header field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldError {
    /// A name has one or more printable ASCII characters, and no colon (RFC 5322 §2.2).
    Name,
    /// A line break that no space or tab follows would end the field.
    LineBreak,
    /// A value has no NUL and no bare CR (RFC 5322 §2.2, RFC 6532 §3.2).
    Control,
    /// A line is longer than 998 octets (RFC 5322 §2.1.1).
    TooLong,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "a field name is printable ASCII without a colon",
            Self::LineBreak => "a line break in a field value must be followed by a space or tab",
            Self::Control => "a field value must not contain NUL or a bare CR",
            Self::TooLong => "a line of a field must not exceed 998 octets",
        })
    }
}

impl std::error::Error for FieldError {}

/// The field in one line, unfolded.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.value.replace("\r\n", ""))
    }
}

impl Field {
    /// Makes a field. The value may be folded with LF or CRLF; one space or tab stands before it if it has none.
    ///
    /// # Errors
    /// The rule that the name or the value breaks.
    pub fn new(name: &str, value: &str) -> Result<Self, FieldError> {
        let is_name_byte = |b: u8| b.is_ascii_graphic() && b != b':';
        if name.is_empty() || !name.bytes().all(is_name_byte) {
            return Err(FieldError::Name);
        }
        let mut wire = String::with_capacity(value.len() + 1);
        if !value.starts_with([' ', '\t']) {
            wire.push(' ');
        }
        for (number, line) in value.split('\n').enumerate() {
            if number > 0 {
                if !line.starts_with([' ', '\t']) {
                    return Err(FieldError::LineBreak);
                }
                wire.push_str("\r\n");
            }
            let line = line.strip_suffix('\r').unwrap_or(line);
            if line.contains(['\0', '\r']) {
                return Err(FieldError::Control);
            }
            wire.push_str(line);
        }
        let mut lines = wire.split("\r\n");
        let first_bytes = name.len() + 1 + lines.next().map_or(0, str::len);
        if first_bytes > LINE_MAX_BYTES || lines.any(|line| line.len() > LINE_MAX_BYTES) {
            return Err(FieldError::TooLong);
        }
        Ok(Self { name: name.into(), value: wire.into() })
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.name.as_bytes());
        out.push(b':');
        out.extend_from_slice(self.value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

/// One change to a header. Occurrences of a name are counted from 0, from the top of the header as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Adds a field above all others, the trace field of this server included (RFC 8601 §5 asks for that place).
    Prepend(Field),
    /// Adds a field below all others.
    Append(Field),
    /// Replaces an occurrence of the field's name; without that occurrence the field is appended.
    Replace {
        /// Counted from 0.
        occurrence: usize,
        /// Takes the place of the occurrence; its name says which fields are counted.
        field: Field,
    },
    /// Removes one occurrence of a name, or all of them.
    Remove {
        /// In any letter case.
        name: Box<str>,
        /// Counted from 0; `None` removes every field of the name.
        occurrence: Option<usize>,
    },
}

/// Changes to a header, in the order of the decisions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Edits(Vec<Edit>);

impl Edits {
    /// Adds changes behind those that are there.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Are these changes the last ones?
    pub fn ends_with(&self, other: &Self) -> bool {
        !other.0.is_empty() && self.0.ends_with(&other.0)
    }

    /// Is there nothing to change?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The length of the fields that [`Edits::apply`] puts above the header.
    pub(crate) fn prepended_bytes(&self) -> usize {
        let of = |edit: &Edit| match edit {
            Edit::Prepend(field) => field.name.len() + field.value.len() + ":\r\n".len(),
            _ => 0,
        };
        self.0.iter().map(of).sum()
    }

    /// Returns the header with all changes. `header` ends behind its empty line, or where the content ends without
    /// one. Its first `trace_bytes` are fields of this server: they are kept, and not counted as occurrences. Bytes
    /// that are not changed are kept as they are.
    ///
    /// # Panics
    /// When `trace_bytes` is longer than the header.
    pub fn apply(&self, header: &[u8], trace_bytes: usize) -> Vec<u8> {
        let (trace, received) = header.split_at(trace_bytes);
        let (fields, end) = split(received);
        let names: Vec<&[u8]> = fields.iter().map(|field| name_of(field)).collect();
        let mut kept: Vec<Option<Line<'_>>> = fields.into_iter().map(|f| Some(Line::Received(f))).collect();
        let find = |name: &str, occurrence: usize| {
            let same = |(_, other): &(usize, &&[u8])| other.eq_ignore_ascii_case(name.as_bytes());
            names.iter().enumerate().filter(same).map(|(at, _)| at).nth(occurrence)
        };
        let (mut above, mut below) = (Vec::new(), Vec::new());
        for edit in &self.0 {
            match edit {
                Edit::Prepend(field) => above.push(field),
                Edit::Append(field) => below.push(field),
                Edit::Replace { occurrence, field } => match find(&field.name, *occurrence) {
                    Some(at) => kept[at] = Some(Line::New(field)),
                    None => below.push(field),
                },
                Edit::Remove { name, occurrence: Some(occurrence) } => {
                    if let Some(at) = find(name, *occurrence) {
                        kept[at] = None;
                    }
                }
                Edit::Remove { name, occurrence: None } => {
                    let is_same = |other: &&[u8]| other.eq_ignore_ascii_case(name.as_bytes());
                    for at in (0..names.len()).filter(|at| is_same(&names[*at])) {
                        kept[at] = None;
                    }
                }
            }
        }
        let mut out = Vec::with_capacity(header.len() + 256);
        above.iter().rev().for_each(|field| field.write_to(&mut out));
        out.extend_from_slice(trace);
        for line in kept.into_iter().flatten() {
            match line {
                Line::Received(bytes) => out.extend_from_slice(bytes),
                Line::New(field) => field.write_to(&mut out),
            }
        }
        // The last line of content that is all header may lack its end.
        if !below.is_empty() && !out.is_empty() && !out.ends_with(b"\n") {
            out.extend_from_slice(b"\r\n");
        }
        below.iter().for_each(|field| field.write_to(&mut out));
        out.extend_from_slice(end);
        out
    }
}

impl FromIterator<Edit> for Edits {
    fn from_iter<I: IntoIterator<Item = Edit>>(edits: I) -> Self {
        Self(edits.into_iter().collect())
    }
}

/// A line of the new header, with the lines that continue it.
enum Line<'a> {
    /// As it was received, with its line ends.
    Received(&'a [u8]),
    New(&'a Field),
}

/// The name of a field; empty for a line that is no field.
fn name_of(field: &[u8]) -> &[u8] {
    field_name(field).unwrap_or_default()
}

/// Splits a header into fields, each with its continuation lines, and the empty line behind them.
pub(crate) fn split(header: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let (mut fields, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in header.split_inclusive(|b| *b == b'\n') {
        let is_end = matches!(line, b"\r\n" | b"\n");
        let continues = header_line(line) == HeaderLine::Folded;
        if at > begin && (is_end || !continues) {
            fields.push(&header[begin..at]);
            begin = at;
        }
        if is_end {
            return (fields, &header[at..]);
        }
        at += line.len();
    }
    if at > begin {
        fields.push(&header[begin..at]);
    }
    (fields, &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(name: &str, value: &str) -> Field {
        Field::new(name, value).unwrap()
    }

    fn edited(header: &str, edits: impl IntoIterator<Item = Edit>) -> String {
        String::from_utf8(edits.into_iter().collect::<Edits>().apply(header.as_bytes(), 0)).unwrap()
    }

    const HEADER: &str = "Received: x\r\n\ty\r\nSubject: a\r\nX-Spam: yes\r\nx-spam : no\r\n\r\n";

    #[test]
    fn fields_are_added_above_and_below() {
        let edits = [
            Edit::Append(field("X-Last", "1")),
            Edit::Prepend(field("X-Second", "2")),
            Edit::Prepend(field("X-First", "3")),
        ];
        assert_eq!(
            edited(HEADER, edits),
            format!("X-First: 3\r\nX-Second: 2\r\n{}X-Last: 1\r\n\r\n", HEADER.strip_suffix("\r\n").unwrap())
        );
    }

    #[test]
    fn fields_are_replaced_and_removed_by_name_and_occurrence() {
        let replace = Edit::Replace { occurrence: 1, field: field("X-Spam", "maybe") };
        assert_eq!(edited(HEADER, [replace]), HEADER.replace("x-spam : no", "X-Spam: maybe"));
        let remove = |occurrence| Edit::Remove { name: "x-SPAM".into(), occurrence };
        assert_eq!(edited(HEADER, [remove(Some(0))]), HEADER.replace("X-Spam: yes\r\n", ""));
        assert_eq!(edited(HEADER, [remove(None)]), "Received: x\r\n\ty\r\nSubject: a\r\n\r\n");
        assert_eq!(edited(HEADER, [remove(Some(2))]), HEADER);
        // Occurrences count in the header as it was received.
        assert_eq!(
            edited(HEADER, [remove(Some(0)), remove(Some(1))]),
            "Received: x\r\n\ty\r\nSubject: a\r\n\r\n"
        );
        let absent = Edit::Replace { occurrence: 0, field: field("X-New", "1") };
        assert!(edited(HEADER, [absent]).ends_with("x-spam : no\r\nX-New: 1\r\n\r\n"));
    }

    #[test]
    fn fields_of_this_server_are_kept_and_not_counted() {
        let edits: Edits = [
            Edit::Remove { name: "Received".into(), occurrence: Some(0) },
            Edit::Prepend(field("Authentication-Results", "mx.test; none")),
        ]
        .into_iter()
        .collect();
        let edited = edits.apply(b"Received: ours\r\nReceived: theirs\r\nA: b\r\n\r\n", 16);
        assert_eq!(
            String::from_utf8(edited).unwrap(),
            "Authentication-Results: mx.test; none\r\nReceived: ours\r\nA: b\r\n\r\n"
        );
    }

    #[test]
    fn a_header_without_end_and_one_without_fields_take_fields() {
        assert_eq!(edited("A: b", [Edit::Append(field("C", "d"))]), "A: b\r\nC: d\r\n");
        assert_eq!(edited("\r\n", [Edit::Append(field("C", "d"))]), "C: d\r\n\r\n");
        assert_eq!(edited("", [Edit::Prepend(field("C", "d"))]), "C: d\r\n");
    }

    #[test]
    fn no_text_becomes_a_second_field_or_the_end_of_the_header() {
        assert_eq!(Field::new("A", "b\nC: d"), Err(FieldError::LineBreak));
        assert_eq!(Field::new("A", "b\r\n\r\nbody"), Err(FieldError::LineBreak));
        assert_eq!(Field::new("A", "b\rc"), Err(FieldError::Control));
        assert_eq!(Field::new("A", "b\0"), Err(FieldError::Control));
        assert_eq!(Field::new("A:", "b"), Err(FieldError::Name));
        assert_eq!(Field::new("", "b"), Err(FieldError::Name));
        assert_eq!(Field::new("A", &"x".repeat(996)), Err(FieldError::TooLong));
        assert_eq!(edited("\r\n", [Edit::Append(field("A", "b\n c\r\n\td"))]), "A: b\r\n c\r\n\td\r\n\r\n");
    }

    proptest! {
        #[test]
        fn a_header_without_changes_stays_as_it_is(text in "([A-Za-z :\t]{0,4}\r?\n?){0,8}") {
            prop_assert_eq!(edited(&text, []), text);
        }

        #[test]
        fn what_is_added_is_found_by_a_parser(values in proptest::collection::vec("[a-z]{1,8}", 1..4)) {
            let edits = values.iter().map(|value| Edit::Append(field("X-Added", value)));
            let text = edited("From: a@b.test\r\nSubject: x\r\n\r\n", edits);
            let message = mail_parser::MessageParser::new().parse(text.as_bytes()).unwrap();
            let found: Vec<String> = message
                .header_values("X-Added")
                .filter_map(|value| value.as_text().map(str::to_owned))
                .collect();
            prop_assert_eq!(found, values);
        }
    }
}
