//! A message that carries the checksum of its own body: what a relay changed or lost shows at the sink,
//! as Postal's messages show it to rabid.

use memchr::memmem;

/// The field with the checksum of the content.
const FIELD: &str = "X-Postlab-Check";

/// The field for a body, its line end included.
pub(crate) fn field(body: &[u8]) -> String {
    format!("{FIELD}: {:08x}\r\n", crc32c::crc32c(body))
}

/// The result of comparing a message with its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Intact,
    Changed,
    /// The message has no checksum.
    Unknown,
}

/// Compares a whole message, header first, with what it says of itself.
pub(crate) fn verify(message: &[u8]) -> Verdict {
    let Some(end) = memmem::find(message, b"\r\n\r\n") else { return Verdict::Unknown };
    let (header, body) = (&message[..end + 2], &message[end + 4..]);
    let claimed = header.split(|b| *b == b'\n').find_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        if !name.eq_ignore_ascii_case(FIELD) {
            return None;
        }
        u32::from_str_radix(value.trim(), 16).ok()
    });
    match claimed {
        None => Verdict::Unknown,
        Some(claimed) if claimed == crc32c::crc32c(body) => Verdict::Intact,
        Some(_) => Verdict::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_shows_what_became_of_its_body() {
        let body = b"one\r\n\r\ntwo\r\n";
        let message = [field(body).as_bytes(), b"\r\n", body].concat();
        let relayed = [b"Received: x\r\n\ty\r\n", &message[..]].concat();
        assert_eq!((verify(&message), verify(&relayed)), (Verdict::Intact, Verdict::Intact));
        assert_eq!(verify(&relayed[..relayed.len() - 2]), Verdict::Changed);
        assert_eq!(verify(b"Subject: x\r\n\r\nbody\r\n"), Verdict::Unknown);
        assert_eq!(verify(b"no header at all"), Verdict::Unknown);
    }
}
