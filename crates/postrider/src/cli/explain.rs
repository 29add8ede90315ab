//! `postrider why`: the state of one message, recipient by recipient, and what became of one that has left the queue.

use super::{Ending, daemon, history, print, queue::is_live, timeline};
use crate::cli::CliError;
use ::history::StoredEvent;
use config::Settings;
use control::Exit;
use control::{Id, MessageInfo, RecipientInfo, Status};
use mail::{QueueId, UnixMillis};
use report::{
    Event,
    event::{self, Notification},
};
use std::{
    io::{self, Write},
    time::Duration,
};

/// Prints the state of the message with this queue id.
pub(super) fn run(id: &str, settings: &Settings, out: &mut dyn Write) -> Ending {
    let id: Id = id.parse().map(Id).map_err(|why| CliError::new(Exit::Usage, format!("{id:?}: {why}")))?;
    match daemon::show(settings, id) {
        Ok((message, _)) => explain_queued(&message, settings, out),
        Err(missing) if missing.exit == Exit::NoInput => explain_finished(id.0, &missing, settings, out),
        Err(error) => Err(error),
    }
}

fn explain_queued(message: &MessageInfo, settings: &Settings, out: &mut dyn Write) -> Ending {
    let id = message.id;
    // The queue is the answer; who may not read the history sees that alone.
    let past = history::timeline(settings, id.0).ok();
    let now = UnixMillis::now().0;
    let age = span(now.saturating_sub(message.arrived_ms));
    let (sender, size) = (print::sender(message), message.size_bytes);
    let origin = match &message.damaged {
        Some(why) => format!("its record is damaged: {why}"),
        None => message.origin.clone(),
    };
    writeln!(out, "{}: {size} bytes from {sender}, accepted {age} ago ({})", id.0, print::plain(&origin))?;
    for recipient in &message.recipients {
        print_recipient(recipient, now, out)?;
        print_wait(id.0, recipient, past.as_deref(), now, out)?;
    }
    if !is_live(message) {
        writeln!(out, "All recipients are finished; the message leaves the queue.")?;
    }
    print_past(id.0, past.as_deref().unwrap_or_default(), out)?;
    Ok(if message.damaged.is_none() { Exit::Ok } else { Exit::DataErr })
}

fn print_recipient(r: &RecipientInfo, now: u64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{} via {}", print::address(r), print::plain(&r.destination))?;
    writeln!(out, "  status: {}", status_text(r, now))?;
    if r.status == Status::Done {
        let ended = r.last.as_deref().map_or("the log has the outcome".to_owned(), print::plain);
        let ago = r.last_ms.map(|at| format!(" ({} ago)", span(now.saturating_sub(at)))).unwrap_or_default();
        return writeln!(out, "  ended:  {ended}{ago}");
    }
    let attempts = if r.attempt_count == 1 { "attempt" } else { "attempts" };
    match (&r.last, r.last_ms) {
        (Some(last), Some(at)) => {
            let ago = span(now.saturating_sub(at));
            writeln!(out, "  last:   {} ({ago} ago, {} {attempts})", print::plain(last), r.attempt_count)?;
        }
        (Some(last), None) => {
            writeln!(out, "  last:   {} ({} {attempts})", print::plain(last), r.attempt_count)?;
        }
        (None, _) => writeln!(out, "  last:   no attempt yet")?,
    }
    let reason = r.reason.as_deref().map(|text| format!(": {}", print::plain(text))).unwrap_or_default();
    match r.next_ms {
        Some(next) if next > now => {
            writeln!(out, "  next:   {} (in {}){reason}", print::short_time(next), span(next - now))
        }
        Some(_) => writeln!(out, "  next:   now{reason}"),
        None if reason.is_empty() => Ok(()),
        None => writeln!(out, "  next:   {}", &reason[2..]),
    }
}

/// Prints what a recipient waits with, until when, and what an operator can do about it.
fn print_wait(
    id: QueueId,
    r: &RecipientInfo,
    past: Option<&[StoredEvent]>,
    now: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(wait) = r.wait else { return Ok(()) };
    if let Some(since) = wait.down_since_ms {
        let ago = span(now.saturating_sub(since));
        writeln!(out, "  down:   no host can be reached since {} ({ago})", print::short_time(since))?;
    }
    let (count, name) = (print::messages(wait.others), print::plain(&r.destination));
    writeln!(out, "  others: {count} beside this one for {name}")?;
    let warned = warning_text(wait.warns_ms, past);
    match wait.expires_ms {
        Some(at) if at > now => {
            let left = span(at - now);
            writeln!(out, "  fails:  {} (in {left}) if not delivered before{warned}", print::short_time(at))?;
        }
        Some(_) => writeln!(out, "  fails:  when the next attempt does not deliver it{warned}")?,
        None => writeln!(out, "  fails:  not while it is held{warned}")?,
    }
    match r.status {
        Status::Suspended => {
            writeln!(out, "  type:   postrider queue retry {id}   to probe the destination now")
        }
        Status::Waiting | Status::Deferred => {
            writeln!(out, "  type:   postrider queue retry {id}   to try it now")
        }
        Status::Held => writeln!(out, "  type:   postrider queue release {id}   to end the hold"),
        Status::Ready => writeln!(out, "  type:   postrider queue summary   to see what it waits behind"),
        Status::InFlight | Status::Done => Ok(()),
    }
}

