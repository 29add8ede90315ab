//! `postrider spool convert`: every message moved into a spool of another engine.

use super::Ending;
use crate::{cli::CliError, serve::wiring, sysexits::Exit};
use bytes::Bytes;
use config::{Engine, Settings};
use mail::{Content, Message, Part, QueueId, SharedMessage};
use spool::{Change, Entry, RecipientState, Refused, Spool, SpoolFailure, Ticket, Transaction};
use std::{io::Write, path::Path};

/// What recovery said of a message, without the message.
struct Past {
    id: QueueId,
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
    let mut bytes = 0;
    for past in &messages {
        bytes += mover.message(past)?;
    }
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
        found.push(Past { id: one.message.id, recipients: one.recipients, held: one.held });
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
    /// Its bytes.
    fn message(&mut self, past: &Past) -> Result<u64, SpoolFailure> {
        let old = self.from.read(past.id)?;
        let mut parts = Vec::with_capacity(old.content.parts().len());
        for part in old.content.parts() {
            parts.push(match part {
                Part::Memory(bytes) => Part::Memory(bytes.clone()),
                Part::Stored { place, length_bytes } => {
                    let place = self.chunk(&self.from.load(*place)?)?;
                    Part::Stored { place, length_bytes: *length_bytes }
                }
            });
        }
        let content = Content::new(old.content.facts, parts);
        let size_bytes = content.size_bytes();
        let message = SharedMessage::new(Message { content, ..Message::clone(&old) });
        let mut transaction = vec![Entry::Accept(message)];
        // As many notes as there were attempts: so they are counted on.
        let attempts = |(index, state): (u32, &RecipientState)| {
            let last = state.last.as_ref().map(|(_, outcome)| (index, outcome.clone()));
            std::iter::repeat_n(last, state.attempt_count as usize).flatten()
        };
        let results: Vec<_> = (0..).zip(&past.recipients).flat_map(attempts).collect();
        if !results.is_empty() {
            transaction.push(Entry::Outcome { id: past.id, results, last: false });
        }
        if past.held {
            transaction.push(Entry::Amend { id: past.id, change: Change::Hold });
        }
        self.submit(&transaction)?;
        Ok(size_bytes)
    }

    fn submit(&mut self, transaction: &Transaction) -> Result<(), SpoolFailure> {
        loop {
            match self.to.submit(transaction.clone()) {
                Ok(ticket) => {
                    self.last = Some(ticket);
                    return Ok(());
                }
                Err(refused) => self.make_room(refused)?,
            }
        }
    }

    fn chunk(&mut self, bytes: &Bytes) -> Result<mail::Place, SpoolFailure> {
        loop {
            match self.to.store(bytes.clone()) {
                Ok(place) => return Ok(place),
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
