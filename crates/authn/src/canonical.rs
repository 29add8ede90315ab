//! The canonical forms of headers and bodies (RFC 6376 §3.4).

use aws_lc_rs::digest::{Context, Digest, SHA256};

/// How much of a text may change on its way without breaking its signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Only empty lines at the end of a body do not count.
    Simple,
    /// Nor does the amount of white space.
    Relaxed,
}

/// Hashes a body in its canonical form, by default `relaxed`. Feed it with [`BodyHasher::push`], in order, in pieces of any size.
pub struct BodyHasher {
    form: Form,
    sink: Sink,
    /// Line ends that count only if something follows them.
    pending_lines: usize,
    /// Spaces or tabs that count as one space only if something follows them on their line.
    has_pending_space: bool,
    /// The last octet was a CR, which may begin a line end.
    has_pending_cr: bool,
    /// Nothing but line ends was seen.
    is_empty: bool,
    buffer: Vec<u8>,
}

/// Octets that are hashed at once.
const BUFFER_BYTES: usize = 4096;

/// Hashes the first octets, and counts all.
struct Sink {
    hash: Context,
    limit: u64,
    count: u64,
}

impl Sink {
    fn update(&mut self, bytes: &[u8]) {
        let room = usize::try_from(self.limit.saturating_sub(self.count)).unwrap_or(usize::MAX);
        self.hash.update(&bytes[..bytes.len().min(room)]);
        self.count += bytes.len() as u64;
    }
}

impl Default for BodyHasher {
    fn default() -> Self {
        Self::new(Form::Relaxed, None)
    }
}

impl BodyHasher {
    /// Hashes a form of a body, or its first octets.
    pub(crate) fn new(form: Form, limit: Option<u64>) -> Self {
        Self {
            form,
            sink: Sink { hash: Context::new(&SHA256), limit: limit.unwrap_or(u64::MAX), count: 0 },
            pending_lines: 0,
            has_pending_space: false,
            has_pending_cr: false,
            is_empty: true,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        }
    }

    /// Takes the next piece of the body.
    pub fn push(&mut self, mut bytes: &[u8]) {
        if !bytes.is_empty() && std::mem::take(&mut self.has_pending_cr) {
            if let [b'\n', rest @ ..] = bytes {
                self.end_line();
                bytes = rest;
            } else {
                self.add(b"\r");
            }
        }
        while !bytes.is_empty() {
            let plain = match self.form {
                Form::Simple => memchr::memchr(b'\r', bytes),
                Form::Relaxed => memchr::memchr3(b' ', b'\t', b'\r', bytes),
            };
            let plain = plain.unwrap_or(bytes.len());
            if plain > 0 {
                self.add(&bytes[..plain]);
            }
            match &bytes[plain..] {
                [] => return,
                [b'\r', b'\n', rest @ ..] => {
                    self.end_line();
                    bytes = rest;
                }
                [b'\r'] => {
                    self.has_pending_cr = true;
                    return;
                }
                [b'\r', rest @ ..] => {
                    self.add(b"\r");
                    bytes = rest;
                }
                [_, rest @ ..] => {
                    self.has_pending_space = true;
                    bytes = rest;
                }
            }
        }
    }

    /// Returns the hash of the body that was pushed. A body that does not end with CRLF gets one.
    pub fn finish(self) -> Digest {
        self.finish_counted().0
    }

    /// Returns the hash, and the octets of the canonical form, hashed or not.
    pub(crate) fn finish_counted(mut self) -> (Digest, u64) {
        if self.has_pending_cr {
            self.add(b"\r");
        }
        // Empty lines at the end do not count, and neither do spaces behind the last line.
        if !self.is_empty || self.form == Form::Simple {
            self.buffer.extend_from_slice(b"\r\n");
        }
        self.flush();
        (self.sink.hash.finish(), self.sink.count)
    }

    /// Adds what is neither white space nor a line end.
    fn add(&mut self, bytes: &[u8]) {
        for _ in 0..std::mem::take(&mut self.pending_lines) {
            self.buffer.extend_from_slice(b"\r\n");
            if self.buffer.len() >= BUFFER_BYTES {
                self.flush();
            }
        }
        if std::mem::take(&mut self.has_pending_space) {
            self.buffer.push(b' ');
        }
        self.is_empty = false;
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush();
            self.sink.update(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) {
        self.has_pending_space = false;
        self.pending_lines += 1;
    }

    fn flush(&mut self) {
        self.sink.update(&self.buffer);
        self.buffer.clear();
    }
}

impl std::fmt::Debug for BodyHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BodyHasher")
    }
}

