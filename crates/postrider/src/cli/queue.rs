//! `postrider queue`: looking at messages and changing them.

use super::{
    CliError, Ending,
    args::{Change, Chosen, Format, QueueCommand, RunArgs},
    explain, find_config, status,
};
use config::Settings;
use console::{owner, print};
use control::Exit;
use control::{
    AGE_MINUTES, Action, DestinationInfo, Id, MessageInfo, RedirectTo, Request, Selection, Status, SummaryBy,
    client::Client,
};
use mail::counted;
use server::{
    queue_run::{self, Options},
    unnamed_spools,
};
use std::{
    collections::BTreeSet,
    io::{self, BufRead, Write},
    path::Path,
};
use upkeep::{
    ask::{self, Answer},
    offline,
};

/// Runs `postrider queue`.
pub(super) fn run(
    command: &QueueCommand,
    explicit: Option<&Path>,
    settings: &Settings,
    out: &mut dyn Write,
) -> Ending {
    if let Some((action, change)) = command.change() {
        let is_flush = matches!(command, QueueCommand::Flush(_));
        return self::change(action, is_flush, change, settings, out);
    }
    match command {
        QueueCommand::List { chosen, format } => list(settings, &or_all(selection(chosen)?), *format, out),
        QueueCommand::Count { chosen } => {
            let counted = ask::count(settings, &or_all(selection(chosen)?))?;
            writeln!(out, "{}", counted.count)?;
            Ok(counted.exit())
        }
        QueueCommand::Explain(args) => explain::run(args, settings, out),
        QueueCommand::Summary { by, limit, json } => summary(*by, *limit, *json, settings, out),
        QueueCommand::Show { id, json } => show(settings, parse_id(id)?, *json, out),
        QueueCommand::Redirect { change, to, route } => {
            let address = to.clone().map(RedirectTo::Address);
            let to = address.or_else(|| route.clone().map(RedirectTo::Route));
            let to = to.ok_or_else(|| CliError::new(Exit::Usage, "write --to ADDRESS or --route NAME"))?;
            redirect(change, &to, settings, out)
        }
        QueueCommand::Run(run) => run_once(run, explicit, settings, out),
        _ => unreachable!("changes were handled above"),
    }
}

fn run_once(run: &RunArgs, explicit: Option<&Path>, settings: &Settings, out: &mut dyn Write) -> Ending {
    let source = find_config(explicit);
    let options = Options { order: run.order, runners: run.runners, dry_run: run.dry_run };
    if !run.dry_run && Client::connect(&settings.control.socket).is_ok() {
        let text = "the daemon is running: use `postrider queue flush`, or --dry-run";
        return Err(CliError::new(Exit::TempFail, text));
    }
    if !run.dry_run {
        owner::become_owner(settings)?;
    }
    settings.spools().iter().try_for_each(|spool| offline::permitted(&spool.path))?;
    // Mail that would not be delivered is no success, as at the start of the daemon.
    if let Some(unnamed) = unnamed_spools::find(settings).first() {
        return Err(CliError::new(Exit::Config, unnamed.to_string()));
    }
    queue_run::run(settings, source.as_deref(), options, run.json, out)
        .map_err(|text| CliError::new(Exit::Unavailable, text))
}

/// Lists the whole queue as `mailq` does.
pub(crate) fn mailq(settings: &Settings, out: &mut dyn Write) -> Ending {
    list(settings, &Selection::all(), Format::default(), out)
}

/// Everything is due now.
pub(crate) fn flush(settings: &Settings) -> Result<u64, CliError> {
    ask::ask(settings, &Request::Flush, &mut |_| Ok(()))
}

/// Attempts delivery of the selected messages now.
pub(crate) fn retry(settings: &Settings, selection: &Selection) -> Result<Exit, CliError> {
    apply(settings, Action::Retry, selection, None).map(|answer| answer.exit())
}

/// Looking costs nothing, so that no selection means all.
fn or_all(selection: Selection) -> Selection {
    if selection.is_empty() { Selection::all() } else { selection }
}

fn selection(chosen: &Chosen) -> Result<Selection, CliError> {
    selection_from(chosen, &mut io::stdin().lock())
}

