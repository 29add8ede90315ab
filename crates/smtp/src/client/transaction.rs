//! A transaction of a client connection, and the server's answers for its recipients.

use super::Capabilities;
use crate::xtext;
use mail::seven_bit::Plan;
use mail::{
    BodyType, Cause, ContentTraits, DeliverBy, DeliverByMode, Disposition, Enhanced, Notify, Outcome,
    Recipient, Reply, ReplyStage, ReplyTo, Ret, ReversePath, SharedMessage,
};
use std::{io::Write as _, sync::Arc};

/// A message to some of its recipients.
#[derive(Debug, Clone)]
pub struct Transaction {
    /// The id of the transaction, chosen by the caller.
    pub id: u64,
    /// The message to send; its envelope may have more recipients than this transaction.
    pub message: SharedMessage,
    /// Indexes into its envelope's recipients.
    /// All of them have copies with the same reverse-path: see [`mail::Envelope::together`].
    pub recipients: Vec<u32>,
    /// The time that is left until the deadline of the message, in seconds (RFC 2852 §4.1.2); 0 without a deadline.
    pub deliver_by_seconds: i32,
}

impl Transaction {
    fn first(&self) -> u32 {
        self.recipients.first().copied().unwrap_or(u32::MAX)
    }

    fn reverse_path(&self) -> &ReversePath {
        self.message.envelope.reverse_path_of(self.first())
    }

    /// Returns the deadline for its recipients.
    fn deliver_by(&self) -> Option<DeliverBy> {
        self.message.envelope.deliver_by(self.first())
    }

    /// Returns whether a mailing list sends the message, with an envelope of its own.
    fn is_of_list(&self) -> bool {
        self.message.envelope.recipients.get(self.first() as usize).is_some_and(Recipient::is_of_list)
    }
}

/// The result of a transaction for one recipient.
#[derive(Debug, PartialEq, Eq)]
pub struct RecipientResult {
    /// The recipient's index in the envelope.
    pub index: u32,
    /// The outcome of the transaction for this recipient.
    pub outcome: Outcome,
}

impl From<RecipientResult> for (u32, Outcome) {
    fn from(result: RecipientResult) -> Self {
        (result.index, result.outcome)
    }
}

/// A transaction in flight, with the answers so far.
#[derive(Debug)]
pub(super) struct TransactionState {
    pub(super) transaction: Transaction,
    /// Parallel to the recipients: the answers that are known.
    pub(super) answers: Vec<Option<Outcome>>,
    /// The server has accepted MAIL, so it has an open transaction.
    pub(super) is_open: bool,
    pub(super) content_sent: bool,
    /// The conversion of the content to 7 bits.
    pub(super) conversion: Option<Arc<Plan>>,
    /// RCPT commands that the server accepted.
    pub(super) accepted_count: usize,
}

impl TransactionState {
    pub(super) fn new(
        transaction: Transaction,
        capabilities: &Capabilities,
        conversion: Option<Arc<Plan>>,
    ) -> Self {
        let answers = unsupported_recipients(&transaction, capabilities);
        Self { transaction, answers, is_open: false, content_sent: false, conversion, accepted_count: 0 }
    }

    /// Gives all recipients without an answer this answer.
    pub(super) fn answer_rest(&mut self, answer: &Outcome) {
        for slot in self.answers.iter_mut().filter(|slot| slot.is_none()) {
            *slot = Some(answer.clone());
        }
    }

    /// Returns the number of recipients that the server has accepted, or not answered yet.
    pub(super) fn open_count(&self) -> usize {
        self.answers.iter().filter(|slot| slot.is_none()).count()
    }

    /// Returns the first recipient without an outcome from `from` on.
    pub(super) fn next_open(&self, from: usize) -> Option<usize> {
        (from..self.answers.len()).find(|i| self.answers[*i].is_none())
    }

    pub(super) fn results(self) -> Vec<RecipientResult> {
        let unknown = || Outcome::deferred(Enhanced(4, 5, 0), "the server's reply is missing");
        let answers = self.answers.into_iter().map(|answer| answer.unwrap_or_else(unknown));
        let rows = self.transaction.recipients.into_iter().zip(answers);
        rows.map(|(index, outcome)| RecipientResult { index, outcome }).collect()
    }
}

