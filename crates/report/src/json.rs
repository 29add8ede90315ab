//! JSON in which no text of others turns a line around or hides a part of it.

use serde::Serialize;
use std::io::{self, Write as _};

/// Appends a value as JSON on one line. Characters beyond ASCII that control or format text ([`mail::is_invisible`]) are escaped, as JSON itself escapes those of ASCII: `\u202e`.
///
/// # Errors
/// The value is no JSON: a map whose keys are no strings.
pub fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let begin = out.len();
    serde_json::to_writer(&mut *out, value)?;
    // Nearly no line has one. They stand in strings only, where an escape means the same.
    let line = &out[begin..];
    if !line.is_ascii() {
        let line = String::from_utf8_lossy(&out.split_off(begin)).into_owned();
        for c in line.chars() {
            if mail::is_invisible(c) {
                c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))?;
            } else {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_nobody_sees_are_escaped_and_read_back() {
        let text = "a\u{202e}b \"\\\n\u{9b}\u{e0041}é\u{200b}";
        let mut out = Vec::new();
        write_json(&mut out, &[text]).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert_eq!(line, r#"["a\u202eb \"\\\n\u009b\udb40\udc41é\u200b"]"#);
        assert_eq!(serde_json::from_str::<Vec<String>>(&line).unwrap(), [text]);
    }
}
