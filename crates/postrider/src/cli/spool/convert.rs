//! `postrider spool convert`: every message moved into a spool of another engine.

use super::Ending;
use crate::{cli::CliError, serve::wiring, sysexits::Exit};
use config::{Engine, Settings};
use mail::QueueId;
use spool::{RecipientState, Refused, Spool, SpoolFailure, Ticket};
use std::{io::Write, path::Path};

/// What recovery said of a message, without the message.
struct Past {
    id: QueueId,
    size_bytes: u64,
    recipients: Vec<RecipientState>,
    held: bool,
}

pub(super) fn run(settings: &Settings, engine: Engine, into: &Path, out: &mut dyn Write) -> Ending {
    if settings.spool.engine == engine {
        let text = format!("the spool's engine is \"{}\" already", engine.as_str());
        return Err(CliError::new(Exit::Usage, text));
    }
    let say = |text: String| CliError::new(Exit::Unavailable, text);
    let (from, messages) = open(settings).map_err(say)?;
    let mut target = settings.clone();
    (target.spool.engine, target.spool.path) = (engine, into.to_owned());
    let (to, already) = open(&target).map_err(say)?;
    if !already.is_empty() {
        let text = format!("{} has {} messages already: name an empty folder", into.display(), already.len());
        return Err(CliError::new(Exit::CantCreate, text));
    }
    let mut mover = Mover { from: &*from, to: &*to, last: None };
    for past in &messages {
        mover.message(past)?;
    }
    let bytes: u64 = messages.iter().map(|past| past.size_bytes).sum();
    mover.wait()?;
    to.close();
    from.close();
    let mut found = 0;
    let report = spool::inspect(into, &mut |_| found += 1)?;
    if found != messages.len() || !report.corrupt.is_empty() {
        let text =
            format!("{found} of {} messages are in {}: keep the old spool", messages.len(), into.display());
        return Err(CliError::new(Exit::IoErr, text));
    }
    writeln!(out, "{found} messages, {bytes} bytes: moved to {}", into.display())?;
    let (engine, path) = (engine.as_str(), into.display());
    writeln!(out, "Now write `engine = \"{engine}\"` and `path = \"{path}\"` below [spool], and start.")?;
    writeln!(out, "The old spool is as it was: {}", settings.spool.path.display())?;
    Ok(Exit::Ok)
}

fn open(settings: &Settings) -> Result<(Box<dyn Spool>, Vec<Past>), String> {
    let mut spool = wiring::spool(settings)?;
    let mut found = Vec::new();
    let report = spool.recover(&mut |one| {
        let size_bytes = one.message.content.size_bytes();
        found.push(Past { id: one.message.id, size_bytes, recipients: one.recipients, held: one.held });
    });
    let report = report.map_err(|e| format!("recover {}: {e}", settings.spool.path.display()))?;
    if let Some(first) = report.corrupt.first() {
        return Err(format!("the spool is damaged, see `postrider spool check`: {first}"));
    }
    Ok((spool, found))
}

struct Mover<'a> {
    from: &'a dyn Spool,
    to: &'a dyn Spool,
    last: Option<Ticket>,
}

impl Mover<'_> {
    fn message(&mut self, past: &Past) -> Result<(), SpoolFailure> {
        loop {
            match spool::carry(self.from, past.id, &past.recipients, past.held, self.to)? {
                Ok(ticket) => {
                    self.last = Some(ticket);
                    return Ok(());
                }
                Err(refused) => self.make_room(refused)?,
            }
        }
    }

    /// Only a full line is worth waiting for.
    fn make_room(&mut self, refused: Refused) -> Result<(), SpoolFailure> {
        if refused != Refused::Busy {
            return Err(SpoolFailure::Io(format!("the new spool: {refused}")));
        }
        self.wait()
    }

    fn wait(&mut self) -> Result<(), SpoolFailure> {
        let Some(ticket) = self.last else { return Ok(()) };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|e| SpoolFailure::Io(format!("start the runtime: {e}")))?;
        runtime.block_on(self.to.durable(ticket))
    }
}