/// The command that sends the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentCommand {
    Data,
    /// BDAT with one chunk, for content that DATA cannot carry.
    Bdat,
}

/// "System not capable of selected features" (RFC 3463 §3.4): the next hop keeps no deadlines.
const NO_DELIVER_BY: Enhanced = Enhanced(5, 3, 3);
/// "Delivery time expired" (RFC 3463 §3.5).
const DEADLINE_OVER: Enhanced = Enhanced(5, 4, 7);

/// Returns the command for the content, or the reason why the server cannot take the message (RFC 1870 §6.3, RFC 3030
/// §3, RFC 6152 §3, RFC 6531 §3.5, RFC 2852 §4). Converted content is text of 7 bits. `is_final_hop`: the server delivers
/// and does not relay.
pub(super) fn content_command(
    t: &Transaction,
    c: &Capabilities,
    is_converted: bool,
    eight_bit_anyway: bool,
    is_final_hop: bool,
    may_require_tls: bool,
) -> Result<ContentCommand, Outcome> {
    let fail = |status, text: &str| Err(Outcome::failed(status, text));
    let (content, e) = (&t.message.content, &t.message.envelope);
    // The sender prefers a failure to a hop without (RFC 8689 §4.2.1).
    if e.options.as_ref().is_some_and(|options| options.requiretls) && !may_require_tls {
        let text = "the sender requires TLS (REQUIRETLS), but the next hop does not offer REQUIRETLS over a verified connection";
        return fail(Enhanced(5, 7, 30), text);
    }
    if let Some(by) = t.deliver_by()
        && by.mode == DeliverByMode::Return
        && !is_final_hop
    {
        match c.deliver_by {
            None => {
                return fail(
                    NO_DELIVER_BY,
                    "the sender set a deadline (DELIVERBY), which the next hop does not offer to keep",
                );
            }
            Some(least) if i64::from(t.deliver_by_seconds) < i64::from(least.max(1)) => {
                return fail(
                    DEADLINE_OVER,
                    &format!(
                        "{} s are left of the deadline that the sender set (DELIVERBY), the next hop wants {least} s",
                        t.deliver_by_seconds.max(0)
                    ),
                );
            }
            Some(_) => {}
        }
    }
    if let Some(Some(max)) = c.size
        && content.size_bytes() > max
    {
        return fail(
            Enhanced(5, 3, 4),
            &format!("the message has {} bytes, the next hop takes {max}", content.size_bytes()),
        );
    }
    let ContentTraits { is_8bit, is_binary, has_utf8_header, .. } = content.traits;
    let needs_utf8 = !t.reverse_path().as_str().is_ascii()
        || t.recipients.iter().all(|index| needs_smtputf8(t, *index))
        || (e.smtputf8 && has_utf8_header);
    if needs_utf8 && !c.smtputf8 {
        return fail(Enhanced(5, 6, 7), "the next hop does not offer SMTPUTF8, which the message needs");
    }
    if is_converted {
        return Ok(ContentCommand::Data);
    }
    if is_binary {
        return if c.takes_binary() {
            Ok(ContentCommand::Bdat)
        } else {
            fail(Enhanced(5, 6, 3), "the next hop does not offer BINARYMIME, which the message needs")
        };
    }
    // A DSN that is not sent is lost: there is no sender to report to.
    if is_8bit && !c.eight_bit && !eight_bit_anyway && !t.message.is_report() {
        return fail(Enhanced(5, 6, 3), "the next hop does not offer 8BITMIME, which the message needs");
    }
    Ok(ContentCommand::Data)
}

/// Returns the outcomes of recipients whose addresses the server does not support; the message goes to the others.
pub(super) fn unsupported_recipients(t: &Transaction, c: &Capabilities) -> Vec<Option<Outcome>> {
    let outcome = |index: &u32| {
        let text = "the next hop does not offer SMTPUTF8, which the address needs";
        (!c.smtputf8 && needs_smtputf8(t, *index)).then(|| Outcome::failed(Enhanced(5, 6, 7), text))
    };
    t.recipients.iter().map(outcome).collect()
}

fn needs_smtputf8(t: &Transaction, index: u32) -> bool {
    let path = &t.message.envelope.recipients[index as usize].path;
    path.mailbox().is_some_and(mail::Mailbox::needs_smtputf8)
}