pub(super) fn selection_from(chosen: &Chosen, stdin: &mut dyn BufRead) -> Result<Selection, CliError> {
    let mut selection = Selection {
        sender: chosen.sender.clone(),
        recipient: chosen.recipient.clone(),
        domain: chosen.domain.clone(),
        client: chosen.client,
        login: chosen.login.clone(),
        destination: chosen.destination.clone(),
        older_ms: chosen.older.as_deref().map(duration_ms).transpose()?,
        younger_ms: chosen.younger.as_deref().map(duration_ms).transpose()?,
        status: chosen.status,
        ..Selection::default()
    };
    let mut from_stdin = false;
    for word in &chosen.ids {
        match word.as_str() {
            "-" => {
                from_stdin = true;
                selection.ids.extend(ids_from(stdin)?);
            }
            word if word.eq_ignore_ascii_case("all") => selection.all = true,
            word => selection.ids.push(parse_id(word)?),
        }
    }
    if selection.all && !chosen.ids.iter().all(|word| word.eq_ignore_ascii_case("all")) {
        return Err(CliError::new(Exit::Usage, "`all` and queue ids contradict each other"));
    }
    if from_stdin && selection.ids.is_empty() {
        // An empty pipe must select nothing, whatever other conditions there are.
        return Err(CliError::new(Exit::NoInput, "no queue ids on standard input"));
    }
    selection.ids.sort_unstable();
    selection.ids.dedup();
    Ok(selection)
}

/// The first word of each line, without mailq's marks.
fn ids_from(stdin: &mut dyn BufRead) -> Result<Vec<Id>, CliError> {
    let mut ids = Vec::new();
    for line in stdin.lines() {
        if let Some(word) = line?.split_whitespace().next() {
            ids.push(parse_id(word.trim_end_matches(['*', '!']))?);
        }
    }
    Ok(ids)
}

fn parse_id(text: &str) -> Result<Id, CliError> {
    text.parse().map(Id).map_err(|why| CliError::new(Exit::Usage, format!("{text:?}: {why}")))
}

fn duration_ms(text: &str) -> Result<u64, CliError> {
    // Who deletes mail older than `5` means days as a rule, and not seconds.
    if text.bytes().all(|byte| byte.is_ascii_digit()) && text != "0" {
        let help = format!("{text:?} has no unit: write {text}d for days, {text}h, {text}m or {text}s");
        return Err(CliError::new(Exit::Usage, help));
    }
    let wrong =
        || CliError::new(Exit::Usage, format!("{text:?} is not a duration: write 90s, 15m, 4h or 5d"));
    let duration = config::parse_duration(text).ok_or_else(wrong)?;
    u64::try_from(duration.as_millis()).map_err(|_| wrong())
}

fn list(settings: &Settings, selection: &Selection, format: Format, out: &mut dyn Write) -> Ending {
    let mut missing: BTreeSet<Id> = selection.ids.iter().copied().collect();
    let mut bytes = 0;
    let mut first = true;
    let listed = ask::list(settings, selection, &mut |message| {
        missing.remove(&message.id);
        bytes += message.size_bytes;
        let head = std::mem::take(&mut first) && !format.json && !format.only_ids;
        if head {
            writeln!(out, "{}", print::HEAD)?;
        }
        print_one(&message, format, out)
    })?;
    if !format.json && !format.only_ids {
        match (listed.count, selection == &Selection::all()) {
            (0, true) => writeln!(out, "Mail queue is empty")?,
            (0, false) => writeln!(out, "{}", none_of(selection))?,
            (count, _) => writeln!(out, "{}", print::foot(count, bytes))?,
        }
        if selection == &Selection::all() {
            status::drop_directory(settings, out)?;
        }
    }
    // Only ids say that something must be there.
    if missing.is_empty() { Ok(listed.exit()) } else { Err(not_there(&missing)) }
}

/// Says that a selection has no message.
fn none_of(selection: &Selection) -> String {
    match selection.status {
        Some(status) if *selection == (Selection { status: Some(status), ..Selection::default() }) => {
            format!("No message with the status {}", status.as_str())
        }
        _ if selection.ids.is_empty() => "No message matches".to_owned(),
        _ => "No such message".to_owned(),
    }
}

fn print_one(message: &MessageInfo, format: Format, out: &mut dyn Write) -> io::Result<()> {
    if format.only_ids {
        return writeln!(out, "{}", message.id.0);
    }
    if format.json {
        return print::json(message, out);
    }
    print::message(message, out)
}

