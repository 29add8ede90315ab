//! Extracts messages from damage: messages that recovery could not take up, each record of which is proved by its own
//! checksum.

use super::{
    dump::{LogItem, RecordBody, dump_log},
    reader::LogReader,
};
use crate::{RecipientState, RecoveryReport, SpoolFailure, disk::RealDisk, format::message::fold};
use mail::{Content, Disposition, Message, Outcome, Part, QueueId, UnixMillis};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// A message that was found in damage, or that misses a part.
#[derive(Debug, Clone)]
pub struct Salvaged {
    /// The message. Its content is in memory; lost pieces are left out.
    pub message: Message,
    /// The states of the recipients, as far as their records could be read.
    pub recipients: Vec<RecipientState>,
    /// Bytes of its content that could not be read.
    pub lost_bytes: u64,
}

/// The result of a salvage besides the messages.
#[derive(Debug, Clone, Default)]
pub struct SalvageReport {
    /// What recovery said of the spool before the salvage.
    pub recovery: RecoveryReport,
    /// Places that cannot be read, in words.
    pub damage: Vec<String>,
    /// Records in damage that are whole all the same.
    pub loose_count: u64,
    /// Messages in a torn tail: never acknowledged, so their senders still have them. They are left
    /// out unless batches are missing, which may have stood there.
    pub torn_count: u64,
}

/// Passes on every message that is neither live nor known to be done. Changes nothing. What is
/// passed on is in memory all at once: damage is small, or there is little else to do.
///
/// A message that a running daemon accepts or ends while the log is read can look like one, and a batch that it writes
/// like damage. So the log is read twice, and what only one reading found is left out.
///
/// A delivery of such a message before the damage is not always known: the record of it may have been in the
/// damage, too.
///
/// # Errors
/// As for [`dump_log`].
pub fn salvage(dir: &Path, each: &mut dyn FnMut(Salvaged)) -> Result<SalvageReport, SpoolFailure> {
    // A disk would make it.
    if !dir.is_dir() {
        return Err(SpoolFailure::Unusable(format!("{}: no such folder", dir.display())));
    }
    let first = Heap::read(dir)?;
    let mut heap = match first.is_empty() {
        true => first,
        false => Heap::read(dir)?.common_with(&first),
    };
    let mut chunks = heap.wanted_chunks();
    if !chunks.is_empty() {
        dump_log(dir, &mut |item| {
            if let LogItem::Record { body: RecordBody::Chunk { chunk_id, bytes }, .. } = item
                && let Some(entry) = chunks.get_mut(&chunk_id.0)
            {
                *entry = Some(bytes);
            }
        })?;
    }
    for id in std::mem::take(&mut heap.order) {
        if let Some(mut found) = heap.candidates.remove(&id) {
            found.note(heap.noted.remove(&id).unwrap_or_default());
            // Only the word that it was the last is lost.
            if !found.recipients.iter().all(|recipient| recipient.settled) {
                each(found.whole(&chunks));
            }
        }
    }
    Ok(heap.report)
}

/// The time at which outcomes were noted, and the outcomes by recipient.
type Noted = (UnixMillis, Vec<(u32, Outcome)>);

struct Candidate {
    message: Message,
    recipients: Vec<RecipientState>,
}

impl Candidate {
    /// A record that was moved says itself what was noted before.
    fn note(&mut self, noted: Vec<Noted>) {
        let known: Vec<_> = self.recipients.iter().map(|s| s.last.as_ref().map(|(at, _)| *at)).collect();
        for (at, results) in noted {
            for (index, outcome) in results {
                let Some(state) = self.recipients.get_mut(index as usize) else { continue };
                // The clock may have gone back; an end is an end whenever it was.
                let is_news = outcome.disposition != Disposition::Deferred
                    || known[index as usize].is_none_or(|last| at > last);
                if is_news && !state.settled {
                    fold(state, at, outcome);
                }
            }
        }
    }

    fn whole(self, chunks: &HashMap<u64, Option<Vec<u8>>>) -> Salvaged {
        let mut lost_bytes = 0;
        let mut parts = Vec::new();
        for part in self.message.content.parts() {
            match part {
                Part::Memory(bytes) => parts.push(Part::Memory(bytes.clone())),
                Part::Stored { chunk_id, length_bytes } => match chunks.get(&chunk_id.0) {
                    Some(Some(bytes)) => parts.push(Part::Memory(bytes.clone().into())),
                    _ => lost_bytes += u64::from(*length_bytes),
                },
            }
        }
        let content = Content::new(self.message.content.traits, parts);
        Salvaged { message: Message { content, ..self.message }, recipients: self.recipients, lost_bytes }
    }
}

