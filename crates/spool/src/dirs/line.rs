//! One line of a file in a queue directory: words, a checksum, a line feed. The checksum begins with
//! the file's number and the line's offset, so that what stood in the same blocks before does not pass.

use crate::{
    format::wire::Malformed,
    mutant::{ActiveMutant, Mutant},
};
use std::fmt::{self, Display, Write as _};

/// The end of each line: a blank, a CRC-32C in eight digits and a line feed, as in ` 0123abcd\n`.
const END_BYTES: usize = 10;

/// The number with which the checksums of a file begin.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineChecksum(u64);

impl LineChecksum {
    #[cfg(test)]
    pub(super) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The checksums of the file with this number.
    pub(super) fn of(number: u64, mutant: ActiveMutant) -> Self {
        Self(if mutant.is(Mutant::IgnoreSeed) { 0 } else { number })
    }

    fn checksum(self, offset: u64, text: &[u8]) -> u32 {
        let mut salt = [0; 16];
        salt[..8].copy_from_slice(&self.0.to_le_bytes());
        salt[8..].copy_from_slice(&offset.to_le_bytes());
        crc32c::crc32c_append(crc32c::crc32c(&salt), text)
    }
}

/// Lines to be written at an offset of a file.
pub(super) struct Lines<'a> {
    out: &'a mut Vec<u8>,
    checksum: LineChecksum,
    base: u64,
}

impl<'a> Lines<'a> {
    /// `out` begins at `base` in its file.
    pub(super) fn new(out: &'a mut Vec<u8>, checksum: LineChecksum, base: u64) -> Self {
        Self { out, checksum, base }
    }

    /// A line whose first word is given and whose others `write` makes.
    pub(super) fn line(&mut self, first: &str, write: impl FnOnce(&mut Words<'_>)) {
        let start = self.out.len();
        self.out.extend_from_slice(first.as_bytes());
        write(&mut Words(self.out));
        let sum = self.checksum.checksum(self.base + start as u64, &self.out[start..]);
        self.out.extend_from_slice(format!(" {sum:08x}\n").as_bytes());
    }
}

/// Appends words to the line, each behind a blank.
pub(super) struct Words<'a>(&'a mut Vec<u8>);

impl Words<'_> {
    /// Of our own making: without spaces.
    pub(super) fn word(&mut self, word: impl Display) -> &mut Self {
        let mut text = String::new();
        let _ = write!(text, " {word}");
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// `key=` and bytes of anybody's making.
    pub(super) fn key(&mut self, key: &str, value: &[u8]) -> &mut Self {
        self.word(key);
        self.0.push(b'=');
        escape(self.0, value);
        self
    }

    /// Writes a key and a displayed value, escaped.
    pub(super) fn key_display(&mut self, key: &str, value: &dyn Display) -> &mut Self {
        struct Escaped<'a>(&'a mut Vec<u8>);
        impl fmt::Write for Escaped<'_> {
            fn write_str(&mut self, s: &str) -> fmt::Result {
                escape(self.0, s.as_bytes());
                Ok(())
            }
        }
        self.word(key);
        self.0.push(b'=');
        // Writing to memory cannot fail.
        let _ = fmt::write(&mut Escaped(self.0), format_args!("{value}"));
        self
    }

    /// Goes on with the word before.
    pub(super) fn escaped(&mut self, value: &[u8]) -> &mut Self {
        escape(self.0, value);
        self
    }
}

/// Printable ASCII stays, but for the space and the percent sign; so no value is two words or two lines.
fn escape(out: &mut Vec<u8>, value: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value {
        if byte.is_ascii_graphic() && *byte != b'%' {
            out.push(*byte);
        } else {
            out.extend_from_slice(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}

/// Returns the bytes that [`escape`] wrote as text.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, Malformed> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let digits = rest.split_at_checked(2).ok_or(Malformed("escape"))?;
        let digit = |n: usize| char::from(digits.0[n]).to_digit(16).ok_or(Malformed("escape"));
        out.push((digit(0)? * 16 + digit(1)?) as u8);
        rest = digits.1;
    }
    Ok(out)
}

/// Unescapes a field that must be text.
pub(super) fn unescape_text(text: &str) -> Result<Box<str>, Malformed> {
    String::from_utf8(unescape(text)?).map(Into::into).map_err(|_| Malformed("not UTF-8"))
}

/// Parses a decimal number.
pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, Malformed> {
    text.parse().map_err(|_| Malformed("number"))
}

/// Parses a hexadecimal number of at most 64 bits.
pub(super) fn hex(text: &str) -> Result<u64, Malformed> {
    u64::from_str_radix(text, 16).map_err(|_| Malformed("hexadecimal number"))
}

/// A line of an envelope file, an intent or the totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) offset: u64,
    /// In bytes, with checksum and line feed.
    pub(super) length: u64,
    /// Without the checksum; none when that is wrong.
    pub(super) text: Option<&'a str>,
}

/// Splits a file into lines, those with wrong checksums included.
pub(super) fn lines(bytes: &[u8], checksum: LineChecksum) -> impl Iterator<Item = Line<'_>> {
    let mut offset = 0;
    bytes.split_inclusive(|b| *b == b'\n').map(move |line| {
        let at = offset;
        offset += line.len() as u64;
        Line { offset: at, length: line.len() as u64, text: checked(line, at, checksum) }
    })
}

/// Returns the text of the line that begins at an offset of a file; `bytes` begin there, too.
pub(super) fn line_at(bytes: &[u8], offset: u64, checksum: LineChecksum) -> Option<&str> {
    checked(bytes.split_inclusive(|b| *b == b'\n').next()?, offset, checksum)
}

fn checked(line: &[u8], offset: u64, checksum: LineChecksum) -> Option<&str> {
    let (text, end) = line.split_at_checked(line.len().checked_sub(END_BYTES)?)?;
    let (space, digits, feed) = (end[0], &end[1..END_BYTES - 1], end[END_BYTES - 1]);
    let is_right = (space, feed) == (b' ', b'\n') && sum_of(digits) == Some(checksum.checksum(offset, text));
    if is_right { std::str::from_utf8(text).ok() } else { None }
}

/// Eight hexadecimal digits, small letters only.
fn sum_of(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |sum, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(sum << 4 | u32::from(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(number: u64, base: u64, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Lines::new(&mut out, LineChecksum::new(number), base).line("from", |w| {
            w.key("path", value);
        });
        out
    }

    proptest! {
        #[test]
        fn a_line_is_read_only_where_it_was_written(
            value: Vec<u8>, number: u64, flip in any::<(usize, u8)>(),
        ) {
            let out = written(number, 0, &value);
            let read: Vec<_> = lines(&out, LineChecksum::new(number)).collect();
            prop_assert_eq!(read.len(), 1);
            let text = read[0].text.unwrap();
            prop_assert_eq!(unescape(text.strip_prefix("from path=").unwrap()), Ok(value.clone()));
            prop_assert!(lines(&out, LineChecksum::new(!number)).all(|line| line.text.is_none()));
            prop_assert!(lines(&written(number, 1, &value), LineChecksum::new(number)).all(|l| l.text.is_none()));
            let mut bad = out.clone();
            let at = flip.0 % bad.len();
            bad[at] ^= flip.1 | 1;
            prop_assert!(lines(&bad, LineChecksum::new(number)).all(|line| line.text.is_none()));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text: String) {
            let covered: u64 = lines(&bytes, LineChecksum::new(1)).map(|line| line.length).sum();
            prop_assert_eq!(covered, bytes.len() as u64);
            let _ = unescape(&text);
        }
    }
}