fn not_there(missing: &BTreeSet<Id>) -> CliError {
    let ids: Vec<String> = missing.iter().take(10).map(|id| id.0.to_string()).collect();
    let more = if missing.len() > 10 { ", …" } else { "" };
    CliError::new(Exit::NoInput, format!("not among the selected messages: {}{more}", ids.join(", ")))
}

/// The width of the names in a summary: they are as wide as the longest of them, within these bounds.
const NAME_WIDTH_MIN: usize = 32;
const NAME_WIDTH_MAX: usize = 48;

/// Prints the recipients of the queue by destination, sender or reason: at most `limit` rows, and what was left out.
fn summary(
    by: SummaryBy,
    limit: Option<usize>,
    json: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> Ending {
    let (destinations, exit) = ask::summary(settings, by)?;
    let (shown, left) = destinations.split_at(limit.unwrap_or(usize::MAX).min(destinations.len()));
    let left_recipients: u64 = left.iter().map(|one| one.recipients).sum();
    if json {
        for one in shown {
            let mut row = serde_json::to_value(one).map_err(io::Error::from)?;
            if by != SummaryBy::Destination
                && let Some(row) = row.as_object_mut()
                && let Some(name) = row.remove("destination")
            {
                row.insert(by.field().to_owned(), name);
            }
            print::json(&row, out)?;
        }
        if !left.is_empty() {
            let rest = serde_json::json!({ "left_out": left.len(), "recipients": left_recipients });
            writeln!(out, "{rest}")?;
        }
        return Ok(exit);
    }
    if destinations.is_empty() {
        writeln!(out, "Mail queue is empty")?;
        return Ok(exit);
    }
    // A longer name stands alone above its numbers, so that the columns stay where they are.
    let names = shown.iter().map(|one| print::plain(&one.destination).chars().count());
    let width = names.filter(|width| *width <= NAME_WIDTH_MAX).max().unwrap_or(0).max(NAME_WIDTH_MIN);
    let cells = |name: &str, sum: String, ages: &[String], out: &mut dyn Write| {
        let name = if name.chars().count() > width {
            writeln!(out, "{name}")?;
            ""
        } else {
            name
        };
        write!(out, "{name:<width$} {sum:>7}")?;
        ages.iter().try_for_each(|age| write!(out, " {age:>5}"))?;
        writeln!(out)
    };
    let last = AGE_MINUTES[AGE_MINUTES.len() - 1];
    let mut titles = AGE_MINUTES.map(|minutes| minutes.to_string()).to_vec();
    titles.push(format!("{last}+"));
    cells("", "T".to_owned(), &titles, out)?;
    let texts = |ages: &[u64]| ages.iter().map(u64::to_string).collect::<Vec<_>>();
    let mut total = DestinationInfo::default();
    for one in &destinations {
        total.recipients += one.recipients;
        total.ages.iter_mut().zip(one.ages).for_each(|(sum, count)| *sum += count);
    }
    cells("TOTAL", total.recipients.to_string(), &texts(&total.ages), out)?;
    for one in shown {
        cells(&print::plain(&one.destination), one.recipients.to_string(), &texts(&one.ages), out)?;
        let reason = one.reason.as_deref().map(print::plain).unwrap_or_default();
        match (one.down_since_ms, one.until_ms) {
            (Some(since), until) => {
                let since = print::date_time(since);
                let probe = match until {
                    Some(at) => format!("; next probe {}", print::date_time(at)),
                    None if one.is_probing => "; probing now".to_owned(),
                    None => "; it is probed again when its mail is tried".to_owned(),
                };
                writeln!(out, "    down since {since}{probe}: {reason}")?;
            }
            _ if reason.is_empty() => {}
            _ => writeln!(out, "    {reason}")?,
        }
    }
    if !left.is_empty() {
        let (rows, recipients) =
            (counted(left.len() as u64, "more row"), counted(left_recipients, "recipient"));
        writeln!(out, "{rows} with {recipients}; use --limit to see more")?;
    }
    Ok(exit)
}

fn show(settings: &Settings, id: Id, json: bool, out: &mut dyn Write) -> Ending {
    let (message, header) = ask::show(settings, id)?;
    let exit = if message.damaged.is_none() { Exit::Ok } else { Exit::DataErr };
    if json {
        let mut value = serde_json::to_value(&message).map_err(io::Error::from)?;
        value["header"] = header.into();
        print::json(&value, out)?;
        return Ok(exit);
    }
    writeln!(out, "id:       {}", message.id.0)?;
    writeln!(out, "arrived:  {}", print::date_time(message.arrived_ms))?;
    writeln!(out, "size:     {} bytes", message.size_bytes)?;
    if let Some(why) = &message.damaged {
        writeln!(out, "damaged:  {}", print::plain(why))?;
    } else {
        writeln!(out, "origin:   {}", print::plain(&message.origin))?;
        writeln!(out, "sender:   <{}>", print::plain(&message.sender))?;
    }
    if let Some(reason) = &message.hold_reason {
        let text = control::held_text(reason);
        // The word stands in front.
        let text = text.strip_prefix("held: ").unwrap_or(&text);
        writeln!(out, "held:     {}", print::plain(text))?;
    }
    if let Some(options) = &message.options {
        writeln!(out, "options:  {}", print::plain(&options.to_string()))?;
    }
    for r in &message.recipients {
        let (address, destination) = (print::address(r), print::plain(&r.destination));
        let status = r.status.as_str();
        match r.status {
            Status::Done => writeln!(out, "to:       {address}, {status}, {destination}")?,
            _ => {
                let attempts = r.attempt_count;
                writeln!(out, "to:       {address}, {status}, {destination}, attempts: {attempts}")?;
            }
        }
        if let [original, through @ ..] = &*r.expanded_from {
            let through: String = through.iter().map(|one| format!(" through <{one}>")).collect();
            writeln!(out, "          {}", print::plain(&format!("expanded from <{original}>{through}")))?;
        }
        if let Some(path) = &r.return_path {
            writeln!(out, "          {}", print::plain(&format!("reverse-path <{path}>")))?;
        }
        if let Some(last) = &r.last {
            writeln!(out, "          {}", print::plain(last))?;
        }
        if let Some(attempt) = &r.attempt {
            let text = attempt.text(mail::UnixMillis::now().0);
            writeln!(out, "          now {}", print::plain(&text))?;
        }
    }
    writeln!(out)?;
    match header {
        Some(header) => {
            header.lines().try_for_each(|line| writeln!(out, "{}", print::plain_content(line)))?;
        }
        None if message.damaged.is_some() => {}
        None => writeln!(out, "(The header can be read while the daemon runs.)")?,
    }
    Ok(exit)
}

const NOTHING_SELECTED: &str = "no message was selected: name queue ids, conditions, or `all`";

fn change(
    action: Action,
    is_flush: bool,
    change: &Change,
    settings: &Settings,
    out: &mut dyn Write,
) -> Ending {
    let selection = selection(&change.chosen)?;
    if is_flush && (selection.is_empty() || selection == Selection::all()) && !change.dry_run {
        let count = flush(settings)?;
        writeln!(out, "{} due now", print::messages(count))?;
        return Ok(Exit::Ok);
    }
    let selection = if is_flush { or_all(selection) } else { selection };
    if selection.is_empty() {
        return Err(CliError::new(Exit::Usage, NOTHING_SELECTED));
    }
    if change.dry_run {
        return preview(action, &selection, change.format, settings, out);
    }
    let applied = apply(settings, action, &selection, change.reason.as_deref())?;
    let is_of_part = action.is_of_recipients() && selection.asks_of_recipients();
    print_applied(action.as_str(), action.done(), is_of_part, &applied, (&selection, change.format), out)
}

fn redirect(change: &Change, to: &RedirectTo, settings: &Settings, out: &mut dyn Write) -> Ending {
    let selection = selection(&change.chosen)?;
    if selection.is_empty() {
        return Err(CliError::new(Exit::Usage, NOTHING_SELECTED));
    }
    let mut client = Client::connect(&settings.control.socket)?;
    let (reason, dry_run) = (change.reason.clone(), change.dry_run);
    let request =
        |selection| Request::Redirect { selection, to: to.clone(), reason: reason.clone(), dry_run };
    let mut count = Preview::default();
    let answer = ask::ask_each(&mut client, &selection, request, &mut |message| {
        count.add(&selection, &message, true);
        print_one(&message, change.format, out)
    })?;
    if dry_run {
        return count.end(&answer, "redirected", change.format, out);
    }
    print_applied(
        "redirect",
        "redirected",
        selection.asks_of_recipients(),
        &answer,
        (&selection, change.format),
        out,
    )
}

/// Prints what a change has done.
fn print_applied(
    action: &str,
    done: &str,
    is_of_part: bool,
    applied: &Answer,
    (selection, format): (&Selection, Format),
    out: &mut dyn Write,
) -> Ending {
    let unchanged: u64 = applied.unchanged.values().sum();
    let count = applied.count - unchanged;
    let is_by_condition = !selection.all && selection.ids.is_empty();
    if format.json {
        writeln!(
            out,
            "{}",
            serde_json::json!({
                "action": action, "count": count, "unchanged": unchanged, "unchanged_by_reason": applied.unchanged,
            "waiting_by_reason": applied.waiting,
            })
        )?;
    } else if !format.only_ids && applied.count == 0 && applied.is_sound && is_by_condition {
        writeln!(out, "No message matches; none was {done}")?;
    } else if !format.only_ids {
        let which = if is_of_part { " for the selected recipients" } else { "" };
        let rest: String = match &applied.unchanged {
            one if one.len() == 1 => {
                one.keys().map(|why| format!(", {unchanged} unchanged: {why}")).collect()
            }
            none if none.is_empty() => String::new(),
            several => {
                let each: Vec<_> = several.iter().map(|(why, count)| format!("{count} {why}")).collect();
                format!(", {unchanged} unchanged: {}", each.join(", "))
            }
        };
        writeln!(out, "{} {}{which}{rest}", print::messages(count), done)?;
        for (why, count) in &applied.waiting {
            let s = if *count == 1 { "s" } else { "" };
            writeln!(out, "{} wait{s} {}", print::messages(*count), print::plain(why))?;
        }
    }
    match (selection.ids.len() as u64).saturating_sub(applied.count) {
        0 => Ok(applied.exit()),
        // Reported already, one by one.
        _ if !applied.is_sound => Ok(applied.exit()),
        missing => {
            let text = match &selection.ids[..] {
                [id] => format!("{} is not queued, or not matched by the conditions", id.0),
                _ => format!(
                    "{missing} of the named messages are not queued, or not matched by the conditions"
                ),
            };
            Err(CliError::new(Exit::NoInput, text))
        }
    }
}

fn apply(
    settings: &Settings,
    action: Action,
    selection: &Selection,
    reason: Option<&str>,
) -> Result<Answer, CliError> {
    let mut client = Client::connect(&settings.control.socket)?;
    let request = |selection| Request::Apply { action, selection, reason: reason.map(str::to_owned) };
    ask::ask_each(&mut client, selection, request, &mut |_| Ok(()))
}

/// Prints the messages that would be changed, and their number.
fn preview(
    action: Action,
    selection: &Selection,
    format: Format,
    settings: &Settings,
    out: &mut dyn Write,
) -> Ending {
    let mut count = Preview::default();
    let listed = ask::list(settings, selection, &mut |message| {
        count.add(selection, &message, action.is_of_recipients());
        print_one(&message, format, out)
    })?;
    count.end(&listed, action.done(), format, out)
}

/// Counts the recipients that a change would be done to.
#[derive(Default)]
struct Preview {
    recipients: u64,
}

impl Preview {
    fn add(&mut self, selection: &Selection, message: &MessageInfo, is_of_recipients: bool) {
        let meant = is_of_recipients.then(|| selection.recipients_meant(message)).flatten();
        let left = || message.recipients.iter().filter(|r| r.status != Status::Done).count();
        self.recipients += meant.map_or_else(left, |meant| meant.len()) as u64;
    }

    fn end(&self, listed: &Answer, done: &str, format: Format, out: &mut dyn Write) -> Ending {
        if !format.json && !format.only_ids {
            let (messages, recipients) =
                (print::messages(listed.count), counted(self.recipients, "recipient"));
            writeln!(out, "{messages} would be {done}, with {recipients}")?;
        }
        Ok(listed.exit())
    }
}

/// Is anything of it still to be done?
pub(super) fn is_live(message: &MessageInfo) -> bool {
    message.recipients.iter().any(|r| r.status != Status::Done)
}
