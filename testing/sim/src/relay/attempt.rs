//! Transactions of clients: what each client gave and was told, and the message that must come of it.
//!
//! The message is computed from what the client read and from the checks' judgments, with no code of the acceptor.

use super::{
    checks::{What, attempt_of},
    oracle::{Oracle, Who, sender, who},
};
use bytes::Bytes;
use mail::{DeliveryOptions, Envelope, Message, Origin, QueueId, Recipient, ReversePath};
use smtp::server::replies;
use std::fmt::Write as _;

/// One RCPT, and what the client heard.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) who: Who,
    pub(super) recipient: Recipient,
    /// The reply was 250.
    pub(super) is_accepted: bool,
}

/// One transaction of a client, as the oracle keeps it.
#[derive(Debug)]
pub(super) struct Attempt {
    /// Of the mail that is sent.
    pub(super) n: u64,
    pub(super) given: Vec<Given>,
    pub(super) options: DeliveryOptions,
    /// Up to the final dot.
    pub(super) content_sent: bool,
    /// The reply to the content, once the client has read it.
    told: Option<String>,
    /// What was handed to the spool.
    stored: Option<Stored>,
}

impl Attempt {
    /// Returns a transaction whose content was not sent yet.
    pub(super) fn new(n: u64, given: Vec<Given>, options: DeliveryOptions) -> Self {
        Self { n, given, options, content_sent: false, told: None, stored: None }
    }
}

/// A message as it must be from the spool to the next hop.
#[derive(Debug, Clone)]
struct Stored {
    id: QueueId,
    envelope: Envelope,
    /// Without the trace field.
    content: Bytes,
}

/// What the decisions of the checks make of an attempt.
struct Expected {
    envelope: Envelope,
    content: Bytes,
    is_held: bool,
    is_discarded: bool,
}

/// The attempt that a message is of; none for reports.
fn number_of(message: &Message) -> Option<u64> {
    let Origin::Smtp { helo, .. } = &message.origin else { return None };
    attempt_of(helo)
}

/// The content behind its first field, which is the trace field.
fn without_trace(content: &[u8]) -> &[u8] {
    let ends = |at: &usize| {
        content[*at..].starts_with(b"\r\n") && !matches!(content.get(at + 2), Some(b' ' | b'\t'))
    };
    let end = (0..content.len()).find(ends);
    end.map_or(content, |end| &content[end + 2..])
}

impl Oracle {
    /// What must come of an attempt, if its message is accepted.
    fn expected(&self, number: u64) -> Expected {
        let attempt = &self.attempts[&number];
        let accepted: Vec<&Given> = attempt.given.iter().filter(|given| given.is_accepted).collect();
        let sender = ReversePath::parse(&sender(attempt.n), false).expect("an address");
        let mut envelope = Envelope::new(sender);
        envelope.options = attempt.options.clone().boxed();
        let mut to: Vec<(Who, Option<Recipient>)> =
            accepted.iter().map(|given| (given.who, Some(given.recipient.clone()))).collect();
        let (mut copies, mut fields) = (Vec::new(), String::new());
        let (mut is_held, mut is_discarded) = (false, false);
        self.judgments.with(|judgments| {
            for decision in judgments.judged(number).iter().flat_map(|judged| &judged.decisions) {
                // What was decided of a recipient that is refused is void.
                let place = decision.of.map(|who| to.iter().position(|(one, _)| *one == who));
                if place == Some(None) {
                    continue;
                }
                match (&decision.what, place.flatten()) {
                    (What::Field(line), _) => _ = write!(fields, "{line}\r\n"),
                    (What::Redirect(other), Some(at)) => to[at].1 = Some((**other).clone()),
                    (What::Discard, Some(at)) => to[at].1 = None,
                    (What::Discard, None) => is_discarded = true,
                    (What::Copy(copy), _) => copies.push((**copy).clone()),
                    (What::Hold, _) => is_held = true,
                    (What::Redirect(_), None) => unreachable!("recipients are redirected"),
                }
            }
        });
        envelope.recipients = to.into_iter().filter_map(|(_, recipient)| recipient).collect();
        is_discarded |= envelope.recipients.is_empty();
        envelope.recipients.extend(copies);
        let sent = &self.mails[&attempt.n].content;
        let end = sent.windows(4).position(|window| window == b"\r\n\r\n").expect("a header") + 2;
        let content = [&sent[..end], fields.as_bytes(), &sent[end..]].concat().into();
        Expected { envelope, content, is_held, is_discarded }
    }

    /// A message of a client was handed to the spool: it is what was decided, and its client awaits a reply.
    pub(super) fn submitted(&mut self, message: &Message, is_held: bool, content: &[u8]) {
        let id = message.id;
        let Some(number) = number_of(message).filter(|number| self.attempts.contains_key(number)) else {
            return self.violations.push(format!("{id} is a message that no client sent"));
        };
        let expected = self.expected(number);
        let attempt = &self.attempts[&number];
        if !attempt.content_sent {
            self.violations.push(format!("{id} is stored, and its content was never sent"));
        }
        if let Some(told) = &attempt.told {
            self.violations.push(format!("{id} is stored after its client was told {told}"));
        }
        if let Some(before) = &attempt.stored {
            self.violations.push(format!("{id} and {} are of one transaction", before.id));
        }
        let of = |recipient: &Recipient| who(recipient.path.as_str());
        let refused = attempt.given.iter().filter(|given| !given.is_accepted).find(|given| {
            message.envelope.recipients.iter().any(|recipient| of(recipient) == Some(given.who))
        });
        if let Some(Given { who, .. }) = refused {
            self.violations.push(format!("{id}: {who:?} was refused, and is stored"));
        }
        if expected.is_discarded {
            self.violations.push(format!("{id} was discarded, and is stored"));
        }
        if expected.envelope != message.envelope {
            let (is, should) = (&message.envelope, &expected.envelope);
            self.violations.push(format!("{id}: the envelope is {is:?}, and was decided to be {should:?}"));
        }
        if expected.is_held != is_held {
            self.violations.push(format!("{id}: held is {is_held}, and was decided to be otherwise"));
        }
        self.violations.extend(other_content(id, content, &expected.content));
        let Expected { envelope, content, .. } = expected;
        let all: Vec<Who> = message.envelope.recipients.iter().filter_map(of).collect();
        all.iter().for_each(|who| *self.copies.entry(*who).or_default() += 1);
        self.ids.insert(id, all);
        self.attempts.get_mut(&number).expect("it is there").stored = Some(Stored { id, envelope, content });
    }

