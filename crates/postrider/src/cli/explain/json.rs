//! The object of `postrider why --json`. docs/history.md describes each field. Later versions only add fields.

use super::{
    advice::advice,
    past::{Past, PastRecipient},
    retry_command, warned_at,
};
use ::history::StoredEvent;
use console::timeline;
use control::{AttemptInfo, MessageInfo, RecipientInfo};
use mail::{QueueId, UnixMillis};
use report::UnixMicros;
use serde::Serialize;
use std::io::{self, Write};

/// Raised when fields change their meaning.
const VERSION: u32 = 1;

/// A message. Times are in UTC, as in the JSON log.
#[derive(Serialize)]
struct Explanation {
    v: u32,
    id: String,
    /// The time that the explanation is for.
    at: String,
    /// The origin of the state: `queue`, with the events of the history, or `history` alone.
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<String>,
    /// True if the message has left the queue.
    finished: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    warned_at: Option<String>,
    recipients: Vec<Recipient>,
    /// Recipients that no event of the history names.
    unnamed_recipients: usize,
    /// In the form of the JSON log.
    events: Vec<serde_json::Value>,
}

/// What became of one recipient.
#[derive(Serialize, Default)]
struct Recipient {
    address: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    expanded_from: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    return_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    status: serde_json::Value,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<Attempt>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_at: Option<String>,
    /// What to do about the last reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    down_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fails_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warns_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// The attempt that is under way for the recipient.
#[derive(Serialize)]
struct Attempt {
    #[serde(skip_serializing_if = "String::is_empty")]
    server: String,
    step: String,
    silent_since: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier: Option<String>,
}

impl Attempt {
    fn of(attempt: &AttemptInfo) -> Self {
        Self {
            server: attempt.server.clone(),
            step: attempt.step.clone(),
            silent_since: UnixMillis(attempt.since_ms).rfc3339(),
            earlier: attempt.earlier.clone(),
        }
    }
}

/// Prints a message of the queue. `past`: its events, if the history can be read.
pub(super) fn print_queued(
    message: &MessageInfo,
    past: Option<&[StoredEvent]>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let of = |r: &RecipientInfo| Recipient {
        address: r.address.clone(),
        expanded_from: r.expanded_from.clone(),
        return_path: r.return_path.clone(),
        destination: Some(r.destination.clone()),
        status: serde_json::to_value(r.status).unwrap_or_default(),
        attempts: r.attempt_count,
        attempt: r.attempt.as_ref().map(Attempt::of),
        last: r.last.clone(),
        last_at: time(r.last_ms),
        advice: r.last.as_deref().and_then(advice),
        next_at: time(r.next_ms),
        reason: r.reason.clone(),
        down_since: time(r.wait.and_then(|wait| wait.down_since_ms)),
        others: r.wait.map(|wait| wait.others),
        fails_at: time(r.wait.and_then(|wait| wait.expires_ms)),
        warns_at: time(r.wait.and_then(|wait| wait.warns_ms)),
        command: r.wait.and_then(|_| retry_command(message.id.0, r.status)).map(|(command, _)| command),
    };
    let is_known = message.damaged.is_none();
    let explanation = Explanation {
        v: VERSION,
        id: message.id.0.to_string(),
        at: UnixMillis::now().rfc3339(),
        source: "queue",
        sender: is_known.then(|| message.sender.clone()),
        size: Some(message.size_bytes),
        accepted_at: time(Some(message.arrived_ms)),
        origin: is_known.then(|| message.origin.clone()),
        hold_reason: message.hold_reason.clone(),
        damaged: message.damaged.clone(),
        finished: false,
        warned_at: past.and_then(warned_at).map(|at| at.millis().rfc3339()),
        recipients: message.recipients.iter().map(of).collect(),
        unnamed_recipients: 0,
        events: events(past.unwrap_or_default()),
    };
    print(&explanation, out)
}

/// Prints a message as the history says.
pub(super) fn print_past(
    id: QueueId,
    at: UnixMicros,
    past: &Past<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let of = |r: &PastRecipient| Recipient {
        address: r.address.clone(),
        destination: r.destination.clone(),
        status: r.state.word().into(),
        attempts: r.attempt_count,
        last: r.last.as_ref().map(|(_, text)| text.clone()),
        last_at: r.last.as_ref().map(|(at, _)| at.millis().rfc3339()),
        advice: r.last.as_ref().and_then(|(_, text)| advice(text)),
        next_at: r.next.map(UnixMillis::rfc3339),
        ..Recipient::default()
    };
    let accepted = past.accepted.as_ref();
    let explanation = Explanation {
        v: VERSION,
        id: id.to_string(),
        at: at.millis().rfc3339(),
        source: "history",
        sender: accepted.map(|(_, a)| a.from.to_owned()),
        size: accepted.map(|(_, a)| a.size_bytes),
        accepted_at: accepted.map(|(at, _)| at.millis().rfc3339()),
        origin: accepted.map(|(_, a)| a.origin.to_owned()),
        hold_reason: past.hold_reason(),
        damaged: None,
        finished: past.is_finished,
        warned_at: past.warned.map(|at| at.millis().rfc3339()),
        recipients: past.recipients.iter().map(of).collect(),
        unnamed_recipients: past.unnamed_count(),
        events: events(past.events),
    };
    print(&explanation, out)
}

fn time(unix_ms: Option<u64>) -> Option<String> {
    unix_ms.map(|ms| UnixMillis(ms).rfc3339())
}

fn events(all: &[StoredEvent]) -> Vec<serde_json::Value> {
    all.iter().filter_map(|stored| Some(timeline::json(stored.at, &stored.event()?))).collect()
}

fn print(explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    console::print::json(explanation, out)
}
