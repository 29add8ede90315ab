//! Delivery status notifications (RFC 3461, RFC 3464).

use mail::{
    Content, Envelope, ForwardPath, Message, Origin, Outcome, QueueId, Recipient, Ret, ReversePath,
    UnixMillis, header::LINE_LENGTH_MAX, seven_bit::Scan,
};
use std::{borrow::Cow, fmt::Write as _, net::IpAddr};

/// As much of the original content as a report ever returns; more than that, and its header goes back alone.
pub const RETURNED_MAX_BYTES: usize = 64 * 1024;

/// The texts of all recipients together; each is told twice, and what failed for a thousand need not be told
/// each of them at length.
const TEXTS_MAX_BYTES: usize = 256 * 1024;

/// Longest line where there are spaces (RFC 5322 §2.1.1).
const LINE_BYTES: usize = 78;

/// Longest piece of a line in which there are none.
const WORD_MAX_BYTES: usize = 900;

/// The kind of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DsnKind {
    /// The recipient failed for good.
    Failed,
    /// The message is late, and still tried.
    Delayed,
    /// The message was delivered, and the sender asked for a report.
    Delivered,
    /// The message went to a host that sends no DSNs, and the sender asked for a report.
    Relayed,
}

impl DsnKind {
    fn action(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Relayed => "relayed",
        }
    }

    fn subject(self) -> &'static str {
        match self {
            Self::Failed => "Undelivered mail returned to sender",
            Self::Delayed => "Delayed mail (still being retried)",
            Self::Delivered => "Successful mail delivery report",
            Self::Relayed => "Mail relayed without further report",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Failed => {
                "Your message could not be delivered to the recipients below. It will not be\r\n\
                 tried again; the reason stands behind each of them.\r\n"
            }
            Self::Delayed => {
                "Your message could not be delivered to the recipients below yet. THIS IS A\r\n\
                 WARNING ONLY: you need not send it again, it will be tried for some time.\r\n"
            }
            Self::Delivered => "Your message was delivered to the recipients below.\r\n",
            Self::Relayed => {
                "Your message for the recipients below was passed on to a server that makes no\r\n\
                 reports of success: this is the last you hear of it, unless it fails.\r\n"
            }
        }
    }
}

/// The context of a report.
#[derive(Debug, Clone, Copy)]
pub struct DsnContext<'a> {
    /// The name of this server.
    pub reporting_mta: &'a str,
    /// The remote host that replied: `mx.example.com[192.0.2.1]:25`, or empty.
    pub relay: &'a str,
    /// The time of the report.
    pub now: UnixMillis,
    /// The time at which a delayed message expires.
    pub gives_up: UnixMillis,
    /// The beginning of the original content, at least its header if that is not larger than
    /// [`RETURNED_MAX_BYTES`].
    pub content: &'a [u8],
}

