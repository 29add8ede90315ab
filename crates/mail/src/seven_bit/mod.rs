//! Content of any kind as lines of 7-bit text, for next hops that take nothing else (RFC 6152 §3, RFC 3030 §3).
//!
//! Parts that have 8-bit octets, NUL, a bare CR or LF, or a line over 998 octets get a
//! Content-Transfer-Encoding; multiparts and messages within are walked through, and everything else stays as it
//! is. Content is read twice: [`Scan`] finds out what has to be done, [`Converter`] does it. Both take the content
//! in pieces and keep one header and one line of it.

mod encode;
mod field;
mod walk;

use crate::header::ContentScanner;
use encode::Encoder;
use std::{fmt, sync::Arc};
use walk::{Entity, Header, Visitor, Walker};

/// Parts of one message; more is an attack.
const PARTS_MAX: usize = 100_000;

/// A reason why content cannot be converted without a risk of changing its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unconvertible {
    /// A header has octets above 127, control characters or bare line ends.
    Header,
    /// A header or a header line cannot be read, or a field stands twice.
    Syntax,
    /// A part is encoded already, or of a type that must not be encoded, and has 8-bit octets.
    Encoded,
    /// Readers disagree about the end of a part of a multipart.
    Boundary,
    /// Too many parts, too many levels, or too large a header.
    Size,
}

impl fmt::Display for Unconvertible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "a header has octets that are not ASCII text",
            Self::Syntax => "a header cannot be read",
            Self::Encoded => "a part that must not be encoded has 8-bit octets",
            Self::Boundary => "the boundary of a multipart is ambiguous",
            Self::Size => "it has too many parts, too many levels, or too large a header",
        })
    }
}

/// The encoding in which a part's body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// As it is.
    Keep,
    /// RFC 2045 §6.7.
    QuotedPrintable,
    /// RFC 2045 §6.8.
    Base64,
}

/// The conversion of one part that is neither a multipart nor a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leaf {
    encoding: Encoding,
    is_utf8: bool,
}

/// The conversions of all parts of some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// In the order in which they stand.
    leaves: Box<[Leaf]>,
    is_signed: bool,
}

impl Plan {
    /// Has it a DKIM-Signature or a multipart/signed, which a conversion breaks?
    pub fn is_signed(&self) -> bool {
        self.is_signed
    }
}

/// Reads content to find out whether and how it can be converted. Feed it with [`Scan::push`], in order.
#[derive(Debug)]
pub struct Scan {
    walker: Walker,
    findings: Findings,
}

impl Default for Scan {
    fn default() -> Self {
        let findings = Findings { leaves: Vec::new(), current: None, is_signed: false, fault: None };
        Self { walker: Walker::default(), findings }
    }
}

impl Scan {
    /// Takes the next piece.
    pub fn push(&mut self, bytes: &[u8]) {
        self.walker.push(bytes, &mut self.findings);
    }

    /// Returns the plan for the content that was pushed.
    ///
    /// # Errors
    /// It cannot be converted.
    pub fn finish(mut self) -> Result<Plan, Unconvertible> {
        self.walker.finish(&mut self.findings);
        match self.walker.fault().or(self.findings.fault) {
            Some(fault) => Err(fault),
            None => Ok(Plan { leaves: self.findings.leaves.into(), is_signed: self.findings.is_signed }),
        }
    }
}

/// The part whose body is being read, and what its encoding will be chosen by.
#[derive(Debug)]
struct Current {
    entity: Entity,
    scanner: ContentScanner,
    byte_count: u64,
    /// Octets that take three characters in quoted-printable.
    special_count: u64,
    utf8: Utf8Check,
}

#[derive(Debug)]
struct Findings {
    leaves: Vec<Leaf>,
    current: Option<Current>,
    is_signed: bool,
    fault: Option<Unconvertible>,
}

impl Findings {
    fn add(&mut self, bytes: &[u8]) {
        let Some(current) = &mut self.current else { return };
        current.scanner.scan(bytes);
        current.byte_count += bytes.len() as u64;
        let is_special = |byte: &&u8| !matches!(**byte, b' '..=b'<' | b'>'..=b'~' | b'\t' | b'\r' | b'\n');
        current.special_count += bytes.iter().filter(is_special).count() as u64;
        current.utf8.push(bytes);
    }
}

impl Visitor for Findings {
    fn header(&mut self, header: &Header<'_>, entity: Entity) {
        self.is_signed |= header.is_signed;
        if let Entity::Leaf { .. } = entity {
            let (scanner, utf8) = (ContentScanner::default(), Utf8Check::default());
            self.current = Some(Current { entity, scanner, byte_count: 0, special_count: 0, utf8 });
        }
    }

    fn data(&mut self, bytes: &[u8]) {
        self.add(bytes);
    }

    fn line_end(&mut self) {
        self.add(b"\r\n");
    }

