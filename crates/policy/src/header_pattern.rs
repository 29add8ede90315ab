//! Conditions on fields of the header.

use mail::header::fields;
use regex::bytes::{Regex, RegexBuilder};
use std::fmt;

/// Advice for an expression that cannot be read.
const ESCAPE: &str =
    "close it, or write `\\\\` before a character that stands for itself, as in \"Subject: /\\\\(/\"";

/// Memory of one compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// A field that a header has, perhaps with a value that a regular expression matches: `X-Spam-Flag`, or
/// `Subject: /lottery/`.
#[derive(Debug, Clone)]
pub struct HeaderPattern {
    name: Box<str>,
    value: Option<Regex>,
}

impl PartialEq for HeaderPattern {
    fn eq(&self, other: &Self) -> bool {
        let pattern = |one: &Self| one.value.as_ref().map(|regex| regex.as_str().to_owned());
        self.name == other.name && pattern(self) == pattern(other)
    }
}

impl Eq for HeaderPattern {}

impl HeaderPattern {
    /// Reads a pattern. Letter case is ignored, unless the expression begins with `(?-i)`.
    ///
    /// # Errors
    /// The fault, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "write \"Name\" or \"Name: /regular expression/\"";
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, value.trim()),
            None => (text, ""),
        };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(FORM.to_owned());
        }
        if value.is_empty() {
            return Ok(Self { name: name.into(), value: None });
        }
        let Some(expression) = value.strip_prefix('/').and_then(|value| value.strip_suffix('/')) else {
            return Err(FORM.to_owned());
        };
        let (inner, front) = (expression, text.len() - value.len() + 1);
        if let Err(regex_syntax::Error::Parse(error)) = regex_syntax::Parser::new().parse(inner) {
            let at = front + error.span().start.offset + 1;
            return Err(format!("{} at character {at}; {ESCAPE}", error.kind()));
        }
        let regex = RegexBuilder::new(expression)
            .case_insensitive(true)
            .size_limit(PATTERN_BYTES)
            .dfa_size_limit(PATTERN_BYTES)
            .build()
            .map_err(|error| error.to_string().lines().last().unwrap_or_default().trim().to_owned())?;
        Ok(Self { name: name.into(), value: Some(regex) })
    }

    /// Returns whether the pattern matches every header that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let is_wide = self.value.is_none()
            || self.value.as_ref().map(Regex::as_str) == other.value.as_ref().map(Regex::as_str);
        self.name.eq_ignore_ascii_case(&other.name) && is_wide
    }

    /// Returns whether a field of a header matches. `header` has lines that end in CRLF; a folded value is unfolded.
    pub fn matches(&self, header: &[u8]) -> bool {
        fields(header).any(|(name, value)| {
            name.eq_ignore_ascii_case(self.name.as_bytes())
                && self.value.as_ref().is_none_or(|regex| regex.is_match(&unfold(value)))
        })
    }
}

fn unfold(value: &[u8]) -> Vec<u8> {
    let value: Vec<u8> = value.iter().copied().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    value.trim_ascii().to_vec()
}

impl fmt::Display for HeaderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}: /{}/", self.name, value.as_str()),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] =
        b"Received: from a\r\n\tby b\r\nsubject: You have\r\n  won a Lottery\r\nX-Empty:\r\n\r\n";

    #[test]
    fn fields_are_found_by_name_and_by_their_unfolded_value() {
        for (text, expected) in [
            ("Subject", true),
            ("X-Empty", true),
            ("From", false),
            ("Subject: /won a lottery$/", true),
            ("Subject: /^You have {2}won/", true),
            ("Subject: /(?-i)lottery/", false),
            ("Received: /^from a\\tby b$/", true),
            ("by b", false),
        ] {
            let pattern = HeaderPattern::parse(text);
            assert_eq!(pattern.is_ok_and(|pattern| pattern.matches(HEADER)), expected, "{text}");
        }
    }

    #[test]
    fn a_field_of_any_value_covers_one_with_an_expression() {
        let covers = |wide: &str, narrow: &str| {
            HeaderPattern::parse(wide).unwrap().covers(&HeaderPattern::parse(narrow).unwrap())
        };
        assert!(covers("Subject", "subject: /x/") && covers("X: /a/", "x: /a/") && covers("X", "X"));
        assert!(!covers("X: /a/", "X") && !covers("X: /a/", "X: /ab/") && !covers("X", "Y: /a/"));
    }

    #[test]
    fn faults_are_told_with_their_place() {
        for (text, part) in
            [("", "Name"), ("Subject: x", "Name"), ("Subject: /a(/", "character 12"), ("a b: /x/", "Name")]
        {
            let error = HeaderPattern::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
