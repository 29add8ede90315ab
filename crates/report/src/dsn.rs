//! Delivery status notifications (RFC 3461, RFC 3464).

mod explanation;
mod kind;
mod original;
mod status;
mod text;
mod unmailed;

use crate::texts::Texts;
use explanation::{explanation, subject};
pub use kind::DsnKind;
use mail::{
    Attempt, Cause, Content, Disposition, Envelope, ForwardPath, Mailbox, Message, Outcome, QueueId,
    Recipient, Ret, UnixMillis,
};
use original::{can_go_back_whole, is_convertible, message_id, returned};
use status::status;
use std::{collections::HashMap, fmt::Write as _};

pub use original::{RETURNED_MAX_BYTES, is_auto_submitted};
pub use unmailed::Unmailed;

/// The texts of all recipients together; each is told twice, and what failed for a thousand need not be told
/// each of them at length.
const TEXTS_MAX_BYTES: usize = 256 * 1024;

/// What a report says besides the outcomes.
#[derive(Debug, Clone, Copy)]
pub struct DsnContext<'a> {
    /// The host name in `Reporting-MTA` (RFC 3464 §2.2.2).
    pub reporting_mta: &'a str,
    /// To whom double bounces go, and readers are referred.
    pub postmaster: &'a Mailbox,
    /// In the languages of the site.
    pub texts: &'a Texts,
    /// The attempt, with the remote host that replied about each recipient.
    pub attempt: &'a Attempt,
    /// The last attempts for recipients whose outcome is not that of an attempt: a delay, an expiry.
    pub earlier: &'a [EarlierAttempt<'a>],
    /// When the report is made.
    pub now: UnixMillis,
    /// The time at which a delayed message expires.
    pub gives_up: UnixMillis,
    /// The beginning of the original content, at least its header if that is not larger than
    /// [`RETURNED_MAX_BYTES`].
    pub content: &'a [u8],
}

/// The last attempt for a recipient, before the time of the report.
#[derive(Debug, Clone, Copy)]
pub struct EarlierAttempt<'a> {
    /// By position in the envelope.
    pub index: u32,
    /// `Last-Attempt-Date` of the recipient (RFC 3464 §2.3.7).
    pub at: UnixMillis,
    /// The server, as [`Attempt::relay`], and its reply; `None` if none answered.
    pub answer: Option<(&'a str, &'a str)>,
}

/// What a report says of one recipient.
struct Row<'a> {
    recipient: &'a Recipient,
    outcome: &'a Outcome,
    /// The server that said `text`, perhaps empty; `None` if these are words of this server.
    relay: Option<&'a str>,
    text: &'a str,
    /// The end of the last attempt; `None` if there was none, or if nobody knows.
    attempted: Option<UnixMillis>,
}

impl Row<'_> {
    /// Returns the name of the server that said the text. One that nobody knows any more is that of the domain.
    fn server(&self) -> Option<&str> {
        let domain = || self.recipient.path.as_str().rsplit_once('@').map_or("", |(_, domain)| domain);
        self.relay.map(|relay| if relay.is_empty() { domain() } else { relay })
    }
}

/// Everything that the parts of a report are written from.
struct Report<'a> {
    kind: DsnKind,
    original: &'a Message,
    rows: Vec<Row<'a>>,
    context: &'a DsnContext<'a>,
    id: QueueId,
    /// The reverse-path of the copies that the report is about.
    to: &'a Mailbox,
    /// True if a mailing list sent the message on: ENVID and RET of the message are not for its owner.
    is_of_list: bool,
    /// True if the report has addresses in UTF-8 (RFC 6533).
    is_utf8: bool,
}

/// Composes the report on these recipients (`affected`, by index into the envelope), whose copies all have the same
/// reverse-path. The report has the null reverse-path, so that no report is ever made on it (RFC 5321 §4.5.5), except
/// one to the postmaster. Returns `None` if the sender is null or wants no report (RFC 3461 §4.1).
pub fn compose(
    kind: DsnKind,
    original: &Message,
    affected: &[(u32, Outcome)],
    context: &DsnContext<'_>,
    id: QueueId,
) -> Option<Message> {
    let report = Report::new(kind, original, affected, context, id)?;
    let mut text = String::with_capacity(4096);
    explanation(&mut text, &report);
    status(&mut text, &report);
    let ret = original.envelope.ret.filter(|_| !report.is_of_list);
    // A notification may leave without TLS: it has only the header (RFC 8689 §5).
    let needs_tls = original.envelope.options.as_ref().is_some_and(|options| options.requiretls);
    let whole_goes_back = kind.returns_content() && ret != Some(Ret::Headers) && !needs_tls;
    let whole_goes_back = whole_goes_back && can_go_back_whole(original, context);
    let complete = |whole| {
        let mut parts = text.as_bytes().to_vec();
        returned(&mut parts, whole, context, id);
        let mut head = String::with_capacity(1024 + parts.len());
        header(&mut head, &report, encoding(&parts));
        let mut bytes = head.into_bytes();
        bytes.append(&mut parts);
        bytes
    };
    let mut bytes = complete(whole_goes_back);
    // Next hops that take UTF-8 in the header take 8-bit content as well (RFC 6531 §3.1).
    if whole_goes_back && !report.is_utf8 && !bytes.is_ascii() && !is_convertible(&bytes) {
        bytes = complete(false);
    }
    let mut envelope = Envelope::new(mail::ReversePath::Null);
    let mut recipient = Recipient::new(ForwardPath::Mailbox(report.to.clone()));
    recipient.notify = mail::Notify::NEVER;
    envelope.recipients = vec![recipient];
    envelope.smtputf8 = report.is_utf8;
    if !bytes.is_ascii() {
        envelope.body = mail::BodyType::EightBit;
    }
    Some(Message {
        id,
        arrived: context.now,
        origin: kind.origin(),
        envelope,
        content: Content::from_bytes(bytes),
    })
}

