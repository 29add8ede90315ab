//! One pass over content as it arrives: the [`ContentTraits`] its delivery needs, and what policy asks of
//! the header (hops so far, fields present). Accepts any split of the input.

use crate::content::ContentTraits;

/// Longest text line without CRLF (RFC 5322 §2.1.1).
pub const LINE_LENGTH_MAX: usize = 998;

/// What a line can be in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderLine {
    /// The first line of a field: a name of printable ASCII characters, perhaps blanks (RFC 5322 §4.5), and a colon.
    Field,
    /// The continuation of a field, if there is one before: the line begins with a space or a tab.
    Folded,
    /// The separator of messages in the mbox format, perhaps quoted: `From `, behind any number of `>`. It is no part of a message;
    /// programs that read such files put it at the beginning of one.
    Mbox,
    /// The end of the header: an empty line, or one that cannot be in a header.
    Other,
}

/// Returns what a line can be in a header. Each part of this server that has to know where a header ends asks here, and the
/// answers are those of Postfix.
pub fn header_line(line: &[u8]) -> HeaderLine {
    let mut start = LineStart::default();
    start.push(line);
    start.kind()
}

/// Returns the name of a field; none for a line that begins no field.
pub fn field_name(field: &[u8]) -> Option<&[u8]> {
    let mut start = LineStart::default();
    start.push(field);
    (start.kind() == HeaderLine::Field).then(|| &field[..start.name_bytes])
}

/// Returns the names and the values of the fields of a header, with their folding and line ends.
pub fn fields(header: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = header;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let mut end = 0;
            loop {
                end += rest[end..].iter().position(|b| *b == b'\n').map_or(rest.len() - end, |at| at + 1);
                if !matches!(rest.get(end), Some(b' ' | b'\t')) {
                    break;
                }
            }
            let (field, behind) = rest.split_at(end);
            rest = behind;
            if let Some(name) = field_name(field) {
                let colon = field.iter().position(|b| *b == b':')?;
                return Some((name, &field[colon + 1..]));
            }
        }
    })
}

/// Content in which fields are looked for behind a line that is none.
const FIELDS_WITHIN_BYTES: usize = 64 << 10;

const FROM: &[u8] = b"From ";
const FROM_BYTES: u8 = 5;

/// The beginning of a line, as far as it has come.
#[derive(Debug, Clone, Copy, Default)]
struct LineStart {
    state: StartState,
    name_bytes: usize,
    /// Octets of `From ` so far, behind any number of `>`; more than it has where something else stands there.
    from_bytes: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum StartState {
    #[default]
    Empty,
    Name,
    /// Blanks between a name and its colon.
    Blanks,
    Field,
    Folded,
    Other,
}

impl LineStart {
    /// Takes the next octets of the line; those behind a decision change nothing.
    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.state = match (self.state, *byte) {
                (StartState::Empty, b' ' | b'\t') => StartState::Folded,
                (StartState::Name | StartState::Blanks, b' ' | b'\t') => StartState::Blanks,
                (StartState::Name | StartState::Blanks, b':') => StartState::Field,
                (StartState::Empty | StartState::Name, byte) if byte.is_ascii_graphic() && byte != b':' => {
                    self.name_bytes += 1;
                    StartState::Name
                }
                (StartState::Field | StartState::Folded | StartState::Other, _) => return,
                _ => StartState::Other,
            };
            self.from_bytes = match (self.from_bytes, *byte) {
                (0, b'>') => 0,
                (FROM_BYTES, _) => FROM_BYTES,
                (count, byte) if FROM.get(usize::from(count)) == Some(&byte) => count + 1,
                _ => u8::MAX,
            };
        }
    }

    fn kind(&self) -> HeaderLine {
        match self.state {
            StartState::Field => HeaderLine::Field,
            StartState::Folded => HeaderLine::Folded,
            _ if self.from_bytes == FROM_BYTES => HeaderLine::Mbox,
            _ => HeaderLine::Other,
        }
    }
}

/// Header fields the receive path asks about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderSummary {
    /// `Received` fields so far: the hop count (RFC 5321 §6.3).
    pub received_count: u32,
    /// A `Message-ID` field.
    pub message_id: bool,
    /// A `Date` field.
    pub date: bool,
    /// A `From` field.
    pub from: bool,
}

