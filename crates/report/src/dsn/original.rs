//! The original message in a report: all of it, or its header.

use super::{DsnContext, boundary, encoding, text::clean};
use mail::{Message, QueueId, header::LINE_LENGTH_MAX, seven_bit::Scan};
use std::borrow::Cow;

/// As much of the original content as a report ever returns; more than that, and its header goes back alone.
pub const RETURNED_MAX_BYTES: usize = 64 * 1024;

/// Returns whether a report on a failure can contain the original as it is.
pub(super) fn can_go_back_whole(original: &Message, context: &DsnContext<'_>) -> bool {
    !original.content.traits.is_binary
        && original.content.size_bytes() == context.content.len() as u64
        && context.content.len() <= RETURNED_MAX_BYTES
}

/// Returns whether a report can be written in 7 bits for a next hop without 8BITMIME. A message/rfc822 must not be
/// encoded as a whole (RFC 2046 §5.2.1), and some messages cannot be encoded part by part. A header alone always
/// can: text/rfc822-headers and message/global-headers may be encoded (RFC 6522 §4, RFC 6533).
pub(super) fn is_convertible(report: &[u8]) -> bool {
    let mut scan = Scan::default();
    scan.push(report);
    scan.finish().is_ok()
}

/// Appends the original (`whole`) or its header. Of a message that is late or delivered the header is enough.
pub(super) fn returned(out: &mut Vec<u8>, whole: bool, context: &DsnContext<'_>, id: QueueId) {
    let content = if whole { Cow::Borrowed(context.content) } else { Cow::Owned(header_of(context.content)) };
    let header = if whole { Cow::Owned(header_of(context.content)) } else { Cow::Borrowed(&*content) };
    // A header of 8 bits in an older encoding is none of RFC 6532.
    let is_global = !header.is_ascii() && std::str::from_utf8(&header).is_ok();
    let media = match (whole, is_global) {
        (true, false) => "message/rfc822",
        (true, true) => "message/global",
        (false, false) => "text/rfc822-headers",
        (false, true) => "message/global-headers",
    };
    let content = with_short_lines(&content);
    let encoding = encoding(&content);
    let description = if whole { "Undelivered message" } else { "Header of the message" };
    let head = format!(
        "--{0}\r\nContent-Description: {description}\r\nContent-Type: {media}\r\n{encoding}\r\n",
        boundary(id)
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(&content);
    if !content.ends_with(b"\r\n") {
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("\r\n--{}--\r\n", boundary(id)).as_bytes());
}

/// Lines that are too long for a server to have to take them (RFC 5321 §4.5.3.1.6) are cut: with CRLF and a space,
/// which folds a header field, at a space where there is one.
fn with_short_lines(content: &[u8]) -> Cow<'_, [u8]> {
    let is_long = |line: &[u8]| line.len() > LINE_LENGTH_MAX + 2;
    if !content.split_inclusive(|b| *b == b'\n').any(is_long) {
        return Cow::Borrowed(content);
    }
    let mut out = Vec::with_capacity(content.len() + content.len() / 256);
    for mut line in content.split_inclusive(|b| *b == b'\n') {
        while is_long(line) {
            let reach = &line[..LINE_LENGTH_MAX - 1];
            // Not inside of a character; what is no text may be cut anywhere.
            let between = reach.iter().rposition(|b| !(0x80..0xc0).contains(b)).filter(|at| *at > 0);
            let space = reach.iter().rposition(|b| *b == b' ').filter(|at| *at > LINE_LENGTH_MAX / 2);
            let at = space.or(between).unwrap_or(reach.len());
            out.extend_from_slice(&line[..at]);
            out.extend_from_slice(b"\r\n ");
            line = &line[at + usize::from(space.is_some())..];
        }
        out.extend_from_slice(line);
    }
    Cow::Owned(out)
}

/// Up to the empty line, in whole lines, as every server takes them: what came as BINARYMIME may end its
/// lines in bare LF, or have NUL.
fn header_of(content: &[u8]) -> Vec<u8> {
    let content = &content[..content.len().min(RETURNED_MAX_BYTES)];
    let mut out = Vec::new();
    for line in content.split_inclusive(|b| *b == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        out.extend(line.iter().map(|b| if matches!(b, 0 | b'\r') { b' ' } else { *b }));
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Returns the Message-ID of the original, if it is one line of permitted characters.
pub(super) fn message_id(content: &[u8]) -> Option<String> {
    let header = header_of(content);
    let value = std::str::from_utf8(field(&header, b"message-id:")?).ok()?.trim();
    let is_plain =
        value.starts_with('<') && value.ends_with('>') && value.bytes().all(|b| b.is_ascii_graphic());
    (is_plain && value.len() < 900).then(|| value.to_owned())
}

/// A longer subject is cut.
const SUBJECT_MAX_CHARS: usize = 200;

/// Returns the subject of the original as its reader sees it.
pub(super) fn original_subject(content: &[u8]) -> Option<String> {
    let header = header_of(content);
    let name = b"subject:";
    let first = field(&header, name)?;
    let start = first.as_ptr() as usize - header.as_ptr() as usize;
    let mut unfolded = Vec::new();
    for (number, line) in header[start..].split_inclusive(|b| *b == b'\n').enumerate() {
        if number > 0 && !matches!(line[0], b' ' | b'\t') {
            break;
        }
        unfolded.extend_from_slice(line.trim_ascii_end());
    }
    let decoded = mail::encoded_word::decoded(&String::from_utf8_lossy(&unfolded));
    let subject: String = clean(decoded.trim()).chars().take(SUBJECT_MAX_CHARS).collect();
    (!subject.is_empty()).then_some(subject)
}

/// Returns whether a program sent the message by itself: it has an Auto-Submitted other than `no` (RFC 3834 §5).
pub fn is_auto_submitted(content: &[u8]) -> bool {
    let header = header_of(content);
    let Some(value) = field(&header, b"auto-submitted:") else { return false };
    let word = value.split(|b| matches!(b, b';' | b'(')).next().unwrap_or_default().trim_ascii();
    !word.is_empty() && !word.eq_ignore_ascii_case(b"no")
}

/// Returns the rest of the first line of a field; `name` is in lower case, with its colon.
fn field<'h>(header: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    let is_it = |line: &&[u8]| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name);
    header.split(|b| *b == b'\n').find(is_it).map(|line| &line[name.len()..])
}
