//! A server's reply: a code, an enhanced status code (RFC 3463), and text.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

/// An enhanced status code such as `5.1.1` (RFC 3463 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Enhanced(pub u8, pub u16, pub u16);

impl fmt::Display for Enhanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Appends a number in decimal.
fn push_number(out: &mut Vec<u8>, number: u16) {
    let mut power = 1;
    while number / power >= 10 {
        power *= 10;
    }
    while power > 0 {
        out.push(b'0' + (number / power % 10) as u8);
        power /= 10;
    }
}

impl Enhanced {
    /// Appends the text: several times as fast as by [`fmt::Display`], for each reply.
    fn write_to(self, out: &mut Vec<u8>) {
        let Self(class, subject, detail) = self;
        for (mark, number) in [("", class.into()), (".", subject), (".", detail)] {
            out.extend_from_slice(mark.as_bytes());
            push_number(out, number);
        }
    }

    /// Reads `5.1.1` from the front of `text` and returns the rest behind one space.
    /// `None` unless class is 2, 4 or 5 and subject and detail have one to three digits.
    pub fn parse_prefix(text: &str) -> Option<(Self, &str)> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut parts = word.split('.');
        let class = match parts.next()? {
            "2" => 2,
            "4" => 4,
            "5" => 5,
            _ => return None,
        };
        let mut number = || {
            let digits = parts.next()?;
            let plain = (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| digits.parse().ok()).flatten()
        };
        let (subject, detail) = (number()?, number()?);
        parts.next().is_none().then_some((Self(class, subject, detail), rest))
    }
}

/// Longest excerpt of a reply that is kept: some servers send hundreds of lines, and send them for each recipient.
const EXCERPT_MAX_BYTES: usize = 1024;

/// One SMTP reply (RFC 5321 §4.2). `\n` in the text separates the lines of a multi-line reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Three digits: 200 to 599.
    pub code: u16,
    /// Repeated on each line; absent in the greeting, EHLO's reply and 354 (RFC 2034 §4).
    pub enhanced: Option<Enhanced>,
    text: Cow<'static, str>,
    rule: Option<Box<str>>,
}

impl Reply {
    /// A reply with a fixed text.
    pub const fn fixed(code: u16, enhanced: Enhanced, text: &'static str) -> Self {
        Self { code, enhanced: Some(enhanced), text: Cow::Borrowed(text), rule: None }
    }

    /// Returns the reply as a temporary one if it is permanent: 450 for 550, 4.1.1 for 5.1.1.
    #[must_use]
    pub fn softened(self) -> Self {
        if !(500..600).contains(&self.code) {
            return self;
        }
        let enhanced = self.enhanced.map(|Enhanced(_, subject, detail)| Enhanced(4, subject, detail));
        // 554 and 555 have no temporary counterpart.
        let code = if matches!(self.code, 550..=553) { self.code - 100 } else { 451 };
        Self { code, enhanced, ..self }
    }

    /// A reply without enhanced code and with a fixed text.
    pub const fn bare(code: u16, text: &'static str) -> Self {
        Self { code, enhanced: None, text: Cow::Borrowed(text), rule: None }
    }

    /// A reply whose text is made at run time. Each character that is not seen, but for
    /// `\n`, is replaced by `?`, so that no input can add a line to what we say, or hide a part of it.
    pub fn new(code: u16, enhanced: impl Into<Option<Enhanced>>, text: impl Into<String>) -> Self {
        let text: String = text.into();
        let clean = |c: char| c == '\n' || !crate::is_invisible(c);
        let text = if text.chars().all(clean) {
            text
        } else {
            text.chars().map(|c| if clean(c) { c } else { '?' }).collect()
        };
        Self { code, enhanced: enhanced.into(), text: Cow::Owned(text), rule: None }
    }

    /// The reply with the name of the rule that decided on it, which goes to the log and not to the client.
    pub fn with_rule(self, rule: Option<Box<str>>) -> Self {
        Self { rule, ..self }
    }

    /// The rule of the configuration that decided on the reply.
    pub fn rule(&self) -> Option<&str> {
        self.rule.as_deref()
    }

