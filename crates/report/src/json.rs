//! JSON in which no text of others turns a line around or hides a part of it.

use serde::Serialize;
use serde_json::ser::Formatter;
use std::io;

/// Writes a value as JSON on one line. Control and format characters ([`mail::is_invisible`]) are escaped: `\u202e`.
///
/// # Errors
/// Those of the writer.
pub fn write_json<W: io::Write>(out: W, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(out, Visible);
    value.serialize(&mut serializer).map_err(io::Error::from)
}

/// Compact JSON with more escapes.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, out: &mut W, text: &str) -> io::Result<()> {
        // Nearly all text has none: what JSON has to escape was cut out before.
        if text.is_ascii() && !text.contains('\x7f') {
            return out.write_all(text.as_bytes());
        }
        let mut rest = text;
        while let Some(at) = rest.find(mail::is_invisible) {
            let (visible, found) = rest.split_at(at);
            out.write_all(visible.as_bytes())?;
            let mut characters = found.chars();
            for unit in characters.next().into_iter().flat_map(|c| c.encode_utf16(&mut [0; 2]).to_vec()) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = characters.as_str();
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_nobody_sees_are_escaped_and_read_back() {
        let text = "a\u{202e}b \"\\\n\u{7f}\u{e0041}é\u{200b}";
        let mut out = Vec::new();
        write_json(&mut out, &[text]).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert_eq!(line, r#"["a\u202eb \"\\\n\u007f\udb40\udc41é\u200b"]"#);
        assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), [text]);
    }
}
