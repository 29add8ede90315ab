//! Delivery status notifications (RFC 3461, RFC 3464).

mod original;
mod text;

use mail::{
    Content, DeliveryOptions, Envelope, ForwardPath, Message, Origin, Outcome, QueueId, Recipient,
    ReversePath, UnixMillis,
};
use original::{can_go_back_whole, is_convertible, message_id, returned};
use std::{fmt::Write as _, net::IpAddr};
use text::{address_field, ascii, clean, escaped, folded_field, wrapped};

pub use original::RETURNED_MAX_BYTES;

/// The texts of all recipients together; each is told twice, and what failed for a thousand need not be told
/// each of them at length.
const TEXTS_MAX_BYTES: usize = 256 * 1024;

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
    /// The message has a deadline (RFC 2852), and went to a host that does not keep deadlines; or the sender wants to be
    /// told by each relay.
    DeadlineRelayed,
}

impl DsnKind {
    fn action(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Delayed => "delayed",
            Self::Delivered => "delivered",
            Self::Relayed | Self::DeadlineRelayed => "relayed",
        }
    }

    fn subject(self) -> &'static str {
        match self {
            Self::Failed => "Undelivered mail returned to sender",
            Self::Delayed => "Delayed mail (still being retried)",
            Self::Delivered => "Successful mail delivery report",
            Self::Relayed => "Mail relayed without further report",
            Self::DeadlineRelayed => "Mail with a deadline relayed",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Failed => {
                "Your message could not be delivered to the recipients below. It will not be\r\n\
                 tried again; the reason follows each of them.\r\n"
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
            Self::DeadlineRelayed => {
                "Your message with a deadline was passed on to another server for the recipients\r\n\
                 below. Unless that server keeps deadlines (DELIVERBY), yours may not be met.\r\n"
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
        DsnKind::DeadlineRelayed => recipient.notify != mail::Notify::NEVER,
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
    if let Some(options) = &original.envelope.options {
        asked_for(&mut text, options);
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

/// Writes the times that the sender asked for (RFC 2852 §5, RFC 4865 §6).
fn asked_for(out: &mut String, options: &DeliveryOptions) {
    if let Some(by) = options.deliver_by {
        let _ = write!(out, "Deliver-By-Date: {}\r\n", by.deadline.rfc5322());
    }
    if let Some(release) = options.release {
        let _ = write!(out, "Future-Release-Request: until; {}\r\n", release.rfc3339());
    }
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

#[cfg(test)]
#[path = "dsn_tests.rs"]
mod tests;
