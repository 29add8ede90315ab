//! `postrider spool convert`: every message moved into a spool of another backend.

use config::{Backend, Settings};
use console::CliError;
use console::Ending;
use control::Exit;
use control::client::Client;
use server::{unnamed_spools, wiring};
use spool::{CommitSeq, Entry, Recovered, Spool, SpoolFailure, Totals, migrate_message};
use std::{io::Write, path::Path, time::Duration};

/// A disk that is behind is asked again after this.
const BEHIND: Duration = Duration::from_millis(5);

pub(super) fn run(
    settings: &Settings,
    group: Option<&str>,
    backend: Backend,
    into: &Path,
    out: &mut dyn Write,
) -> Ending {
    // A relative path of the configuration begins at its folder, and one of the command line at the working directory.
    let into = &std::path::absolute(into)?;
    let (old, section) = match group {
        None => (settings.spool.clone(), "[spool]".to_owned()),
        Some(name) => (spool_of(settings, name)?, format!("[[queue_group]] with the name \"{name}\"")),
    };
    if old.backend == backend {
        let text = format!("the spool's backend is \"{}\" already", backend.as_str());
        return Err(CliError::new(Exit::Usage, text));
    }
    if Client::connect(&settings.control.socket).is_ok() {
        let text = "the daemon is running, and has the spool: stop it first";
        return Err(CliError::new(Exit::TempFail, text));
    }
    let say = |text: String| CliError::new(Exit::Unavailable, text);
    let (from, messages, totals) = open(&old).map_err(say)?;
    let target = config::Spool { backend, path: into.to_owned(), ..old.clone() };
    let (to, already, _) = open(&target).map_err(say)?;
    if !already.is_empty() {
        let already = mail::counted(already.len() as u64, "message");
        let text = format!("{} has {already} already: name an empty folder", into.display());
        return Err(CliError::new(Exit::CantCreate, text));
    }
    let mut last = None;
    for found in &messages {
        last = Some(migrate_one(&*from, found, &*to, last).map_err(|failure| super::spool_error(&failure))?);
    }
    last.map_or(Ok(()), |commit_seq| wait(&*to, commit_seq))
        .and_then(|()| migrate_totals(&*to, &totals))
        .map_err(|failure| super::spool_error(&failure))?;
    to.close();
    from.close();
    let mut count = 0;
    let report =
        spool::inspect_all(into, &mut |_| count += 1).map_err(|failure| super::spool_error(&failure))?;
    if count != messages.len() || !report.is_complete() || report.totals != totals {
        let all = messages.len();
        let text = format!("{count} of {all} messages are in {}: keep the old spool", into.display());
        return Err(CliError::new(Exit::IoErr, text));
    }
    // Its copies of the messages are no mail that somebody has forgotten.
    unnamed_spools::record_moved(settings, &old.path)?;
    let bytes: u64 = messages.iter().map(|found| found.message.content.size_bytes()).sum();
    let count = mail::counted(count as u64, "message");
    writeln!(out, "{count}, {bytes} bytes: copied to {}", into.display())?;
    let (backend, path) = (backend.as_str(), into.display());
    writeln!(out, "Now write `backend = \"{backend}\"` and `path = \"{path}\"` below {section}, and start.")?;
    writeln!(out, "The old spool is as it was: {}", old.path.display())?;
    Ok(Exit::Ok)
}

fn spool_of(settings: &Settings, name: &str) -> Result<config::Spool, CliError> {
    let group = settings.queue_groups.iter().find(|group| group.name == name);
    let own = group.map(|group| group.spool.as_ref().map(|own| own.beside(&settings.spool)));
    let missing = match own {
        Some(Some(own)) => return Ok(own),
        Some(None) => format!("the queue group \"{name}\" has no spool of its own"),
        None => format!("there is no queue group \"{name}\""),
    };
    Err(CliError::new(Exit::Usage, missing))
}

/// A recovered spool, with its live messages and its totals.
type Opened = (Box<dyn Spool>, Vec<Recovered>, Totals);

fn open(settings: &config::Spool) -> Result<Opened, String> {
    let mut spool = wiring::store(settings)?;
    let mut found = Vec::new();
    let report = spool.recover(&mut |one| found.push(one));
    let report = report.map_err(|e| format!("recover {}: {e}", settings.path.display()))?;
    if let Some(first) = report.corrupt.iter().chain(&report.unread).chain(&report.quarantined).next() {
        return Err(format!("the spool is damaged, see `postrider spool check`: {first}"));
    }
    Ok((spool, found, report.totals))
}

/// Copies a message to the new spool. If the new spool is busy, waits until the message handed over before is
/// durable,
/// and after that a short time before each attempt.
fn migrate_one(
    from: &dyn Spool,
    found: &Recovered,
    to: &dyn Spool,
    mut last: Option<CommitSeq>,
) -> Result<CommitSeq, SpoolFailure> {
    let mut busy = || match last.take() {
        Some(commit_seq) => wait(to, commit_seq),
        None => {
            std::thread::sleep(BEHIND);
            Ok(())
        }
    };
    let migrated = migrate_message(from, found, to, &mut busy)?;
    migrated.map_err(|refused| SpoolFailure::Io(format!("the new spool: {refused}")))
}

/// Adds the recipients that were finished in the old spool. Those that are left were counted with their messages.
fn migrate_totals(to: &dyn Spool, totals: &Totals) -> Result<(), SpoolFailure> {
    let finished = Totals { accepted: totals.finished(), ..*totals };
    let submitted = to.submit(vec![Entry::Count(finished)]);
    wait(to, submitted.map_err(|refused| SpoolFailure::Io(format!("the new spool: {refused}")))?)
}

fn wait(spool: &dyn Spool, commit_seq: CommitSeq) -> Result<(), SpoolFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|e| SpoolFailure::Io(format!("start the runtime: {e}")))?;
    runtime.block_on(spool.durable(commit_seq))
}