/// Returns whether the sender was warned of the delay, as the end of a line. Without a history that is not known.
fn warning_text(warns_ms: Option<u64>, past: Option<&[StoredEvent]>) -> String {
    let is_warning = |stored: &&StoredEvent| {
        matches!(stored.event(), Some(Event::Notified { kind: Notification::Delay, .. }))
    };
    let warned = past.and_then(|past| past.iter().rfind(is_warning));
    match (warned, warns_ms, past) {
        (Some(stored), ..) => {
            format!("; the sender was warned {}", print::short_time(stored.at.millis().0))
        }
        (None, Some(at), _) => format!("; a delay warning is due {}", print::short_time(at)),
        (None, None, Some(_)) => "; the sender was not warned".to_owned(),
        (None, None, None) => String::new(),
    }
}

fn print_past(id: QueueId, events: &[StoredEvent], out: &mut dyn Write) -> io::Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nhistory")?;
    timeline::print(Some(id), events, out)
}

/// Explains a message that is not in the queue. `missing` is the error that says so.
fn explain_finished(id: QueueId, missing: &CliError, settings: &Settings, out: &mut dyn Write) -> Ending {
    let events = match history::timeline(settings, id) {
        Ok(events) => events,
        Err(error) if error.exit == Exit::NoInput => {
            return Err(CliError::new(Exit::NoInput, format!("{}, and {}", missing.text, error.text)));
        }
        Err(error) => return Err(error),
    };
    if events.is_empty() {
        return Err(CliError::new(Exit::NoInput, format!("{}, and not in the history", missing.text)));
    }
    let accepted = events.iter().find_map(|stored| match stored.event()? {
        Event::Accepted(accepted) => Some((stored.at, accepted)),
        _ => None,
    });
    match accepted {
        Some((at, a)) => {
            let sender = if a.from.is_empty() { "MAILER-DAEMON" } else { a.from };
            let (at, size) = (print::date_time(at.millis().0), a.size_bytes);
            let (sender, origin) = (print::plain(sender), print::plain(a.origin));
            writeln!(out, "{id}: {size} bytes from {sender}, accepted {at} ({origin})")?;
        }
        None => writeln!(out, "{id}: the history does not go back to its acceptance")?,
    }
    for (recipient, end) in ends(&events) {
        writeln!(out, "\n<{}>", print::plain(&recipient))?;
        match end {
            Some((at, status, reply)) => {
                writeln!(out, "  status: {status}")?;
                writeln!(out, "  ended:  {}: {}", print::date_time(at), print::plain(&reply))?;
            }
            None => {
                writeln!(
                    out,
                    "  status: unknown: the message has left the queue, and the history has no end of it"
                )?;
            }
        }
    }
    print_past(id, &events, out)?;
    Ok(Exit::Ok)
}

/// The end of a recipient: time, status, reply or reason.
type End = (u64, &'static str, String);

/// Returns the recipients that events name, each with its end.
fn ends(events: &[StoredEvent]) -> Vec<(String, Option<End>)> {
    let mut all: Vec<(String, Option<End>)> = Vec::new();
    for stored in events {
        let at = stored.at.millis().0;
        let (to, end) = match stored.event() {
            Some(Event::Attempt(a)) => {
                let status = match a.status {
                    event::Status::Sent => Some("delivered"),
                    event::Status::Bounced => Some("bounced"),
                    event::Status::Expired => Some("expired"),
                    event::Status::Deferred => None,
                };
                let by = if a.relay.is_empty() { String::new() } else { format!("{}: ", a.relay) };
                (a.to.to_owned(), status.map(|status| (at, status, format!("{by}{}", a.reply))))
            }
            Some(Event::Waiting(w)) => (w.to.to_owned(), None),
            Some(Event::Deleted { to, .. }) => {
                (to.to_owned(), Some((at, "deleted", "by an operator".to_owned())))
            }
            Some(Event::Discarded { to: Some(to), reason, .. }) => {
                (to.to_owned(), Some((at, "discarded", reason.to_owned())))
            }
            _ => continue,
        };
        match all.iter_mut().find(|(known, _)| *known == to) {
            Some((_, known)) => *known = end.or(known.take()),
            None => all.push((to, end)),
        }
    }
    all
}

fn status_text(r: &RecipientInfo, now: u64) -> String {
    let text = match r.status {
        Status::Ready => "waiting for a connection",
        Status::Suspended => {
            let probe = match r.next_ms {
                Some(next) if next > now => format!("probing again at {}", print::short_time(next)),
                _ => "probing now".to_owned(),
            };
            return format!("destination suspended: no host can be reached; {probe}");
        }
        Status::Waiting | Status::Deferred => "waiting for the next attempt",
        Status::InFlight => "an attempt is under way",
        Status::Held => "held by an operator; `postrider queue release` ends the hold",
        Status::Done => "done",
    };
    text.to_owned()
}

/// Formats a duration in at most two units: `4h12m`, `35s`.
fn span(ms: u64) -> String {
    let seconds = Duration::from_millis(ms).as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_have_at_most_two_units() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m1s"), (3660, "1h1m"), (90_000, "1d1h")] {
            assert_eq!(span(seconds * 1000), text);
        }
    }
}
