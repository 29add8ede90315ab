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

/// Returns the text with its encoded words in UTF-8, ISO 8859-1 and ASCII decoded. Others stay as they are.
pub(super) fn decoded(text: &str) -> String {
    let (mut out, mut rest, mut is_behind_word) = (String::with_capacity(text.len()), text, false);
    while let Some(at) = rest.find("=?") {
        let (before, word) = rest.split_at(at);
        let decoded = word_at(word);
        // Blanks between two encoded words belong to neither (RFC 2047 §6.2).
        let is_between = is_behind_word && decoded.is_some() && before.trim().is_empty();
        out.push_str(if is_between { "" } else { before });
        is_behind_word = decoded.is_some();
        let (text, length) = decoded.unwrap_or_else(|| ("=?".to_owned(), 2));
        out.push_str(&text);
        rest = &word[length..];
    }
    out + rest
}

/// Returns the text of the encoded word at the front, and its length.
fn word_at(text: &str) -> Option<(String, usize)> {
    let mut parts = text.get(2..)?.splitn(3, '?');
    let (charset, encoding, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (encoded, _) = rest.split_once("?=")?;
    if encoded.contains([' ', '?']) {
        return None;
    }
    let bytes = match encoding {
        "q" | "Q" => from_q(encoded)?,
        "b" | "B" => from_base64(encoded)?,
        _ => return None,
    };
    // RFC 2231 §5 adds a language to the charset.
    let charset = charset.split('*').next().unwrap_or_default().to_ascii_lowercase();
    let decoded = match charset.as_str() {
        "utf-8" | "us-ascii" => String::from_utf8_lossy(&bytes).into_owned(),
        "iso-8859-1" => bytes.iter().map(|byte| char::from(*byte)).collect(),
        _ => return None,
    };
    let length = 2 + charset_length(text) + 1 + encoding.len() + 1 + encoded.len() + 2;
    Some((decoded, length))
}

fn charset_length(text: &str) -> usize {
    text[2..].find('?').unwrap_or_default()
}

fn from_q(text: &str) -> Option<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'_' => b' ',
            b'=' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => byte,
        });
    }
    Some(out)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
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

    #[test]
    fn encoded_words_are_decoded_and_what_is_none_stays() {
        for (text, read) in [
            ("plain", "plain"),
            ("=?UTF-8?Q?Versp=C3=A4tet=3A_1?=", "Verspätet: 1"),
            ("Re: =?utf-8?B?R3LDvMOfZQ==?= an alle", "Re: Grüße an alle"),
            ("=?utf-8?q?a?=  =?utf-8*en?q?b?= c", "ab c"),
            ("=?iso-8859-1?q?Gr=FC=DFe?=", "Grüße"),
            ("=?koi8-r?q?=C0?= x", "=?koi8-r?q?=C0?= x"),
            ("a =? b", "a =? b"),
            ("=? =?utf-8?q?a?=", "=? a"),
            ("=?utf-8?q?=4?=", "=?utf-8?q?=4?="),
            ("=?utf-8?b?***?=", "=?utf-8?b?***?="),
            ("=?utf-8?q?=FF?=", "\u{fffd}"),
        ] {
            assert_eq!(decoded(text), read, "{text}");
        }
        let long = "Grüße aus ".repeat(20);
        assert_eq!(decoded(&encoded(&long).replace("\r\n", "")), long);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_as_it_was_encoded(text in "[a-z =?äß_]{0,60}", noise in "(=\\?|utf-8|\\?q\\?|\\?b\\?|\\?=|[a-zA-Z=é ]){0,12}") {
            proptest::prop_assert_eq!(decoded(&encoded(&text).replace("\r\n", "")), text);
            decoded(&noise);
        }
    }
}