    fn end_leaf(&mut self, _is_last: bool) {
        let Some(Current { entity, scanner, byte_count, special_count, utf8 }) = self.current.take() else {
            return;
        };
        let traits = scanner.traits();
        let encoding = match entity {
            _ if !(traits.is_8bit || traits.is_binary || traits.has_long_line) => Encoding::Keep,
            Entity::Leaf { may_encode: false, .. } => {
                self.fault.get_or_insert(Unconvertible::Encoded);
                Encoding::Keep
            }
            // The shorter one: a special octet adds two, base64 a third of everything.
            Entity::Leaf { is_text: true, .. } if special_count * 6 <= byte_count => {
                Encoding::QuotedPrintable
            }
            _ => Encoding::Base64,
        };
        if self.leaves.len() < PARTS_MAX {
            self.leaves.push(Leaf { encoding, is_utf8: utf8.is_valid() });
        } else {
            self.fault.get_or_insert(Unconvertible::Size);
        }
    }

    fn raw(&mut self, _bytes: &[u8]) {}
}

/// Is text that comes in pieces valid UTF-8?
#[derive(Debug, Default)]
struct Utf8Check {
    is_bad: bool,
    /// The octets of a character that may be continued in the next piece.
    rest: Vec<u8>,
}

impl Utf8Check {
    fn push(&mut self, bytes: &[u8]) {
        if self.is_bad || (self.rest.is_empty() && bytes.is_ascii()) {
            return;
        }
        self.rest.extend_from_slice(bytes);
        match std::str::from_utf8(&self.rest) {
            Ok(_) => self.rest.clear(),
            Err(e) if e.error_len().is_none() => drop(self.rest.drain(..e.valid_up_to())),
            Err(_) => (self.is_bad, self.rest) = (true, Vec::new()),
        }
    }

    fn is_valid(&self) -> bool {
        !self.is_bad && self.rest.is_empty()
    }
}

/// Converts content by its [`Plan`]. Feed it the same content again, in order; the pieces may differ.
#[derive(Debug)]
pub struct Converter {
    walker: Walker,
    writer: Writer,
}

impl Converter {
    /// Begins at the beginning of the content.
    pub fn new(plan: Arc<Plan>) -> Self {
        let writer = Writer { plan, next_leaf: 0, encoder: Encoder::default(), out: Vec::new(), last: b'\n' };
        Self { walker: Walker::default(), writer }
    }

    /// Takes the next piece. Returns what is ready of the converted content, which may be nothing.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.writer.out.reserve(bytes.len() + bytes.len() / 2);
        self.walker.push(bytes, &mut self.writer);
        self.writer.take()
    }

    /// Returns the end of the converted content; all of it ends in CRLF.
    pub fn finish(mut self) -> Vec<u8> {
        self.walker.finish(&mut self.writer);
        let mut out = self.writer.take();
        if self.writer.last != b'\n' {
            out.extend_from_slice(b"\r\n");
        }
        out
    }
}

#[derive(Debug)]
struct Writer {
    plan: Arc<Plan>,
    next_leaf: usize,
    encoder: Encoder,
    out: Vec<u8>,
    last: u8,
}

impl Writer {
    fn take(&mut self) -> Vec<u8> {
        let out = std::mem::take(&mut self.out);
        self.last = out.last().copied().unwrap_or(self.last);
        out
    }

    /// A header whose part gets another encoding.
    fn encoded_header(&mut self, header: &Header<'_>, leaf: Leaf) {
        let mut added = String::new();
        if header.lacks_mime_version {
            added.push_str("MIME-Version: 1.0\r\n");
            if header.lacks_type {
                // RFC 1428 §3; what is valid UTF-8 hardly is anything else.
                let charset = if leaf.is_utf8 { "utf-8" } else { "unknown-8bit" };
                added.push_str(&format!("Content-Type: text/plain; charset={charset}\r\n"));
            }
        }
        let word = if leaf.encoding == Encoding::Base64 { "base64" } else { "quoted-printable" };
        added.push_str(&format!("Content-Transfer-Encoding: {word}\r\n"));
        header.write_without_encoding(added.as_bytes(), &mut self.out);
        self.out.extend_from_slice(b"\r\n");
    }
}

impl Visitor for Writer {
    fn header(&mut self, header: &Header<'_>, entity: Entity) {
        if entity == Entity::Composite {
            if header.is_identity_encoded {
                header.write_without_encoding(b"", &mut self.out);
                self.out.extend_from_slice(header.end());
            } else {
                self.out.extend_from_slice(header.block);
            }
            return;
        }
        let keep = Leaf { encoding: Encoding::Keep, is_utf8: false };
        let leaf = self.plan.leaves.get(self.next_leaf).copied().unwrap_or(keep);
        self.next_leaf += 1;
        self.encoder = Encoder::new(leaf.encoding);
        if leaf.encoding == Encoding::Keep {
            self.out.extend_from_slice(header.block);
        } else {
            self.encoded_header(header, leaf);
        }
    }

    fn data(&mut self, bytes: &[u8]) {
        self.encoder.data(bytes, &mut self.out);
    }

    fn line_end(&mut self) {
        self.encoder.line_end(&mut self.out);
    }

    fn end_leaf(&mut self, is_last: bool) {
        self.encoder.finish(is_last, &mut self.out);
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests;
