//! `postrider spool dump`: records as text, one a line.

use console::print::{plain, plain_content};
use console::{CliError, Ending};
use control::{Exit, OptionsInfo, RecipientInfo};
use mail::{Message, QueueId};
use spool::{LogItem, RecipientState, RecordBody, dump_log};
use std::{
    io::{self, Write},
    path::Path,
};

pub(super) fn run(dir: &Path, id: Option<&str>, with_content: bool, out: &mut dyn Write) -> Ending {
    let parse = |text: &str| {
        text.parse::<QueueId>().map_err(|why| CliError::new(Exit::Usage, format!("{text:?}: {why}")))
    };
    let mut dump = Dump { only: id.map(parse).transpose()?, with_content, out, failed: None, count: 0 };
    let item = dump_log(dir, &mut |item| dump.see(item));
    let (broken, count) = (dump.failed.take(), dump.count);
    if let Some(error) = broken {
        return Err(error.into());
    }
    item.map_err(|failure| super::spool_error(&failure))?;
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
    fn see(&mut self, item: LogItem<'_>) {
        if self.failed.is_none() {
            self.failed = self.write(item).err();
        }
    }

    fn write(&mut self, item: LogItem<'_>) -> io::Result<()> {
        let all = self.only.is_none();
        match item {
            LogItem::Segment { name, sequence, size_bytes } if all => {
                let sequence = sequence.map_or("unknown".to_owned(), |n| n.to_string());
                writeln!(self.out, "segment {name} sequence {sequence} size {size_bytes}")
            }
            LogItem::Empty { name } if all => writeln!(self.out, "segment {name} empty"),
            LogItem::Batch { offset, sequence, count } if all => {
                writeln!(self.out, " batch {sequence} at {offset} records {count}")
            }
            LogItem::Damage { from, to, why } if all => {
                writeln!(self.out, " damage from {from} to {to}: {why}")
            }
            LogItem::Unread { name, why } if all => writeln!(self.out, " unread {name}: {why}"),
            LogItem::Torn { from, length } if all => writeln!(self.out, " torn from {from} length {length}"),
            LogItem::Record { offset, length, is_loose, body } => {
                self.record(offset, length, is_loose, &body)
            }
            LogItem::Segment { .. } | LogItem::Empty { .. } | LogItem::Batch { .. } => Ok(()),
            LogItem::Damage { .. } | LogItem::Unread { .. } | LogItem::Torn { .. } => Ok(()),
        }
    }

    fn record(&mut self, offset: u64, length: u32, is_loose: bool, body: &RecordBody) -> io::Result<()> {
        let of = match body {
            RecordBody::Message { message, .. } => Some(message.id),
            RecordBody::Outcome { id, .. }
            | RecordBody::Tombstone { id }
            | RecordBody::Hold { id, .. }
            | RecordBody::HoldReason { id, .. } => Some(*id),
            RecordBody::Chunk { .. } | RecordBody::Totals { .. } | RecordBody::Nonsense { .. } => None,
        };
        if self.only.is_some() && of != self.only {
            return Ok(());
        }
        self.count += 1;
        let mark = if is_loose { " loose" } else { "" };
        write!(self.out, "  {offset} {length}{mark} ")?;
        match body {
            RecordBody::Message { message, states, held } => {
                self.message(message, states.as_deref(), held.as_deref())
            }
            RecordBody::Outcome { id, at, results } => {
                write!(self.out, "outcome {id} noted {}", at.rfc3339())?;
                for (index, outcome) in results {
                    write!(self.out, "; {index}: {}", plain(&outcome.to_string()))?;
                }
                writeln!(self.out)
            }
            RecordBody::Tombstone { id } => writeln!(self.out, "tombstone {id}"),
            RecordBody::HoldReason { id, reason } => {
                writeln!(self.out, "reason {id} {}", mail::escape_invisible(reason))
            }
            RecordBody::Hold { id, held: true } => writeln!(self.out, "hold {id}"),
            RecordBody::Hold { id, held: false } => writeln!(self.out, "release {id}"),
            RecordBody::Chunk { chunk_id, bytes } => {
                writeln!(self.out, "chunk {} bytes {}", chunk_id.0, bytes.len())?;
                self.content(bytes)
            }
            RecordBody::Totals { totals } => writeln!(self.out, "totals {}", super::totals_text(totals)),
            RecordBody::Nonsense { why } => writeln!(self.out, "unreadable: {why}"),
        }
    }

    fn message(
        &mut self,
        m: &Message,
        states: Option<&[RecipientState]>,
        held: Option<&str>,
    ) -> io::Result<()> {
        let (arrived, size) = (m.arrived.rfc3339(), m.content.size_bytes());
        let (from, origin) = (plain(m.envelope.reverse_path.as_str()), plain(&m.origin.to_string()));
        write!(self.out, "message {} arrived {arrived} bytes {size} from <{from}> origin {origin:?}", m.id)?;
        if let Some(reason) = held {
            write!(self.out, " held")?;
            if !reason.is_empty() {
                write!(self.out, "={:?}", mail::escape_invisible(reason))?;
            }
        }
        if let Some(options) = &m.envelope.options {
            write!(self.out, " options ({})", plain(&OptionsInfo::from(&**options).to_string()))?;
        }
        for (index, recipient) in m.envelope.recipients.iter().enumerate() {
            write!(self.out, " to <{}>", plain(recipient.path.as_str()))?;
            for address in RecipientInfo::expansion_of(recipient) {
                write!(self.out, " from <{}>", plain(&address))?;
            }
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
