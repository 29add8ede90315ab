//! Content in wire form, addresses as the other servers write them, and xtext.

use crate::queued::Damage;
use mail::{ForwardPath, ReversePath};

/// Appends lines that end in LF, or in CRLF, with CRLF. The last line gets one, too.
pub(crate) fn append_lines(content: &mut Vec<u8>, text: &[u8]) {
    content.reserve(text.len() + text.len() / 32);
    let mut rest = text;
    while !rest.is_empty() {
        let (line, behind) = match memchr::memchr(b'\n', rest) {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, &[][..]),
        };
        content.extend_from_slice(line.strip_suffix(b"\r").unwrap_or(line));
        content.extend_from_slice(b"\r\n");
        rest = behind;
    }
}

/// Returns an address with a domain: programs of the machine leave the domain out.
fn qualified(text: &str, domain: &str) -> String {
    let has_domain = match text.rfind('"') {
        Some(quote) => text[quote..].contains('@'),
        None => text.contains('@'),
    };
    if has_domain || text.is_empty() || domain.is_empty() {
        text.to_owned()
    } else {
        format!("{text}@{domain}")
    }
}

/// Returns an address as SMTP has it, from one whose local part has no quotes, as in the queue of Postfix: `a b@c.test`.
pub(crate) fn quoted(text: &str) -> String {
    let (local, at, domain) = match text.rsplit_once('@') {
        Some((local, domain)) => (local, "@", domain),
        None => (text, "", ""),
    };
    let is_special = |c: char| c.is_ascii_control() || " ()<>@,;:\\\"[]".contains(c);
    let is_plain = !local.contains(is_special) && !local.split('.').any(str::is_empty);
    if is_plain || text.is_empty() || text == "<>" {
        return text.to_owned();
    }
    let escaped = local.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"{at}{domain}")
}

/// Reads a reverse-path; `domain` is added to an address without one.
pub(crate) fn reverse_path(text: &str, domain: &str) -> Result<ReversePath, Damage> {
    if text.is_empty() || text == "<>" {
        return Ok(ReversePath::Null);
    }
    let path = ReversePath::parse(&qualified(text, domain), true);
    path.map_err(|why| Damage::new(format!("the sender \"{}\": {why}", printable(text))))
}

/// Reads a forward-path; `domain` is added to an address without one.
pub(crate) fn forward_path(text: &str, domain: &str) -> Result<ForwardPath, Damage> {
    let path = ForwardPath::parse(&qualified(text, domain), true);
    path.map_err(|why| Damage::new(format!("the recipient \"{}\": {why}", printable(text))))
}

/// Returns a text of the other queue without control characters, at most 200 characters of it.
pub(crate) fn printable(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a parameter of the envelope in xtext, decoded; `None` for an empty one, and for one that would end a line.
pub(crate) fn parameter(text: &str) -> Option<Box<str>> {
    let decoded = from_xtext(text);
    (!decoded.is_empty() && !decoded.chars().any(char::is_control)).then(|| decoded.into())
}

/// Decodes xtext (RFC 3461 §4); a text that is none stays as it is.
fn from_xtext(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, value) {
            (b'+', Some(value)) => {
                out.push(value);
                rest = &behind[2..];
            }
            (b'+', None) => return text.to_owned(),
            _ => out.push(*first),
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

/// Returns whether the header at the beginning of `content` has a field with this name.
pub(crate) fn has_field(content: &[u8], name: &str) -> bool {
    let mut rest = content;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = &rest[..end];
        if line.is_empty() || line == b"\r" {
            return false;
        }
        let is_field =
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name.as_bytes()))
                && line.get(name.len()) == Some(&b':');
        if is_field {
            return true;
        }
        rest = &rest[end + 1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_part_is_quoted_where_it_must_be() {
        for (queued, sent) in [
            ("joe@x.test", "joe@x.test"),
            ("jörg+a/b=c@x.test", "jörg+a/b=c@x.test"),
            ("a b@x.test", "\"a b\"@x.test"),
            ("a@b@x.test", "\"a@b\"@x.test"),
            (".joe.@x.test", "\".joe.\"@x.test"),
            ("a\"b\\c@x.test", "\"a\\\"b\\\\c\"@x.test"),
            ("@x.test", "\"\"@x.test"),
            ("a b", "\"a b\""),
            ("", ""),
        ] {
            assert_eq!(quoted(queued), sent);
        }
    }

    #[test]
    fn lines_end_in_crlf_whatever_they_ended_in() {
        let mut content = Vec::new();
        append_lines(&mut content, b"a\nb\r\n\n.c\rd\nlast");
        assert_eq!(content, b"a\r\nb\r\n\r\n.c\rd\r\nlast\r\n");
    }

    #[test]
    fn addresses_without_a_domain_get_one() {
        assert_eq!(reverse_path("root", "mx.test").unwrap().as_str(), "root@mx.test");
        assert_eq!(reverse_path("\"a@b\"", "mx.test").unwrap().as_str(), "\"a@b\"@mx.test");
        assert_eq!(reverse_path("a@b.test", "mx.test").unwrap().as_str(), "a@b.test");
        assert!(reverse_path("", "mx.test").unwrap().is_null() && reverse_path("<>", "").unwrap().is_null());
        let error = forward_path("a b\n@c", "mx.test").unwrap_err();
        assert_eq!(error.0, "the recipient \"a b @c\": bad local part");
    }

    #[test]
    fn xtext_is_decoded_unless_it_is_none() {
        for (text, decoded) in [("a+2Bb", "a+b"), ("plain", "plain"), ("a+", "a+"), ("a+zz", "a+zz")] {
            assert_eq!(parameter(text).as_deref(), Some(decoded));
        }
        for none in ["", "+0A", "a\rb"] {
            assert_eq!(parameter(none), None);
        }
    }

    #[test]
    fn a_field_is_found_in_the_header_only() {
        let content = b"Subject: x\r\nDATE: y\r\n\r\nFrom: z\r\n";
        assert!(has_field(content, "Date") && !has_field(content, "From") && !has_field(content, "Dat"));
    }
}
