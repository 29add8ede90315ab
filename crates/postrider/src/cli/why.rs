//! `postrider why`: one message's story, recipient by recipient.

use super::{Ending, daemon, print, queue::is_live};
use crate::{
    cli::CliError,
    control::{Id, ListedRecipient, Status},
    sysexits::Exit,
};
use config::Settings;
use mail::UnixMillis;
use std::{
    io::{self, Write},
    time::Duration,
};

/// Tells it.
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
        tell(recipient, now, out)?;
    }
    if !is_live(&message) {
        writeln!(out, "Nothing is left to do; it leaves the queue.")?;
    }
    Ok(if message.damaged.is_none() { Exit::Ok } else { Exit::DataErr })
}

fn tell(r: &ListedRecipient, now: u64, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{} by {}", print::address(r), print::plain(&r.destination))?;
    writeln!(out, "  where: {}", place(r.status))?;
    if r.status == Status::Settled {
        let ended = r.last.as_deref().map_or("how is told in the log".to_owned(), print::plain);
        let ago = r.last_ms.map(|at| format!(" ({} ago)", span(now.saturating_sub(at)))).unwrap_or_default();
        return writeln!(out, "  ended: {ended}{ago}");
    }
    let attempts = if r.attempt_count == 1 { "attempt" } else { "attempts" };
    match (&r.last, r.last_ms) {
        (Some(last), Some(at)) => {
            let ago = span(now.saturating_sub(at));
            writeln!(out, "  last:  {} ({ago} ago, {} {attempts})", print::plain(last), r.attempt_count)?;
        }
        (Some(last), None) => {
            writeln!(out, "  last:  {} ({} {attempts})", print::plain(last), r.attempt_count)?;
        }
        (None, _) => writeln!(out, "  last:  nothing was tried yet")?,
    }
    let why = r.why.as_deref().map(|why| format!(": {}", print::plain(why))).unwrap_or_default();
    match r.next_ms {
        Some(next) if next > now => {
            writeln!(out, "  next:  {} (in {}){why}", print::short_time(next), span(next - now))
        }
        Some(_) => writeln!(out, "  next:  now{why}"),
        None if why.is_empty() => Ok(()),
        None => writeln!(out, "  next:  {}", &why[2..]),
    }
}

fn place(status: Status) -> &'static str {
    match status {
        Status::Ready => "waits for a connection",
        Status::Suspended => "its destination does not answer and is left in peace for a while",
        Status::Waiting => "waits for its next attempt",
        Status::Inflight => "an attempt is under way",
        Status::Held => "held by an operator; `postrider queue release` lets it go",
        Status::Settled => "done",
    }
}

/// `4h12m`, `35s`: two units are enough for people.
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
