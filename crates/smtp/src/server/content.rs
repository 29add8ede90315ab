//! Finds the end of DATA, removes dot-stuffing, and finds faults of the content
//! (RFC 5321 §4.5.2, §2.3.8). Only CRLF.CRLF ends data.

use super::replies;
use mail::Reply;
use memchr::{memchr, memchr2, memchr3};

/// The treatment of a CR or LF that is not part of a CRLF (RFC 5321 §2.3.8). The end of DATA is CRLF.CRLF in
/// both cases: no other sequence ends the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BareLf {
    /// The message is refused.
    #[default]
    Reject,
    /// A bare LF becomes CRLF, a bare CR becomes a space. A command line may end in LF.
    Normalize,
}

/// The line end that replaces a bare LF.
const CRLF: &[u8] = b"\r\n";
/// The octet that replaces a bare CR.
const SPACE: &[u8] = b" ";

/// The result of [`DataDecoder::next`]: a piece at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next octets, this many, are content; `skip` dots before them are not.
    Content {
        /// Stuffed dots to drop first.
        skip: usize,
        /// Octets of content behind them.
        length: usize,
    },
    /// The first octet is a bare CR or LF: this is the content in its place.
    Instead(&'static [u8]),
    /// CRLF.CRLF; this many octets belong to it.
    End(usize),
    /// Not decidable yet: keep the input and come again with more.
    More,
}

/// The position of the next octet in its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// First in a line, after CRLF: `.` CRLF ends the content.
    AfterCrlf,
    /// First in a line, after a bare LF that was normalized: `.` CRLF ends nothing.
    AfterLf,
    /// Not the first.
    Inside,
}

/// Reads DATA's content. It keeps no bytes: what it cannot decide on stays in the caller's buffer,
/// never more than two octets.
#[derive(Debug)]
pub struct DataDecoder {
    position: Position,
    bare_lf: BareLf,
    fault: Option<Reply>,
}

impl Default for DataDecoder {
    fn default() -> Self {
        Self::new(BareLf::Reject, true)
    }
}

impl DataDecoder {
    /// A decoder at the start of the content. `after_crlf` tells whether the DATA command ended in CRLF.
    pub fn new(bare_lf: BareLf, after_crlf: bool) -> Self {
        let position = if after_crlf { Position::AfterCrlf } else { Position::AfterLf };
        Self { position, bare_lf, fault: None }
    }

    /// The worst found so far: a bare CR or LF that is not normalized, or NUL.
    pub fn fault(&self) -> Option<&Reply> {
        self.fault.as_ref()
    }

    /// Looks at the front of `input`; the caller consumes what the [`Piece`] names.
    pub fn next(&mut self, input: &[u8]) -> Piece {
        if self.bare_lf == BareLf::Normalize
            && let Some(replacement) = bare_at_front(input)
        {
            self.position = if replacement == CRLF { Position::AfterLf } else { Position::Inside };
            return Piece::Instead(replacement);
        }
        let skip = match (self.position, input) {
            (_, []) => return Piece::More,
            (Position::AfterCrlf, [b'.', b'\r', b'\n', ..]) => return Piece::End(3),
            (Position::AfterCrlf | Position::AfterLf, b"." | b".\r") => return Piece::More,
            // A line of one dot that does not end the content: the dot was not stuffed.
            (Position::AfterLf, [b'.', b'\r', b'\n', ..]) => 0,
            (Position::AfterCrlf | Position::AfterLf, [b'.', b'\n', ..])
                if self.bare_lf == BareLf::Normalize =>
            {
                0
            }
            (Position::AfterCrlf | Position::AfterLf, [b'.', ..]) => 1,
            _ => 0,
        };
        match self.run(&input[skip..]) {
            0 if skip == 0 => Piece::More,
            length => Piece::Content { skip, length },
        }
    }

