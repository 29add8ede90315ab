//! Quoted-printable and base64 (RFC 2045 §6.7, §6.8), written as the content comes.

use super::Encoding;

/// Longest line that is written, without its CRLF.
const LINE_MAX: usize = 76;
/// Octets of a whole line of base64.
const GROUP: usize = LINE_MAX / 4 * 3;
const HEX: &[u8; 16] = b"0123456789ABCDEF";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes one body.
#[derive(Debug, Default)]
pub(super) enum Encoder {
    #[default]
    Keep,
    QuotedPrintable {
        column: usize,
        /// A space or tab, which must not be the last of its line.
        blank: Option<u8>,
    },
    Base64 {
        /// Octets of the next line.
        group: Vec<u8>,
        has_line: bool,
    },
}

impl Encoder {
    pub(super) fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Keep => Self::Keep,
            Encoding::QuotedPrintable => Self::QuotedPrintable { column: 0, blank: None },
            Encoding::Base64 => Self::Base64 { group: Vec::with_capacity(GROUP), has_line: false },
        }
    }

    /// Takes octets that are not the end of a line of text.
    pub(super) fn data(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Self::Keep => out.extend_from_slice(bytes),
            Self::QuotedPrintable { column, blank } => {
                for byte in bytes {
                    if let Some(before) = blank.take() {
                        put(before, false, column, out);
                    }
                    match byte {
                        b' ' | b'\t' => *blank = Some(*byte),
                        _ => put(*byte, !matches!(byte, b'!'..=b'<' | b'>'..=b'~'), column, out),
                    }
                }
            }
            Self::Base64 { group, has_line } => {
                for byte in bytes {
                    if group.len() == GROUP {
                        put_group(group, has_line, out);
                    }
                    group.push(*byte);
                }
            }
        }
    }

    /// Takes the CRLF that ends a line of text.
    pub(super) fn line_end(&mut self, out: &mut Vec<u8>) {
        match self {
            Self::Keep => out.extend_from_slice(b"\r\n"),
            Self::QuotedPrintable { column, blank } => {
                if let Some(before) = blank.take() {
                    put(before, true, column, out);
                }
                out.extend_from_slice(b"\r\n");
                *column = 0;
            }
            Self::Base64 { .. } => self.data(b"\r\n", out),
        }
    }

    /// Ends the body. What follows is a CRLF and a delimiter, unless it is the last of the content.
    pub(super) fn finish(&mut self, is_last: bool, out: &mut Vec<u8>) {
        match self {
            Self::Keep => {}
            Self::QuotedPrintable { column, blank } => {
                if let Some(before) = blank.take() {
                    put(before, true, column, out);
                }
                if is_last && *column > 0 {
                    // The CRLF that must stand here is not of the body.
                    out.extend_from_slice(b"=\r\n");
                }
            }
            Self::Base64 { group, has_line } => {
                put_group(group, has_line, out);
                if is_last {
                    out.extend_from_slice(b"\r\n");
                }
            }
        }
    }
}

/// One octet of quoted-printable, behind a soft line break if it does not fit.
fn put(byte: u8, must_encode: bool, column: &mut usize, out: &mut Vec<u8>) {
    let width = |is_encoded| if is_encoded { 3 } else { 1 };
    // One column is for the `=` of a soft break.
    if *column + width(must_encode) > LINE_MAX - 1 {
        out.extend_from_slice(b"=\r\n");
        *column = 0;
    }
    // A line that began otherwise in the content may not begin like a delimiter, nor like the end of DATA.
    let is_encoded = must_encode || (*column == 0 && matches!(byte, b'-' | b'.'));
    if is_encoded {
        out.extend_from_slice(&[b'=', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
    } else {
        out.push(byte);
    }
    *column += width(is_encoded);
}

/// One line of base64, behind the CRLF of the one before.
fn put_group(group: &mut Vec<u8>, has_line: &mut bool, out: &mut Vec<u8>) {
    if group.is_empty() {
        return;
    }
    if std::mem::replace(has_line, true) {
        out.extend_from_slice(b"\r\n");
    }
    for three in group.chunks(3) {
        let value =
            three.iter().fold(0_u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let sextet = (value >> (18 - 6 * place)) & 63;
            out.push(if place <= three.len() { ALPHABET[sextet as usize] } else { b'=' });
        }
    }
    group.clear();
}
