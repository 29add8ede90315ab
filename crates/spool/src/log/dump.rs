//! A log read for people and for rescue: everything that is there, whole or not, in the order in
//! which it lies. Changes nothing and needs no lock; what another process writes meanwhile may look
//! like a torn tail.

use super::{
    header::{FoundHeader, find_header},
    hold_note,
    read::Note,
    recover::next_batch,
    segment_allocator::{is_quarantined, is_unfinished},
    tolerant::{FaultTolerantFile, with_retries},
};
use crate::{
    RecipientState, SpoolFailure, Totals,
    disk::{Disk, File as _, RealDisk},
    format::{
        block::{FIRST_BATCH, VERSION, read_batch},
        message::{read_message, read_results, read_totals},
        record::{self, Kind, Record},
    },
    mutant::ActiveMutant,
};
use mail::{ChunkId, Message, Outcome, QueueId, UnixMillis};
use std::{io, path::Path, sync::Arc};

/// What a dump of the log finds, from front to back.
#[derive(Debug)]
pub enum LogItem<'a> {
    /// A segment begins; what follows is in it.
    Segment {
        /// File name of the segment.
        name: &'a str,
        /// The sequence in the log; unknown when its header was lost.
        sequence: Option<u64>,
        /// Size of the segment in bytes.
        size_bytes: u64,
    },
    /// A segment without content: its creation was not finished, or it was about to be removed.
    Empty {
        /// File name of the segment.
        name: &'a str,
    },
    /// A whole batch begins; its records follow.
    Batch {
        /// Offset in the segment, in bytes.
        offset: u64,
        /// Batches are numbered over all segments.
        sequence: u64,
        /// Number of records.
        count: u32,
    },
    /// A record whose checksum is right.
    Record {
        /// Offset in the segment, in bytes.
        offset: u64,
        /// Length in bytes, with the frame of the record.
        length: u32,
        /// Not in a whole batch: found in damage or in a torn tail.
        is_loose: bool,
        /// The contents of the record.
        body: RecordBody,
    },
    /// Bytes that are not what was written, with later batches behind them, or in a file quarantined.
    Damage {
        /// Offset in the segment of the first damaged byte.
        from: u64,
        /// Offset behind the last damaged byte.
        to: u64,
        /// What is wrong at the first offset.
        why: &'a str,
    },
    /// The disk does not give back a file, or a part of it, now.
    Unread {
        /// File name of the segment.
        name: &'a str,
        /// The part that cannot be read, and the disk's error.
        why: &'a str,
    },
    /// Bytes that a crash left behind the last batch: nothing in them was acknowledged.
    Torn {
        /// Offset in the segment at which the torn tail begins.
        from: u64,
        /// Of the torn tail, in bytes.
        length: u64,
    },
}

/// What a record says, decoded.
#[derive(Debug)]
pub enum RecordBody {
    /// A message; its content in memory, or by the ids of chunks.
    Message {
        /// The message as it was stored, with its queue id and envelope.
        message: Box<Message>,
        /// The states of its recipients before it was written here, if it was moved.
        states: Option<Vec<RecipientState>>,
        /// Why it was held before; none if it was not.
        held: Option<Box<str>>,
    },
    /// Outcomes of attempts, by recipient's index.
    Outcome {
        /// Queue id of the message that was tried.
        id: QueueId,
        /// When the attempts ended.
        at: UnixMillis,
        /// Outcomes, by index of the recipient in the envelope.
        results: Vec<(u32, Outcome)>,
    },
    /// Nothing is left to do for a message.
    Tombstone {
        /// Queue id of the message that is finished.
        id: QueueId,
    },
    /// An operator or a rule holds a message, or an operator releases it.
    Hold {
        /// Queue id of the message that was held or released.
        id: QueueId,
        /// True for a hold, false for a release.
        held: bool,
    },
    /// The reason of the hold that follows.
    HoldReason {
        /// Queue id of the message that is held.
        id: QueueId,
        /// Who or what holds the message, and why.
        reason: Box<str>,
    },
    /// Content of a message, or a part of it.
    Chunk {
        /// Id by which messages refer to the chunk.
        chunk_id: ChunkId,
        /// As they were stored, without the frame of the record.
        bytes: Vec<u8>,
    },
    /// The totals as they are behind this batch.
    Totals {
        /// How many recipients were accepted so far, and how they ended.
        totals: Totals,
    },
    /// The checksum matches, but the body cannot be parsed: probably another version changed the format without
    /// raising its version number.
    Nonsense {
        /// The part of the body that cannot be parsed, such as `forward-path`.
        why: &'static str,
    },
}

