//! Macros of SPF (RFC 7208 §7).

/// Literal text, or a macro to expand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    Text(&'a str),
    Macro(Macro<'a>),
}

/// `%{` letter, number, `r`, delimiters `}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Macro<'a> {
    /// Which macro, in lower case.
    pub(super) letter: u8,
    /// A capital letter: octets that a URL cannot have are escaped.
    is_escaped: bool,
    /// The number of parts to keep, from the right.
    kept: usize,
    is_reversed: bool,
    delimiters: &'a str,
}

/// Reads a text with macros (`macro-string`); with spaces, and macros that only an explanation has, if it is one. `None` if it
/// breaks the grammar.
pub(super) fn parse(text: &str, is_explanation: bool) -> Option<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let plain = rest.find('%').unwrap_or(rest.len());
        let (literal, after) = rest.split_at(plain);
        if !literal.bytes().all(|byte| byte.is_ascii_graphic() || (is_explanation && byte == b' ')) {
            return None;
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        let Some(after) = after.strip_prefix('%') else { break };
        let (piece, length) = match after.bytes().next()? {
            b'%' => (Piece::Text("%"), 1),
            b'_' => (Piece::Text(" "), 1),
            b'-' => (Piece::Text("%20"), 1),
            b'{' => {
                let end = after.find('}')?;
                (Piece::Macro(Macro::parse(&after[1..end], is_explanation)?), end + 1)
            }
            _ => return None,
        };
        pieces.push(piece);
        rest = &after[length..];
    }
    Some(pieces)
}

/// Reads a `domain-spec`: it ends with a macro, or with a dot and a top label.
pub(super) fn parse_domain(text: &str) -> Option<Vec<Piece<'_>>> {
    let pieces = parse(text, false)?;
    let is_domain = match pieces.last()? {
        // `%%`, `%_` and `%-` count as macros as well.
        Piece::Macro(_) | Piece::Text("%" | " " | "%20") => true,
        Piece::Text(text) => {
            text.strip_suffix('.').unwrap_or(text).rsplit_once('.').is_some_and(|(_, label)| {
                let is_alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
                let bytes = label.as_bytes();
                is_alphanumeric(bytes.first())
                    && is_alphanumeric(bytes.last())
                    && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
                    && !bytes.iter().all(u8::is_ascii_digit)
            })
        }
    };
    is_domain.then_some(pieces)
}

impl<'a> Macro<'a> {
    fn parse(text: &'a str, is_explanation: bool) -> Option<Self> {
        let first = *text.as_bytes().first()?;
        let letter = first.to_ascii_lowercase();
        let is_known = b"slodiphv".contains(&letter) || (is_explanation && b"crt".contains(&letter));
        if !is_known {
            return None;
        }
        let rest = &text[1..];
        let after_digits = rest.trim_start_matches(|first: char| first.is_ascii_digit());
        let digits = &rest[..rest.len() - after_digits.len()];
        let kept = match digits.trim_start_matches('0') {
            "" if digits.is_empty() => usize::MAX,
            // Zero parts are none (RFC 7208 §7.3).
            "" => return None,
            digits => digits.parse().unwrap_or(usize::MAX),
        };
        let delimiters = after_digits.strip_prefix(['r', 'R']).unwrap_or(after_digits);
        delimiters.bytes().all(|byte| b".-+,/_=".contains(&byte)).then_some(Self {
            letter,
            is_escaped: first.is_ascii_uppercase(),
            kept,
            is_reversed: delimiters.len() < after_digits.len(),
            delimiters,
        })
    }

    /// Appends the value in the form that the macro asks for.
    pub(super) fn expand(&self, value: &[u8], out: &mut Vec<u8>) {
        let is_delimiter = |byte: &u8| match self.delimiters {
            "" => *byte == b'.',
            delimiters => delimiters.as_bytes().contains(byte),
        };
        let mut parts: Vec<&[u8]> = value.split(is_delimiter).collect();
        if self.is_reversed {
            parts.reverse();
        }
        let joined = parts[parts.len().saturating_sub(self.kept)..].join(&b'.');
        for byte in joined {
            if !self.is_escaped || byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(byte);
            } else {
                out.extend_from_slice(format!("%{byte:02X}").as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str, value: &str) -> Option<String> {
        let mut out = Vec::new();
        for piece in parse(text, true)? {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Macro(it) => it.expand(value.as_bytes(), &mut out),
            }
        }
        String::from_utf8(out).ok()
    }

    #[test]
    fn macros_of_the_rfc_expand_as_it_says() {
        // RFC 7208 §7.4.
        for (text, value, expected) in [
            ("%{d4}", "email.example.com", "email.example.com"),
            ("%{d2}", "email.example.com", "example.com"),
            ("%{d1}", "email.example.com", "com"),
            ("%{dr}", "email.example.com", "com.example.email"),
            ("%{d2r}", "email.example.com", "example.email"),
            ("%{l}", "strong-bad", "strong-bad"),
            ("%{l-}", "strong-bad", "strong.bad"),
            ("%{lr}", "strong-bad", "strong-bad"),
            ("%{lr-}", "strong-bad", "bad.strong"),
            ("%{l1r-}", "strong-bad", "strong"),
            ("%{L}", "jack&jill=up", "jack%26jill%3Dup"),
            ("a%%b%_c%-d", "", "a%b c%20d"),
            ("%{d999999999999999999999}", "a.b", "a.b"),
        ] {
            assert_eq!(expanded(text, value).as_deref(), Some(expected), "{text}");
        }
        for text in ["%", "%{", "%{}", "%{x}", "%{d0}", "%{d1x}", "%{d;}", "%a", "\u{e4}", "%{d", "a\tb"] {
            assert_eq!(parse(text, true), None, "{text}");
        }
        assert_eq!(parse("%{c}", false), None);
    }
}
