//! `postrider why`: the state of one message, recipient by recipient, and what became of one that has left the queue.

mod advice;
mod json;
mod past;
#[cfg(test)]
mod tests;

use super::{CliError, Ending, args::WhyArgs, history, queue::is_live};
use ::history::StoredEvent;
use advice::advice;
use config::Settings;
use console::{print, timeline};
use control::Exit;
use control::{Id, MessageInfo, RecipientInfo, Status};
use mail::{QueueId, UnixMillis};
use past::{Past, PastRecipient, State};
use report::{Event, UnixMicros, event::Notification};
use std::{
    io::{self, Write},
    time::Duration,
};
use upkeep::ask;

/// Prints the state of a message.
pub(super) fn run(args: &WhyArgs, settings: &Settings, out: &mut dyn Write) -> Ending {
    let wrong = |why| CliError::new(Exit::Usage, format!("{:?}: {why}", args.id));
    let id: Id = args.id.parse().map(Id).map_err(wrong)?;
    if let Some(time) = &args.at {
        return explain_past(id.0, history::parse_moment(time, UnixMicros::now())?, args.json, settings, out);
    }
    match ask::show(settings, id) {
        // The queue is the answer; who may not read the history sees that alone.
        Ok((message, _)) if args.json => {
            let past = history::timeline(settings, id.0).ok();
            json::print_queued(&message, past.as_deref(), out)?;
            Ok(if message.damaged.is_none() { Exit::Ok } else { Exit::DataErr })
        }
        Ok((message, _)) => explain_queued(&message, settings, out),
        Err(missing) if missing.exit == Exit::NoInput => {
            explain_finished(id.0, &missing, args.json, settings, out)
        }
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
    if let Some(reason) = &message.hold_reason {
        writeln!(out, "{}", print::plain(&control::held_text(reason)))?;
    }
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
        writeln!(out, "  ended:  {ended}{ago}")?;
        return print_advice(r.last.as_deref(), out);
    }
    if let Some(attempt) = &r.attempt {
        writeln!(out, "  now:    {}", print::plain(&attempt.text(now)))?;
    }
    let attempts = attempts(r.attempt_count);
    match (&r.last, r.last_ms) {
        (Some(last), Some(at)) => {
            let ago = span(now.saturating_sub(at));
            writeln!(out, "  last:   {} ({ago} ago, {attempts})", print::plain(last))?;
        }
        (Some(last), None) => {
            writeln!(out, "  last:   {} ({attempts})", print::plain(last))?;
        }
        (None, _) => writeln!(out, "  last:   no attempt yet")?,
    }
    print_advice(r.last.as_deref(), out)?;
    let reason = r.reason.as_deref().map(|text| format!(": {}", print::plain(text))).unwrap_or_default();
    match r.next_ms {
        Some(next) if next > now => {
            writeln!(out, "  next:   {} (in {}){reason}", print::date_time(next), span(next - now))
        }
        Some(_) => writeln!(out, "  next:   now{reason}"),
        None if reason.is_empty() => Ok(()),
        None => writeln!(out, "  next:   {}", &reason[2..]),
    }
}

/// Returns the number of attempts in words. A message for a suspended destination waits without one.
fn attempts(count: u32) -> String {
    match count {
        0 => "this message has not been offered yet".to_owned(),
        count => mail::counted(count.into(), "attempt"),
    }
}

/// Prints what to do about the last reply, if that is known.
fn print_advice(last: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    last.and_then(advice).map_or(Ok(()), |advice| writeln!(out, "  advice: {advice}"))
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
        writeln!(out, "  down:   no host accepts mail since {} ({ago})", print::date_time(since))?;
    }
    let (count, name) = (mail::counted(wait.others, "more message"), print::plain(&r.destination));
    writeln!(out, "  others: {count} for {name}; open connections: {}", wait.connections)?;
    let warned = warning_text(wait.warns_ms, past);
    match wait.expires_ms {
        Some(at) if at > now => {
            let left = span(at - now);
            writeln!(out, "  fails:  {} (in {left}) if not delivered before{warned}", print::date_time(at))?;
        }
        Some(_) => writeln!(out, "  fails:  when the next attempt does not deliver it{warned}")?,
        None => writeln!(out, "  fails:  not while it is held{warned}")?,
    }
    match retry_command(id, r.status) {
        Some((command, purpose)) => writeln!(out, "  type:   {command}   {purpose}"),
        None => Ok(()),
    }
}

/// Returns the command that changes something for a recipient, and its purpose.
fn retry_command(id: QueueId, status: Status) -> Option<(String, &'static str)> {
    let (command, purpose) = match status {
        Status::Suspended => (format!("postrider queue retry {id}"), "to probe the destination now"),
        Status::Waiting | Status::Deferred => (format!("postrider queue retry {id}"), "to try it now"),
        Status::Held => (format!("postrider queue release {id}"), "to end the hold"),
        Status::Ready => ("postrider queue summary".to_owned(), "to see what it waits behind"),
        Status::InFlight | Status::Done => return None,
    };
    Some((command, purpose))
}

/// Returns whether the sender was warned of the delay, as the end of a line. Without a history that is not known.
fn warning_text(warns_ms: Option<u64>, past: Option<&[StoredEvent]>) -> String {
    match (past.and_then(warned_at), warns_ms, past) {
        (Some(at), ..) => format!("; the sender was warned {}", print::date_time(at.millis().0)),
        (None, Some(at), _) => format!("; a delay warning is due {}", print::date_time(at)),
        (None, None, Some(_)) => "; the sender was not warned".to_owned(),
        (None, None, None) => String::new(),
    }
}