impl<'a> Report<'a> {
    fn new(
        kind: DsnKind,
        original: &'a Message,
        affected: &'a [(u32, Outcome)],
        context: &'a DsnContext<'a>,
        id: QueueId,
    ) -> Option<Self> {
        let (envelope, first) = (&original.envelope, affected.first()?.0);
        let to = match (kind, envelope.reverse_path_of(first)) {
            (DsnKind::DoubleBounce, _) => context.postmaster,
            (_, mail::ReversePath::Mailbox(sender)) => sender,
            (_, mail::ReversePath::Null) => return None,
        };
        // Nobody waits for mail that a program sends by itself, and a warning is not the last word on it (RFC 3834 §2).
        let is_automatic = kind == DsnKind::Delayed && is_auto_submitted(context.content);
        let wanted = |recipient: &Recipient| {
            kind.is_wanted(recipient.notify) && (recipient.notify.explicit || !is_automatic)
        };
        let earlier: HashMap<u32, &EarlierAttempt<'_>> =
            context.earlier.iter().map(|attempt| (attempt.index, attempt)).collect();
        let row = |(index, outcome): &'a (u32, Outcome)| {
            let recipient = envelope.recipients.get(*index as usize)?;
            let last = earlier.get(index);
            let (relay, text) = match last.and_then(|last| last.answer) {
                // An operator's words are about the end of the message.
                Some((relay, text)) if outcome.cause != Cause::Returned => (Some(relay), text),
                // A report on success goes to the sender of the message, who must not see paths of this machine.
                _ if outcome.disposition == Disposition::Delivered && !outcome.from_remote => {
                    (None, outcome.text.split('/').next().unwrap_or_default().trim_end())
                }
                _ => (outcome.from_remote.then(|| context.attempt.answered_by(*index).0), &*outcome.text),
            };
            let is_of_attempt = kind != DsnKind::Delayed && !outcome.cause.is_without_attempt();
            let attempted = last.map(|last| last.at).or_else(|| is_of_attempt.then_some(context.now));
            Some(Row { recipient, outcome, relay, text, attempted })
        };
        let rows: Vec<Row<'_>> =
            affected.iter().filter_map(row).filter(|row| wanted(row.recipient)).collect();
        if rows.is_empty() {
            return None;
        }
        let is_of_list = envelope.recipients.get(first as usize).is_some_and(Recipient::is_of_list);
        // Who has an address in ASCII may have a server without SMTPUTF8: addresses in UTF-8 are then escaped, and
        // every server can take the report (RFC 6533 §3).
        let is_utf8 = !to.as_str().is_ascii();
        Some(Self { kind, original, rows, context, id, to, is_of_list, is_utf8 })
    }
}

fn boundary(id: QueueId) -> String {
    format!("{id}=_dsn")
}

/// The field that names the encoding, where it is not the usual one. What contains a part of 8 bits has 8 bits
/// itself (RFC 2045 §6.4).
fn encoding(bytes: &[u8]) -> &'static str {
    if bytes.is_ascii() { "" } else { "Content-Transfer-Encoding: 8bit\r\n" }
}

fn header(out: &mut String, report: &Report<'_>, encoding: &str) {
    let Report { context, id, .. } = report;
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
         Content-Type: multipart/report; report-type={kind};\r\n\tboundary=\"{boundary}\"\r\n\
         {encoding}",
        to = report.to,
        subject = subject(report),
        kind = if report.is_utf8 { "global-delivery-status" } else { "delivery-status" },
        boundary = boundary(*id),
    );
    if let Some(reference) = message_id(context.content) {
        let _ = write!(out, "References: {reference}\r\n");
    }
    out.push_str("\r\nThis is a MIME-encapsulated message.\r\n\r\n");
}

/// Returns the beginning of a text for which one recipient has room.
fn beginning(text: &str, row_count: usize) -> &str {
    let share = (TEXTS_MAX_BYTES / row_count).clamp(128, 2048);
    &text[..text.floor_char_boundary(share)]
}

#[cfg(test)]
#[path = "dsn_tests.rs"]
mod tests;
