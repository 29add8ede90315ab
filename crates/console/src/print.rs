//! Messages for people: mailq's look.

use control::{MessageInfo, RecipientInfo, Status};
use jiff::{Timestamp, tz::TimeZone};
use std::{
    fmt::Write as _,
    io::{self, Write},
};

/// Writes a value as a line of JSON in which every character is seen.
pub fn json(value: &impl serde::Serialize, out: &mut dyn Write) -> io::Result<()> {
    let mut line = Vec::new();
    report::write_json(&mut line, value)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// `Sat Nov 21 06:25:54` in local time.
pub fn short_time(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    let zoned = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(TimeZone::system());
    zoned.strftime("%a %b %e %H:%M:%S").to_string()
}

/// `06:25:54` in local time.
pub fn clock_time(unix_ms: u64) -> String {
    date_time(unix_ms).split_off("2026-11-21 ".len())
}

/// `2026-11-21 06:25:54` in local time.
pub fn date_time(unix_ms: u64) -> String {
    let ms = i64::try_from(unix_ms).unwrap_or(i64::MAX);
    let zoned = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX).to_zoned(TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Text that others chose, safe for a terminal: no control characters, nothing that ends a line, and format characters as
/// `\u{202e}`.
pub fn plain(text: &str) -> String {
    let safe = |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { '?' } else { c };
    let text: String = mail::plain_text(text).chars().map(safe).collect();
    mail::escape_invisible(&text).into_owned()
}

/// Shows in the text behind it each character that would not be seen, as [`mail::escape_invisible`] does.
pub struct Visible<'a>(pub &'a mut dyn Write);

impl Write for Visible<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(mail::escape_invisible(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Makes a line of content safe for a terminal as [`plain`] does, but keeps tabs, because folded header fields begin with one.
pub fn plain_content(line: &str) -> String {
    line.split('\t').map(plain).collect::<Vec<_>>().join("\t")
}

/// `<>` for the null path, as people write it.
pub fn sender(message: &MessageInfo) -> String {
    match (&message.damaged, message.sender.is_empty()) {
        (Some(_), _) => UNKNOWN.to_owned(),
        (None, true) => "MAILER-DAEMON".to_owned(),
        (None, false) => plain(&message.sender),
    }
}

/// In brackets, as people write it.
pub fn address(recipient: &RecipientInfo) -> String {
    let address = &recipient.address;
    if address.is_empty() { UNKNOWN.to_owned() } else { format!("<{}>", plain(address)) }
}

/// An address that cannot be read.
const UNKNOWN: &str = "(unknown)";

/// The head of the list, printed before its first message.
pub const HEAD: &str = "----Queue ID---- --Size-- ---Arrival Time---- --Sender/Recipient------";

/// Behind the id: `*` an attempt is under way, `!` held.
fn mark(message: &MessageInfo) -> char {
    let any = |status| message.recipients.iter().any(|r| r.status == status);
    if any(Status::InFlight) {
        '*'
    } else if any(Status::Held) {
        '!'
    } else {
        ' '
    }
}

/// One message with the recipients that are left, and a blank line.
pub fn message(message: &MessageInfo, out: &mut dyn Write) -> io::Result<()> {
    let id = format!("{}{}", message.id.0, mark(message));
    let (arrived, sender) = (short_time(message.arrived_ms), sender(message));
    writeln!(out, "{id:<16} {:>8} {arrived:<19}  {sender}", message.size_bytes)?;
    if let Some(why) = &message.damaged {
        writeln!(out, "    (its record is damaged: {})", plain(why))?;
    }
    if let Some(reason) = &message.hold_reason {
        writeln!(out, "    ({})", plain(&control::held_text(reason)))?;
    }
    let mut said = None;
    for recipient in message.recipients.iter().filter(|r| r.status != Status::Done) {
        let reason = reason(recipient);
        // Recipients that wait for the same reason share it, as in mailq.
        if !reason.is_empty() && said.as_ref() != Some(&reason) {
            writeln!(out, "    ({reason})")?;
        }
        said = Some(reason);
        let name = if recipient.address.is_empty() { &recipient.destination } else { &recipient.address };
        writeln!(out, "{:47}{}", "", plain(name))?;
    }
    writeln!(out)
}

fn reason(recipient: &RecipientInfo) -> String {
    let mut text = recipient.last.as_deref().map(plain).unwrap_or_default();
    let now = mail::UnixMillis::now().0;
    if let Some(attempt) = recipient.attempt.as_ref().filter(|attempt| attempt.is_notable(now)) {
        let _ = write!(text, "{}{}", if text.is_empty() { "" } else { "; now " }, plain(&attempt.text(now)));
    }
    if let Some(next) = recipient.next_ms {
        let _ = write!(text, "{}next attempt {}", if text.is_empty() { "" } else { "; " }, short_time(next));
    }
    text
}

/// `-- 3 Kbytes in 1 Request.`, as scripts expect it.
pub fn foot(count: u64, bytes: u64) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("-- {} Kbytes in {count} Request{plural}.", bytes.div_ceil(1024))
}

/// `1 message`, `2 messages`.
pub fn messages(count: u64) -> String {
    mail::counted(count, "message")
}
