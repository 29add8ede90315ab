//! Text in a header field (RFC 2047).

use std::fmt::Write as _;

/// Octets of UTF-8 in one encoded word: each may become three characters, and an encoded word has at most 75.
const WORD_MAX_BYTES: usize = 20;

/// Returns the text as it is if it is printable ASCII, and else as encoded words in UTF-8, folded.
pub(super) fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) && !text.contains("=?");
    if is_plain {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() * 3);
    let mut rest = text;
    while !rest.is_empty() {
        // No character is cut in two (RFC 2047 §5).
        let at = rest.floor_char_boundary(WORD_MAX_BYTES);
        let (word, behind) = rest.split_at(at);
        out.push_str(if out.is_empty() { "=?utf-8?q?" } else { "\r\n =?utf-8?q?" });
        for byte in word.bytes() {
            match byte {
                b' ' => out.push('_'),
                byte if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
                byte => _ = write!(out, "={byte:02X}"),
            }
        }
        out.push_str("?=");
        rest = behind;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_stays_and_other_text_is_encoded_in_short_words() {
        assert_eq!(encoded("Undelivered mail"), "Undelivered mail");
        assert_eq!(encoded("Verspätet: 1=?"), "=?utf-8?q?Versp=C3=A4tet=3A_1=3D=3F?=");
        let long = encoded(&"ä".repeat(50));
        assert!(long.split("\r\n ").all(|word| word.len() <= 75 && word.ends_with("?=")), "{long}");
        assert_eq!(long.matches("=C3=A4").count(), 50);
        assert!(encoded("a\r\nb").is_ascii() && !encoded("a\r\nb").contains("\r\nb"));
    }
}