    /// The text without codes; lines separated by `\n`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// As one line, of a long reply its beginning: in whole lines, unless that would leave little.
    pub fn excerpt(&self) -> String {
        const CUT: &str = " ...";
        let mut out = self.to_string();
        if out.len() <= EXCERPT_MAX_BYTES {
            return out;
        }
        let max = EXCERPT_MAX_BYTES - CUT.len();
        let mut whole = out.len() - self.text.len();
        for line in self.text.split_inclusive('\n') {
            if whole + line.len() > max {
                break;
            }
            whole += line.len();
        }
        out.truncate(if whole > max / 2 { whole } else { out.floor_char_boundary(max) });
        out.truncate(out.trim_end().len());
        out + CUT
    }

    /// 2yz or 3yz.
    pub fn is_positive(&self) -> bool {
        self.code < 400
    }

    /// 4yz.
    pub fn is_transient(&self) -> bool {
        (400..500).contains(&self.code)
    }

    /// 421: the connection closes behind it (RFC 5321 §3.8).
    pub fn closes(&self) -> bool {
        self.code == 421
    }

    /// Appends the wire form: every line with code, enhanced code and CRLF.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        let code = [
            b'0' + (self.code / 100) as u8,
            b'0' + (self.code / 10 % 10) as u8,
            b'0' + (self.code % 10) as u8,
        ];
        let mut lines = self.text.split('\n').peekable();
        while let Some(line) = lines.next() {
            out.extend_from_slice(&code);
            out.push(if lines.peek().is_some() { b'-' } else { b' ' });
            if let Some(enhanced) = self.enhanced {
                enhanced.write_to(out);
                out.push(b' ');
            }
            out.extend_from_slice(line.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// One line, as in logs and DSNs: `550 5.1.1 User unknown`; the lines of a longer reply joined by spaces.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some(enhanced) = self.enhanced {
            write!(f, " {enhanced}")?;
        }
        for line in self.text.split('\n') {
            f.write_str(" ")?;
            f.write_str(line)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reply_has_its_codes_on_each_line() {
        let mut out = Vec::new();
        Reply::new(550, Enhanced(5, 7, 1), "No\nreally").write_to(&mut out);
        assert_eq!(out, b"550-5.7.1 No\r\n550 5.7.1 really\r\n");
    }

    #[test]
    fn the_enhanced_code_on_the_wire_is_the_one_that_is_displayed() {
        for number in (0..=1100).chain([9_999, 10_000, u16::MAX]) {
            let code = Enhanced((number % 256) as u8, number, u16::MAX - number);
            let mut out = Vec::new();
            code.write_to(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), code.to_string());
        }
    }

    #[test]
    fn control_characters_never_leave_in_a_reply() {
        assert_eq!(Reply::new(501, None, "bad \r\x1b[2J\u{2028}x").text(), "bad ??[2J?x");
    }

    #[test]
    fn an_excerpt_is_short_and_ends_between_lines_or_characters() {
        let short = Reply::new(550, Enhanced(5, 7, 1), "No\nreally");
        assert_eq!(short.excerpt(), "550 5.7.1 No really");
        let lines = Reply::new(550, None, "0123456789\n".repeat(200)).excerpt();
        assert!(lines.len() <= EXCERPT_MAX_BYTES && lines.ends_with(" 0123456789 ..."), "{lines}");
        let long = Reply::new(550, Enhanced(5, 7, 1), format!("see\n{}", "é".repeat(2000))).excerpt();
        assert!(long.len() <= EXCERPT_MAX_BYTES && long.ends_with("é ..."), "{long}");
    }

    #[test]
    fn enhanced_codes_are_read_strictly() {
        assert_eq!(Enhanced::parse_prefix("5.1.1 no"), Some((Enhanced(5, 1, 1), "no")));
        assert_eq!(Enhanced::parse_prefix("4.7.0"), Some((Enhanced(4, 7, 0), "")));
        for junk in ["3.1.1 x", "5.1 x", "5.1.1.1 x", "5.1234.1", "5..1", "", "5.+1.1"] {
            assert_eq!(Enhanced::parse_prefix(junk), None, "{junk}");
        }
    }
}
