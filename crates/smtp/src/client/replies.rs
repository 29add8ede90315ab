//! Reads replies (RFC 5321 §4.2). The server is not trusted: line length, line count and codes are bounded, and so is
//! the memory for them.

use mail::{Enhanced, Reply};
use memchr::memchr;

/// Longest line that is accepted; RFC 5321 §4.5.3.1.5 allows 512.
const LINE_MAX: usize = 2048;
/// Most lines in one reply.
const LINES_MAX: usize = 200;

/// A violation of the protocol by the server. The connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolViolation {
    /// A line over 2,048 octets.
    LongLine,
    /// A reply of more than 200 lines.
    ManyLines,
    /// No code of three digits from 200 to 599, or two codes in one reply.
    BadCode,
    /// The server sent a reply although no command was pending.
    Unasked,
    /// Bytes behind the reply to STARTTLS: an injection (RFC 3207 §6).
    Injection,
    /// 354 where it has no meaning, or a 2yz where only 354 continues.
    WrongReply,
}

impl std::fmt::Display for ProtocolViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::LongLine => "the server sent an over-long line",
            Self::ManyLines => "the server's reply has too many lines",
            Self::BadCode => "the server sent no valid reply code",
            Self::Unasked => "the server spoke out of turn",
            Self::Injection => "the server sent data behind its reply to STARTTLS",
            Self::WrongReply => "the server sent a reply that does not fit the command",
        })
    }
}

/// Collects bytes and yields whole replies.
#[derive(Debug, Default)]
pub struct ReplyReader {
    buffer: Vec<u8>,
    /// The offset at which the current reply begins.
    start: usize,
    /// The offset up to which lines of the current reply were read.
    looked: usize,
    lines: usize,
    code: u16,
}

impl ReplyReader {
    /// Appends bytes from the server.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            (self.start, self.looked) = (0, 0);
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns whether all bytes were read.
    pub fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }

    /// Returns the code and the raw lines of the next complete reply.
    ///
    /// # Errors
    /// The violation of the protocol.
    pub fn next_raw(&mut self) -> Result<Option<(u16, &[u8])>, ProtocolViolation> {
        loop {
            let rest = &self.buffer[self.looked..];
            let Some(lf) = memchr(b'\n', rest) else {
                if rest.len() > LINE_MAX {
                    return Err(ProtocolViolation::LongLine);
                }
                self.forget_used();
                return Ok(None);
            };
            if lf > LINE_MAX {
                return Err(ProtocolViolation::LongLine);
            }
            let (code, more) = read_code(&rest[..lf])?;
            if self.lines > 0 && code != self.code {
                return Err(ProtocolViolation::BadCode);
            }
            self.code = code;
            self.lines += 1;
            self.looked += lf + 1;
            if self.lines > LINES_MAX {
                return Err(ProtocolViolation::ManyLines);
            }
            if !more {
                let (start, end) = (self.start, self.looked);
                (self.start, self.lines) = (end, 0);
                return Ok(Some((code, &self.buffer[start..end])));
            }
        }
    }

    /// Removes what was read, since a reply may never end at the end of the buffer.
    fn forget_used(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.looked -= self.start;
            self.start = 0;
        }
    }
}

/// Reads `250-text` or `250 text` or `250`. Returns the code, and whether more lines follow.
fn read_code(line: &[u8]) -> Result<(u16, bool), ProtocolViolation> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let [a @ b'2'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] = line else {
        return Err(ProtocolViolation::BadCode);
    };
    let code = [a, b, c].iter().fold(0, |sum, d| sum * 10 + u16::from(**d - b'0'));
    match rest.first() {
        None | Some(b' ') => Ok((code, false)),
        Some(b'-') => Ok((code, true)),
        Some(_) => Err(ProtocolViolation::BadCode),
    }
}

/// Returns a reply with its enhanced code and text; control characters are replaced.
pub fn to_reply(code: u16, raw: &[u8]) -> Reply {
    let mut enhanced = None;
    let mut text = String::new();
    for (i, line) in raw.split(|b| *b == b'\n').filter(|line| line.len() >= 3).enumerate() {
        let line =
            String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line).get(4..).unwrap_or_default());
        let line = match Enhanced::parse_prefix(&line) {
            Some((found, rest)) if u16::from(found.0) == code / 100 => {
                enhanced.get_or_insert(found);
                rest.to_owned()
            }
            _ => line.into_owned(),
        };
        if i > 0 {
            text.push('\n');
        }
        text.push_str(&line);
    }
    Reply::new(code, enhanced, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Result<Vec<Reply>, ProtocolViolation> {
        let (mut reader, mut replies) = (ReplyReader::default(), Vec::new());
        for piece in pieces {
            reader.receive(piece);
            while let Some((code, raw)) = reader.next_raw()? {
                replies.push(to_reply(code, raw));
            }
        }
        Ok(replies)
    }

    #[test]
    fn replies_are_read_at_every_split() {
        let wire = b"220 mx\r\n250-a\r\n250-2.1.0 b\r\n250 2.1.0 c\r\n550 5.1.1 no\r\n354\r\n250 4.0.0 odd\n";
        let whole = all(&[wire]).unwrap();
        let shown: Vec<String> = whole.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["220 mx", "250 2.1.0 a b c", "550 5.1.1 no", "354 ", "250 4.0.0 odd"]);
        for size in 1..wire.len() {
            let pieces: Vec<&[u8]> = wire.chunks(size).collect();
            assert_eq!(all(&pieces).unwrap(), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn bad_servers_are_found_out() {
        let long = vec![b'2'; LINE_MAX + 2];
        let many = b"250-x\r\n".repeat(LINES_MAX + 1);
        for (wire, why) in [
            (&b"25\r\n"[..], ProtocolViolation::BadCode),
            (b"abc\r\n", ProtocolViolation::BadCode),
            (b"150 x\r\n", ProtocolViolation::BadCode),
            (b"650 x\r\n", ProtocolViolation::BadCode),
            (b"250x\r\n", ProtocolViolation::BadCode),
            (b"250-a\r\n251 b\r\n", ProtocolViolation::BadCode),
            (b"\r\n", ProtocolViolation::BadCode),
            (&long, ProtocolViolation::LongLine),
            (&many, ProtocolViolation::ManyLines),
        ] {
            assert_eq!(all(&[wire]), Err(why));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_never_pile_up(pieces: Vec<Vec<u8>>) {
            let mut reader = ReplyReader::default();
            for piece in &pieces {
                reader.receive(piece);
                while let Ok(Some((code, raw))) = reader.next_raw() {
                    let reply = to_reply(code, raw);
                    prop_assert!(!reply.text().chars().any(|c| c.is_control() && c != '\n'));
                }
            }
        }
    }
}
