//! Events of the history as lines for people, and as JSON.

use crate::print;
use history::StoredEvent;
use mail::QueueId;
use report::{
    Event, UnixMicros,
    event::{Attempted, Changed, NotMailed, Notification, Rejected, Status},
    log::Format,
};
use std::io::{self, Write};

/// Prints events, one on each line: those of a message, or of none.
pub fn print(id: Option<QueueId>, events: &[StoredEvent], out: &mut dyn Write) -> io::Result<()> {
    for stored in events {
        let Some(event) = stored.event() else { continue };
        let at = print::date_time(stored.at.millis().0);
        writeln!(out, "  {at}  {}", print::plain(&text(id, &event)))?;
    }
    Ok(())
}

/// Returns an event as a line for a terminal: the time, the queue id, and the event in words. None for what is of the JSON
/// log only.
pub fn line(at: UnixMicros, event: &Event<'_>) -> Option<String> {
    let words = text(None, event);
    let id = history::id_of(event).map(|id| format!("{id}  ")).unwrap_or_default();
    (!words.is_empty()).then(|| format!("{}  {id}{}", print::clock_time(at.millis().0), print::plain(&words)))
}

/// Returns the reverse-path that an event has.
pub fn sender_of(event: &Event<'_>) -> Option<String> {
    match event {
        Event::Accepted(a) => Some(a.from.to_owned()),
        Event::Attempt(a) => Some(a.from.to_owned()),
        Event::Waiting(w) => Some(w.from.to_owned()),
        Event::Expired { from, .. } | Event::Deleted { from, .. } | Event::Discarded { from, .. } => {
            Some((*from).to_owned())
        }
        _ => None,
    }
}

/// Returns an event as the object of the JSON log.
pub fn json(at: UnixMicros, event: &Event<'_>) -> serde_json::Value {
    let mut line = Vec::new();
    Format::Json.append(at, event, &mut line);
    serde_json::from_slice(&line).unwrap_or_default()
}

/// Returns an event in words.
fn text(of: Option<QueueId>, event: &Event<'_>) -> String {
    match event {
        Event::Accepted(a) => {
            let login = a.login.map(|login| format!(" (login {login})")).unwrap_or_default();
            let (origin, size, count) = (a.origin, a.size_bytes, a.recipient_count);
            let plural = if count == 1 { "" } else { "s" };
            let message_id = if a.message_id.is_empty() {
                String::new()
            } else {
                format!(", Message-ID {}", a.message_id)
            };
            format!("accepted: {origin}{login}, {size} bytes for {count} recipient{plural}{message_id}")
        }
        Event::Attempt(a) => attempt_text(a),
        Event::Waiting(w) => {
            format!("<{}> waits, because {} is suspended: {}", w.to, w.destination, w.reason)
        }
        Event::Expired { .. } => "expired: the lifetime of the message is over".to_owned(),
        Event::Deleted { to, .. } => format!("<{to}> deleted by an operator"),
        Event::Held { reason, .. } => format!("held: {reason}"),
        Event::Discarded { to, reason, .. } => {
            let what = to.map_or("message".to_owned(), |to| format!("<{to}>"));
            format!("{what} accepted and discarded: {reason}")
        }
        Event::Notified { id, notification, kind } => {
            let what = match kind {
                Notification::Failure => "bounce to the sender",
                Notification::Delay => "delay warning to the sender",
                Notification::Success => "report of success to the sender",
                Notification::DoubleBounce => "double bounce to the postmaster",
            };
            if of == Some(*notification) {
                format!("{what}, about {id}")
            } else {
                format!("{what}: {notification}")
            }
        }
        Event::NotMailed { to, reason, why, .. } => {
            let why = match why {
                NotMailed::Off => "double bounces are switched off",
                NotMailed::Limit => "notifications.max_double_bounces_per_hour; a summary follows",
                NotMailed::DoubleBounce => "it was for the postmaster",
            };
            format!("<{to}> did not get this notification, and no mail is made about it ({why}): {reason}")
        }
        Event::Completed(_) => "finished: the message has left the queue".to_owned(),
        Event::Rejected(r) => rejected_text(r),
        Event::Suspended { destination, reason, until, .. } => {
            let until = until.map(|at| format!(" until {}", print::date_time(at.0))).unwrap_or_default();
            format!("{destination} suspended{until}: {reason}")
        }
        Event::Resumed { destination } => format!("{destination} is reached again"),
        Event::Operator { action, messages, user } => {
            let who = user.unwrap_or("an operator");
            format!("{who} changed {}: {action}", print::messages(*messages))
        }
        Event::Changed(changed) => changed_text(changed),
        Event::Listeners { action: "drain", listeners } => {
            format!("an operator drained {listeners}: new sessions get 421")
        }
        Event::Listeners { listeners, .. } => format!("new sessions are taken again at {listeners}"),
        Event::ReloadFailed { reason } => format!("a reload was refused: {reason}"),
        Event::Started { version, queued } => {
            format!("the daemon started, version {version}, with {} in the queue", print::messages(*queued))
        }
        Event::Reloaded => "the configuration was read again".to_owned(),
        Event::Stopping => "the daemon is stopping".to_owned(),
        Event::Dropped(count) => format!("a log did not take {}: lost", mail::counted(*count, "event")),
        // Not of the history.
        Event::Connected { .. }
        | Event::Disconnected { .. }
        | Event::SessionBroken { .. }
        | Event::ClientTls { .. }
        | Event::ClientTlsFailed { .. }
        | Event::LoggedIn { .. }
        | Event::ServerTls { .. } => String::new(),
    }
}

