//! `postrider history query`: look-ups in the history.

use super::{
    CliError, Ending,
    args::{HistoryArgs, HistoryCommand},
    complain,
};
use config::Settings;
use console::{print, timeline};
use control::Exit;
use history::{Entry, Key, Page, Query, StoredEvent};
use jiff::{Timestamp, civil, tz::TimeZone};
use mail::{QueueId, pattern::bare_address};
use report::{Event, UnixMicros};
use std::{
    collections::BTreeSet,
    io::{self, Write},
};

/// Messages that are read at a time.
const PAGE: usize = 50;

/// Runs `postrider history`.
pub(super) fn run(command: &HistoryCommand, settings: &Settings, out: &mut dyn Write) -> Ending {
    match command {
        HistoryCommand::Query(query) => self::query(query, settings, out),
    }
}

/// Returns the events of a message; none of a message that the history does not know. What is damaged is printed on standard error.
///
/// # Errors
/// As for [`open`].
pub(super) fn timeline(settings: &Settings, id: QueueId) -> Result<Vec<StoredEvent>, CliError> {
    let mut problems = BTreeSet::new();
    let events = upkeep::open_history(settings)?.timeline(id, &mut problems);
    problems.iter().for_each(|problem| complain("postrider", &problem.to_string()));
    Ok(events)
}

fn query(args: &HistoryArgs, settings: &Settings, out: &mut dyn Write) -> Ending {
    let mut query = query_of(args, UnixMicros::now())?;
    let reader = upkeep::open_history(settings)?;
    let (mut count, mut exit, mut has_domains_only) = (0, Exit::Ok, false);
    let mut problems = BTreeSet::new();
    loop {
        query.limit = PAGE.min(args.limit - count);
        let Page { entries, next, has_domains_only: domains, problems: found } = reader.query(&query);
        has_domains_only |= domains;
        problems.extend(found);
        for entry in &entries {
            print_entry(entry, args.json, out)?;
        }
        count += entries.len();
        query.cursor = next;
        if next.is_none() {
            break;
        }
        if count >= args.limit {
            if !args.json {
                writeln!(out, "There are more: use --until with the last time above, or --limit.")?;
            }
            break;
        }
    }
    if count == 0 && !args.json {
        let begin = reader.first().map(|at| print::date_time(at.millis().0));
        match begin {
            Some(begin) => writeln!(out, "Nothing was found; the history begins at {begin}.")?,
            None => writeln!(out, "Nothing was found; the history is empty.")?,
        }
    }
    if has_domains_only {
        complain(
            "postrider",
            "a part of the history was not searched: it has only the domains of addresses (`history.addresses` was \
             \"domain\"), or hashes instead of the parts before the @ (\"hashed\"), which no * or ? matches: use --domain, or a \
             whole address where they are hashed",
        );
    }
    for problem in problems {
        complain("postrider", &problem.to_string());
        exit = Exit::DataErr;
    }
    Ok(exit)
}

fn query_of(args: &HistoryArgs, now: UnixMicros) -> Result<Query, CliError> {
    let mut keys = Vec::new();
    if let Some(id) = &args.id {
        let id: Result<QueueId, _> = id.parse();
        let wrong =
            |why| CliError::new(Exit::Usage, format!("{:?}: {why}", args.id.as_deref().unwrap_or_default()));
        keys.push(Key::Id(id.map_err(wrong)?));
    }
    let bare = |text: &String| bare_address(text).to_owned();
    keys.extend(args.message_id.clone().map(Key::MessageId));
    keys.extend(args.sender.as_ref().map(|text| Key::Sender(bare(text))));
    keys.extend(args.recipient.as_ref().map(|text| Key::Recipient(bare(text))));
    keys.extend(args.domain.as_ref().map(|text| Key::Domain(text.trim_start_matches('@').to_owned())));
    keys.extend(args.client.map(Key::Client));
    keys.extend(args.login.clone().map(Key::Login));
    keys.extend(args.relay.clone().map(Key::Relay));
    keys.extend(args.destination.clone().map(Key::Destination));
    if args.limit == 0 {
        return Err(CliError::new(Exit::Usage, "--limit must be 1 or more"));
    }
    let mut query = Query::new(keys, PAGE);
    if let Some(text) = &args.since {
        query.from = parse_time(text, now, false)?;
    }
    if let Some(text) = &args.until {
        query.to = parse_time(text, now, true)?;
    }
    if query.from > query.to {
        return Err(CliError::new(Exit::Usage, "--since is later than --until"));
    }
    Ok(query)
}