/// Appends MAIL with the parameters that the server offers. The size of converted content is not known yet.
pub(super) fn write_mail(
    out: &mut Vec<u8>,
    state: &TransactionState,
    c: &Capabilities,
    content_command: ContentCommand,
) {
    let t = &state.transaction;
    let (e, traits) = (&t.message.envelope, t.message.content.traits);
    let is_converted = state.conversion.is_some();
    let _ = write!(out, "MAIL FROM:<{}>", t.reverse_path());
    if c.size.is_some() && !is_converted {
        let _ = write!(out, " SIZE={}", t.message.content.size_bytes());
    }
    if is_converted {
        // BODY=7BIT is the default.
    } else if content_command == ContentCommand::Bdat {
        out.extend_from_slice(b" BODY=BINARYMIME");
    } else if c.eight_bit && (traits.is_8bit || e.body == BodyType::EightBit) {
        out.extend_from_slice(b" BODY=8BITMIME");
    }
    if c.smtputf8 && (e.smtputf8 || !t.reverse_path().as_str().is_ascii()) {
        out.extend_from_slice(b" SMTPUTF8");
    }
    if let Some(options) = &e.options {
        if options.requiretls && c.requiretls {
            out.extend_from_slice(b" REQUIRETLS");
        }
        if let (Some(by), Some(_)) = (t.deliver_by(), c.deliver_by) {
            let mode = if by.mode == DeliverByMode::Return { 'R' } else { 'N' };
            let trace = if by.trace { "T" } else { "" };
            let _ = write!(out, " BY={};{mode}{trace}", t.deliver_by_seconds);
        }
        if let Some(priority) = options.priority.filter(|_| c.mt_priority) {
            let _ = write!(out, " MT-PRIORITY={}", priority.value());
        }
        match &options.auth {
            Some(submitter) if !c.auth.is_empty() => {
                out.extend_from_slice(b" AUTH=");
                match submitter {
                    ReversePath::Null => out.extend_from_slice(b"<>"),
                    ReversePath::Mailbox(mailbox) => xtext::encode(mailbox.as_str(), out),
                }
            }
            _ => {}
        }
    }
    if c.dsn && !t.is_of_list() {
        match e.ret {
            Some(Ret::Full) => out.extend_from_slice(b" RET=FULL"),
            Some(Ret::Headers) => out.extend_from_slice(b" RET=HDRS"),
            None => {}
        }
        if let Some(envid) = &e.envid {
            out.extend_from_slice(b" ENVID=");
            xtext::encode(envid, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends one RCPT.
pub(super) fn write_rcpt(out: &mut Vec<u8>, recipient: &Recipient, c: &Capabilities) {
    let _ = write!(out, "RCPT TO:<{}>", recipient.path);
    if c.dsn {
        write_notify(out, recipient.notify);
        if let Some((kind, address)) = recipient.orcpt.as_deref().and_then(|o| o.split_once(';')) {
            let _ = write!(out, " ORCPT={kind};");
            xtext::encode(address, out);
        }
    }
    out.extend_from_slice(b"\r\n");
}

fn write_notify(out: &mut Vec<u8>, notify: Notify) {
    if !notify.explicit {
        return;
    }
    let words = [(notify.success, "SUCCESS"), (notify.failure, "FAILURE"), (notify.delay, "DELAY")];
    let words: Vec<&str> = words.iter().filter(|w| w.0).map(|w| w.1).collect();
    let _ = write!(out, " NOTIFY={}", if words.is_empty() { "NEVER".to_owned() } else { words.join(",") });
}

/// Returns the outcome that a reply means. The text of a refusal names the command.
pub(super) fn answer_to(reply: &Reply, stage: ReplyStage) -> Outcome {
    let mut outcome = Outcome::from_reply(reply, stage);
    if outcome.disposition != Disposition::Delivered {
        outcome.text = format!("{} (in reply to {})", outcome.text, stage.as_str()).into();
        let enhanced = reply.enhanced.or_else(|| Some(Enhanced::parse_prefix(reply.text())?.0));
        outcome.cause = Cause::Reply(ReplyTo { enhanced, ..ReplyTo::new(reply, stage) });
    }
    outcome
}