/// Composes the report on these recipients (`affected`, by index into the envelope). The report has the null
/// reverse-path, so that no report is ever made on it (RFC 5321 §4.5.5). Returns `None` if the sender is null or wants
/// no report (RFC 3461 §4.1).
pub fn compose(
    kind: DsnKind,
    original: &Message,
    affected: &[(u32, Outcome)],
    context: &DsnContext<'_>,
    id: QueueId,
) -> Option<Message> {
    let ReversePath::Mailbox(sender) = &original.envelope.reverse_path else { return None };
    let wanted = |recipient: &Recipient| match kind {
        DsnKind::Failed => recipient.notify.failure,
        DsnKind::Delayed => recipient.notify.delay,
        DsnKind::Delivered | DsnKind::Relayed => recipient.notify.success,
    };
    let rows: Vec<(&Recipient, &Outcome)> = affected
        .iter()
        .filter_map(|(index, outcome)| Some((original.envelope.recipients.get(*index as usize)?, outcome)))
        .filter(|(recipient, _)| wanted(recipient))
        .collect();
    if rows.is_empty() {
        return None;
    }
    // Who has an address in ASCII may have a server without SMTPUTF8: addresses in UTF-8 are then escaped, and
    // every server can take the report (RFC 6533 §3).
    let is_utf8 = !sender.as_str().is_ascii();
    let mut text = String::with_capacity(4096);
    explanation(&mut text, kind, &rows, context, id);
    status(&mut text, kind, original, &rows, context, id, is_utf8);
    let whole_goes_back = kind == DsnKind::Failed && can_go_back_whole(original, context);
    let complete = |whole| {
        let mut parts = text.as_bytes().to_vec();
        returned(&mut parts, whole, context, id);
        let mut head = String::with_capacity(1024 + parts.len());
        header(&mut head, kind, original, context, id, (is_utf8, encoding(&parts)));
        let mut bytes = head.into_bytes();
        bytes.append(&mut parts);
        bytes
    };
    let mut bytes = complete(whole_goes_back);
    // Next hops that take UTF-8 in the header take 8-bit content as well (RFC 6531 §3.1).
    if whole_goes_back && !is_utf8 && !bytes.is_ascii() && !is_convertible(&bytes) {
        bytes = complete(false);
    }
    let mut envelope = Envelope::new(ReversePath::Null);
    let mut recipient = Recipient::new(ForwardPath::Mailbox(sender.clone()));
    recipient.notify = mail::Notify::NEVER;
    envelope.recipients = vec![recipient];
    envelope.smtputf8 = is_utf8;
    if !bytes.is_ascii() {
        envelope.body = mail::BodyType::EightBit;
    }
    Some(Message {
        id,
        arrived: context.now,
        origin: Origin::Dsn,
        envelope,
        content: Content::from_bytes(bytes),
    })
}

fn boundary(id: QueueId) -> String {
    format!("{id}=_dsn")
}

/// The field that names the encoding, where it is not the usual one. What contains a part of 8 bits has 8 bits
/// itself (RFC 2045 §6.4).
fn encoding(bytes: &[u8]) -> &'static str {
    if bytes.is_ascii() { "" } else { "Content-Transfer-Encoding: 8bit\r\n" }
}

fn header(
    out: &mut String,
    kind: DsnKind,
    original: &Message,
    context: &DsnContext<'_>,
    id: QueueId,
    (is_utf8, encoding): (bool, &str),
) {
    let host = context.reporting_mta;
    let date = context.now.rfc5322();
    let _ = write!(
        out,
        "Received: by {host} (Postrider)\r\n\tid {id}; {date}\r\n\
         Date: {date}\r\n\
         From: Mail Delivery System <MAILER-DAEMON@{host}>\r\n\
         To: <{to}>\r\n\
         Subject: {subject}\r\n\
         Message-ID: <{id}@{host}>\r\n\
         Auto-Submitted: auto-replied\r\n\
         MIME-Version: 1.0\r\n\
         Content-Type: multipart/report; report-type={report};\r\n\tboundary=\"{boundary}\"\r\n\
         {encoding}",
        to = original.envelope.reverse_path,
        subject = kind.subject(),
        report = if is_utf8 { "global-delivery-status" } else { "delivery-status" },
        boundary = boundary(id),
    );
    if let Some(reference) = message_id(context.content) {
        let _ = write!(out, "References: {reference}\r\n");
    }
    out.push_str("\r\nThis is a MIME-encapsulated message.\r\n\r\n");
}

fn explanation(
    out: &mut String,
    kind: DsnKind,
    rows: &[(&Recipient, &Outcome)],
    context: &DsnContext<'_>,
    id: QueueId,
) {
    let mut text =
        format!("This is the mail system at {}.\r\n\r\n{}\r\n", context.reporting_mta, kind.words());
    for (recipient, outcome) in rows {
        let _ = write!(text, "<{}>:\r\n", recipient.path);
        wrapped(&mut text, &saying(outcome, rows.len(), context.relay));
    }
    let _ = write!(
        out,
        "--{}\r\nContent-Description: Notification\r\nContent-Type: text/plain; charset=utf-8\r\n\
         {}\r\n{text}\r\n",
        boundary(id),
        encoding(text.as_bytes()),
    );
}

