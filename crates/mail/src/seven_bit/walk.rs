//! Walks through the structure of content (RFC 2046 §5.1, §5.2.1) as it comes, and says what each piece is.

use super::{Unconvertible, field};
use crate::header::LINE_LENGTH_MAX;

/// Levels of multiparts within each other.
const DEPTH_MAX: usize = 100;
/// Headers of messages and parts.
const HEADER_BYTES_MAX: usize = 1024 * 1024;
/// Longest boundary that is understood; RFC 2046 §5.1.1 allows 70.
const BOUNDARY_MAX: usize = 200;
/// Longest line that may be a delimiter, with its CRLF.
const WHOLE_LINE_MAX: usize = LINE_LENGTH_MAX + 2;

/// The kind of entity that a header belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entity {
    /// A multipart or a message, whose parts follow.
    Composite,
    /// Anything else.
    Leaf {
        /// The content is text, or is said to be text.
        is_text: bool,
        /// The content is not encoded yet, and its type permits an encoding.
        may_encode: bool,
    },
}

/// A header, and what was found in it.
#[derive(Debug)]
pub(super) struct Header<'a> {
    /// All of it, with the empty line, where there is one.
    pub(super) block: &'a [u8],
    /// Content-Transfer-Encoding says 8bit or binary.
    pub(super) is_identity_encoded: bool,
    pub(super) lacks_type: bool,
    /// Of a message, not of a part.
    pub(super) lacks_mime_version: bool,
    /// Of the whole content: DKIM-Signature. Of any part: multipart/signed.
    pub(super) is_signed: bool,
}

impl Header<'_> {
    /// All fields but Content-Transfer-Encoding, and behind them `added` fields, without the empty line.
    pub(super) fn write_without_encoding(&self, added: &[u8], out: &mut Vec<u8>) {
        let fields = field::fields(self.block).unwrap_or_default();
        for (name, whole) in fields {
            if !is(name, "content-transfer-encoding") {
                out.extend_from_slice(whole);
            }
        }
        out.extend_from_slice(added);
    }

    /// The empty line, where there is one.
    pub(super) fn end(&self) -> &'static [u8] {
        if self.block == b"\r\n" || self.block.ends_with(b"\r\n\r\n") { b"\r\n" } else { b"" }
    }
}

/// Receives the pieces of content.
pub(super) trait Visitor {
    /// A header. Behind that of a leaf comes its body.
    fn header(&mut self, header: &Header<'_>, entity: Entity);
    /// Octets of a leaf's body, without the CRLFs that end its lines.
    fn data(&mut self, bytes: &[u8]);
    /// A CRLF in a leaf's body.
    fn line_end(&mut self);
    /// The end of a leaf's body. Nothing follows the last one.
    fn end_leaf(&mut self, is_last: bool);
    /// Delimiters, and what stands before the first and behind the last part of a multipart.
    fn raw(&mut self, bytes: &[u8]);
}

/// A multipart whose closing delimiter has not come yet.
#[derive(Debug)]
struct Multipart {
    /// `--` and the boundary.
    delimiter: Vec<u8>,
    /// The multipart is a digest: its parts are messages unless they say otherwise (RFC 2046 §5.1.5).
    is_digest: bool,
    has_parts: bool,
    /// Of what is no part something was left out.
    has_gap: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Header {
        is_message: bool,
        is_top: bool,
        default_is_message: bool,
    },
    Leaf,
    /// Before the first or behind the last part.
    Filler,
}

/// Feed it with [`Walker::push`], in order, and end with [`Walker::finish`].
#[derive(Debug)]
pub(super) struct Walker {
    /// Outermost first.
    open: Vec<Multipart>,
    /// The delimiter of the multipart that ended last: behind its end it would be ambiguous.
    closed: Vec<u8>,
    state: State,
    /// Octets of the header that is being read, up to its empty line.
    block: Vec<u8>,
    /// The line so far, as long as it may be a delimiter.
    line: Vec<u8>,
    /// The beginning of the line was passed on.
    is_in_line: bool,
    /// The line began behind CRLF.
    is_behind_crlf: bool,
    /// The CRLF at the end of a leaf's last line so far: before a delimiter it is the delimiter's.
    has_line_end: bool,
    fault: Option<Unconvertible>,
}

impl Default for Walker {
    fn default() -> Self {
        Self {
            open: Vec::new(),
            closed: Vec::new(),
            state: State::Header { is_message: true, is_top: true, default_is_message: false },
            block: Vec::new(),
            line: Vec::new(),
            is_in_line: false,
            is_behind_crlf: true,
            has_line_end: false,
            fault: None,
        }
    }
}

/// The result of comparing a line with the delimiters.
enum Delimiter {
    None,
    /// Begins a part of the multipart with this index in `open`.
    Part(usize),
    /// Closes the multipart with this index.
    End(usize),
    Ambiguous,
}

impl Walker {
    pub(super) fn fault(&self) -> Option<Unconvertible> {
        self.fault
    }

