//! Queue files of Postfix: records of a type, a length and data, as `rec_type.h` of Postfix lists them.
//!
//! A file has an envelope, the content, and an envelope that was extracted from the header. Recipients that are finished
//! are marked in place. A pointer record leads to records that were added or replaced later.

use crate::{
    queued::{Damage, LastAttempt, QueuedMessage, QueuedRecipient},
    wire,
};
use mail::{BodyType, Enhanced, ForwardPath, Notify, Ret, UnixMillis};
use std::collections::HashMap;

/// The directory of a queue file decides what Postfix would do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Mail of local programs that was not taken over yet.
    Maildrop,
    /// Mail that the queue manager has not seen yet.
    Incoming,
    /// Mail that was about to be delivered.
    Active,
    /// Mail that is tried again later.
    Deferred,
    /// Mail that an operator or a rule holds.
    Hold,
}

impl Queue {
    /// All queues with messages, in the order of a message's way.
    pub const ALL: [Self; 5] = [Self::Maildrop, Self::Incoming, Self::Active, Self::Deferred, Self::Hold];

    /// Returns the name of the queue's directory below the spool.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Maildrop => "maildrop",
            Self::Incoming => "incoming",
            Self::Active => "active",
            Self::Deferred => "deferred",
            Self::Hold => "hold",
        }
    }
}

/// A record: its type and its data.
#[derive(Debug, Clone, Copy)]
struct Record<'a> {
    kind: u8,
    data: &'a [u8],
    /// Offset behind the record.
    next: usize,
}

/// The length of a record has 7 bits in each byte, the lowest first.
fn record(file: &[u8], at: usize) -> Result<Record<'_>, Damage> {
    let kind = *file.get(at).ok_or_else(|| Damage::new("the file ends before its last record"))?;
    let (mut length, mut shift, mut begin) = (0usize, 0u32, at + 1);
    loop {
        let byte = *file.get(begin).ok_or_else(|| Damage::new("the file ends within a record"))?;
        begin += 1;
        if shift > 28 {
            return Err(Damage::new(format!("the record at {at} has a length that is too large")));
        }
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let end = begin.checked_add(length).filter(|end| *end <= file.len());
    let end = end.ok_or_else(|| Damage::new("the file ends within a record"))?;
    Ok(Record { kind, data: &file[begin..end], next: end })
}

/// The part of the file that a record is in: two record types have another meaning in the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segment {
    Envelope,
    Content,
    Extracted,
}

/// Attributes of the recipient record that follows.
#[derive(Debug, Default)]
struct Pending {
    orcpt: Option<Box<str>>,
    notify: Option<u32>,
}

impl Pending {
    fn recipient(&mut self, path: ForwardPath) -> QueuedRecipient {
        let Self { orcpt, notify } = std::mem::take(self);
        QueuedRecipient::new(path, notify_of(notify), orcpt)
    }
}

/// `DSN_NOTIFY_*` of Postfix.
fn notify_of(bits: Option<u32>) -> Notify {
    match bits {
        None | Some(0) => Notify::default(),
        Some(bits) => {
            Notify { success: bits & 2 != 0, failure: bits & 4 != 0, delay: bits & 8 != 0, explicit: true }
        }
    }
}

/// State of a file that is read.
struct Reader<'a> {
    domain: &'a str,
    message: QueuedMessage,
    segment: Segment,
    pending: Pending,
    has_sender: bool,
    /// A line of the content that goes on in the next record.
    is_open_line: bool,
    redirect: Option<ForwardPath>,
}

/// Reads a queue file. `domain` is added to addresses without one: `myorigin`.
///
/// # Errors
/// The file is not a whole message, or has an address that no server can send mail to.
pub fn read(file: &[u8], id: &str, queue: Queue, domain: &str) -> Result<QueuedMessage, Damage> {
    let mut message = QueuedMessage::new(id);
    message.held = queue == Queue::Hold;
    let mut reader = Reader {
        domain,
        message,
        segment: Segment::Envelope,
        pending: Pending::default(),
        has_sender: false,
        is_open_line: false,
        redirect: None,
    };
    // A pointer leads anywhere: a file of a loop of pointers must come to an end.
    let (mut at, mut jumps_left) = (0, file.len() / 2);
    loop {
        let record = record(file, at)?;
        at = record.next;
        match record.kind {
            b'E' => break,
            b'p' => {
                let target: usize =
                    number(record.data).ok_or_else(|| Damage::new("a pointer without a number"))?;
                if target > 0 {
                    jumps_left =
                        jumps_left.checked_sub(1).ok_or_else(|| Damage::new("pointers in a loop"))?;
                    at = target;
                }
            }
            _ => reader.take(record)?,
        }
    }
    reader.finish(queue)
}