impl RecordBody {
    fn of(record: &Record<'_>) -> Self {
        let id = QueueId(record.name);
        let body = match record.kind {
            Kind::Message => read_message(id, record.body, true).map(|stored| Self::Message {
                message: Box::new(stored.message),
                states: stored.states,
                held: stored.held,
            }),
            Kind::Outcome => read_results(record.body).map(|(at, results)| Self::Outcome { id, at, results }),
            Kind::Tombstone => Ok(Self::Tombstone { id }),
            Kind::Hold => hold_note(record.body).map(|note| match note {
                Note::HoldReason(reason) => Self::HoldReason { id, reason },
                note => Self::Hold { id, held: matches!(note, Note::Hold(true)) },
            }),
            Kind::Chunk => Ok(Self::Chunk { chunk_id: ChunkId(record.name), bytes: record.body.to_vec() }),
            Kind::Totals => read_totals(record.body).map(|totals| Self::Totals { totals }),
        };
        body.unwrap_or_else(|malformed| Self::Nonsense { why: malformed.0 })
    }
}

/// Passes on everything in a log, segment by segment. One segment at a time is in memory.
///
/// # Errors
/// [`SpoolFailure::Unusable`] when another version wrote it, [`SpoolFailure::Io`] when it cannot be read.
pub fn dump_log(dir: &Path, each: &mut dyn FnMut(LogItem<'_>)) -> Result<(), SpoolFailure> {
    dump(dir, true, each)
}

/// Passes on what [`dump_log`] does, but for records that stand alone in damage or in a torn tail. Looking for them takes
/// seconds in a segment that was used before, whose older records are still behind the newer ones.
///
/// # Errors
/// As for [`dump_log`].
pub fn dump_batches(dir: &Path, each: &mut dyn FnMut(LogItem<'_>)) -> Result<(), SpoolFailure> {
    dump(dir, false, each)
}

fn dump(dir: &Path, with_loose: bool, each: &mut dyn FnMut(LogItem<'_>)) -> Result<(), SpoolFailure> {
    if !dir.is_dir() {
        return Err(SpoolFailure::Unusable(format!("{}: no such folder", dir.display())));
    }
    let disk = RealDisk::new(dir).map_err(|e| failed("open", &dir.display().to_string(), &e))?;
    for file in in_order(&disk, each)? {
        one_segment(&file, with_loose, each)?;
    }
    Ok(())
}

struct Opened {
    name: String,
    file: Arc<FaultTolerantFile>,
    size_bytes: u64,
    header: FoundHeader,
}

impl Opened {
    fn is_set_aside(&self) -> bool {
        !segment_name(&self.name)
    }

    /// Returns the sequence in the log; of segments without a header nothing is known.
    fn sequence(&self) -> Option<u64> {
        match self.header {
            FoundHeader::Sound(header) | FoundHeader::Copied(header) => Some(header.sequence),
            _ => None,
        }
    }
}

fn segment_name(name: &str) -> bool {
    name.ends_with(".seg")
}

fn failed(what: &str, name: &str, e: &io::Error) -> SpoolFailure {
    SpoolFailure::Io(format!("{what} {name}: {e}"))
}

/// All segments, those without a header last. What cannot be opened is passed on at once.
fn in_order(disk: &dyn Disk, each: &mut dyn FnMut(LogItem<'_>)) -> Result<Vec<Opened>, SpoolFailure> {
    let mut names = disk.list().map_err(|e| failed("list", "the spool", &e))?;
    names.retain(|name| !is_unfinished(name) && (segment_name(name) || is_quarantined(name)));
    names.sort_unstable();
    let mut opened = Vec::new();
    for name in names {
        let there = with_retries(|| disk.open(&name)).and_then(|file| Ok((file.len()?, file)));
        let (size_bytes, file) = match there {
            Ok(there) => there,
            // A running daemon has removed it since.
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => {
                each(LogItem::Unread { name: &name, why: &format!("it cannot be opened: {e}") });
                continue;
            }
        };
        let file = FaultTolerantFile::over(file);
        let header = find_header(&file, size_bytes, ActiveMutant::default()).map_err(|other| {
            SpoolFailure::Unusable(format!(
                "{name}: format {other}; this version writes {VERSION} and reads what is older"
            ))
        })?;
        opened.push(Opened { name, file, size_bytes, header });
    }
    opened.sort_by_key(|o| o.sequence().unwrap_or(u64::MAX));
    Ok(opened)
}

fn one_segment(
    opened: &Opened,
    with_loose: bool,
    each: &mut dyn FnMut(LogItem<'_>),
) -> Result<(), SpoolFailure> {
    let Opened { name, file, size_bytes, header } = opened;
    let (seed, end) = match header {
        FoundHeader::Free(_) => {
            each(LogItem::Empty { name });
            return Ok(());
        }
        FoundHeader::Sound(header) | FoundHeader::Copied(header) | FoundHeader::Lost { header, .. } => {
            (Some(header.seed), header.end())
        }
        FoundHeader::Nothing | FoundHeader::Unread => (None, *size_bytes),
    };
    let mut bytes = vec![0; usize::try_from(end.min(*size_bytes)).unwrap_or(usize::MAX)];
    let read = file.read_at(0, &mut bytes).map_err(|e| failed("read", name, &e))?;
    bytes.truncate(read);
    let has_header = matches!(header, FoundHeader::Sound(_));
    each(LogItem::Segment { name, sequence: opened.sequence(), size_bytes: *size_bytes });
    if !has_header {
        each(LogItem::Damage { from: 0, to: FIRST_BATCH, why: "segment header" });
    }
    match seed {
        Some(seed) => {
            let is_damaged = opened.is_set_aside() || opened.sequence().is_none();
            batches(&bytes, seed, is_damaged, with_loose, each);
        }
        None => each(LogItem::Damage { from: FIRST_BATCH, to: *size_bytes, why: "no whole batch" }),
    }
    if let Some(why) = file.unread() {
        each(LogItem::Unread { name, why: &why });
    }
    Ok(())
}

fn batches(bytes: &[u8], seed: u64, is_damaged: bool, with_loose: bool, each: &mut dyn FnMut(LogItem<'_>)) {
    let (mut at, mut last) = (FIRST_BATCH as usize, 0);
    while at < bytes.len() {
        match read_batch(&bytes[at..], at as u64, seed, true) {
            Ok((head, records)) => {
                each(LogItem::Batch { offset: at as u64, sequence: head.sequence, count: head.count });
                for (offset, length, record) in &records {
                    let body = RecordBody::of(record);
                    each(LogItem::Record { offset: *offset, length: *length, is_loose: false, body });
                }
                last = head.sequence;
                at += head.padded() as usize;
            }
            Err(why) => {
                let next = next_batch(bytes, at, seed, last);
                let to = next.unwrap_or(bytes.len());
                let used = bytes[at..to].iter().rposition(|b| *b != 0).map_or(0, |i| i + 1);
                if next.is_some() || (is_damaged && used > 0) {
                    each(LogItem::Damage { from: at as u64, to: (at + used) as u64, why: why.0 });
                } else if used > 0 {
                    each(LogItem::Torn { from: at as u64, length: used as u64 });
                }
                if with_loose {
                    loose(bytes, at..at + used, seed, each);
                }
                at = to;
            }
        }
    }
}

/// Records that stand by their own checksums, wherever they begin.
fn loose(bytes: &[u8], range: std::ops::Range<usize>, seed: u64, each: &mut dyn FnMut(LogItem<'_>)) {
    let mut at = range.start;
    while at < range.end {
        let Ok((record, length, _)) = record::read(&bytes[at..range.end], at as u64, seed) else {
            at += 1;
            continue;
        };
        let body = RecordBody::of(&record);
        each(LogItem::Record { offset: at as u64, length: length as u32, is_loose: true, body });
        at += length;
    }
}