    /// The longest run of content: whole lines up to one that begins with a dot, and then a part of
    /// a line. A CR at its very end is left, since its LF may come. The run ends before what must be
    /// normalized.
    fn run(&mut self, input: &[u8]) -> usize {
        let mut end = 0;
        loop {
            let Some(lf) = memchr(b'\n', &input[end..]) else {
                return end + self.part(&input[end..]);
            };
            let line = &input[end..=end + lf];
            match self.line(line) {
                // Behind a bare LF no line starts: a dot there ends nothing.
                Ok(position) => self.position = position,
                Err(bare) => {
                    if bare > 0 {
                        self.position = Position::Inside;
                    }
                    return end + bare;
                }
            }
            end += lf + 1;
            if self.position == Position::AfterCrlf && input.get(end) == Some(&b'.') {
                return end;
            }
        }
    }

    /// Looks at a run of octets that ends in LF and returns the position behind it.
    ///
    /// # Errors
    /// Where in it the first octet is that must be normalized.
    fn line(&mut self, line: &[u8]) -> Result<Position, usize> {
        let text = line.strip_suffix(b"\r\n");
        self.inner(text.unwrap_or(line))?;
        if text.is_some() {
            return Ok(Position::AfterCrlf);
        }
        if self.bare_lf == BareLf::Normalize {
            return Err(line.len() - 1);
        }
        self.blame(replies::BARE_CR_LF);
        Ok(Position::Inside)
    }

    /// The beginning of a line whose end has not come: how much of it is content.
    fn part(&mut self, part: &[u8]) -> usize {
        let text = part.strip_suffix(b"\r").unwrap_or(part);
        let length = self.inner(text).map_or_else(|bare| bare, |()| text.len());
        if length > 0 {
            self.position = Position::Inside;
        }
        length
    }

    /// # Errors
    /// Where the first bare CR is that must be normalized.
    fn inner(&mut self, text: &[u8]) -> Result<(), usize> {
        if let Some(at) = memchr2(b'\r', 0, text) {
            if text[at] == 0 {
                self.blame(replies::NUL_IN_CONTENT);
            }
            if let Some(at) = memchr(b'\r', &text[at..]).map(|behind| at + behind) {
                if self.bare_lf == BareLf::Normalize {
                    return Err(at);
                }
                self.blame(replies::BARE_CR_LF);
            }
        }
        Ok(())
    }

    /// A bare CR or LF outweighs NUL: it closes the connection.
    fn blame(&mut self, fault: Reply) {
        if self.fault.is_none() || fault == replies::BARE_CR_LF {
            self.fault = Some(fault);
        }
    }
}