fn number<T: std::str::FromStr>(data: &[u8]) -> Option<T> {
    std::str::from_utf8(data).ok()?.trim().parse().ok()
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

impl Reader<'_> {
    fn take(&mut self, record: Record<'_>) -> Result<(), Damage> {
        match (self.segment, record.kind) {
            (Segment::Content, b'N') => {
                self.message.content.extend_from_slice(record.data);
                self.message.content.extend_from_slice(b"\r\n");
                self.is_open_line = false;
            }
            (Segment::Content, b'L') => {
                self.message.content.extend_from_slice(record.data);
                self.is_open_line = true;
            }
            (Segment::Content, b'X') => self.segment = Segment::Extracted,
            // Padding.
            (Segment::Content, _) => {}
            (_, b'M') => self.segment = Segment::Content,
            (Segment::Envelope | Segment::Extracted, _) => self.envelope(record)?,
        }
        Ok(())
    }

    fn envelope(&mut self, record: Record<'_>) -> Result<(), Damage> {
        let said = text(record.data);
        let message = &mut self.message;
        match record.kind {
            b'C' => {
                // Size, offset of the content, recipients, flags of the queue manager, length, flags of SMTPUTF8.
                let flags = said.split_ascii_whitespace().nth(5).and_then(|flags| flags.parse::<u32>().ok());
                message.smtputf8 = flags.is_some_and(|flags| flags & 1 != 0);
            }
            b'T' => {
                let mut parts = said.split_ascii_whitespace().map(str::parse::<u64>);
                let seconds = parts.next().and_then(Result::ok);
                let seconds = seconds.ok_or_else(|| Damage::new("a time that is no number"))?;
                let micros = parts.next().and_then(Result::ok).unwrap_or(0).min(999_999);
                message.arrived_us = seconds.saturating_mul(1_000_000).saturating_add(micros);
            }
            b'S' if !self.has_sender => {
                message.reverse_path = wire::reverse_path(&wire::quoted(&said), self.domain)?;
                self.has_sender = true;
            }
            b'R' => {
                let recipient =
                    self.pending.recipient(wire::forward_path(&wire::quoted(&said), self.domain)?);
                message.recipients.push(recipient);
            }
            b'D' | b'/' => {
                self.pending = Pending::default();
                message.finished.push(said);
            }
            b'o' if !said.is_empty() => self.pending.orcpt = Some(wire::printable(&said).into()),
            b'n' => self.pending.notify = said.trim().parse().ok(),
            b'i' => message.envid = wire::parameter(&said),
            b'<' => {
                message.ret = match said.trim() {
                    "1" => Some(Ret::Full),
                    "2" => Some(Ret::Headers),
                    _ => None,
                };
            }
            b'A' => self.attribute(&said),
            b'>' => self.redirect = Some(wire::forward_path(&wire::quoted(&said), self.domain)?),
            b'L' => message.notes.push(format!(
                "Postfix would send it through the filter {}; Postrider sends it to its next hop",
                wire::printable(&said)
            )),
            b'V' => message.notes.push("Postfix would send it with VERP; see addresses.verp".to_owned()),
            _ => {}
        }
        Ok(())
    }

    fn attribute(&mut self, said: &str) {
        let Some((name, value)) = said.split_once('=') else { return };
        match (name.trim(), value.trim()) {
            ("encoding", "8bit") => self.message.body = BodyType::EightBit,
            ("sasl_username", login) if !login.is_empty() && !login.chars().any(char::is_control) => {
                self.message.options.login = Some(login.into());
            }
            ("requiretls" | "tls_required", "yes") => self.message.options.requiretls = true,
            _ => {}
        }
    }

    fn finish(mut self, queue: Queue) -> Result<QueuedMessage, Damage> {
        if self.is_open_line {
            self.message.content.extend_from_slice(b"\r\n");
        }
        if !self.has_sender || self.message.arrived_us == 0 {
            return Err(Damage::new("the envelope has no sender or no time"));
        }
        if self.segment == Segment::Envelope {
            return Err(Damage::new("the file has no content"));
        }
        if let Some(redirect) = self.redirect {
            for one in &mut self.message.recipients {
                one.recipient.path = redirect.clone();
            }
        }
        if queue == Queue::Maildrop {
            complete_header(&mut self.message, self.domain);
        }
        if queue == Queue::Deferred {
            self.message.attempt_count = 1;
        }
        Ok(self.message)
    }
}