/// What stands between header and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Separation {
    /// An empty line, or the content ends.
    Separate,
    /// The body begins with a line that cannot be in a header.
    Missing,
    /// The same, and fields follow before the next empty line: one in front of the body would make text of them.
    Unwanted,
}

/// Feed content with [`ContentScanner::scan`], in order; ask at any time.
#[derive(Debug, Clone)]
pub struct ContentScanner {
    traits: ContentTraits,
    summary: HeaderSummary,
    in_header: bool,
    header_bytes: usize,
    /// The header has ended before a line that cannot be in it, and this many octets are still looked at for a field.
    looks_for_field_bytes: usize,
    separation: Separation,
    line_len: usize,
    /// A field was found; before it lines of mbox may stand, and no continuation.
    has_field: bool,
    /// The beginning of the current line of the header.
    start: LineStart,
    /// First bytes of the current header line, enough for the names we look for.
    name: [u8; 12],
    last: u8,
}

impl Default for ContentScanner {
    fn default() -> Self {
        Self {
            traits: ContentTraits::default(),
            summary: HeaderSummary::default(),
            in_header: true,
            header_bytes: 0,
            looks_for_field_bytes: 0,
            separation: Separation::Separate,
            line_len: 0,
            has_field: false,
            start: LineStart::default(),
            name: [0; 12],
            last: 0,
        }
    }
}