    /// A message is in the queue: its client is answered 250, is gone, or was told to try again because the disk was late.
    pub(super) fn queued(&mut self, message: &Message, is_late: bool) {
        let told = number_of(message).and_then(|number| self.attempts.get(&number)?.told.as_deref());
        if let Some(told) = told.filter(|told| !is_late || told.starts_with("250")) {
            self.violations.push(format!("{} is queued after its client was told {told}", message.id));
        }
    }

    /// A client has read the reply to its content.
    pub(super) fn told(&mut self, number: u64, reply: &str) {
        let is_discarded = self.expected(number).is_discarded;
        let attempt = self.attempts.get_mut(&number).expect("it was begun");
        attempt.told = Some(reply.to_owned());
        let accepted = attempt.given.iter().filter(|given| given.is_accepted).map(|given| given.who);
        let open = &mut self.mails.get_mut(&attempt.n).expect("it is there").open;
        if reply.starts_with(['2', '5']) {
            accepted.for_each(|(_, k)| _ = open.remove(&k));
        }
        match &attempt.stored {
            Some(stored) if reply.starts_with("250") => {
                if !reply.ends_with(&format!(" {}", stored.id)) {
                    self.violations.push(format!("{} was answered {reply}", stored.id));
                }
                let promised =
                    stored.envelope.recipients.iter().filter(|to| to.notify != mail::Notify::NEVER);
                self.acknowledged.extend(promised.filter_map(|to| who(to.path.as_str())));
                self.acknowledged_count += 1;
            }
            None if reply.starts_with("250") && !is_discarded => {
                self.violations.push(format!("attempt {number} was told {reply}, and nothing was stored"));
            }
            None if reply.starts_with("250") => self.discarded_count += 1,
            Some(stored) if !may_be_stored(reply) => {
                self.violations.push(format!("{} is stored, and its client was told {reply}", stored.id));
            }
            _ => {}
        }
    }

    /// A message that a restart found, or that is given to delivery, is the one that was handed to the spool.
    pub(super) fn check_stored(&mut self, message: &Message) {
        let Some(number) = number_of(message) else { return };
        let Some(stored) = self.attempts.get(&number).and_then(|attempt| attempt.stored.as_ref()) else {
            return self.violations.push(format!("{} was never handed to the spool", message.id));
        };
        if stored.envelope != message.envelope || stored.id != message.id {
            let (id, is) = (message.id, &message.envelope);
            self.violations.push(format!("{id} has the envelope {is:?}, and not {stored:?}"));
        }
        if let Some(content) = message.content.in_memory() {
            self.violations.extend(other_content(message.id, &content, &stored.content));
        }
    }

    /// A message arrived for a recipient, from this reverse-path and at the hosts of a domain; none: at a host for all.
    pub(super) fn check_arrival(&mut self, who: Who, from: &str, at: Option<&str>, content: &[u8]) {
        let text = String::from_utf8_lossy(&content[..content.len().min(80)]).into_owned();
        let number = text.strip_prefix("Received: from ").and_then(attempt_of);
        let stored = number.and_then(|number| self.attempts.get(&number)?.stored.as_ref());
        let Some(stored) = stored else {
            return self.violations.push(format!("{who:?} arrived, and no client sent it: {text}"));
        };
        let is_meant = |to: &Recipient| self::who(to.path.as_str()) == Some(who);
        let Some(index) = stored.envelope.recipients.iter().position(is_meant) else {
            return self.violations.push(format!("{who:?} got {}, which is not for them", stored.id));
        };
        if stored.envelope.reverse_path_of(index as u32).as_str() != from {
            self.violations.push(format!("{who:?} arrived from {from}"));
        }
        let domain = stored.envelope.recipients[index].path.mailbox().map(|mailbox| mailbox.domain().key());
        if let Some(at) = at.filter(|at| Some(*at) != domain.as_deref()) {
            self.violations.push(format!("{who:?} arrived at the hosts of {at}"));
        }
        self.violations.extend(other_content(stored.id, content, &stored.content));
    }
}

/// Says how content with its trace field differs from what was decided, if it does.
fn other_content(id: QueueId, content: &[u8], decided: &[u8]) -> Option<String> {
    let header = |content: &[u8]| {
        let text = String::from_utf8_lossy(content).into_owned();
        text.split_once("\r\n\r\n").map_or(text.clone(), |(header, _)| header.to_owned())
    };
    let content = without_trace(content);
    let differs = content != decided;
    differs.then(|| format!("{id} is not as decided: {:?}, not {:?}", header(content), header(decided)))
}

/// Replies after which a message may be stored all the same: the disk was late, full, or failed.
fn may_be_stored(reply: &str) -> bool {
    [replies::NOT_STORED_YET, replies::NO_ROOM, replies::LOCAL_ERROR]
        .iter()
        .any(|late| late.to_string() == reply)
}