/// `mx.example.com[192.0.2.1]:25 said: 550 5.1.1 no such user`.
fn saying(outcome: &Outcome, row_count: usize, relay: &str) -> String {
    let text = clean(text_of(outcome, row_count));
    match (outcome.from_remote, relay.is_empty()) {
        (true, false) => format!("{relay} said: {text}"),
        _ => text,
    }
}

/// Returns the room for the text of one recipient.
fn text_of(outcome: &Outcome, row_count: usize) -> &str {
    let share = (TEXTS_MAX_BYTES / row_count).clamp(128, 2048);
    &outcome.text[..outcome.text.floor_char_boundary(share)]
}

/// Writes an indented text, in lines that stay within the length that RFC 5322 §2.1.1 recommends where there are
/// spaces.
fn wrapped(out: &mut String, text: &str) {
    let mut length = 0;
    for word in text.split(' ') {
        if length > 0 && length + word.len() > LINE_BYTES - 4 {
            out.push_str("\r\n");
            length = 0;
        }
        out.push_str(if length == 0 { "    " } else { " " });
        // A single word must not make a line too long.
        for (i, piece) in pieces(word, WORD_MAX_BYTES).enumerate() {
            out.push_str(if i == 0 { "" } else { "\r\n    " });
            out.push_str(piece);
        }
        length += word.len() + 1;
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

/// Writes the part for programs (RFC 3464 §2).
fn status(
    out: &mut String,
    kind: DsnKind,
    original: &Message,
    rows: &[(&Recipient, &Outcome)],
    context: &DsnContext<'_>,
    id: QueueId,
    is_utf8: bool,
) {
    let media = if is_utf8 { "message/global-delivery-status" } else { "message/delivery-status" };
    let mut text = format!(
        "Reporting-MTA: dns; {}\r\nX-Postrider-Queue-ID: {}\r\nArrival-Date: {}\r\n",
        context.reporting_mta,
        original.id,
        original.arrived.rfc5322(),
    );
    if let Some(envid) = &original.envelope.envid {
        let _ = write!(text, "Original-Envelope-Id: {}\r\n", ascii(envid));
    }
    for (recipient, outcome) in rows {
        one_recipient(&mut text, kind, recipient, outcome, rows.len(), context, is_utf8);
    }
    let _ = write!(
        out,
        "--{}\r\nContent-Description: Delivery report\r\nContent-Type: {media}\r\n{}\r\n{text}\r\n",
        boundary(id),
        encoding(text.as_bytes()),
    );
}

fn one_recipient(
    out: &mut String,
    kind: DsnKind,
    recipient: &Recipient,
    outcome: &Outcome,
    row_count: usize,
    context: &DsnContext<'_>,
    is_utf8: bool,
) {
    out.push_str("\r\n");
    if let Some(orcpt) = &recipient.orcpt {
        let orcpt = clean(orcpt);
        address_field(out, "Original-Recipient", &if is_utf8 { orcpt } else { escaped(&orcpt, "") });
    }
    let address = match recipient.path.as_str() {
        address if address.is_ascii() => format!("rfc822; {address}"),
        address if is_utf8 => format!("utf-8; {address}"),
        address => format!("utf-8; {}", escaped(address, "\\+= ")),
    };
    address_field(out, "Final-Recipient", &address);
    let _ = write!(out, "Action: {}\r\nStatus: {}\r\n", kind.action(), outcome.status);
    if let Some(name) = remote_mta(context.relay).filter(|_| outcome.from_remote) {
        let _ = write!(out, "Remote-MTA: dns; {name}\r\n");
    }
    let diagnostic = if outcome.from_remote { "smtp" } else { "X-Postrider" };
    let text = text_of(outcome, row_count);
    let text = if is_utf8 { clean(text) } else { ascii(text) };
    folded_field(out, "Diagnostic-Code", &format!("{diagnostic}; {text}"));
    let _ = write!(out, "Last-Attempt-Date: {}\r\n", context.now.rfc5322());
    if kind == DsnKind::Delayed {
        let _ = write!(out, "Will-Retry-Until: {}\r\n", context.gives_up.rfc5322());
    }
}

/// The host's name, or its address as a literal (RFC 3464 §2.1.2, RFC 5321 §4.1.3), from a relay such as
/// `mx.example.com[192.0.2.1]:25`. A socket in the file system has none.
fn remote_mta(relay: &str) -> Option<String> {
    let (host, _) = relay.rsplit_once('[')?;
    match host.parse() {
        Ok(IpAddr::V4(ip)) => Some(format!("[{ip}]")),
        Ok(IpAddr::V6(ip)) => Some(format!("[IPv6:{ip}]")),
        Err(_) => Some(ascii(host)).filter(|host| !host.is_empty()),
    }
}

/// Appends a field that is cut only where its line would be too long for any server: a cut adds a space to what
/// is read.
fn address_field(out: &mut String, name: &str, text: &str) {
    let _ = write!(out, "{name}: ");
    for (i, piece) in pieces(text, WORD_MAX_BYTES).enumerate() {
        out.push_str(if i == 0 { "" } else { "\r\n " });
        out.push_str(piece);
    }
    out.push_str("\r\n");
}

/// Appends a field, folded at its spaces (RFC 5322 §2.2.3).
fn folded_field(out: &mut String, name: &str, text: &str) {
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

/// Returns whether a report on a failure can contain the original as it is, and should (RFC 3461 §4.3).
fn can_go_back_whole(original: &Message, context: &DsnContext<'_>) -> bool {
    original.envelope.ret != Some(Ret::Headers)
        && !original.content.traits.is_binary
        && original.content.size_bytes() == context.content.len() as u64
        && context.content.len() <= RETURNED_MAX_BYTES
}

/// Returns whether a report can be written in 7 bits for a next hop without 8BITMIME. A message/rfc822 must not be
/// encoded as a whole (RFC 2046 §5.2.1), and some messages cannot be encoded part by part. A header alone always
/// can: text/rfc822-headers and message/global-headers may be encoded (RFC 6522 §4, RFC 6533).
fn is_convertible(report: &[u8]) -> bool {
    let mut scan = Scan::default();
    scan.push(report);
    scan.finish().is_ok()
}

/// Appends the original (`whole`) or its header. Of a message that is late or delivered the header is enough.
fn returned(out: &mut Vec<u8>, whole: bool, context: &DsnContext<'_>, id: QueueId) {
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
fn message_id(content: &[u8]) -> Option<String> {
    let name = b"message-id:";
    let header = header_of(content);
    let line = header
        .split(|b| *b == b'\n')
        .find(|line| line.len() > name.len() && line[..name.len()].eq_ignore_ascii_case(name))?;
    let value = std::str::from_utf8(&line[name.len()..]).ok()?.trim();
    let is_plain =
        value.starts_with('<') && value.ends_with('>') && value.bytes().all(|b| b.is_ascii_graphic());
    (is_plain && value.len() < 900).then(|| value.to_owned())
}

/// Removes control characters of a remote server.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// An internationalized address in a report that is none (RFC 6533 §3): `j\x{F6}rg@example.com`. `others` are
/// ASCII characters that are escaped, too.
fn escaped(text: &str, others: &str) -> String {
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
fn ascii(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() && !c.is_control() { c } else { '?' }).collect()
}

#[cfg(test)]
#[path = "dsn_tests.rs"]
mod tests;