/// Adds the fields that Postfix adds to mail of local programs when it takes such mail over (RFC 6409 §8).
fn complete_header(message: &mut QueuedMessage, domain: &str) {
    let mut added = String::new();
    if !wire::has_field(&message.content, "From") {
        let from = match message.reverse_path.as_str() {
            "" => format!("MAILER-DAEMON@{domain}"),
            sender => sender.to_owned(),
        };
        added.push_str(&format!("From: {from}\r\n"));
    }
    if !wire::has_field(&message.content, "Date") {
        added.push_str(&format!("Date: {}\r\n", message.arrived().rfc5322()));
    }
    if !wire::has_field(&message.content, "Message-ID") {
        added.push_str(&format!("Message-ID: <{}.{}@{domain}>\r\n", message.arrived_us, message.id));
    }
    if !added.is_empty() {
        message.content.splice(0..0, added.into_bytes());
    }
}

/// Reads the log of deferrals that Postfix keeps for a message (`defer/ID`): the last reason of each recipient.
pub fn deferrals(file: &[u8], at: UnixMillis) -> HashMap<String, LastAttempt> {
    let mut found = HashMap::new();
    let (mut recipient, mut status, mut reason) = (None, Enhanced(4, 0, 0), String::new());
    let text = String::from_utf8_lossy(file);
    for line in text.lines().chain(std::iter::once("")) {
        if line.is_empty() {
            if let Some(recipient) = recipient.take() {
                let text = wire::printable(&std::mem::take(&mut reason));
                found.insert(recipient, LastAttempt { at, status, text });
            }
            (status, reason) = (Enhanced(4, 0, 0), String::new());
            continue;
        }
        match line.split_once('=') {
            Some(("recipient", value)) => recipient = Some(value.to_owned()),
            Some(("status", value)) => status = temporary(value),
            Some(("reason", value)) => value.clone_into(&mut reason),
            _ => {}
        }
    }
    found
}