/// Reads a time of `--at`: the begin of what is named. It is not in the future.
pub(super) fn parse_moment(text: &str, now: UnixMicros) -> Result<UnixMicros, CliError> {
    let at = parse_time(text, now, false)?;
    if at > now {
        let text = format!("--at {text} is in the future: write the day, too, as in \"2026-11-21 14:30\"");
        return Err(CliError::new(Exit::Usage, text));
    }
    Ok(at)
}

/// Reads `2h` (ago), `14:30` (today), `2026-11-21`, `2026-11-21 14:30:05` in local time, or a time with an offset. `is_end`: the
/// end of what is named.
fn parse_time(text: &str, now: UnixMicros, is_end: bool) -> Result<UnixMicros, CliError> {
    if let Some(ago) = config::parse_duration(text) {
        return Ok(UnixMicros(now.0.saturating_sub(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX))));
    }
    let zone = TimeZone::system();
    let micros = |at: Timestamp| UnixMicros(u64::try_from(at.as_microsecond()).unwrap_or_default());
    // What is named has a length: a day, a minute, a second.
    let until = |begin: UnixMicros, seconds: u64| {
        if is_end { UnixMicros(begin.0 + seconds * 1_000_000 - 1) } else { begin }
    };
    let local =
        |date_time: civil::DateTime| date_time.to_zoned(zone.clone()).ok().map(|at| micros(at.timestamp()));
    let found = if let Ok(date) = text.parse::<civil::Date>()
        && text.len() == 10
    {
        local(date.at(0, 0, 0, 0)).map(|at| until(at, 86_400))
    } else if let Ok(at) = text.parse::<Timestamp>() {
        Some(micros(at))
    } else {
        let length = if text.matches(':').count() == 1 { 60 } else { 1 };
        let date_time = match text.parse::<civil::Time>() {
            Ok(time) if text.contains(':') && !text.contains('-') => {
                let today = Timestamp::from_microsecond(now.0.cast_signed()).unwrap_or(Timestamp::MAX);
                Some(today.to_zoned(zone.clone()).date().to_datetime(time))
            }
            _ => text.parse::<civil::DateTime>().ok(),
        };
        date_time.and_then(local).map(|at| until(at, length))
    };
    found.ok_or_else(|| {
        let text = format!("{text:?} is not a time: write 2h, 3d, 14:30, 2026-11-21 or \"2026-11-21 14:30\"");
        CliError::new(Exit::Usage, text)
    })
}

fn print_entry(entry: &Entry, json: bool, out: &mut dyn Write) -> io::Result<()> {
    let (id, events) = match entry {
        Entry::Message(id, events) => (Some(*id), &events[..]),
        Entry::Event(event) => (None, std::slice::from_ref(event)),
    };
    if json {
        let id = id.map(|id| id.to_string());
        let events: Vec<_> =
            events.iter().filter_map(|stored| Some(timeline::json(stored.at, &stored.event()?))).collect();
        return print::json(&serde_json::json!({ "id": id, "events": events }), out);
    }
    if let Some(id) = id {
        writeln!(out, "{}", heading(id, events))?;
    }
    timeline::print(id, events, out)?;
    writeln!(out)
}

/// Returns the first line about a message.
fn heading(id: QueueId, events: &[StoredEvent]) -> String {
    let is_own =
        |event: &Event<'_>| !matches!(event, Event::Notified { notification, .. } if *notification == id);
    let own = events.iter().filter_map(StoredEvent::event).filter(is_own);
    let sender = own.filter_map(|event| timeline::sender_of(&event)).next();
    match sender {
        Some(sender) => format!("{id} from <{}>", print::plain(&sender)),
        None => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_the_forms_that_people_write() {
        let now = UnixMicros(1_795_242_354_000_000);
        let read = |text: &str, is_end| parse_time(text, now, is_end).unwrap().0;
        assert_eq!(read("2h", false), now.0 - 7_200_000_000);
        let (day, end) = (read("2026-11-21", false), read("2026-11-21", true));
        assert_eq!(end - day, 86_400_000_000 - 1);
        assert_eq!(read("2026-11-21 14:30", false) - day, (14 * 60 + 30) * 60_000_000);
        assert_eq!(read("2026-11-21 14:30", true) - read("2026-11-21 14:30", false), 59_999_999);
        assert_eq!(read("2026-11-21T14:30:05", false), read("2026-11-21 14:30", false) + 5_000_000);
        assert_eq!(read("2026-11-21T06:25:54Z", false), now.0);
        assert_eq!(read("14:30", true) - read("14:30", false), 59_999_999);
        for bad in ["", "yesterday", "2026-13-01", "25:00", "-1h"] {
            assert!(parse_time(bad, now, false).is_err(), "{bad}");
        }
    }
}
