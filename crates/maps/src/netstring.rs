//! Netstrings: `5:hello,`. The socketmap protocol sends one for each request and each reply.

use std::fmt;

/// Longest reply, as Postfix limits it.
pub(crate) const REPLY_MAX: usize = 100_000;

/// Reads one netstring from bytes that arrive in pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Netstring {
    bytes: Vec<u8>,
}

/// Bytes that are no netstring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetstringError {
    /// There is no length, or it is not a number in usual form.
    Length,
    /// The length says more than a reply may have.
    TooLong,
    /// There is no comma behind the content.
    End,
    /// More bytes follow.
    Excess,
}

impl fmt::Display for NetstringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "the reply does not begin with its length",
            Self::TooLong => "the reply is longer than 100,000 octets",
            Self::End => "the reply has no comma at its end",
            Self::Excess => "the reply is longer than it says",
        })
    }
}

impl Netstring {
    /// Adds bytes that arrived. Returns the content when it is complete.
    ///
    /// # Errors
    /// The bytes are no netstring; the connection cannot be used any more.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Option<&[u8]>, NetstringError> {
        self.bytes.extend_from_slice(bytes);
        let Some(colon) = self.bytes.iter().take(8).position(|b| *b == b':') else {
            let is_number = self.bytes.iter().take(8).all(u8::is_ascii_digit);
            return if is_number && self.bytes.len() < 8 { Ok(None) } else { Err(NetstringError::Length) };
        };
        let length = length(&self.bytes[..colon]).ok_or(NetstringError::Length)?;
        if length > REPLY_MAX {
            return Err(NetstringError::TooLong);
        }
        let (start, end) = (colon + 1, colon + 1 + length);
        match self.bytes.get(end) {
            None => Ok(None),
            Some(b',') if self.bytes.len() == end + 1 => Ok(Some(&self.bytes[start..end])),
            Some(b',') => Err(NetstringError::Excess),
            Some(_) => Err(NetstringError::End),
        }
    }

    /// Appends the content as a netstring.
    pub fn write(content: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(content.len().to_string().as_bytes());
        out.push(b':');
        out.extend_from_slice(content);
        out.push(b',');
    }
}

fn length(digits: &[u8]) -> Option<usize> {
    let is_usual = digits.first().is_some_and(|first| *first != b'0' || digits.len() == 1);
    if !is_usual || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], size: usize) -> Result<Option<Vec<u8>>, NetstringError> {
        let mut netstring = Netstring::default();
        let mut content = None;
        for piece in bytes.chunks(size) {
            content = netstring.push(piece)?.map(<[u8]>::to_vec);
        }
        Ok(content)
    }

    #[test]
    fn a_netstring_is_read_at_every_split() {
        let mut wire = Vec::new();
        Netstring::write(b"OK joe@b.test", &mut wire);
        assert_eq!(wire, b"13:OK joe@b.test,");
        for size in 1..=wire.len() {
            assert_eq!(read(&wire, size), Ok(Some(b"OK joe@b.test".to_vec())), "{size}");
        }
        for incomplete in 0..wire.len() {
            assert_eq!(read(&wire[..incomplete], 3), Ok(None), "{incomplete}");
        }
        assert_eq!(read(b"0:,", 1), Ok(Some(Vec::new())));
    }

    #[test]
    fn replies_without_a_limit_or_a_form_are_refused() {
        use NetstringError::*;
        for (bytes, error) in [
            (&b"99999999999999999999:x"[..], Length),
            (b"OK joe", Length),
            (b":x,", Length),
            (b"-1:x,", Length),
            (b"01:x,", Length),
            (b"100001:", TooLong),
            (b"1:xx", End),
            (b"1:x,y", Excess),
        ] {
            assert_eq!(read(bytes, bytes.len()), Err(error), "{bytes:?}");
        }
    }
}
