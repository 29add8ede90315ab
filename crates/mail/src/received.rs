//! Content on its way in: the header is a part of its own, so that it can be read and changed while the body stays
//! where it is, in memory or in a spool.

use crate::{
    content::{Content, ContentTraits, Part},
    header::{ContentScanner, HeaderLine, header_line},
    header_edit::Edits,
    header_fields::HeaderFields,
    seven_bit::{Converter, Scan},
};
use bytes::Bytes;
use std::sync::Arc;

/// Content that was received and is not yet accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedContent {
    traits: ContentTraits,
    /// The first part is in memory and has the whole header, and perhaps the beginning of the body.
    parts: Vec<Part>,
    /// Fields of this server, at the front of the header.
    trace_bytes: usize,
    header_bytes: usize,
    /// An empty line belongs behind the header that is not there.
    lacks_separator: bool,
}

impl ReceivedContent {
    /// Content whose first part begins with the header, `header_bytes` with the empty line that ends it. The first
    /// `trace_bytes` of the header are fields of this server.
    ///
    /// # Panics
    /// When the first part does not have the whole header in memory.
    pub fn new(traits: ContentTraits, trace_bytes: usize, header_bytes: usize, parts: Vec<Part>) -> Self {
        let has_header = match parts.first() {
            Some(Part::Memory(first)) => first.len() >= header_bytes,
            Some(Part::Stored { .. }) => false,
            None => header_bytes == 0,
        };
        assert!(
            has_header && trace_bytes <= header_bytes,
            "the first part of received content has its header"
        );
        Self { traits, parts, trace_bytes, header_bytes, lacks_separator: false }
    }

    /// Content that `scanner` has read, without the fields of this server, which are the first `trace_bytes`.
    ///
    /// # Panics
    /// As for [`Self::new`].
    pub fn scanned(scanner: &ContentScanner, trace_bytes: usize, parts: Vec<Part>) -> Self {
        let header_bytes = trace_bytes + scanner.final_header_bytes();
        let lacks_separator = scanner.lacks_separator();
        Self { lacks_separator, ..Self::new(scanner.traits(), trace_bytes, header_bytes, parts) }
    }

    /// Content that is all in memory; scans it.
    ///
    /// # Panics
    /// When the content is shorter than `trace_bytes`.
    pub fn from_bytes(bytes: impl Into<Bytes>, trace_bytes: usize) -> Self {
        let bytes = bytes.into();
        let mut scanner = ContentScanner::default();
        // Without the fields of this server: a first line that begins with a blank continues none of them.
        scanner.scan(&bytes[trace_bytes..]);
        Self::scanned(&scanner, trace_bytes, vec![Part::Memory(bytes)])
    }

    /// The header as it was received, without the fields of this server, and with the empty line that ends it. There is no empty
    /// line where the content ends before one, or where a line follows that is no field.
    pub fn header(&self) -> &[u8] {
        &self.whole_header()[self.trace_bytes..]
    }