struct Heap {
    live: HashSet<u64>,
    /// Nothing is left to do for them. Segments whose headers are lost come last, with messages whose ends
    /// were seen long before.
    done: HashSet<u64>,
    /// Outcomes of messages that are neither live nor done, wherever they were read.
    noted: HashMap<u64, Vec<Noted>>,
    take_torn: bool,
    candidates: HashMap<u64, Candidate>,
    order: Vec<u64>,
    segment: String,
    in_tail: bool,
    report: SalvageReport,
}

impl Heap {
    fn new(live: HashSet<u64>, take_torn: bool) -> Self {
        Self {
            live,
            done: HashSet::new(),
            noted: HashMap::new(),
            take_torn,
            candidates: HashMap::new(),
            order: Vec::new(),
            segment: String::new(),
            in_tail: false,
            report: SalvageReport::default(),
        }
    }

    fn read(dir: &Path) -> Result<Self, SpoolFailure> {
        let disk =
            RealDisk::new(dir).map_err(|e| SpoolFailure::Io(format!("open {}: {e}", dir.display())))?;
        let mut live = HashSet::new();
        let (_, recovery) = LogReader::open(disk, false, &mut |found| {
            live.insert(found.message.id.0);
        })?;
        let take_torn = !recovery.corrupt.is_empty();
        let mut heap = Self::new(live, take_torn);
        heap.report.recovery = recovery;
        dump_log(dir, &mut |item| heap.see(item))?;
        Ok(heap)
    }

    /// Is there nothing to bring out, and no damage?
    fn is_empty(&self) -> bool {
        let SalvageReport { recovery, damage, .. } = &self.report;
        self.candidates.is_empty() && damage.is_empty() && recovery.corrupt.is_empty()
    }

    fn common_with(mut self, earlier: &Self) -> Self {
        self.candidates.retain(|id, _| earlier.candidates.contains_key(id));
        self.report.damage.retain(|what| earlier.report.damage.contains(what));
        let before = &earlier.report.recovery;
        self.report.recovery.corrupt.retain(|what| before.corrupt.contains(what));
        self
    }

    fn see(&mut self, item: LogItem<'_>) {
        match item {
            LogItem::Segment { name, .. } => (self.segment, self.in_tail) = (name.to_owned(), false),
            LogItem::Empty { .. } | LogItem::Batch { .. } => self.in_tail = false,
            LogItem::Torn { .. } => self.in_tail = true,
            LogItem::Unread { name, why } => self.report.damage.push(format!("{name}: {why}")),
            LogItem::Damage { from, to, why } => {
                self.in_tail = false;
                self.report.damage.push(format!("{}: bytes {from} to {to}: {why}", self.segment));
            }
            LogItem::Record { is_loose, body, .. } => {
                if is_loose && self.in_tail && !self.take_torn {
                    self.report.torn_count += u64::from(matches!(body, RecordBody::Message { .. }));
                    return;
                }
                self.report.loose_count += u64::from(is_loose);
                self.take(body);
            }
        }
    }

    fn take(&mut self, body: RecordBody) {
        match body {
            RecordBody::Message { message, states, .. } if self.is_missing(message.id) => {
                let id = message.id.0;
                let fresh = || vec![RecipientState::default(); message.envelope.recipients.len()];
                let recipients = states.unwrap_or_else(fresh);
                if self.candidates.insert(id, Candidate { message: *message, recipients }).is_none() {
                    self.order.push(id);
                }
            }
            RecordBody::Outcome { id, at, results } if self.is_missing(id) => {
                self.noted.entry(id.0).or_default().push((at, results));
            }
            RecordBody::Tombstone { id } => {
                self.done.insert(id.0);
                self.candidates.remove(&id.0);
                self.noted.remove(&id.0);
            }
            RecordBody::Message { .. }
            | RecordBody::Outcome { .. }
            | RecordBody::Hold { .. }
            | RecordBody::HoldReason { .. }
            | RecordBody::Chunk { .. }
            | RecordBody::Totals { .. }
            | RecordBody::Nonsense { .. } => {}
        }
    }

    /// Neither live nor known to be done.
    fn is_missing(&self, id: QueueId) -> bool {
        !self.live.contains(&id.0) && !self.done.contains(&id.0)
    }

    fn wanted_chunks(&self) -> HashMap<u64, Option<Vec<u8>>> {
        let contents = self.candidates.values().map(|c| &c.message.content);
        contents.flat_map(super::index::chunk_ids).map(|chunk_id| (chunk_id, None)).collect()
    }
}