    fn fail(&mut self, why: Unconvertible) {
        self.fault.get_or_insert(why);
    }

    pub(super) fn push(&mut self, bytes: &[u8], visitor: &mut impl Visitor) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.end_line(visitor);
            } else if self.line.len() > WHOLE_LINE_MAX {
                self.pass_beginning(visitor);
            }
        }
    }

    pub(super) fn finish(&mut self, visitor: &mut impl Visitor) {
        if !self.line.is_empty() {
            self.end_line(visitor);
        }
        if matches!(self.state, State::Header { .. }) {
            self.end_header(visitor);
        }
        if self.state == State::Leaf {
            self.pass_line_end(visitor);
            visitor.end_leaf(true);
        }
        self.close(0);
    }

    /// A line that is too long to be a delimiter. A CR at its end may get its LF yet.
    fn pass_beginning(&mut self, visitor: &mut impl Visitor) {
        let keep = usize::from(self.line.ends_with(b"\r"));
        let rest = self.line.split_off(self.line.len() - keep);
        let bytes = std::mem::replace(&mut self.line, rest);
        self.is_in_line = true;
        self.pass(&bytes, visitor);
    }

    /// Octets of a line that is no delimiter, without the CRLF that ends it.
    fn pass(&mut self, bytes: &[u8], visitor: &mut impl Visitor) {
        match self.state {
            State::Header { .. } => self.add_to_header(bytes),
            State::Leaf => {
                self.pass_line_end(visitor);
                visitor.data(bytes);
            }
            // Only whole lines are kept.
            State::Filler => self.leave_out(),
        }
    }

    fn pass_line_end(&mut self, visitor: &mut impl Visitor) {
        if std::mem::take(&mut self.has_line_end) {
            visitor.line_end();
        }
    }

    fn leave_out(&mut self) {
        if let Some(multipart) = self.open.last_mut() {
            multipart.has_gap = true;
        }
    }

    fn add_to_header(&mut self, bytes: &[u8]) {
        if self.block.len() + bytes.len() > HEADER_BYTES_MAX {
            self.fail(Unconvertible::Size);
        } else {
            self.block.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self, visitor: &mut impl Visitor) {
        let line = std::mem::take(&mut self.line);
        let is_whole = !std::mem::take(&mut self.is_in_line);
        let was_behind_crlf = std::mem::replace(&mut self.is_behind_crlf, line.ends_with(b"\r\n"));
        if is_whole && line.starts_with(b"--") {
            match self.compare(&line) {
                Delimiter::None => {}
                Delimiter::Ambiguous => self.fail(Unconvertible::Boundary),
                Delimiter::Part(_) | Delimiter::End(_) if !was_behind_crlf => {
                    self.fail(Unconvertible::Boundary);
                }
                Delimiter::Part(level) => return self.begin_part(level, &line, visitor),
                Delimiter::End(level) => return self.end_multipart(level, &line, visitor),
            }
        }
        match self.state {
            State::Header { .. } => {
                self.add_to_header(&line);
                if is_whole && line == b"\r\n" {
                    self.end_header(visitor);
                }
            }
            State::Leaf => {
                let body = line.strip_suffix(b"\r\n");
                if !body.unwrap_or(&line).is_empty() || body.is_some() {
                    self.pass_line_end(visitor);
                }
                if !body.unwrap_or(&line).is_empty() {
                    visitor.data(body.unwrap_or(&line));
                }
                self.has_line_end = body.is_some();
            }
            State::Filler if is_whole && is_text_line(&line) => visitor.raw(&line),
            State::Filler => self.leave_out(),
        }
    }

    /// Returns the delimiter that this line is; the line begins with `--`. A line that merely begins like a delimiter
    /// is
    /// ambiguous: some readers accept such a line, and some accept a delimiter without CR.
    fn compare(&self, line: &[u8]) -> Delimiter {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let is_strict = text.len() == line.len() || text.ends_with(b"\r");
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let mut is_near = !self.closed.is_empty() && text.starts_with(&self.closed);
        for (level, multipart) in self.open.iter().enumerate().rev() {
            let Some(rest) = text.strip_prefix(&multipart.delimiter[..]) else { continue };
            match rest.trim_ascii_end() {
                b"" if is_strict => return Delimiter::Part(level),
                b"--" if is_strict => return Delimiter::End(level),
                _ => is_near = true,
            }
        }
        if is_near { Delimiter::Ambiguous } else { Delimiter::None }
    }

    /// Ends the body or header before a delimiter.
    fn end_part(&mut self, visitor: &mut impl Visitor) {
        match self.state {
            // A part without an empty line.
            State::Header { .. } => {
                self.end_header(visitor);
                if self.state == State::Leaf {
                    visitor.end_leaf(false);
                }
            }
            State::Leaf => {
                visitor.end_leaf(false);
                if std::mem::take(&mut self.has_line_end) {
                    visitor.raw(b"\r\n");
                }
            }
            State::Filler => {}
        }
    }

    /// Multiparts from this level on have ended.
    fn close(&mut self, level: usize) {
        for multipart in self.open.drain(level.min(self.open.len())..) {
            // All of it was taken for what may be left out.
            if multipart.has_gap && !multipart.has_parts {
                self.fault.get_or_insert(Unconvertible::Boundary);
            }
        }
    }

    fn begin_part(&mut self, level: usize, line: &[u8], visitor: &mut impl Visitor) {
        self.end_part(visitor);
        self.close(level + 1);
        self.closed.clear();
        let multipart = &mut self.open[level];
        multipart.has_parts = true;
        let default_is_message = multipart.is_digest;
        visitor.raw(line);
        self.state = State::Header { is_message: false, is_top: false, default_is_message };
    }

    fn end_multipart(&mut self, level: usize, line: &[u8], visitor: &mut impl Visitor) {
        self.end_part(visitor);
        self.close(level + 1);
        let last = self.open.pop().expect("the level is open");
        if !last.has_parts {
            self.fail(Unconvertible::Boundary);
        }
        self.closed = last.delimiter;
        visitor.raw(line);
        self.state = State::Filler;
    }

    fn end_header(&mut self, visitor: &mut impl Visitor) {
        let State::Header { is_message, is_top, default_is_message } = self.state else { return };
        let block = std::mem::take(&mut self.block);
        let next = self.read_header(&block, is_message, is_top, default_is_message, visitor);
        self.has_line_end = false;
        self.is_behind_crlf = true;
        self.state = next;
    }

    fn read_header(
        &mut self,
        block: &[u8],
        is_message: bool,
        is_top: bool,
        default_is_message: bool,
        visitor: &mut impl Visitor,
    ) -> State {
        let fields = if is_text(block) { field::fields(block) } else { None };
        if fields.is_none() {
            self.fail(if is_text(block) { Unconvertible::Syntax } else { Unconvertible::Header });
        }
        let fields = fields.unwrap_or_default();
        let one = |wanted: &str| {
            let mut found =
                fields.iter().filter(|(name, _)| is(name, wanted)).map(|(_, field)| field::value(field));
            (found.next(), found.next().is_some())
        };
        let (content_type, has_types) = one("content-type");
        let (encoding, has_encodings) = one("content-transfer-encoding");
        if has_types || has_encodings {
            self.fail(Unconvertible::Syntax);
        }
        let media = content_type.map(field::media_type);
        let encoding = encoding.map(field::transfer_encoding);
        if media == Some(None) || encoding == Some(None) {
            self.fail(Unconvertible::Syntax);
        }
        let encoding = encoding.flatten();
        let is_plain = matches!(encoding.as_deref(), None | Some(b"7bit" | b"8bit" | b"binary"));
        let media = media.flatten();
        let default = if default_is_message { "message/rfc822" } else { "text/plain" };
        let name = media.as_ref().map_or(default, |media| &*media.name);
        let header = Header {
            block,
            is_identity_encoded: matches!(encoding.as_deref(), Some(b"8bit" | b"binary")),
            lacks_type: content_type.is_none(),
            lacks_mime_version: is_message && one("mime-version").0.is_none(),
            is_signed: name == "multipart/signed" || (is_top && one("dkim-signature").0.is_some()),
        };
        let boundary = media.as_ref().and_then(|media| media.boundary.clone());
        let is_multipart = name.starts_with("multipart/");
        if is_multipart && is_plain && self.open_multipart(boundary, name == "multipart/digest") {
            visitor.header(&header, Entity::Composite);
            return State::Filler;
        }
        if name == "message/rfc822" && is_plain && !header.end().is_empty() {
            visitor.header(&header, Entity::Composite);
            return State::Header { is_message: true, is_top: false, default_is_message: false };
        }
        let is_closed =
            is_multipart || matches!(name, "message/rfc822" | "message/partial" | "message/external-body");
        let is_text = name.starts_with("text/") || name.starts_with("message/");
        visitor.header(&header, Entity::Leaf { is_text, may_encode: is_plain && !is_closed });
        State::Leaf
    }

    /// False where the boundary is missing: then its parts cannot be found.
    fn open_multipart(&mut self, boundary: Option<Vec<u8>>, is_digest: bool) -> bool {
        let Some(boundary) =
            boundary.filter(|b| !b.is_empty() && b.len() <= BOUNDARY_MAX && !b.ends_with(b" "))
        else {
            return false;
        };
        if self.open.len() >= DEPTH_MAX {
            self.fail(Unconvertible::Size);
            return false;
        }
        let delimiter = [&b"--"[..], &boundary].concat();
        if self.open.iter().any(|multipart| multipart.delimiter == delimiter) {
            self.fail(Unconvertible::Boundary);
        }
        self.closed.clear();
        self.open.push(Multipart { delimiter, is_digest, has_parts: false, has_gap: false });
        true
    }
}

fn is(name: &[u8], wanted: &str) -> bool {
    name.eq_ignore_ascii_case(wanted.as_bytes())
}

/// ASCII without NUL, in lines that end in CRLF.
fn is_text(bytes: &[u8]) -> bool {
    let is_line_end = |at: usize| match bytes[at] {
        b'\r' => bytes.get(at + 1) == Some(&b'\n'),
        b'\n' => at > 0 && bytes[at - 1] == b'\r',
        byte => byte.is_ascii() && byte != 0,
    };
    (0..bytes.len()).all(is_line_end)
}

/// The same for one line, which must also fit into [`WHOLE_LINE_MAX`].
fn is_text_line(line: &[u8]) -> bool {
    line.len() <= WHOLE_LINE_MAX && is_text(line)
}
