//! Text in a header field (RFC 2047).

use data_encoding::BASE64_NOPAD;

/// An encoded word has at most 75 characters (RFC 2047 §2).
const ROOM: usize = 75 - "=?utf-8?q??=".len();

/// Returns the text as it is if it is printable ASCII, and else as encoded words in UTF-8, folded with CRLF.
pub fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) && !text.contains("=?");
    if is_plain { text.to_owned() } else { encoded_words(text, "\r\n ") }
}

/// Returns the text as encoded words in UTF-8 (encoding Q), with this between two words. No character is cut in two (RFC 2047 §5).
pub fn encoded_words(text: &str, between: &str) -> String {
    let mut words = vec![String::new()];
    for c in text.chars() {
        let encoded = match c {
            ' ' => "_".to_owned(),
            c if c.is_ascii_alphanumeric() => c.to_string(),
            c => c.encode_utf8(&mut [0; 4]).bytes().map(|b| format!("={b:02X}")).collect(),
        };
        if words.last().is_some_and(|word| word.len() + encoded.len() > ROOM) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push_str(&encoded);
        }
    }
    words.iter().map(|word| format!("=?utf-8?q?{word}?=")).collect::<Vec<_>>().join(between)
}

/// Returns the text with its encoded words in UTF-8, ISO 8859-1 and ASCII decoded. Others stay as they are.
pub fn decoded(text: &str) -> String {
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
        "b" | "B" => BASE64_NOPAD.decode(encoded.trim_end_matches('=').as_bytes()).ok()?,
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