/// The content in place of the first octet, if that is a bare CR or LF. A CR is consumed together with its
/// LF, so an LF that comes first is bare.
fn bare_at_front(input: &[u8]) -> Option<&'static [u8]> {
    match input {
        [b'\n', ..] => Some(CRLF),
        [b'\r', next, ..] if *next != b'\n' => Some(SPACE),
        _ => None,
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
        while let Some(at) = memchr3(b'\r', b'\n', 0, &bytes[from..]).map(|i| from + i) {
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

    /// Ends the content. Returns the reply that refuses it, if it has a fault.
    pub fn finish(&mut self) -> Option<Reply> {
        if self.last_was_cr {
            self.fault = self.fault.take().or(Some(replies::BARE_CR_LF_CHUNK));
        }
        self.fault.take()
    }
}

/// Normalizes BDAT's content: the same content at any split, in any chunks.
#[derive(Debug, Default)]
pub struct ChunkNormalizer {
    /// A CR was the last octet so far; it is not yet passed on, as its LF may come.
    holds_cr: bool,
    has_nul: bool,
}

impl ChunkNormalizer {
    /// The next piece of content, and how many octets at the front of `input` it stands for. The piece may be
    /// empty.
    pub fn next<'a>(&mut self, input: &'a [u8]) -> (&'a [u8], usize) {
        if std::mem::take(&mut self.holds_cr) {
            return match input {
                [] => {
                    self.holds_cr = true;
                    (&[], 0)
                }
                [b'\n', ..] => (CRLF, 1),
                _ => (SPACE, 0),
            };
        }
        if let Some(replacement) = bare_at_front(input) {
            return (replacement, 1);
        }
        let mut from = 0;
        while let Some(at) = memchr3(b'\r', b'\n', 0, &input[from..]).map(|i| from + i) {
            match (input[at], input.get(at + 1)) {
                (0, _) => {
                    self.has_nul = true;
                    from = at + 1;
                }
                (b'\r', Some(b'\n')) => from = at + 2,
                (b'\r', None) => {
                    self.holds_cr = true;
                    return (&input[..at], at + 1);
                }
                _ => return (&input[..at], at),
            }
        }
        (input, input.len())
    }

    /// The message is complete: the content in place of a CR at its very end.
    pub fn finish(&mut self) -> Option<&'static [u8]> {
        std::mem::take(&mut self.holds_cr).then_some(SPACE)
    }

    /// Returns the reply that refuses the content, if it has a fault.
    pub fn fault(&self) -> Option<Reply> {
        self.has_nul.then_some(replies::NUL_IN_CONTENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes `wire` as it comes in pieces: content, fault, and what is left behind the end.
    fn decode(pieces: &[&[u8]]) -> Option<(Vec<u8>, Option<u16>, Vec<u8>)> {
        decode_with(DataDecoder::default(), pieces)
    }

    fn decode_with(mut decoder: DataDecoder, pieces: &[&[u8]]) -> Option<(Vec<u8>, Option<u16>, Vec<u8>)> {
        let (mut buffer, mut content) = (Vec::new(), Vec::new());
        for (i, piece) in pieces.iter().enumerate() {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.next(&buffer) {
                    Piece::Content { skip, length } => {
                        content.extend_from_slice(&buffer[skip..skip + length]);
                        buffer.drain(..skip + length);
                    }
                    Piece::Instead(replacement) => {
                        content.extend_from_slice(replacement);
                        buffer.remove(0);
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

    /// The rule of [`BareLf::Normalize`], octet by octet.
    fn normalized(content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for (at, byte) in content.iter().enumerate() {
            let is_pair = |first: usize| content.get(first..first + 2) == Some(b"\r\n");
            match byte {
                b'\n' if at == 0 || !is_pair(at - 1) => out.extend_from_slice(CRLF),
                b'\r' if !is_pair(at) => out.push(b' '),
                byte => out.push(*byte),
            }
        }
        out
    }

    fn normalizing() -> DataDecoder {
        DataDecoder::new(BareLf::Normalize, true)
    }

    #[test]
    fn dots_come_off_and_only_crlf_dot_crlf_ends() {
        assert_eq!(decode(&[b".\r\nQUIT"]), Some((vec![], None, b"QUIT".to_vec())));
        assert_eq!(
            decode(&[b"a\r\n..\r\n...b\r\n.c\r\n.\r\n"]),
            Some((b"a\r\n.\r\n..b\r\nc\r\n".to_vec(), None, vec![]))
        );
    }

    const SMUGGLING_VARIANTS: [&[u8]; 12] = [
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

    #[test]
    fn each_smuggling_variant_is_one_refused_message() {
        for variant in SMUGGLING_VARIANTS {
            let wire = [b"body", variant, b"MAIL FROM:<a@b>\r\nDATA\r\nevil\r\n.\r\n"].concat();
            let (content, fault, rest) = decode(&[&wire]).expect("one end");
            assert!(rest.is_empty(), "{variant:?} ended the data early");
            assert!(fault.is_some(), "{variant:?} was not refused: {content:?}");
        }
    }

    #[test]
    fn each_smuggling_variant_is_one_normalized_message() {
        for variant in SMUGGLING_VARIANTS {
            let wire = [b"body", variant, b"MAIL FROM:<a@b>\r\nDATA\r\nevil\r\n.\r\n"].concat();
            let (content, fault, rest) = decode_with(normalizing(), &[&wire]).expect("one end");
            assert!(rest.is_empty(), "{variant:?} ended the data early");
            assert_eq!(fault.is_some(), variant.contains(&0), "{variant:?}");
            assert_eq!(content, normalized(&content), "{variant:?}");
            assert!(content.ends_with(b"evil\r\n"), "{variant:?}: {content:?}");
        }
    }

    #[test]
    fn bare_line_ends_are_normalized_and_dots_come_off_the_lines_they_make() {
        for (wire, content) in [
            (&b"a\nb\r\n.\r\n"[..], &b"a\r\nb\r\n"[..]),
            (b"a\n..b\n.\nc\r\n.\r\n", b"a\r\n.b\r\n.\r\nc\r\n"),
            (b"a\n.\r\n.\r\n", b"a\r\n.\r\n"),
            (b"a\rb\r\r\n.\rc\r\n.\r\n", b"a b \r\n c\r\n"),
            (b".\n\n\n.\n\r\n.\r\n", b".\r\n\r\n\r\n.\r\n\r\n"),
        ] {
            let decoded = decode_with(normalizing(), &[wire]);
            assert_eq!(decoded, Some((content.to_vec(), None, vec![])), "{wire:?}");
        }
    }

    #[test]
    fn behind_data_and_a_bare_lf_the_first_dot_ends_nothing() {
        let decoder = DataDecoder::new(BareLf::Normalize, false);
        let decoded = decode_with(decoder, &[b".\r\nx\r\n.\r\n"]);
        assert_eq!(decoded, Some((b".\r\nx\r\n".to_vec(), None, vec![])));
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

    /// The content of `wire` in chunks, and whether it is refused.
    fn normalize_chunks(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let (mut normalizer, mut content) = (ChunkNormalizer::default(), Vec::new());
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let (text, used) = normalizer.next(rest);
                content.extend_from_slice(text);
                rest = &rest[used..];
            }
        }
        content.extend_from_slice(normalizer.finish().unwrap_or_default());
        (content, normalizer.fault().is_some())
    }

    proptest! {
        #[test]
        fn any_split_normalizes_the_same_and_only_crlf_dot_crlf_ends(
            pieces in proptest::collection::vec("[a.\\r\\n\0]{0,3}", 0..16)
        ) {
            let mut wire: Vec<u8> = pieces.concat().into_bytes();
            wire.extend_from_slice(b"\r\n.\r\nrest");
            let whole = decode_with(normalizing(), &[&wire]);
            let split: Vec<&[u8]> = pieces.iter().map(String::as_bytes).chain([&b"\r\n.\r\nrest"[..]]).collect();
            prop_assert_eq!(decode_with(normalizing(), &split), whole.clone());
            let bytes: Vec<&[u8]> = wire.chunks(1).collect();
            prop_assert_eq!(decode_with(normalizing(), &bytes), whole.clone());
            let (content, fault, rest) = whole.unwrap();
            prop_assert_eq!(normalized(&content), content);
            prop_assert_eq!(fault.is_some(), wire[..wire.len() - rest.len()].contains(&0));
            let end = if wire.starts_with(b".\r\n") { 3 } else {
                wire.windows(5).position(|w| w == b"\r\n.\r\n").unwrap() + 5
            };
            prop_assert_eq!(rest, &wire[end..]);
        }

        #[test]
        fn chunks_are_normalized_the_same_at_any_split(
            pieces in proptest::collection::vec("[a\\r\\n\0]{0,3}", 0..16)
        ) {
            let wire: Vec<u8> = pieces.concat().into_bytes();
            let whole = (normalized(&wire), wire.contains(&0));
            prop_assert_eq!(normalize_chunks(&[&wire]), whole.clone());
            let split: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
            prop_assert_eq!(normalize_chunks(&split), whole.clone());
            prop_assert_eq!(normalize_chunks(&wire.chunks(1).collect::<Vec<_>>()), whole);
        }

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
