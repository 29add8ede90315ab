//! The text of a report: safe characters, short lines and folded fields.

use std::fmt::Write as _;

/// Longest line where there are spaces (RFC 5322 §2.1.1).
const LINE_BYTES: usize = 78;

/// Longest piece of a line in which there are none.
const WORD_MAX_BYTES: usize = 900;

/// Writes a line of text in lines that stay within the length that RFC 5322 §2.1.1 recommends where there are
/// spaces. Each has the indentation of the line.
pub(super) fn wrapped(out: &mut String, text: &str) {
    let words = text.trim_start_matches(' ');
    let indentation = &text[..(text.len() - words.len()).min(LINE_BYTES / 2)];
    let mut length = 0;
    for word in words.trim_end().split(' ') {
        if length > 0 && indentation.len() + length + word.len() > LINE_BYTES {
            out.push_str("\r\n");
            length = 0;
        }
        if length > 0 {
            out.push(' ');
        } else if !word.is_empty() {
            out.push_str(indentation);
        }
        // A single word must not make a line too long.
        for (i, piece) in pieces(word, WORD_MAX_BYTES).enumerate() {
            if i > 0 {
                out.push_str("\r\n");
                out.push_str(indentation);
            }
            out.push_str(piece);
        }
        length += word.chars().count() + 1;
    }
    out.push_str("\r\n");
}

/// Returns the text in pieces of at most `max_bytes`, cut between characters.
fn pieces(text: &str, max_bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        if text.len() <= max_bytes {
            return Some(text);
        }
        let at = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        rest = Some(&text[at..]);
        Some(&text[..at])
    })
}

/// Appends a field that is cut only where its line would be too long for any server: a cut adds a space to what
/// is read.
pub(super) fn address_field(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, "{name}: ");
    for (i, piece) in pieces(text, WORD_MAX_BYTES).enumerate() {
        out.push_str(if i == 0 { "" } else { "\r\n " });
        out.push_str(piece);
    }
    out.push_str("\r\n");
}

/// Appends a field, folded at its spaces (RFC 5322 §2.2.3).
pub(super) fn folded_field(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, "{name}:");
    let mut length = name.len() + 1;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if length + 1 + word.len() > LINE_BYTES && length > 0 {
            out.push_str("\r\n");
            length = 0;
        }
        for (i, piece) in pieces(word, WORD_MAX_BYTES).enumerate() {
            out.push_str(if i == 0 { " " } else { "\r\n " });
            out.push_str(piece);
        }
        length += 1 + word.len();
    }
    out.push_str("\r\n");
}

/// Removes control characters of a remote server.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if mail::is_invisible(c) { ' ' } else { c }).collect()
}

/// An internationalized address in a report that is none (RFC 6533 §3): `j\x{F6}rg@example.com`. `others` are
/// ASCII characters that are escaped, too.
pub(super) fn escaped(text: &str, others: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let _ = if c.is_ascii() && !others.contains(c) {
            write!(out, "{c}")
        } else {
            write!(out, "\\x{{{:X}}}", u32::from(c))
        };
    }
    out
}

/// Makes text safe as [`clean`] does, for fields that are ASCII only.
pub(super) fn ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() && !c.is_control() { c } else { '?' }).collect()
}
