//! The reply that a filter chose, checked: it goes to a client as ours.

use crate::wire::Fault;
use mail::{Enhanced, Reply};

/// The bounds of libmilter: lines of a reply, and octets of one.
const LINES_MAX: usize = 32;
const LINE_BYTES_MAX: usize = 980;

/// Reads a reply such as `550-5.7.1 a\r\n550 5.7.1 b`. A percent sign is doubled, as libmilter asks of its users; filters without
/// libmilter send a single one, which is kept. Characters that are not seen become `?`.
///
/// # Errors
/// The code is not 4yz or 5yz, the enhanced code is of another class, lines differ in their code, or the text is too long.
pub(crate) fn parse(text: &[u8]) -> Result<Reply, Fault> {
    let text = String::from_utf8_lossy(text);
    let text = text.strip_suffix('\n').map_or(&*text, |text| text.strip_suffix('\r').unwrap_or(text));
    if text.split('\n').count() > LINES_MAX {
        return Err("more than 32 lines");
    }
    let mut codes = None;
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.len() > LINE_BYTES_MAX {
            return Err("a line of more than 980 octets");
        }
        let (code, rest) = code_of(line)?;
        let (enhanced, rest) = match Enhanced::parse_prefix(rest) {
            Some((enhanced, rest)) => (Some(enhanced), rest),
            None => (None, rest),
        };
        if enhanced.is_some_and(|Enhanced(class, ..)| u16::from(class) != code / 100) {
            return Err("the enhanced status code is of another class than the code");
        }
        if *codes.get_or_insert((code, enhanced)) != (code, enhanced) {
            return Err("lines with different codes");
        }
        lines.push(rest.replace("%%", "%"));
    }
    let (code, enhanced) = codes.ok_or("no line")?;
    Ok(Reply::new(code, enhanced, lines.join("\n")))
}

/// Reads the code, and returns what follows the space or hyphen behind it.
fn code_of(line: &str) -> Result<(u16, &str), Fault> {
    let (digits, rest) = line.split_at_checked(3).ok_or("a line without a code")?;
    let is_code = digits.starts_with(['4', '5']) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let code = digits.parse().ok().filter(|_| is_code).ok_or("a code that is not 4yz or 5yz")?;
    if rest.is_empty() {
        return Ok((code, rest));
    }
    rest.strip_prefix([' ', '-']).map(|rest| (code, rest)).ok_or("a code without a space behind it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &[u8]) -> Result<String, Fault> {
        let mut out = Vec::new();
        parse(text)?.write_to(&mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_reply_of_several_lines_keeps_its_codes_on_each() {
        let text = b"550-5.7.1 100%% spam\r\n550-5.7.1 50% sure\n550 5.7.1 bye\r\n";
        let expected = "550-5.7.1 100% spam\r\n550-5.7.1 50% sure\r\n550 5.7.1 bye\r\n";
        assert_eq!(wire(text).unwrap(), expected);
        assert_eq!(wire(b"451 later").unwrap(), "451 later\r\n");
        assert_eq!(wire(b"451").unwrap(), "451 \r\n");
        assert_eq!(wire(b"421 4.3.2 closing").unwrap(), "421 4.3.2 closing\r\n");
    }

    #[test]
    fn a_reply_that_is_no_refusal_or_breaks_the_grammar_is_a_fault() {
        for text in [
            &b"250 2.0.0 ok"[..],
            b"354 go",
            b"550 4.7.1 class",
            b"450 2.7.1 class",
            b"550-5.7.1 a\r\n451 4.7.1 b",
            b"550-5.7.1 a\r\n550 b",
            b"550 5.7.1 a\r\n\r\n250 ok",
            b"5500",
            b"55",
            b"+55 a",
            b"5\xc3\xa4 a",
            b"",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert!(parse("550 a\n".repeat(33).as_bytes()).is_err());
        assert!(parse(&[b"550 ", &[b'x'; 977][..]].concat()).is_err());
    }

    #[test]
    fn no_control_character_reaches_the_client() {
        assert_eq!(wire(b"550 a\rb\x07\x1b[2J\xff").unwrap(), "550 a?b??[2J\u{fffd}\r\n");
    }
}
