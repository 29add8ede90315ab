//! Finds the end of DATA, takes dot-stuffing off, and says what is wrong with the content
//! (RFC 5321 §4.5.2, §2.3.8). Only CRLF.CRLF ends data.

use super::replies;
use mail::Reply;
use memchr::{memchr, memchr2};

/// What [`DataDecoder::next`] found at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// This many octets are content, `skip` dots before them are not.
    Content {
        /// Stuffed dots to drop first.
        skip: usize,
        /// Octets of content behind them.
        length: usize,
    },
    /// CRLF.CRLF; this many octets belong to it.
    End(usize),
    /// Not decidable yet: keep the input and come again with more.
    More,
}

/// Reads DATA's content. It keeps no bytes: what it cannot decide on stays in the caller's buffer,
/// never more than two octets.
#[derive(Debug)]
pub struct DataDecoder {
    at_line_start: bool,
    fault: Option<Reply>,
}

impl Default for DataDecoder {
    fn default() -> Self {
        Self { at_line_start: true, fault: None }
    }
}

impl DataDecoder {
    /// The worst found so far: a bare CR or LF, or NUL.
    pub fn fault(&self) -> Option<&Reply> {
        self.fault.as_ref()
    }

    /// Looks at the front of `input`; the caller consumes what the [`Piece`] names.
    pub fn next(&mut self, input: &[u8]) -> Piece {
        let skip = match (self.at_line_start, input) {
            (_, []) => return Piece::More,
            (true, [b'.', b'\r', b'\n', ..]) => return Piece::End(3),
            (true, b"." | b".\r") => return Piece::More,
            (true, [b'.', ..]) => 1,
            _ => 0,
        };
        match self.run(&input[skip..]) {
            0 if skip == 0 => Piece::More,
            length => Piece::Content { skip, length },
        }
    }

    /// The longest run of content: whole lines up to one that begins with a dot, and then a part of
    /// a line. A CR at its very end is left, since its LF may come.
    fn run(&mut self, input: &[u8]) -> usize {
        let mut end = 0;
        loop {
            let Some(lf) = memchr(b'\n', &input[end..]) else {
                return end + self.part(&input[end..]);
            };
            // Behind a bare LF no line starts: a dot there ends nothing.
            self.at_line_start = self.line(&input[end..=end + lf]);
            end += lf + 1;
            if self.at_line_start && input.get(end) == Some(&b'.') {
                return end;
            }
        }
    }

    /// A run of bytes that ends in LF; true if in CRLF.
    fn line(&mut self, line: &[u8]) -> bool {
        let text = line.strip_suffix(b"\r\n");
        self.inner(text.unwrap_or(line));
        if text.is_none() {
            self.blame(replies::BARE_CR_LF);
        }
        text.is_some()
    }

    /// The beginning of a line whose end has not come.
    fn part(&mut self, part: &[u8]) -> usize {
        let text = part.strip_suffix(b"\r").unwrap_or(part);
        if !text.is_empty() {
            self.inner(text);
            self.at_line_start = false;
        }
        text.len()
    }

    fn inner(&mut self, text: &[u8]) {
        if let Some(at) = memchr2(b'\r', 0, text) {
            self.blame(if text[at] == 0 { replies::NUL_IN_CONTENT } else { replies::BARE_CR_LF });
            if memchr(b'\r', text).is_some() {
                self.blame(replies::BARE_CR_LF);
            }
        }
    }

    /// A bare CR or LF outweighs NUL: it closes the connection.
    fn blame(&mut self, fault: Reply) {
        if self.fault.is_none() || fault == replies::BARE_CR_LF {
            self.fault = Some(fault);
        }
    }
}

/// Checks BDAT's content, which needs no framing: the same faults, at any split.
#[derive(Debug, Default)]
pub struct ChunkCheck {
    last_was_cr: bool,
    /// The first fault found, until it is taken.
    pub fault: Option<Reply>,
}