/// Returns when the sender was last warned of the delay.
fn warned_at(events: &[StoredEvent]) -> Option<UnixMicros> {
    let is_warning = |stored: &&StoredEvent| {
        matches!(stored.event(), Some(Event::Notified { kind: Notification::Delay, .. }))
    };
    events.iter().rfind(is_warning).map(|stored| stored.at)
}

fn print_past(id: QueueId, events: &[StoredEvent], out: &mut dyn Write) -> io::Result<()> {
    if events.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nhistory")?;
    timeline::print(Some(id), events, out)
}

/// Explains a message that is not in the queue. `missing` is the error that says so.
fn explain_finished(
    id: QueueId,
    missing: &CliError,
    json: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> Ending {
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
    let mut past = Past::new(&events, &[]);
    past.finish();
    if json {
        json::print_past(id, UnixMicros::now(), &past, out)?;
        return Ok(Exit::Ok);
    }
    write!(out, "{id}: ")?;
    print_acceptance(&past, out)?;
    for recipient in &past.recipients {
        writeln!(out, "\n<{}>", print::plain(&recipient.address))?;
        match &recipient.last {
            Some((at, reply)) if recipient.state != State::Unknown => {
                writeln!(out, "  status: {}", recipient.state.word())?;
                writeln!(out, "  ended:  {}: {}", print::date_time(at.millis().0), print::plain(reply))?;
                print_advice(Some(reply), out)?;
            }
            _ => writeln!(
                out,
                "  status: unknown: the message has left the queue, and the history has no end of it"
            )?,
        }
    }
    print_past(id, &events, out)?;
    Ok(Exit::Ok)
}

/// Ends the first line: size, sender and acceptance.
fn print_acceptance(past: &Past<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some((at, a)) = &past.accepted else {
        return writeln!(out, "the history does not go back to its acceptance");
    };
    let sender = if a.from.is_empty() { "MAILER-DAEMON" } else { a.from };
    let (at, size) = (print::date_time(at.millis().0), a.size_bytes);
    let (sender, origin) = (print::plain(sender), print::plain(a.origin));
    writeln!(out, "{size} bytes from {sender}, accepted {at} ({origin})")
}

/// Explains the state of a message at a time, from the history alone.
fn explain_past(id: QueueId, at: UnixMicros, json: bool, settings: &Settings, out: &mut dyn Write) -> Ending {
    let events = history::timeline(settings, id)?;
    if events.is_empty() {
        return Err(CliError::new(Exit::NoInput, format!("the history has no events of {id}")));
    }
    let (known, later): (Vec<_>, Vec<_>) = events.into_iter().partition(|stored| stored.at <= at);
    let (Some(_), when) = (known.first(), print::date_time(at.millis().0)) else {
        let first = later.first().map_or(at, |stored| stored.at);
        let text = format!(
            "{id} has no event before {}: its first one is of {}",
            print::date_time(at.millis().0),
            print::date_time(first.millis().0)
        );
        return Err(CliError::new(Exit::NoInput, text));
    };
    let past = Past::new(&known, &later);
    if json {
        json::print_past(id, at, &past, out)?;
        return Ok(Exit::Ok);
    }
    write!(out, "{id} at {when}: ")?;
    print_acceptance(&past, out)?;
    past.recipients.iter().try_for_each(|recipient| print_past_recipient(recipient, at, out))?;
    let unnamed = past.unnamed_count();
    if unnamed > 0 {
        let them =
            if unnamed == 1 { "1 recipient is".to_owned() } else { format!("{unnamed} recipients are") };
        writeln!(out, "\n{them} in no event of the history.")?;
    }
    match past.warned {
        Some(warned) => {
            writeln!(out, "\nThe sender was warned of the delay {}.", print::date_time(warned.millis().0))?;
        }
        None if past.is_finished => writeln!(out, "\nThe message had left the queue.")?,
        None => {}
    }
    print_past(id, &known, out)?;
    Ok(Exit::Ok)
}

fn print_past_recipient(r: &PastRecipient, at: UnixMicros, out: &mut dyn Write) -> io::Result<()> {
    let via = r.destination.as_ref().map(|name| format!(" via {}", print::plain(name))).unwrap_or_default();
    writeln!(out, "\n<{}>{via}", print::plain(&r.address))?;
    let status = match r.state {
        State::New => "no attempt had ended".to_owned(),
        State::Waiting => "waiting for the next attempt".to_owned(),
        State::Suspended => match r.next {
            Some(next) => format!("destination suspended until {}", print::date_time(next.0)),
            None => "destination suspended".to_owned(),
        },
        State::Held => "held".to_owned(),
        State::Unknown => {
            "unknown: the message had left the queue, and the history has no end of it".to_owned()
        }
        end => end.word().to_owned(),
    };
    writeln!(out, "  status: {status}")?;
    if let Some((last, text)) = &r.last {
        let ago = span(at.millis().0.saturating_sub(last.millis().0));
        let attempts = attempts(r.attempt_count);
        let word = if r.state.is_end() { "ended:" } else { "last: " };
        let text = print::plain(text);
        writeln!(out, "  {word}  {text} ({ago} before, {attempts})")?;
        print_advice(r.last.as_ref().map(|(_, text)| text.as_str()), out)?;
    }
    Ok(())
}

fn status_text(r: &RecipientInfo, now: u64) -> String {
    let text = match r.status {
        Status::Ready => "waiting for a connection",
        Status::Suspended => {
            let probe = match r.next_ms {
                Some(next) if next > now => format!("probing again at {}", print::date_time(next)),
                _ => "probing now".to_owned(),
            };
            return format!("destination suspended: no host accepts mail; {probe}");
        }
        Status::Waiting | Status::Deferred => "waiting for the next attempt",
        Status::InFlight => "an attempt is under way",
        Status::Held => "held; `postrider queue release` ends the hold",
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
