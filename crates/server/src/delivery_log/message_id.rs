//! The Message-ID of a message, for the log.

use mail::{Message, Part};
use memchr::memmem;

/// A longer one is not logged.
const BYTES_MAX: usize = 250;

/// Returns the value of the first Message-ID field, if the header is in memory and the value is one word that can stand
/// in a log; else nothing.
pub(super) fn message_id(message: &Message) -> &str {
    let Some(Part::Memory(bytes)) = message.content.parts().first() else { return "" };
    let end = memmem::find(bytes, b"\r\n\r\n").unwrap_or(bytes.len());
    let mut lines = bytes[..end].split(|byte| *byte == b'\n');
    let name = b"message-id:";
    let is_field = |line: &&[u8]| line.get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name));
    let Some(line) = lines.find(is_field) else { return "" };
    let mut value = line[name.len()..].trim_ascii();
    if value.is_empty() {
        // The value may be on the next line (RFC 5322 §2.2.3).
        value =
            lines.next().filter(|line| line.first().is_some_and(u8::is_ascii_whitespace)).unwrap_or_default();
        value = value.trim_ascii();
    }
    let is_loggable = value.len() <= BYTES_MAX && value.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(value).ok().filter(|_| is_loggable).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Content, Envelope, QueueId, ReversePath, UnixMillis};

    fn found(header: &str) -> String {
        let message = Message {
            id: QueueId(1),
            arrived: UnixMillis(0),
            origin: "dsn".into(),
            envelope: Envelope::new(ReversePath::parse("", false).unwrap()),
            content: Content::from_bytes(format!("{header}\r\n\r\nMessage-ID: <body@x>\r\n")),
        };
        message_id(&message).to_owned()
    }

    #[test]
    fn the_first_field_that_can_stand_in_a_log_counts() {
        assert_eq!(found("Subject: x\r\nmessage-id:<a@b>\r\nMessage-ID: <c@d>"), "<a@b>");
        assert_eq!(found("Message-ID:\r\n <a@b>"), "<a@b>", "folded");
        assert_eq!(found("Message-ID: <a b>"), "", "two words");
        assert_eq!(found("Message-ID:\r\nSubject: x"), "", "the next line is another field");
        assert_eq!(found("Subject: x"), "", "the body does not count");
    }
}
