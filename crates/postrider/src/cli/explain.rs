//! `postrider queue explain`: the state of one message, recipient by recipient.

use super::{Ending, daemon, print, queue::is_live};
use crate::cli::CliError;
use config::Settings;
use control::Exit;
use control::{Id, RecipientInfo, Status};
use mail::UnixMillis;
use std::{
    io::{self, Write},
    time::Duration,
};

/// Prints the state of the message with this queue id.
pub(super) fn run(id: &str, settings: &Settings, out: &mut dyn Write) -> Ending {
    let id: Id = id.parse().map(Id).map_err(|why| CliError::new(Exit::Usage, format!("{id:?}: {why}")))?;
    let (message, _) = daemon::show(settings, id)?;
    let now = UnixMillis::now().0;
    let age = span(now.saturating_sub(message.arrived_ms));
    let (sender, size) = (print::sender(&message), message.size_bytes);
    let origin = match &message.damaged {
        Some(why) => format!("its record is damaged: {why}"),
        None => message.origin.clone(),
    };
    writeln!(out, "{}: {size} bytes from {sender}, accepted {age} ago ({})", id.0, print::plain(&origin))?;
    for recipient in &message.recipients {
        print_recipient(recipient, now, out)?;
    }
    if !is_live(&message) {
        writeln!(out, "All recipients are finished; the message leaves the queue.")?;
    }
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
        Status::Waiting => "waiting for the next attempt",
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
