//! SASLprep (RFC 4013): one form for names and passwords that look the same.

use std::borrow::Cow;

/// Prepares a name or password; none if it has characters that are forbidden, or is empty.
pub(crate) fn prepared(text: &str) -> Option<Cow<'_, str>> {
    let prepared = match text.is_ascii() {
        // Nothing changes there but control characters, which are forbidden.
        true if text.bytes().any(|b| b.is_ascii_control()) => return None,
        true => Cow::Borrowed(text),
        false => stringprep::saslprep(text).ok()?,
    };
    (!prepared.is_empty()).then_some(prepared)
}

#[cfg(test)]
mod tests {
    use super::prepared;

    #[test]
    fn the_examples_of_rfc_4013_hold() {
        assert_eq!(prepared("I\u{ad}X").as_deref(), Some("IX"));
        assert_eq!(prepared("user").as_deref(), Some("user"));
        assert_eq!(prepared("\u{aa}").as_deref(), Some("a"));
        assert_eq!(prepared("\u{2168}").as_deref(), Some("IX"));
        assert_eq!(prepared("\u{7}"), None);
        assert_eq!(prepared("\u{627}\u{31}"), None);
        assert_eq!(prepared(""), None);
    }
}