    /// The header as it will be delivered, with the fields of this server.
    pub fn whole_header(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Memory(first)) => &first[..self.header_bytes],
            _ => &[],
        }
    }

    /// The beginning of the body, where it stands in one part with the header.
    pub fn body_of_first_part(&self) -> &[u8] {
        match self.parts.first() {
            Some(Part::Memory(first)) => &first[self.header_bytes..],
            _ => &[],
        }
    }

    /// The pieces of the body that are in memory, in order.
    pub fn body_in_memory(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().enumerate().filter_map(|(number, part)| match part {
            Part::Memory(_) if number == 0 => Some(self.body_of_first_part()),
            Part::Memory(bytes) => Some(&bytes[..]),
            Part::Stored { .. } => None,
        })
    }

    /// The parts, in order. The first one begins with the header.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Cuts the content: the header first, as a part of its own, and then the body in parts of at most `max_bytes`.
    /// Nothing is copied; what is in a spool stays whole.
    pub fn cut(&self, max_bytes: usize) -> impl Iterator<Item = Part> {
        let mut parts = std::collections::VecDeque::from(self.parts.clone());
        let mut header_bytes = Some(self.header_bytes);
        std::iter::from_fn(move || {
            let Part::Memory(bytes) = parts.front_mut()? else { return parts.pop_front() };
            let piece = bytes.split_to(header_bytes.take().unwrap_or(max_bytes).min(bytes.len()));
            if bytes.is_empty() {
                parts.pop_front();
            }
            Some(Part::Memory(piece))
        })
    }

    /// Returns the content in other parts, of which the first one is the header.
    pub fn with_parts(&self, parts: Vec<Part>) -> Self {
        let lacks_separator = self.lacks_separator;
        Self { lacks_separator, ..Self::new(self.traits, self.trace_bytes, self.header_bytes, parts) }
    }

    /// Total length in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.parts.iter().map(Part::len).sum()
    }

    /// Changes the header. The body is not copied.
    pub fn edit(&mut self, edits: &Edits) {
        if edits.is_empty() {
            return;
        }
        self.replace_header(edits.apply(self.whole_header(), self.trace_bytes));
        // What stands above the trace fields now is of this server, too, and later changes do not count it.
        self.trace_bytes += edits.prepended_bytes();
    }

    /// Returns the fields of the header, those of this server included.
    pub fn fields(&self) -> HeaderFields {
        HeaderFields::read(self.whole_header(), self.trace_bytes)
    }

    /// Puts other fields in the place of those in the header. The body is not copied.
    pub fn set_fields(&mut self, fields: &HeaderFields) {
        let (header, trace_bytes) = fields.write();
        self.replace_header(header);
        self.trace_bytes = trace_bytes;
    }

    /// Converts content with 8-bit octets, with bare line ends or with very long lines to 7 bits, if all of it is in memory. What
    /// cannot be converted, or is signed, stays as it is.
    pub fn convert_to_seven_bit(&mut self) {
        let ContentTraits { is_8bit, is_binary, has_long_line, .. } = self.traits;
        if !(is_8bit || is_binary || has_long_line) {
            return;
        }
        let mut bytes = Vec::new();
        for part in &self.parts {
            let Part::Memory(piece) = part else { return };
            bytes.extend_from_slice(piece);
        }
        let mut scan = Scan::default();
        scan.push(&bytes[self.trace_bytes..]);
        let Ok(plan) = scan.finish() else { return };
        if plan.is_signed() {
            return;
        }
        let received = bytes.split_off(self.trace_bytes);
        let mut converter = Converter::new(Arc::new(plan));
        bytes.extend(converter.push(&received));
        bytes.extend(converter.finish());
        *self = Self::from_bytes(bytes, self.trace_bytes);
    }

    /// Replaces the body, and returns the parts that had it: chunks in a spool are to be given back. The header stays, and gets the
    /// empty line that it lacks.
    pub fn replace_body(&mut self, body: Bytes) -> Vec<Part> {
        let mut header = self.whole_header().to_vec();
        if self.lacks_separator || !header.ends_with(b"\r\n\r\n") && header[self.trace_bytes..] != *b"\r\n" {
            header.extend_from_slice(b"\r\n");
        }
        let mut scanner = ContentScanner::default();
        scanner.scan(&header[self.trace_bytes..]);
        scanner.scan(&body);
        let parts = [Part::Memory(header.into()), Part::Memory(body)];
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let new = Self::scanned(&scanner, self.trace_bytes, parts);
        std::mem::replace(self, new).parts
    }

    /// Makes the content fit behind fields of this server. Separators of mbox files at its beginning become fields, as Postfix makes
    /// them: behind another field they would end the header. An empty line is put before a body that came without one, for a field
    /// must not run into it. Where only a line that is no field stands between fields, the content stays as it came: an empty
    /// line before that line would turn the fields below into text.
    pub fn separate_body(&mut self) {
        let named = self.with_named_separators();
        if named.is_some() || self.lacks_separator {
            self.replace_header(named.unwrap_or_else(|| self.whole_header().to_vec()));
        }
    }

    /// Returns the header with its separators of mbox files as fields; none if it has no such lines.
    fn with_named_separators(&self) -> Option<Vec<u8>> {
        let (trace, mut rest) = self.whole_header().split_at(self.trace_bytes);
        let mut named = None;
        while header_line(rest) == HeaderLine::Mbox {
            let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            let out = named.get_or_insert_with(|| trace.to_vec());
            out.extend_from_slice(b"X-Mailbox-Line: ");
            out.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        named.map(|out| [&out[..], rest].concat())
    }

    fn replace_header(&mut self, mut header: Vec<u8>) {
        if std::mem::take(&mut self.lacks_separator) {
            header.extend_from_slice(b"\r\n");
        }
        let mut scanner = ContentScanner::default();
        scanner.scan(&header);
        let new = scanner.traits();
        let (has_utf8_header, lacks_final_crlf) = (new.has_utf8_header, self.traits.lacks_final_crlf);
        self.traits = self.traits.union(new);
        self.traits.has_utf8_header = has_utf8_header;
        let first = match self.parts.first() {
            Some(Part::Memory(first)) => first.clone(),
            _ => Bytes::new(),
        };
        let body = first.slice(self.header_bytes..);
        let is_all = body.is_empty() && self.parts.len() <= 1;
        self.traits.lacks_final_crlf = if is_all { new.lacks_final_crlf } else { lacks_final_crlf };
        self.header_bytes = header.len();
        let front = [Part::Memory(header.into()), Part::Memory(body)];
        self.parts.splice(..self.parts.len().min(1), front.into_iter().filter(|part| !part.is_empty()));
    }

    /// The content as it is stored and sent.
    pub fn into_content(self) -> Content {
        Content::new(self.traits, self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::ChunkId,
        header_edit::{Edit, Field},
    };
    use proptest::prelude::*;

    fn add(name: &str, value: &str) -> Edits {
        [Edit::Append(Field::new(name, value).unwrap())].into_iter().collect()
    }

    #[test]
    fn a_change_of_the_header_leaves_the_body_where_it_is() {
        let bytes = Bytes::from_static(b"Subject: x\r\n\r\nbody\r\n");
        let mut content = ReceivedContent::from_bytes(bytes.clone(), 0);
        assert_eq!(content.header(), b"Subject: x\r\n\r\n");
        content.edit(&add("X-A", "b"));
        assert_eq!(content.header(), b"Subject: x\r\nX-A: b\r\n\r\n");
        let [_, Part::Memory(body)] = content.parts() else { panic!("header and body") };
        assert_eq!(body.as_ptr(), bytes[14..].as_ptr());
        content.edit(&add("X-C", "d"));
        let whole = content.into_content().in_memory().unwrap();
        assert_eq!(&whole[..], b"Subject: x\r\nX-A: b\r\nX-C: d\r\n\r\nbody\r\n");
    }

    #[test]
    fn a_body_in_the_spool_stays_there() {
        let stored = Part::Stored { chunk_id: ChunkId(7), length_bytes: 1000 };
        let parts = vec![Part::Memory(Bytes::from_static(b"A: b\r\n\r\n")), stored.clone()];
        let mut content = ReceivedContent::new(ContentTraits::default(), 0, 8, parts);
        content.edit(&add("C", "d"));
        assert_eq!(content.parts(), [Part::Memory(Bytes::from_static(b"A: b\r\nC: d\r\n\r\n")), stored]);
        assert_eq!(content.size_bytes(), 1014);
    }

    #[test]
    fn the_traits_follow_the_header() {
        let mut content = ReceivedContent::from_bytes("A: b", 0);
        content.edit(&add("C", "\u{e4}"));
        let edited = content.clone().into_content();
        assert!(edited.traits.has_utf8_header && edited.traits.is_8bit && !edited.traits.lacks_final_crlf);
        let remove = Edit::Remove { name: "c".into(), occurrence: None };
        content.edit(&[remove].into_iter().collect());
        assert!(!content.into_content().traits.has_utf8_header);
        let mut content = ReceivedContent::from_bytes("A: b\r\n\r\nbody", 0);
        content.edit(&add("C", "d"));
        assert!(content.into_content().traits.lacks_final_crlf);
    }

    #[test]
    fn fields_of_this_server_are_not_shown_as_received_and_stay() {
        let mut content = ReceivedContent::from_bytes("Received: x\r\nA: b\r\n\r\n", 13);
        assert_eq!(content.header(), b"A: b\r\n\r\n");
        let prepend = Edit::Prepend(Field::new("X", "1").unwrap());
        content.edit(&[prepend].into_iter().collect());
        assert_eq!(content.header(), b"A: b\r\n\r\n");
        let whole = content.into_content().in_memory().unwrap();
        assert_eq!(&whole[..], b"X: 1\r\nReceived: x\r\nA: b\r\n\r\n");
    }

    #[test]
    fn a_line_that_is_no_field_gets_an_empty_line_only_where_the_header_ends() {
        for (given, edited) in [
            ("no field\r\n", "C: d\r\n\r\nno field\r\n"),
            (" folded\r\nA: b\r\n\r\n", "C: d\r\n\r\n folded\r\nA: b\r\n\r\n"),
            ("A: b\r\nbody\r\n", "A: b\r\nC: d\r\n\r\nbody\r\n"),
            ("A: b\r\nno field\r\nE: f\r\n\r\nbody", "A: b\r\nC: d\r\nno field\r\nE: f\r\n\r\nbody"),
            (
                "From joe Mon Nov 23 10:00:00\r\nA: b\r\n\r\n",
                "From joe Mon Nov 23 10:00:00\r\nA: b\r\nC: d\r\n\r\n",
            ),
        ] {
            let mut content = ReceivedContent::from_bytes(given, 0);
            content.edit(&add("C", "d"));
            assert_eq!(&content.into_content().in_memory().unwrap()[..], edited.as_bytes());
        }
    }

    #[test]
    fn content_of_8_bits_becomes_7_bits_unless_it_is_signed() {
        let of = |text: &str| {
            let mut content = ReceivedContent::from_bytes(format!("R: x\r\n{text}"), 6);
            content.convert_to_seven_bit();
            assert!(content.whole_header().starts_with(b"R: x\r\n"));
            String::from_utf8(content.into_content().in_memory().unwrap().to_vec()).unwrap()
        };
        let converted = of("A: b\r\n\r\nn\u{e9}w and enough that is plain ASCII\r\n");
        assert!(converted.is_ascii(), "{converted}");
        assert!(converted.ends_with("\r\n\r\nn=C3=A9w and enough that is plain ASCII\r\n"), "{converted}");
        let signed = "DKIM-Signature: v=1\r\n\r\nn\u{e9}w\r\n";
        assert_eq!(of(signed), format!("R: x\r\n{signed}"));
        assert_eq!(of("A: b\r\n\r\nnew\r\n"), "R: x\r\nA: b\r\n\r\nnew\r\n");
    }

    #[test]
    fn another_body_keeps_the_header_and_gives_back_what_had_the_old_one() {
        for (given, replaced) in [
            ("A: b\r\n\r\nbody\r\n", "A: b\r\n\r\nn\u{e9}w\r\n"),
            ("A: b\r\n\r\n", "A: b\r\n\r\nn\u{e9}w\r\n"),
            ("A: b\r\n", "A: b\r\n\r\nn\u{e9}w\r\n"),
            ("A: b\r\nbody\r\n", "A: b\r\n\r\nn\u{e9}w\r\n"),
            ("\r\nbody\r\n", "\r\nn\u{e9}w\r\n"),
            ("", "\r\nn\u{e9}w\r\n"),
        ] {
            let mut content = ReceivedContent::from_bytes(format!("R: x\r\n{given}"), 6);
            content.parts.push(Part::Stored { chunk_id: ChunkId(7), length_bytes: 9 });
            let old = content.replace_body(Bytes::from_static("n\u{e9}w\r\n".as_bytes()));
            assert!(old.contains(&Part::Stored { chunk_id: ChunkId(7), length_bytes: 9 }));
            assert!(content.traits.is_8bit, "{given:?}");
            content.edit(&add("C", "d"));
            assert!(content.header().ends_with(b"C: d\r\n\r\n"), "{given:?}");
            let whole = content.into_content().in_memory().unwrap();
            let expected = format!("R: x\r\n{replaced}").replacen("\r\nn", "C: d\r\n\r\nn", 1);
            assert_eq!(std::str::from_utf8(&whole), Ok(&*expected));
        }
    }

    #[test]
    fn behind_fields_of_this_server_content_stays_as_it_came() {
        const TRACE: &str = "Received: x\r\n";
        for (given, separated) in [
            ("A: b\r\nno field\r\nE: f\r\n\r\nbody\r\n", None),
            ("A: b\r\nno field\r\nnor this: one\r\nE: f\r\n", None),
            ("A: b\r\n\r\nbody\r\n", None),
            ("A: b\r\n\r\nE: f\r\n", None),
            ("\r\nA: b\r\n", None),
            ("no field\r\nA: b\r\n\r\n", None),
            ("", None),
            ("A: b\r\nbody\r\n", Some(("A: b\r\n", "body\r\n"))),
            ("A: b\r\nbody\r\n\r\nE: f\r\n", Some(("A: b\r\n", "body\r\n\r\nE: f\r\n"))),
            ("no field\r\n", Some(("", "no field\r\n"))),
            (" folded\r\nA: b\r\n\r\n", Some(("", " folded\r\nA: b\r\n\r\n"))),
            (": b\r\nbody\r\n", Some(("", ": b\r\nbody\r\n"))),
            ("A: b\r\nFrom joe\r\n", Some(("A: b\r\n", "From joe\r\n"))),
        ] {
            let mut content = ReceivedContent::from_bytes(format!("{TRACE}{given}"), TRACE.len());
            content.separate_body();
            let expected = match separated {
                None => format!("{TRACE}{given}"),
                Some((header, body)) => format!("{TRACE}{header}\r\n{body}"),
            };
            let whole = content.into_content().in_memory().unwrap();
            assert_eq!(std::str::from_utf8(&whole), Ok(&*expected));
        }
    }

    #[test]
    fn separators_of_mbox_files_before_the_header_become_fields_of_it() {
        for (given, named) in [
            ("From joe Mon\r\nA: b\r\n\r\nbody\r\n", "X-Mailbox-Line: From joe Mon\r\nA: b\r\n\r\nbody\r\n"),
            (
                ">>From joe\r\nFrom ann\r\n\r\nbody\r\n",
                "X-Mailbox-Line: >>From joe\r\nX-Mailbox-Line: From ann\r\n\r\nbody\r\n",
            ),
            ("From joe\r\n folded\r\n", "X-Mailbox-Line: From joe\r\n\r\n folded\r\n"),
            ("From joe\r\nbody\r\n", "X-Mailbox-Line: From joe\r\n\r\nbody\r\n"),
            ("From joe", "X-Mailbox-Line: From joe"),
            ("From : b\r\n\r\nbody\r\n", "From : b\r\n\r\nbody\r\n"),
            ("\r\nFrom joe\r\n", "\r\nFrom joe\r\n"),
        ] {
            let mut content = ReceivedContent::from_bytes(format!("R: x\r\n{given}"), 6);
            content.separate_body();
            let whole = content.into_content().in_memory().unwrap();
            assert_eq!(std::str::from_utf8(&whole), Ok(&*format!("R: x\r\n{named}")));
        }
    }

    /// The fields, with separators of mbox files as fields, and the body.
    fn split(content: &[u8]) -> (String, String) {
        let mut scanner = ContentScanner::default();
        scanner.scan(content);
        let (header, body) = content.split_at(scanner.final_header_bytes());
        let [header, body] = [header, body].map(String::from_utf8_lossy);
        let fields =
            header.strip_suffix("\r\n").filter(|fields| fields.is_empty() || fields.ends_with("\r\n"));
        let fields = fields.unwrap_or(&header);
        let mbox_lines =
            fields.split_inclusive('\n').take_while(|line| header_line(line.as_bytes()) == HeaderLine::Mbox);
        let mbox_bytes = mbox_lines.map(str::len).sum();
        let (mbox, fields) = fields.split_at(mbox_bytes);
        let named: String =
            mbox.split_inclusive('\n').map(|line| format!("X-Mailbox-Line: {line}")).collect();
        (named + fields, body.into_owned())
    }

    proptest! {
        #[test]
        fn behind_a_field_of_this_server_the_same_is_header_and_the_same_is_body(
            lines in proptest::collection::vec("A: b|B \t: c|: d|[ \t]e|[ \t]|From f|>From g|From : h|two words: i|j|ä: k||\u{1}: l", 0..7),
            end in "|\r\n",
        ) {
            let given = lines.join("\r\n") + &end;
            let mut content = ReceivedContent::from_bytes(format!("R: x\r\n{given}"), 6);
            content.separate_body();
            let again = content.clone().into_content().in_memory().unwrap();
            let (fields, body) = split(given.as_bytes());
            prop_assert_eq!(split(&again), (format!("R: x\r\n{fields}"), body));
            content.separate_body();
            prop_assert_eq!(content.into_content().in_memory().unwrap(), again);
        }
    }

    #[test]
    fn content_without_a_header_takes_one() {
        let mut content = ReceivedContent::from_bytes("\r\nbody\r\n", 0);
        content.edit(&add("A", "b"));
        assert_eq!(&content.into_content().in_memory().unwrap()[..], b"A: b\r\n\r\nbody\r\n");
        let mut content = ReceivedContent::new(ContentTraits::default(), 0, 0, Vec::new());
        content.edit(&add("A", "b"));
        assert_eq!(&content.into_content().in_memory().unwrap()[..], b"A: b\r\n");
    }
}
