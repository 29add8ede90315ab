//! Content-Type and Content-Transfer-Encoding (RFC 2045 §5.1, §6.1), read strictly: what two readers might
//! understand differently is not understood.

use crate::header::{HeaderLine, field_name, header_line};

/// A media type with the parameter that matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MediaType {
    /// `text/plain`, in lower case.
    pub(super) name: String,
    /// The `boundary` parameter of a multipart; `None` for other types.
    pub(super) boundary: Option<Vec<u8>>,
}

/// Splits a header into its fields: name, and the whole field with its line ends. The empty line at the end is no field. `None` if
/// another line is none: readers differ in whether the header ends there, and so in what a transfer encoding would cover.
pub(super) fn fields(block: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    let mut at = 0;
    for line in block.split_inclusive(|byte| *byte == b'\n') {
        let begin = at;
        at += line.len();
        if line == b"\r\n" {
            break;
        }
        if header_line(line) == HeaderLine::Folded {
            found.last_mut()?.2 = at;
            continue;
        }
        let name = field_name(line).filter(|name| !name.is_empty())?;
        found.push((begin, name.len(), at));
    }
    Some(
        found
            .into_iter()
            .map(|(begin, name, end)| (&block[begin..begin + name], &block[begin..end]))
            .collect(),
    )
}

/// Returns what follows the colon, folding and line end included.
pub(super) fn value(field: &[u8]) -> &[u8] {
    let colon = field.iter().position(|byte| *byte == b':').map_or(field.len(), |at| at + 1);
    &field[colon..]
}

/// Reads words, one after the other, over white space and comments.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// `None` if a comment does not end.
    fn skip_blank(&mut self) -> Option<()> {
        let (mut depth, mut at) = (0, 0);
        while let Some(byte) = self.0.get(at) {
            match byte {
                b'(' => depth += 1,
                b')' if depth > 0 => depth -= 1,
                b'\\' if depth > 0 => at += 1,
                b' ' | b'\t' | b'\r' | b'\n' => {}
                _ if depth > 0 => {}
                _ => break,
            }
            at += 1;
        }
        self.0 = self.0.get(at..)?;
        (depth == 0).then_some(())
    }

    fn is_at_end(&mut self) -> Option<bool> {
        self.skip_blank()?;
        Some(self.0.is_empty())
    }

    fn token(&mut self) -> Option<&'a [u8]> {
        self.skip_blank()?;
        let is_of_token = |byte: &u8| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(byte);
        let end = self.0.iter().position(|byte| !is_of_token(byte)).unwrap_or(self.0.len());
        let (token, rest) = self.0.split_at(end);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }

    fn sign(&mut self, sign: u8) -> Option<()> {
        self.skip_blank()?;
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == sign).then_some(())
    }

    /// A token or a quoted string. Outside of quotes some write what is no token, and are understood.
    fn parameter(&mut self) -> Option<Vec<u8>> {
        self.skip_blank()?;
        if self.0.first() != Some(&b'"') {
            let end = self.0.iter().position(|byte| *byte == b';' || byte.is_ascii_whitespace());
            let (value, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
            self.0 = rest;
            let is_plain = !value.is_empty() && !value.iter().any(|byte| b"\"()\\".contains(byte));
            return is_plain.then(|| value.to_vec());
        }
        let (mut value, mut at) = (Vec::new(), 1);
        loop {
            match self.0.get(at)? {
                b'"' => break,
                b'\\' => {
                    at += 1;
                    value.push(*self.0.get(at)?);
                }
                b'\r' | b'\n' => {}
                byte => value.push(*byte),
            }
            at += 1;
        }
        self.0 = &self.0[at + 1..];
        Some(value)
    }
}

/// Reads the body of a Content-Type field. `None` if it is malformed or ambiguous.
pub(super) fn media_type(value: &[u8]) -> Option<MediaType> {
    let mut words = Words(value);
    let kind = words.token()?.to_ascii_lowercase();
    words.sign(b'/')?;
    let subtype = words.token()?.to_ascii_lowercase();
    let name = format!("{}/{}", String::from_utf8(kind).ok()?, String::from_utf8(subtype).ok()?);
    let is_multipart = name.starts_with("multipart/");
    let mut boundary = None;
    while !words.is_at_end()? {
        // Only of multiparts the parameters matter; elsewhere they may look as they like.
        if !is_multipart {
            break;
        }
        words.sign(b';')?;
        if words.is_at_end()? {
            break;
        }
        let attribute = words.token()?.to_ascii_lowercase();
        words.sign(b'=')?;
        let value = words.parameter()?;
        // In pieces (RFC 2231), or twice: readers differ.
        if attribute.starts_with(b"boundary*")
            || (attribute == b"boundary" && boundary.replace(value).is_some())
        {
            return None;
        }
    }
    Some(MediaType { name, boundary })
}

/// Reads the body of a Content-Transfer-Encoding field, in lower case. `None` if it is malformed.
pub(super) fn transfer_encoding(value: &[u8]) -> Option<Vec<u8>> {
    let mut words = Words(value);
    let token = words.token()?.to_ascii_lowercase();
    words.is_at_end()?.then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundary(value: &str) -> Option<String> {
        String::from_utf8(media_type(value.as_bytes())?.boundary?).ok()
    }

    #[test]
    fn boundaries_are_read_in_all_their_forms() {
        for value in [
            " multipart/mixed; boundary=a_b",
            "multipart/Mixed;\r\n\tboundary=\"a_b\"",
            " multipart / mixed (x (y) \\)) ; charset=x; BOUNDARY = \"a\\_b\" (z);",
            "multipart/mixed; boundary=\"a_\r\n b\"; type=x/y",
        ] {
            let want = if value.contains("\r\n b") { "a_ b" } else { "a_b" };
            assert_eq!(boundary(value).as_deref(), Some(want), "{value:?}");
        }
        assert_eq!(boundary("multipart/mixed; boundary=a=b/c:d").as_deref(), Some("a=b/c:d"));
    }

    #[test]
    fn what_readers_may_take_differently_is_not_read() {
        for value in [
            "",
            "multipart",
            "multipart/mixed; boundary=a; boundary=b",
            "multipart/mixed; boundary*0=a; boundary*1=b",
            "multipart/mixed; boundary=\"a",
            "multipart/mixed; boundary",
            "multipart/mixed (; boundary=a",
            "multipart/mixed boundary=a",
        ] {
            assert_eq!(media_type(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(media_type(b"text/plain; charset=\"x").unwrap().name, "text/plain");
        assert_eq!(transfer_encoding(b" 8Bit (x)\r\n").as_deref(), Some(&b"8bit"[..]));
        assert_eq!(transfer_encoding(b" 8bit; x\r\n"), None);
    }

    #[test]
    fn a_line_that_belongs_to_no_field_is_found() {
        let found = fields(b"A: b\r\n c\r\nD : e\r\n\r\n").unwrap();
        assert_eq!(found, [(&b"A"[..], &b"A: b\r\n c\r\n"[..]), (b"D", b"D : e\r\n")]);
        for bad in [&b" a: b\r\n\r\n"[..], b"text\r\n\r\n", b": x\r\n\r\n", b"a b: c\r\n\r\n"] {
            assert_eq!(fields(bad), None, "{bad:?}");
        }
    }
}