impl ChunkCheck {
    /// Takes the next octets; true once something is wrong.
    pub fn check(&mut self, bytes: &[u8]) -> bool {
        let mut from = 0;
        while let Some(at) = memchr::memchr3(b'\r', b'\n', 0, &bytes[from..]).map(|i| from + i) {
            let after_cr = if at == 0 { self.last_was_cr } else { bytes[at - 1] == b'\r' };
            let before_lf = bytes.get(at + 1).is_none_or(|b| *b == b'\n');
            let fault = match bytes[at] {
                0 => Some(replies::NUL_IN_CONTENT),
                b'\r' if before_lf => None,
                b'\n' if after_cr => None,
                _ => Some(replies::BARE_CR_LF_CHUNK),
            };
            self.fault = self.fault.take().or(fault);
            from = at + 1;
        }
        if self.last_was_cr && bytes.first().is_some_and(|b| *b != b'\n') {
            self.fault = self.fault.take().or(Some(replies::BARE_CR_LF_CHUNK));
        }
        self.last_was_cr = bytes.last().map_or(self.last_was_cr, |b| *b == b'\r');
        self.fault.is_some()
    }

    /// The message is complete.
    pub fn finish(&mut self) -> Option<Reply> {
        if self.last_was_cr {
            self.fault = self.fault.take().or(Some(replies::BARE_CR_LF_CHUNK));
        }
        self.fault.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `wire` as it comes in pieces: content, fault, and what is left behind the end.
    fn decode(pieces: &[&[u8]]) -> Option<(Vec<u8>, Option<u16>, Vec<u8>)> {
        let mut decoder = DataDecoder::default();
        let (mut buffer, mut content) = (Vec::new(), Vec::new());
        for (i, piece) in pieces.iter().enumerate() {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.next(&buffer) {
                    Piece::Content { skip, length } => {
                        content.extend_from_slice(&buffer[skip..skip + length]);
                        buffer.drain(..skip + length);
                    }
                    Piece::End(n) => {
                        buffer.drain(..n);
                        buffer.extend_from_slice(&pieces[i + 1..].concat());
                        return Some((content, decoder.fault().map(|r| r.code), buffer));
                    }
                    Piece::More => break,
                }
            }
            assert!(buffer.len() <= 2, "{buffer:?} kept");
        }
        None
    }

    #[test]
    fn dots_come_off_and_only_crlf_dot_crlf_ends() {
        assert_eq!(decode(&[b".\r\nQUIT"]), Some((vec![], None, b"QUIT".to_vec())));
        assert_eq!(
            decode(&[b"a\r\n..\r\n...b\r\n.c\r\n.\r\n"]),
            Some((b"a\r\n.\r\n..b\r\nc\r\n".to_vec(), None, vec![]))
        );
    }

    #[test]
    fn each_smuggling_variant_is_one_refused_message() {
        let variants: [&[u8]; 12] = [
            b"\n.\n",
            b"\n.\r\n",
            b"\r\n.\n",
            b"\r.\r",
            b"\r.\n",
            b"\n.\r",
            b"\r.\r\n",
            b"\r\n.\r",
            b"\r\n\0.\r\n",
            b"\r\n.\0\r\n",
            b"\r\n.\r\r\n",
            b"\r\r\n.\r\r\n",
        ];
        for variant in variants {
            let wire = [b"body", variant, b"MAIL FROM:<a@b>\r\nDATA\r\nevil\r\n.\r\n"].concat();
            let (content, fault, rest) = decode(&[&wire]).expect("one end");
            assert!(rest.is_empty(), "{variant:?} ended the data early");
            assert!(fault.is_some(), "{variant:?} was not refused: {content:?}");
        }
    }

    #[test]
    fn a_bad_chunk_is_found_at_any_split() {
        for (bytes, bad) in [
            (&b"a\r\nb\r\n"[..], false),
            (b"a\nb", true),
            (b"a\rb", true),
            (b"a\0b", true),
            (b"a\r", true),
            (b"\n", true),
        ] {
            for split in 0..=bytes.len() {
                let mut check = ChunkCheck::default();
                check.check(&bytes[..split]);
                check.check(&bytes[split..]);
                assert_eq!(check.finish().is_some(), bad, "{bytes:?} at {split}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_split_decodes_the_same(pieces in proptest::collection::vec("[a.\\r\\n\0]{0,3}", 0..16)) {
            let mut wire: Vec<u8> = pieces.concat().into_bytes();
            wire.extend_from_slice(b"\r\n.\r\nrest");
            let whole = decode(&[&wire]);
            let split: Vec<&[u8]> = pieces.iter().map(String::as_bytes).chain([&b"\r\n.\r\nrest"[..]]).collect();
            prop_assert_eq!(decode(&split), whole.clone());
            let bytes: Vec<&[u8]> = wire.chunks(1).collect();
            prop_assert_eq!(decode(&bytes), whole);
        }
    }
}
