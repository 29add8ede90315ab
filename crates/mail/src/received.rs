//! Content on its way in: the header is a part of its own, so that it can be read and changed while the body stays
//! where it is, in memory or in a spool.

use crate::{
    content::{Content, ContentTraits, Part},
    header::ContentScanner,
    header_edit::Edits,
};
use bytes::Bytes;

/// Content that was received and is not yet accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedContent {
    traits: ContentTraits,
    /// The first part is in memory and has the whole header, and perhaps the beginning of the body.
    parts: Vec<Part>,
    /// Fields of this server, at the front of the header.
    trace_bytes: usize,
    header_bytes: usize,
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
        Self { traits, parts, trace_bytes, header_bytes }
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
        let header_bytes = trace_bytes + scanner.final_header_bytes();
        Self::new(scanner.traits(), trace_bytes, header_bytes, vec![Part::Memory(bytes)])
    }

    /// The header as it was received, without the fields of this server, and with the empty line that ends it. There is no empty
    /// line where the content ends before one, or where a line follows that is no field.
    pub fn header(&self) -> &[u8] {
        &self.whole_header()[self.trace_bytes..]
    }

    fn whole_header(&self) -> &[u8] {
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
        Self::new(self.traits, self.trace_bytes, self.header_bytes, parts)
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

    /// Puts an empty line before a body that came without one: a field of this server must not run into it. Where only a line
    /// that is no field stands between fields, the content stays as it came: an empty line before that line would turn the
    /// fields below into text.
    pub fn separate_body(&mut self) {
        if self.lacks_separator() {
            self.replace_header(self.whole_header().to_vec());
        }
    }

    /// Returns whether a body follows the header without an empty line.
    fn lacks_separator(&self) -> bool {
        let has_body = self.size_bytes() > self.header_bytes as u64;
        let has_header = self.header_bytes > self.trace_bytes;
        has_body
            && !ends_header(&self.whole_header()[self.trace_bytes..])
            && !(has_header && header_goes_on(self.body_of_first_part()))
    }

    fn replace_header(&mut self, mut header: Vec<u8>) {
        if self.lacks_separator() {
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

/// Does the header end with an empty line?
fn ends_header(header: &[u8]) -> bool {
    [&b"\r\n\r\n"[..], b"\n\r\n", b"\n\n"].iter().any(|end| header.ends_with(end))
        || matches!(header, b"\r\n" | b"\n")
}

/// Content in which fields are looked for behind a line that is none.
const FIELDS_WITHIN_BYTES: usize = 64 << 10;

/// Returns whether fields follow before the next empty line.
fn header_goes_on(rest: &[u8]) -> bool {
    let rest = &rest[..rest.len().min(FIELDS_WITHIN_BYTES)];
    let lines = rest.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    lines.take_while(|line| !line.is_empty()).any(is_field)
}

fn is_field(line: &[u8]) -> bool {
    let colon = memchr::memchr(b':', line).unwrap_or(0);
    colon > 0 && line[..colon].iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::ChunkId,
        header_edit::{Edit, Field},
    };

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
    fn behind_fields_of_this_server_content_stays_as_it_came() {
        const TRACE: &str = "Received: x\r\n";
        for (given, separated) in [
            ("A: b\r\nno field\r\nE: f\r\n\r\nbody\r\n", None),
            ("A: b\r\nno field\r\nnor this: one\r\nE: f\r\n", None),
            ("A: b\r\n\r\nbody\r\n", None),
            ("A: b\r\n\r\nE: f\r\n", None),
            ("\r\nA: b\r\n", None),
            ("From joe Mon Nov 23 10:00:00\r\nA: b\r\n\r\n", None),
            ("", None),
            ("A: b\r\nbody\r\n", Some(("A: b\r\n", "body\r\n"))),
            ("A: b\r\nbody\r\n\r\nE: f\r\n", Some(("A: b\r\n", "body\r\n\r\nE: f\r\n"))),
            ("no field\r\n", Some(("", "no field\r\n"))),
            (" folded\r\nA: b\r\n\r\n", Some(("", " folded\r\nA: b\r\n\r\n"))),
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
    fn content_without_a_header_takes_one() {
        let mut content = ReceivedContent::from_bytes("\r\nbody\r\n", 0);
        content.edit(&add("A", "b"));
        assert_eq!(&content.into_content().in_memory().unwrap()[..], b"A: b\r\n\r\nbody\r\n");
        let mut content = ReceivedContent::new(ContentTraits::default(), 0, 0, Vec::new());
        content.edit(&add("A", "b"));
        assert_eq!(&content.into_content().in_memory().unwrap()[..], b"A: b\r\n");
    }
}