/// Returns a status of the class 4; 4.0.0 for others.
pub(crate) fn temporary(text: &str) -> Enhanced {
    let mut parts = text.trim().split('.').map(str::parse::<u16>);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(Ok(4)), Some(Ok(subject)), Some(Ok(detail)), None) if subject < 1000 && detail < 1000 => {
            Enhanced(4, subject, detail)
        }
        _ => Enhanced(4, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(file: &mut Vec<u8>, kind: u8, data: &[u8]) {
        file.push(kind);
        let mut length = data.len();
        loop {
            let byte = (length & 0x7f) as u8;
            length >>= 7;
            file.push(if length > 0 { byte | 0x80 } else { byte });
            if length == 0 {
                break;
            }
        }
        file.extend_from_slice(data);
    }

    fn file(records: &[(u8, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        records.iter().for_each(|(kind, data)| push(&mut file, *kind, data));
        file
    }

    const LONG: &[u8] = &[b'x'; 300];

    #[test]
    fn a_queue_file_is_a_message_with_the_recipients_that_are_left() {
        let file = file(&[
            (b'C', b"            300             200               2               0             300               1"),
            (b'T', b"1700000000 42"),
            (b'A', b"encoding=8bit"),
            (b'A', b"sasl_username=jane"),
            (b'<', b"2"),
            (b'i', b"a+2Bb"),
            (b'S', b"a@src.test"),
            (b'o', b"rfc822;done@dst.test"),
            (b'O', b"done@dst.test"),
            (b'D', b"done@dst.test"),
            (b'o', b"rfc822;list@dst.test"),
            (b'n', b"6"),
            (b'O', b"list@dst.test"),
            (b'R', b"b@dst.test"),
            (b'R', b"c@dst.test"),
            (b'M', b""),
            (b'N', b"Subject: x"),
            (b'N', b""),
            (b'N', b".dot"),
            (b'L', LONG),
            (b'N', b"end"),
            (b'w', b"padding"),
            (b'X', b""),
            (b'E', b""),
        ]);
        let message = read(&file, "4A", Queue::Hold, "mx.test").unwrap();
        assert_eq!(
            (message.arrived_us, message.key()),
            (1_700_000_000_000_042, "4A 1700000000.000042".to_owned())
        );
        assert!(message.held && message.smtputf8 && message.body == BodyType::EightBit);
        assert_eq!((message.ret, message.envid.as_deref()), (Some(Ret::Headers), Some("a+b")));
        assert_eq!(message.options.login.as_deref(), Some("jane"));
        assert_eq!(message.finished, ["done@dst.test"]);
        let recipients: Vec<_> = message.recipients.iter().map(|one| &one.recipient).collect();
        assert_eq!(recipients[0].orcpt.as_deref(), Some("rfc822;list@dst.test"));
        assert!(recipients[0].notify.success && recipients[0].notify.failure && !recipients[0].notify.delay);
        assert_eq!((recipients[1].path.as_str(), recipients[1].notify), ("c@dst.test", Notify::default()));
        let body = [b"Subject: x\r\n\r\n.dot\r\n", LONG, b"end\r\n"].concat();
        assert_eq!(message.content, body);
    }

    #[test]
    fn pointers_lead_to_added_records_and_loops_end() {
        let mut with_pointer =
            file(&[(b'T', b"1 0"), (b'S', b""), (b'R', b"b@dst.test"), (b'M', b""), (b'N', b"A: 1")]);
        let place = with_pointer.len();
        push(&mut with_pointer, b'p', b"              0");
        push(&mut with_pointer, b'N', b"C: 3");
        let back = with_pointer.len();
        push(&mut with_pointer, b'E', b"");
        let added = with_pointer.len();
        push(&mut with_pointer, b'N', b"B: 2");
        push(&mut with_pointer, b'p', format!("{:15}", place + 17).as_bytes());
        let pointer = format!("{added:15}");
        with_pointer[place + 2..place + 17].copy_from_slice(pointer.as_bytes());
        assert_eq!(with_pointer[back], b'E');
        let message = read(&with_pointer, "1", Queue::Incoming, "").unwrap();
        assert_eq!(message.content, b"A: 1\r\nB: 2\r\nC: 3\r\n");
        let looped = file(&[(b'T', b"1 0"), (b'p', b"0"), (b'p', b"5")]);
        assert!(read(&looped, "1", Queue::Incoming, "").is_err());
        let on_itself = file(&[(b'p', b" 1"), (b'p', b"0")]);
        assert!(read(&on_itself, "1", Queue::Incoming, "").is_err());
    }

    #[test]
    fn addresses_that_the_file_has_without_quotes_get_them() {
        let whole = file(&[
            (b'T', b"1 0"),
            (b'S', b"j r@src.test"),
            (b'R', b"a b@dst.test"),
            (b'R', b"b@dst.test"),
            (b'M', b""),
            (b'N', b"x"),
            (b'X', b""),
            (b'E', b""),
        ]);
        let message = read(&whole, "1", Queue::Deferred, "mx.test").unwrap();
        assert_eq!(message.reverse_path.as_str(), "\"j r\"@src.test");
        let paths: Vec<&str> = message.recipients.iter().map(|one| one.recipient.path.as_str()).collect();
        assert_eq!(paths, ["\"a b\"@dst.test", "b@dst.test"]);
    }

    #[test]
    fn damage_is_named() {
        let whole =
            file(&[(b'T', b"1 0"), (b'S', b"a@b.test"), (b'M', b""), (b'N', b"x"), (b'X', b""), (b'E', b"")]);
        assert!(read(&whole, "1", Queue::Active, "").is_ok());
        for length in 0..whole.len() {
            assert!(read(&whole[..length], "1", Queue::Active, "").is_err(), "{length}");
        }
        let bad = file(&[(b'T', b"1 0"), (b'S', b""), (b'R', b"joe@a b"), (b'M', b""), (b'E', b"")]);
        let error = read(&bad, "1", Queue::Active, "mx.test").unwrap_err();
        assert_eq!(error.0, "the recipient \"joe@a b\": bad domain");
    }

    #[test]
    fn mail_of_local_programs_gets_the_fields_that_it_lacks() {
        let file = file(&[
            (b'T', b"1700000000 0"),
            (b'S', b"root"),
            (b'R', b"joe"),
            (b'M', b""),
            (b'N', b"Subject: x"),
            (b'X', b""),
            (b'E', b""),
        ]);
        let message = read(&file, "2B", Queue::Maildrop, "mx.test").unwrap();
        assert_eq!(message.recipients[0].recipient.path.as_str(), "joe@mx.test");
        let content = String::from_utf8(message.content).unwrap();
        assert_eq!(
            content,
            "From: root@mx.test\r\nDate: Tue, 14 Nov 2023 22:13:20 +0000\r\n\
             Message-ID: <1700000000000000.2B@mx.test>\r\nSubject: x\r\n"
        );
    }

    #[test]
    fn the_log_of_deferrals_has_a_reason_for_each_recipient() {
        let log = "<b@dst.test>: refused\nrecipient=b@dst.test\noffset=1\nstatus=4.4.1\naction=delayed\n\
                   reason=connect to x: refused\n\nrecipient=c@dst.test\nstatus=5.1.1\nreason=no\n";
        let found = deferrals(log.as_bytes(), UnixMillis(7));
        let of_b = &found["b@dst.test"];
        assert_eq!((of_b.status, &*of_b.text), (Enhanced(4, 4, 1), "connect to x: refused"));
        assert_eq!(found["c@dst.test"].status, Enhanced(4, 0, 0));
    }
}
