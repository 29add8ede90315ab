//! `postrider spool dump`: records as text, one a line.

use super::{CliError, Ending};
use crate::{
    cli::print::{plain, plain_content},
    sysexits::Exit,
};
use mail::{Message, QueueId};
use spool::{RecipientState, Said, Seen, examine};
use std::{
    io::{self, Write},
    path::Path,
};

pub(super) fn run(dir: &Path, id: Option<&str>, with_content: bool, out: &mut dyn Write) -> Ending {
    let parse = |text: &str| {
        text.parse::<QueueId>().map_err(|why| CliError::new(Exit::Usage, format!("{text:?}: {why}")))
    };
    let mut dump = Dump { only: id.map(parse).transpose()?, with_content, out, failed: None, count: 0 };
    let seen = examine(dir, &mut |seen| dump.see(seen));
    let (broken, count) = (dump.failed.take(), dump.count);
    if let Some(error) = broken {
        return Err(error.into());
    }
    seen?;
    match (id, count) {
        (Some(id), 0) => Err(CliError::new(Exit::NoInput, format!("{id}: no record of it is in the spool"))),
        _ => Ok(Exit::Ok),
    }
}

struct Dump<'a> {
    only: Option<QueueId>,
    with_content: bool,
    out: &'a mut dyn Write,
    failed: Option<io::Error>,
    count: u64,
}

impl Dump<'_> {
    fn see(&mut self, seen: Seen<'_>) {
        if self.failed.is_none() {
            self.failed = self.write(seen).err();
        }
    }

    fn write(&mut self, seen: Seen<'_>) -> io::Result<()> {
        let all = self.only.is_none();
        match seen {
            Seen::Segment { name, sequence, size_bytes } if all => {
                let sequence = sequence.map_or("unknown".to_owned(), |n| n.to_string());
                writeln!(self.out, "segment {name} sequence {sequence} size {size_bytes}")
            }
            Seen::Empty { name } if all => writeln!(self.out, "segment {name} empty"),
            Seen::Batch { offset, sequence, count } if all => {
                writeln!(self.out, " batch {sequence} at {offset} records {count}")
            }
            Seen::Damage { from, to, why } if all => {
                writeln!(self.out, " damage from {from} to {to}: {why}")
            }
            Seen::Unread { name, why } if all => writeln!(self.out, " unread {name}: {why}"),
            Seen::Torn { from, length } if all => writeln!(self.out, " torn from {from} length {length}"),
            Seen::Record { offset, length, is_loose, said } => self.record(offset, length, is_loose, &said),
            Seen::Segment { .. } | Seen::Empty { .. } | Seen::Batch { .. } => Ok(()),
            Seen::Damage { .. } | Seen::Unread { .. } | Seen::Torn { .. } => Ok(()),
        }
    }

    fn record(&mut self, offset: u64, length: u32, is_loose: bool, said: &Said) -> io::Result<()> {
        let of = match said {
            Said::Message { message, .. } => Some(message.id),
            Said::Outcome { id, .. } | Said::Done { id } | Said::Hold { id, .. } => Some(*id),
            Said::Chunk { .. } | Said::Nonsense { .. } => None,
        };
        if self.only.is_some() && of != self.only {
            return Ok(());
        }
        self.count += 1;
        let mark = if is_loose { " loose" } else { "" };
        write!(self.out, "  {offset} {length}{mark} ")?;
        match said {
            Said::Message { message, states, held } => self.message(message, states.as_deref(), *held),
            Said::Outcome { id, at, results } => {
                write!(self.out, "outcome {id} noted {}", at.rfc3339())?;
                for (index, outcome) in results {
                    write!(self.out, "; {index}: {}", plain(&outcome.to_string()))?;
                }
                writeln!(self.out)
            }
            Said::Done { id } => writeln!(self.out, "tombstone {id}"),
            Said::Hold { id, held: true } => writeln!(self.out, "hold {id}"),
            Said::Hold { id, held: false } => writeln!(self.out, "release {id}"),
            Said::Chunk { chunk_id, bytes } => {
                writeln!(self.out, "chunk {} bytes {}", chunk_id.0, bytes.len())?;
                self.content(bytes)
            }
            Said::Nonsense { why } => writeln!(self.out, "unreadable: {why}"),
        }
    }

    fn message(&mut self, m: &Message, states: Option<&[RecipientState]>, held: bool) -> io::Result<()> {
        let (arrived, size) = (m.arrived.rfc3339(), m.content.size_bytes());
        let (from, origin) = (plain(m.envelope.reverse_path.as_str()), plain(&m.origin.to_string()));
        write!(self.out, "message {} arrived {arrived} bytes {size} from <{from}> origin {origin:?}", m.id)?;
        if held {
            write!(self.out, " held")?;
        }
        for (index, recipient) in m.envelope.recipients.iter().enumerate() {
            write!(self.out, " to <{}>", plain(recipient.path.as_str()))?;
            if let Some(state) = states.and_then(|all| all.get(index)) {
                let settled = if state.settled { " done" } else { "" };
                write!(self.out, " (attempts {}{settled})", state.attempt_count)?;
            }
        }
        for part in m.content.parts() {
            if let Some(chunk_id) = part.chunk_id() {
                write!(self.out, " chunk {}", chunk_id.0)?;
            }
        }
        writeln!(self.out)?;
        for part in m.content.parts() {
            if let mail::Part::Memory(bytes) = part {
                self.content(bytes)?;
            }
        }
        Ok(())
    }

    fn content(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.with_content {
            return Ok(());
        }
        let text = String::from_utf8_lossy(bytes);
        text.lines().try_for_each(|line| writeln!(self.out, "    | {}", plain_content(line)))
    }
}