impl ContentScanner {
    /// Takes the next bytes.
    pub fn scan(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
            self.piece(piece, end.is_some());
            bytes = rest;
        }
    }

    /// A run of bytes up to and with the next LF, or to the end of what has come so far.
    fn piece(&mut self, piece: &[u8], ends_line: bool) {
        if self.line_len == 0 && piece[0] == b'.' {
            self.traits.has_dot_line = true;
        }
        if (self.in_header || self.looks_for_field_bytes > 0) && self.line_len < self.name.len() {
            let take = piece.len().min(self.name.len() - self.line_len);
            self.name[self.line_len..self.line_len + take].copy_from_slice(&piece[..take]);
        }
        if self.in_header {
            self.header_bytes += piece.len();
            self.start.push(piece);
        } else if self.looks_for_field_bytes > 0 {
            self.looks_for_field_bytes = self.looks_for_field_bytes.saturating_sub(piece.len());
            self.start.push(piece);
        }
        self.check_bytes(piece, ends_line);
        self.line_len += piece.len();
        self.last = piece[piece.len() - 1];
        if ends_line {
            self.end_line();
        } else if self.line_len > LINE_LENGTH_MAX + 1 {
            self.traits.has_long_line = true;
        }
    }

    fn check_bytes(&mut self, piece: &[u8], ends_line: bool) {
        if !piece.is_ascii() {
            self.traits.is_8bit = true;
            self.traits.has_utf8_header |= self.in_header;
        }
        let before_lf = if ends_line { &piece[..piece.len() - 1] } else { piece };
        let cr_before_lf = before_lf.last().map_or(self.last == b'\r' && self.line_len > 0, |b| *b == b'\r');
        // A CR anywhere but right before LF, an LF without CR, or NUL: not text (RFC 5321 §2.3.8).
        let cr_at_split = self.last == b'\r' && self.line_len > 0 && !(ends_line && before_lf.is_empty());
        let inner = if ends_line && cr_before_lf {
            &before_lf[..before_lf.len().saturating_sub(1)]
        } else {
            before_lf
        };
        let inner_cr = memchr::memchr2(b'\r', 0, inner).is_some_and(|at| {
            // A CR at the end of an unfinished piece may still get its LF.
            ends_line || inner[at] == 0 || at + 1 < inner.len()
        });
        self.traits.is_binary |= inner_cr || cr_at_split || (ends_line && !cr_before_lf);
    }

    fn end_line(&mut self) {
        if self.line_len > LINE_LENGTH_MAX + 2 {
            self.traits.has_long_line = true;
        }
        if self.in_header {
            self.header_line();
        } else if self.looks_for_field_bytes > 0 {
            self.line_behind_header();
        }
        self.start = LineStart::default();
        self.line_len = 0;
    }

    fn is_empty_line(&self) -> bool {
        let line = &self.name[..self.line_len.min(self.name.len())];
        line == b"\r\n" || line == b"\n"
    }

    fn header_line(&mut self) {
        if self.is_empty_line() {
            self.in_header = false;
        } else if !self.may_be_in_header() {
            // Neither a field nor a continuation of one: the header ended before this line.
            self.in_header = false;
            self.header_bytes -= self.line_len;
            self.separation = Separation::Missing;
            // A line that would continue a field above it needs the empty line in any case.
            if self.start.kind() != HeaderLine::Folded {
                self.looks_for_field_bytes = FIELDS_WITHIN_BYTES;
            }
        } else {
            self.has_field |= self.start.kind() == HeaderLine::Field;
            self.summary = self.with_current_line();
        }
    }

    fn line_behind_header(&mut self) {
        if self.start.kind() == HeaderLine::Field {
            self.separation = Separation::Unwanted;
        }
        if self.is_empty_line() || self.separation == Separation::Unwanted {
            self.looks_for_field_bytes = 0;
        }
    }

    /// Returns the summary with the field that the current line of the header begins.
    fn with_current_line(&self) -> HeaderSummary {
        let name = self.name.get(..self.start.name_bytes).unwrap_or_default();
        let is_field = self.start.kind() == HeaderLine::Field;
        let is = |field: &[u8]| is_field && name.eq_ignore_ascii_case(field);
        let mut summary = self.summary;
        if is(b"received") {
            summary.received_count += 1;
        } else if is(b"message-id") {
            summary.message_id = true;
        } else if is(b"date") {
            summary.date = true;
        } else if is(b"from") {
            summary.from = true;
        }
        summary
    }

    /// Is the current line of the header a field or the continuation of one, as far as it has come?
    fn may_be_in_header(&self) -> bool {
        match self.start.kind() {
            HeaderLine::Field => true,
            HeaderLine::Folded => self.has_field,
            HeaderLine::Mbox => !self.has_field,
            HeaderLine::Other => false,
        }
    }

    /// Returns the traits of the content so far, which delivery needs.
    pub fn traits(&self) -> ContentTraits {
        let mut traits = self.traits;
        traits.lacks_final_crlf = self.line_len > 0;
        traits.is_binary |= self.line_len > 0 && self.last == b'\r';
        traits
    }

    /// Length of the header so far, with the empty line that ends it.
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Length of the header if the content ended here: a last line without its end that cannot be in a header is body.
    pub fn final_header_bytes(&self) -> usize {
        if self.in_header && self.line_len > 0 && !self.may_be_in_header() {
            self.header_bytes - self.line_len
        } else {
            self.header_bytes
        }
    }

    /// Returns whether an empty line belongs between header and body that is not there, if the content ended here. Where fields follow
    /// behind a line that cannot be in a header, it does not: some readers take them for the rest of the header.
    pub fn lacks_separator(&self) -> bool {
        let is_cut_off = self.line_len > 0;
        match self.separation {
            Separation::Separate => self.in_header && is_cut_off && !self.may_be_in_header(),
            Separation::Missing => {
                !(is_cut_off && self.looks_for_field_bytes > 0 && self.start.kind() == HeaderLine::Field)
            }
            Separation::Unwanted => false,
        }
    }

    /// Is the header complete? It ends with an empty line, or before a line that cannot be in a header.
    pub fn has_whole_header(&self) -> bool {
        !self.in_header
    }

    /// Returns the facts about the header so far that policy needs. The last line may lack its end.
    pub fn summary(&self) -> HeaderSummary {
        if self.in_header && self.may_be_in_header() { self.with_current_line() } else { self.summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn traits(bytes: &[u8]) -> ContentTraits {
        let mut s = ContentScanner::default();
        s.scan(bytes);
        s.traits()
    }

    #[test]
    fn plain_text_has_no_special_traits() {
        assert_eq!(traits(b"From: a@b\r\n\r\nHello\r\n"), ContentTraits::default());
    }

    #[test]
    fn each_trait_is_found() {
        assert!(traits(b"a: b\r\n\r\n.x\r\n").has_dot_line);
        assert!(!traits(b"a: b\r\n\r\nx.x\r\n").has_dot_line);
        assert!(traits(b"a: b\r\n\r\n\xc3\xa4\r\n").is_8bit);
        assert!(!traits(b"a: b\r\n\r\n\xc3\xa4\r\n").has_utf8_header);
        assert!(traits(b"a: \xc3\xa4\r\n\r\n").has_utf8_header);
        assert!(traits(b"a: b").lacks_final_crlf);
        for binary in [&b"a\nb\r\n"[..], b"a\rb\r\n", b"a\0b\r\n", b"\ra\r\n", b"a\r\r\n", b"a\r", b"\n"] {
            assert!(traits(binary).is_binary, "{binary:?}");
        }
        let mut long = vec![b'x'; 998];
        long.extend_from_slice(b"\r\n");
        assert!(!traits(&long).has_long_line);
        long.insert(0, b'x');
        assert!(traits(&long).has_long_line);
    }

    #[test]
    fn a_field_without_the_end_of_its_line_counts() {
        for (content, received_count, date) in [
            ("Received: a\r\nReceived: b", 2, false),
            ("Received: a\r\nDate: b", 1, true),
            ("Received: a\r\nDate: b\r", 1, true),
            ("Received: a\r\n\r\nDate: b", 1, false),
            ("Received: a\r\nDate", 1, false),
        ] {
            let mut scanner = ContentScanner::default();
            scanner.scan(content.as_bytes());
            let found = scanner.summary();
            assert_eq!((found.received_count, found.date), (received_count, date), "{content}");
        }
    }

    #[test]
    fn the_header_ends_with_an_empty_line_or_before_a_line_that_cannot_be_in_it() {
        for (content, header, is_whole) in [
            ("A: b\r\n c\r\n\r\nD: e\r\n", "A: b\r\n c\r\n\r\n", true),
            ("A: b\r\nno field\r\nC: d\r\n", "A: b\r\n", true),
            ("no field\r\n", "", true),
            (" folded\r\nA: b\r\n", "", true),
            (
                ">>From joe Mon\r\nFrom jane\r\nA: b\r\n\r\n",
                ">>From joe Mon\r\nFrom jane\r\nA: b\r\n\r\n",
                true,
            ),
            ("From joe Mon 10:00:00\r\n folded\r\n", "From joe Mon 10:00:00\r\n", true),
            ("A: b\r\nFrom joe Mon 10:00:00\r\nC: d\r\n", "A: b\r\n", true),
            ("A \t: b\r\n \r\n: c\r\n", "A \t: b\r\n \r\n", true),
            ("two words: b\r\n", "", true),
            ("\u{e4}: b\r\n", "", true),
            ("From : b\r\n c\r\n\r\n", "From : b\r\n c\r\n\r\n", true),
            ("\r\nbody", "\r\n", true),
            ("A: b\r\n", "A: b\r\n", false),
            ("A: b\r\nno fie", "A: b\r\n", false),
            ("A: b\r\nC:", "A: b\r\nC:", false),
            ("A: b\r\n c", "A: b\r\n c", false),
        ] {
            for split in 0..=content.len() {
                let mut scanner = ContentScanner::default();
                let (begin, rest) = content.as_bytes().split_at(split);
                scanner.scan(begin);
                scanner.scan(rest);
                let found = (scanner.final_header_bytes(), scanner.has_whole_header());
                assert_eq!(found, (header.len(), is_whole), "{content:?} at {split}");
            }
        }
    }

    #[test]
    fn hops_are_counted_in_the_header_only() {
        let mut s = ContentScanner::default();
        s.scan(b"Received: x\r\n y\r\nRECEIVED \t: z\r\nMessage-Id: <a@b>\r\n\r\nReceived: no\r\n");
        assert_eq!(
            s.summary(),
            HeaderSummary { received_count: 2, message_id: true, ..HeaderSummary::default() }
        );
    }

    proptest! {
        #[test]
        fn any_split_finds_the_same(pieces in proptest::collection::vec("[a\\r\\n.\0é:]{0,4}", 0..12)) {
            let whole = pieces.concat();
            let mut split = ContentScanner::default();
            for piece in &pieces { split.scan(piece.as_bytes()); }
            let mut once = ContentScanner::default();
            once.scan(whole.as_bytes());
            prop_assert_eq!(split.traits(), once.traits());
            prop_assert_eq!(split.summary(), once.summary());
        }
    }
}