/// Writes a field in its canonical form `relaxed`, without a line end.
pub(crate) fn relaxed_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend(name.trim_ascii_end().iter().map(u8::to_ascii_lowercase));
    out.push(b':');
    let begin = out.len();
    let mut has_space = false;
    for byte in value {
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => has_space = true,
            byte => {
                if has_space && out.len() > begin {
                    out.push(b' ');
                }
                has_space = false;
                out.push(*byte);
            }
        }
    }
}

/// Writes a field in a canonical form, with its line end.
pub(crate) fn canonical_field(form: Form, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match form {
        Form::Simple => out.extend([name, b":", value].concat()),
        Form::Relaxed => {
            relaxed_field(name, value, out);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The fields of a header: name and value with its line end, from the top. A line without a colon belongs to no field.
pub(crate) fn fields(header: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut fields = Vec::new();
    let mut begin = 0;
    while begin < header.len() {
        let mut end = begin;
        loop {
            end = memchr::memchr(b'\n', &header[end..]).map_or(header.len(), |at| end + at + 1);
            if !matches!(header.get(end), Some(b' ' | b'\t')) {
                break;
            }
        }
        let line = &header[begin..end];
        if let Some(colon) = memchr::memchr(b':', line) {
            fields.push((&line[..colon], &line[colon + 1..]));
        }
        begin = end;
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::BASE64;
    use proptest::prelude::*;

    /// The canonical form by the words of the RFC, line by line.
    fn by_the_rfc(form: Form, body: &[u8]) -> Vec<u8> {
        let mut text = body.to_vec();
        if !text.is_empty() && !text.ends_with(b"\r\n") {
            text.extend_from_slice(b"\r\n");
        }
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let mut rest = &text[..];
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\r\n").unwrap();
            let mut line: Vec<u8> = Vec::new();
            for byte in &rest[..end] {
                let is_space = form == Form::Relaxed && matches!(byte, b' ' | b'\t');
                if is_space && line.last() == Some(&b' ') {
                    continue;
                }
                line.push(if is_space { b' ' } else { *byte });
            }
            if form == Form::Relaxed && line.last() == Some(&b' ') {
                line.pop();
            }
            lines.push(line);
            rest = &rest[end + 2..];
        }
        while lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        if form == Form::Simple && lines.is_empty() {
            lines.push(Vec::new());
        }
        lines.into_iter().flat_map(|line| [line, b"\r\n".to_vec()].concat()).collect()
    }

    fn hashed(pieces: &[&[u8]]) -> String {
        let mut hasher = BodyHasher::default();
        pieces.iter().for_each(|piece| hasher.push(piece));
        BASE64.encode(hasher.finish().as_ref())
    }

    #[test]
    fn the_hash_of_an_empty_body_is_that_of_rfc_6376() {
        // RFC 6376 §3.4.4.
        for empty in ["", "\r\n", "\r\n\r\n", "  \r\n\t\r\n", " "] {
            assert_eq!(
                hashed(&[empty.as_bytes()]),
                "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
                "{empty:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_body_in_any_pieces_has_the_hash_of_its_canonical_form(
            words in prop::collection::vec(prop::sample::select(vec!["a", "b.", " ", "\t", "\r\n", "\r", "\n", "\u{e4}", ""]), 0..40),
            cuts in prop::collection::vec(0..80usize, 0..6),
            limit in prop::option::of(0..60u64),
        ) {
            let body = words.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
            for form in [Form::Simple, Form::Relaxed] {
                let canonical = by_the_rfc(form, &body);
                for limit in [None, limit] {
                    let mut hasher = BodyHasher::new(form, limit);
                    pieces.iter().for_each(|piece| hasher.push(piece));
                    let (hash, count) = hasher.finish_counted();
                    prop_assert_eq!(count, canonical.len() as u64);
                    let hashed = limit.map_or(count, |limit| limit.min(count));
                    let expected = aws_lc_rs::digest::digest(&SHA256, &canonical[..usize::try_from(hashed).unwrap()]);
                    prop_assert_eq!(hash.as_ref(), expected.as_ref());
                }
            }
        }
    }

    #[test]
    fn fields_are_unfolded_and_their_spaces_collapsed() {
        // RFC 6376 §3.4.5.
        let header = b"A: X\r\nB : Y\t\r\n\tZ  \r\nno field\r\n\r\n";
        let mut out = Vec::new();
        for (name, value) in fields(header) {
            relaxed_field(name, value, &mut out);
            out.extend_from_slice(b"\r\n");
        }
        assert_eq!(String::from_utf8_lossy(&out), "a:X\r\nb:Y Z\r\n");
    }
}