fn changed_text(c: &Changed<'_>) -> String {
    let done = match c.action {
        "hold" => "held",
        "release" => "released",
        "retry" => "due now",
        "bounce" => "returned",
        "delete" => "deleted",
        "redirect" => "redirected",
        other => other,
    };
    let detail = c.detail.map(|detail| format!(" {detail}")).unwrap_or_default();
    let reason = c.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{done}{detail} by {} (uid {}){reason}", c.user, c.uid)
}

fn attempt_text(a: &Attempted<'_>) -> String {
    let what = match a.status {
        Status::Sent => "delivered",
        Status::Deferred => "deferred",
        Status::Bounced => "bounced",
        Status::Expired => "expired",
        Status::Redirected => "redirected",
    };
    let by = if a.relay.is_empty() { String::new() } else { format!(" by {}", a.relay) };
    let tls = if a.tls.is_empty() { "" } else { " over TLS" };
    format!("<{}> {what}{by}{tls}: {} {}", a.to, a.dsn, a.reply)
}

fn rejected_text(r: &Rejected<'_>) -> String {
    let mut about = String::new();
    for (name, value) in [("login", r.login), ("from", r.from), ("to", r.to)] {
        if let Some(value) = value {
            about.push_str(&format!(", {name} <{value}>"));
        }
    }
    let rule = r.rule.map(|rule| format!(" ({rule})")).unwrap_or_default();
    format!("rejected {} of {}{about}: {}{rule}", r.stage, r.client.ip(), r.reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_shows_deliveries_in_words_and_no_connections() {
        let client = "192.0.2.1:1234".parse().unwrap();
        assert_eq!(line(UnixMicros(0), &Event::Connected { client, listener: "mx" }), None);
        let attempt = Attempted {
            id: QueueId(7),
            from: "a@b.test",
            to: "c@d.test",
            index: Some(0),
            status: Status::Sent,
            dsn: mail::Enhanced(2, 0, 0),
            relay: "mx.d.test[192.0.2.9]:25",
            tls: "",
            reply: "250 Ok\u{1b}[2J",
            age_ms: 0,
            queued_ms: 0,
            setup_ms: 0,
            transfer_ms: 0,
        };
        let shown = line(UnixMicros(0), &Event::Attempt(attempt)).unwrap();
        assert!(shown.contains(&format!("  {}  <c@d.test> delivered by mx.d.test", QueueId(7))), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
