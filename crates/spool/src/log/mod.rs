//! The log: one append-only sequence of batches over segments that were prepared beforehand, one
//! sync for many transactions, an index in memory. docs/spool-format.md has its bytes.

mod commit;
mod compact;
pub(crate) mod dump;
#[cfg(test)]
mod earlier_version_tests;
mod epoch;
mod header;
mod index;
mod missing;
mod newest;
mod open;
#[cfg(test)]
mod parallel_tests;
mod read;
mod read_ahead;
pub(crate) mod reader;
mod recover;
mod replay;
mod retain;
pub(crate) mod salvage;
mod scan_range;
mod segment_allocator;
#[cfg(test)]
mod segment_allocator_tests;
pub(crate) mod segment_index;
mod stepper;
pub(crate) mod tolerant;

use crate::{
    CommitSeq, CommitStats, Durable, Failed, Pressure, RecipientState, Recovered, RecoveryReport, Refused,
    Spool, SpoolFailure, Totals, Transaction,
    commit_queue::{self, Pending, Urgency},
    disk::{Disk, RealDisk},
    format::{
        block::ALIGN,
        message::{Stored, fold, read_message, read_results},
        record::Kind,
        wire::Malformed,
    },
    group_commit::GroupCommit,
    mutant::{ActiveMutant, Mutant},
};
use bytes::Bytes;
use commit::LogCommitter;
use index::{Index, Location, MessageEntry};
use mail::{ChunkId, Message, Part, QueueId, SharedMessage};
use read::{Note, ReadNote, Source, is_repeated, read_record};
use recover::{Reading, TailBatch};
use segment_allocator::{Mark, SegmentAllocator, SpaceLimits};
use std::{
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};
use stepper::Stepper;
pub use stepper::WorkStep;

/// How much of the disk and of memory the log may use.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Size of a new segment in bytes.
    pub segment_bytes: u64,
    /// All segments together; zero: what the disk has.
    pub max_bytes: u64,
    /// Must stay free on the disk.
    pub min_free_bytes: u64,
    /// Bytes that may wait for the commit thread, less when the log is nearly full; above, [`Refused::Busy`].
    pub queued_bytes_max: u64,
    /// Longest time that outcomes may wait for a commit that they can share.
    pub outcome_delay: Duration,
    /// Threads that read the log at the start.
    pub read_threads: usize,
    /// For the laboratory: a commit begins so long after the first entry that is awaited. Without it the commits decide ([`max_batch_delay`]).
    ///
    /// [`max_batch_delay`]: crate::max_batch_delay
    pub commit_window: Option<Duration>,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            max_bytes: 0,
            min_free_bytes: 64 * 1024 * 1024,
            queued_bytes_max: 32 * 1024 * 1024,
            outcome_delay: Duration::from_millis(50),
            read_threads: crate::parallel::default_threads(),
            commit_window: None,
        }
    }
}

/// Work that waits for the commit thread.
pub(crate) enum Work {
    Transaction(Transaction),
    Chunk(u64, Bytes),
    Move(Box<compact::Relocated>),
    MoveChunk(Box<compact::RelocatedChunk>),
    MoveKept(Box<compact::RelocatedNotes>),
}

/// What was found wrong with stored bytes, for the operator's check.
#[derive(Debug, Default)]
struct Faults {
    /// Seen at the start.
    corrupt: Vec<String>,
    unread: Vec<String>,
    quarantined: Vec<String>,
    /// The reason why the last compaction could not do its work.
    compaction: Option<String>,
}

pub(crate) struct Shared {
    settings: LogSettings,
    allocator: Arc<SegmentAllocator>,
    group_commit: GroupCommit<Work>,
    index: Mutex<Index>,
    next_chunk: AtomicU64,
    current_free: AtomicU64,
    compacting: AtomicBool,
    compactor: Mutex<Option<JoinHandle<()>>>,
    round: Mutex<compact::Round>,
    faults: Mutex<Faults>,
    /// The totals with everything that was written.
    totals: Mutex<Totals>,
    /// A commit found no room, although its segment was prepared: the file system takes new blocks for what is
    /// written in place. No mail is accepted until it has succeeded.
    lacks_room: AtomicBool,
    pub(crate) mutant: ActiveMutant,
}

/// Time that outcomes may wait for a commit while the log is full, unless the usual time is longer.
const FULL_OUTCOME_DELAY: Duration = Duration::from_secs(1);
/// Interval at which the spool's directory is looked for under its name.
const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Shared {
    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn compactor(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.compactor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn round(&self) -> MutexGuard<'_, compact::Round> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most bytes that a transaction, a chunk or a moved message may have: a batch lies within a segment, which has
    /// its header twice; the batch has a header of its own and is padded.
    fn record_bytes_max(&self) -> u64 {
        self.settings.segment_bytes.saturating_sub(4 * ALIGN as u64)
    }

    /// Reads the body of a record of this kind; wrong bytes are [`SpoolFailure::Corrupt`].
    fn record(&self, at: Location, kind: Kind, name: u64) -> Result<Vec<u8>, SpoolFailure> {
        self.record_from(Source::Disk, at, kind, name)
    }

    fn record_from(
        &self,
        source: Source,
        at: Location,
        kind: Kind,
        name: u64,
    ) -> Result<Vec<u8>, SpoolFailure> {
        let (found, body) = self.any_record_from(source, at, name)?;
        if found == kind { Ok(body) } else { Err(self.unexpected(at)) }
    }

    /// Reads a record, and returns its kind and body.
    fn any_record(&self, at: Location, name: u64) -> Result<(Kind, Vec<u8>), SpoolFailure> {
        self.any_record_from(Source::Disk, at, name)
    }

    fn any_record_from(
        &self,
        source: Source,
        at: Location,
        name: u64,
    ) -> Result<(Kind, Vec<u8>), SpoolFailure> {
        let (file, seed, segment) = {
            let index = self.index();
            let segment = index.segment(at.segment).ok_or(SpoolFailure::Missing)?;
            (segment.file.clone(), segment.header.seed, segment.name.clone())
        };
        read_record(source, &*file, seed, &segment, at, name)
    }

    fn unexpected(&self, at: Location) -> SpoolFailure {
        let name = self.index().segment(at.segment).map(|segment| segment.name.clone()).unwrap_or_default();
        SpoolFailure::Corrupt(format!("{name} at {}: another record than expected", at.offset))
    }

    fn message(&self, source: Source, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        let entry = self.entry(id)?;
        let body = self.record_from(source, entry.at, Kind::Message, id.0)?;
        let stored = read_message(id, &body, true);
        let stored = stored.map_err(|m| SpoolFailure::Corrupt(format!("{id}: {}", m.0)))?;
        Ok(SharedMessage::new(stored.message))
    }

    fn chunk(&self, source: Source, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        let at = self.index().chunks.get(&chunk_id.0).copied().ok_or(SpoolFailure::Missing)?;
        self.record_from(source, at, Kind::Chunk, chunk_id.0).map(Bytes::from)
    }

    /// A message with the outcomes noted since it was written, and why it is held.
    fn fold(&self, id: QueueId, entry: &MessageEntry, with_content: bool) -> Result<Folded, SpoolFailure> {
        let body = self.record(entry.at, Kind::Message, id.0)?;
        let bad = |m: Malformed| SpoolFailure::Corrupt(format!("{id}: {}", m.0));
        Ok(self.fold_stored(id, entry, read_message(id, &body, with_content).map_err(bad)?))
    }

    /// Folds the notes of a message into its recipient states; `stored` is the message as it was read.
    fn fold_stored(&self, id: QueueId, entry: &MessageEntry, stored: Stored) -> Folded {
        let fresh = || vec![RecipientState::default(); stored.message.envelope.recipients.len()];
        let (mut states, mut held) = (stored.states.unwrap_or_else(fresh), stored.held);
        let (mut lost, mut reason) = (None, Box::default());
        for at in self.latest_notes(id, entry) {
            let bad = |m: Malformed| SpoolFailure::Corrupt(m.0.to_owned());
            let (at, read) = at;
            let read = read.and_then(|(kind, body)| match kind {
                Kind::Hold => hold_note(&body).map_err(bad),
                Kind::Outcome => {
                    let (when, results) = read_results(&body).map_err(bad)?;
                    Ok(Note::Outcome(when, results))
                }
                Kind::Message | Kind::Tombstone | Kind::Chunk | Kind::Totals => Err(self.unexpected(at)),
            });
            match read {
                Ok(Note::HoldReason(text)) => reason = text,
                Ok(Note::Hold(is_held)) => held = is_held.then(|| std::mem::take(&mut reason)),
                Ok(Note::Outcome(when, results)) => {
                    for (index, outcome) in results {
                        if let Some(state) = states.get_mut(index as usize) {
                            fold(state, when, outcome);
                        }
                    }
                }
                // Better tried once more than never: the message itself is whole.
                Err(failure) => {
                    if let Some(segment) = self.index().segment_mut(at.segment) {
                        // Who started with its index file did not see that.
                        segment.is_damaged |= matches!(failure, SpoolFailure::Corrupt(_));
                    }
                    let text = format!("{id}: what became of an attempt is lost: {failure}");
                    lost = Some(match failure {
                        SpoolFailure::Io(_) => SpoolFailure::Io(text),
                        _ => SpoolFailure::Corrupt(text),
                    });
                }
            }
        }
        Folded { message: stored.message, states, held, lost, unknown: stored.unknown }
    }

    /// Reads the notes of a message. Notes of a message whose own record is parked are written again as they
    /// were: of copies the last counts.
    fn latest_notes(&self, id: QueueId, entry: &MessageEntry) -> Vec<ReadNote> {
        let notes = entry.extras.iter().flat_map(|more| &more.notes);
        let mut read: Vec<ReadNote> = notes.map(|at| (*at, self.any_record(*at, id.0))).collect();
        if read.len() > 1 {
            let later: Vec<bool> = (0..read.len()).map(|n| is_repeated(&read, n)).collect();
            let mut is_repeated = later.into_iter();
            read.retain(|_| !is_repeated.next().unwrap_or(false));
        }
        read
    }

    fn entry(&self, id: QueueId) -> Result<MessageEntry, SpoolFailure> {
        self.index().messages.get(&id.0).cloned().ok_or(SpoolFailure::Missing)
    }

    /// Segments in which nothing lives any more are free for another life.
    fn recycle_dead(&self) {
        // The index is not let go of between the two: what another thread finds dead afterwards may hold what
        // ended messages in these, and must not come before them.
        let mut index = self.index();
        let dead = index.take_dead();
        self.allocator.recycle(dead);
    }

    /// Returns the time that outcomes may wait for a commit. Each commit takes a block of the reserve while nothing
    /// else
    /// is left.
    fn outcome_delay(&self) -> Duration {
        let usual = self.settings.outcome_delay;
        if self.allocator.usable_count() > 0 { usual } else { usual.max(FULL_OUTCOME_DELAY) }
    }

    /// Ends the log. Only the first failure is reported. The allocator of segments is closed, so that a commit thread that
    /// waits for a segment ends.
    fn poison(&self, failure: SpoolFailure) {
        self.group_commit.poison(failure, || self.allocator.close());
    }

    /// Runs the thread that notices when the spool's place is gone, until the log is closed or has failed.
    fn watch_place(&self) {
        while self.group_commit.closing.wait(LOOK_EVERY) {
            if let Err(e) = self.allocator.disk().check_place() {
                self.poison(SpoolFailure::Io(format!("look for the spool: {e}")));
                return;
            }
        }
    }

    /// After a commit that found no room: waits for a while, after which it may be tried again.
    ///
    /// # Errors
    /// The log is being closed, or has failed, or has no thread that could wait.
    fn await_room(&self, doing: &str, e: &std::io::Error) -> Result<(), SpoolFailure> {
        if !self.lacks_room.swap(true, Ordering::Relaxed) {
            tracing::error!("{doing} the log: {e}: mail is refused until the disk has space");
        }
        let may_retry = !self.allocator.is_single_stepped()
            && self.group_commit.closing.wait(LOOK_EVERY)
            && !self.group_commit.is_poisoned();
        if may_retry { Ok(()) } else { Err(SpoolFailure::Io(format!("{doing} the log: {e}"))) }
    }

    /// Notes a commit that found room.
    fn note_room(&self) {
        if self.lacks_room.load(Ordering::Relaxed) {
            self.lacks_room.store(false, Ordering::Relaxed);
            tracing::info!("the disk has space again");
        }
    }
}

/// The spool as a write-ahead log in segments, which compaction frees.
pub struct LogSpool {
    shared: Arc<Shared>,
    found: Option<recover::Found>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// In place of the threads, when the caller does their work.
    stepper: Mutex<Option<Stepper>>,
}

impl LogSpool {
    /// Opens the log in a directory, which is made when missing. Nothing else may have it open.
    ///
    /// # Errors
    /// [`SpoolFailure::Unusable`] when another process has it, or another version or backend wrote it.
    pub fn open(path: &Path, settings: LogSettings) -> Result<Self, SpoolFailure> {
        if crate::dirs::find::has_queues(path) {
            let text = format!(
                "{} has queue directories, of the backend \"queue-dirs\"; `postrider spool convert` moves \
                 their messages",
                path.display()
            );
            return Err(SpoolFailure::Unusable(text));
        }
        let disk =
            RealDisk::new(path).map_err(|e| SpoolFailure::Io(format!("open {}: {e}", path.display())))?;
        disk.durability_warning().iter().for_each(|warning| tracing::warn!("{warning}"));
        Self::on(Arc::new(disk), settings)
    }

    /// As [`LogSpool::open`], on any [`Disk`].
    pub fn on(disk: Arc<dyn Disk>, settings: LogSettings) -> Result<Self, SpoolFailure> {
        Self::opened(disk, settings, ActiveMutant::default(), false)
    }

    /// Opens a log that breaks a rule, with threads or without (see [`LogSpool::single_stepped`]).
    #[cfg(feature = "mutants")]
    pub fn open_mutant(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        mutant: Mutant,
        is_single_stepped: bool,
    ) -> Result<Self, SpoolFailure> {
        Self::opened(disk, settings, ActiveMutant::new(mutant), is_single_stepped)
    }

    fn opened(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        mutant: ActiveMutant,
        single_stepped: bool,
    ) -> Result<Self, SpoolFailure> {
        disk.lock().map_err(|e| {
            SpoolFailure::Unusable(format!("lock the spool: {e}: is another process using it?"))
        })?;
        // A simulation decides what is read before what.
        let reading = Reading::on(if single_stepped { 1 } else { settings.read_threads });
        let mut found = recover::scan(&*disk, mutant, reading)?;
        let shared = Self::shared(disk, settings, mutant, single_stepped, &mut found);
        let (threads, stepper) = (Mutex::default(), Mutex::default());
        Ok(Self { shared: Arc::new(shared), found: Some(found), threads, stepper })
    }

    fn shared(
        disk: Arc<dyn Disk>,
        settings: LogSettings,
        mutant: ActiveMutant,
        single_stepped: bool,
        found: &mut recover::Found,
    ) -> Shared {
        let limits = SpaceLimits {
            segment_bytes: settings.segment_bytes,
            max_bytes: settings.max_bytes,
            min_free_bytes: settings.min_free_bytes,
        };
        let old = std::mem::take(&mut found.empty);
        let next = (found.next_sequence, found.next_number);
        let allocator = SegmentAllocator::new(disk, limits, single_stepped, found.segment_count, next, old);
        Shared {
            group_commit: GroupCommit::new(settings.queued_bytes_max, settings.commit_window),
            settings,
            allocator: Arc::new(allocator),
            index: Mutex::new(std::mem::take(&mut found.index)),
            next_chunk: AtomicU64::new(found.next_chunk),
            current_free: AtomicU64::new(0),
            compacting: AtomicBool::new(false),
            compactor: Mutex::default(),
            round: Mutex::default(),
            faults: Mutex::default(),
            totals: Mutex::default(),
            lacks_room: AtomicBool::new(false),
            mutant,
        }
    }

    /// Returns when the segments that are kept ready are, or the disk has no room for them: made without the
    /// pauses that leave the disk to mail. For measurements that are to begin as a daemon is after a
    /// while; after [`Spool::recover`].
    pub fn make_segments_ready(&self) {
        self.shared.allocator.fill_now();
    }

    fn start(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), SpoolFailure> {
        let shared = self.shared.clone();
        let thread = crate::parallel::start_thread(name, run, move |failure| shared.poison(failure))?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Writes the batch again that was written last and perhaps never synced, in a fresh segment.
    fn rewrite_tail(&self, found: &mut recover::Found) -> Result<LogCommitter, SpoolFailure> {
        let sequence = found.last.as_ref().map_or(1, |last| last.sequence);
        let tail_bytes = found.last.as_ref().map_or(0, TailBatch::bytes);
        let mut committer = LogCommitter::new(self.shared.clone(), sequence, tail_bytes)?;
        // In an epoch of its own nothing has a number that something had that could not be read.
        let first = if found.begins_epoch { epoch::first(found.epoch) } else { 0 };
        if self.shared.mutant.is(Mutant::SkipTailRewrite) {
            std::mem::swap(&mut found.index, &mut self.shared.index());
            recover::settle_last(found);
            std::mem::swap(&mut found.index, &mut self.shared.index());
            return Ok(committer.at_sequence(first.max(sequence + 1)));
        }
        let has_tail = found.last.is_some();
        let records = found.last.take().map_or(Vec::new(), TailBatch::into_records);
        committer.write_again(&records)?;
        self.shared.allocator.recycle(found.take_rewritten_tails(&mut self.shared.index()));
        Ok(committer.at_sequence(first.max(sequence + u64::from(has_tail))))
    }

    /// Counts on from above everything that was used, where this start could not read all of the log.
    fn begin_epoch(&self, found: &mut recover::Found) -> Result<(), SpoolFailure> {
        if !found.is_incomplete() || self.shared.mutant.is(Mutant::ReuseNumbers) {
            return Ok(());
        }
        found.epoch += 1;
        found.begins_epoch = true;
        let failed = |e: std::io::Error| SpoolFailure::Io(format!("begin an epoch of the log: {e}"));
        self.shared.allocator.begin_epoch(found.epoch, &found.markers).map_err(failed)?;
        if !self.shared.mutant.is(Mutant::ReuseChunkId) {
            self.shared.next_chunk.fetch_max(epoch::first_chunk(found.epoch), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Takes damaged segments in which nothing is left out of the log.
    fn quarantine(&self, dead: Vec<index::Segment>, report: &mut RecoveryReport) -> Result<(), SpoolFailure> {
        let quarantine_one = self.shared.allocator.quarantine(dead);
        let failed = |e: std::io::Error| SpoolFailure::Io(format!("set a damaged segment aside: {e}"));
        report.quarantined.extend(quarantine_one.map_err(failed)?);
        Ok(())
    }

    /// Begins to keep what ended messages that may come back.
    fn begin_retention(&self, found: &mut recover::Found) {
        if self.shared.mutant.is(Mutant::DropTombstones) {
            return;
        }
        let tail = found.last.as_ref().map(|last| last.sequence);
        let mut index = self.shared.index();
        index.highest_id = index.highest_id.max(found.highest_id_in_tail());
        for segment in &found.missing {
            // The segment may be restored.
            segment.ids.iter().for_each(|id| index.retention.add(*id, index::NOWHERE));
        }
        retain::begin_at_start(self.shared.allocator.disk(), &mut index, &mut found.report, tail);
    }

    /// A record may move between looking it up and reading it: then it is looked up again.
    fn retrying<T>(&self, mut read: impl FnMut() -> Result<T, SpoolFailure>) -> Result<T, SpoolFailure> {
        let first = read();
        if matches!(first, Err(SpoolFailure::Missing | SpoolFailure::Corrupt(_))) { read() } else { first }
    }

    fn admit(&self, bytes: u64, internal: bool) -> Result<MutexGuard<'_, Pending<Work>>, Refused> {
        if bytes > self.shared.record_bytes_max() {
            return Err(Refused::TooLarge);
        }
        let may_use_all = internal || self.shared.mutant.is(Mutant::SpendReserve);
        let usable_count = if may_use_all { u64::MAX } else { self.shared.allocator.usable_count() };
        let lacks_room = !internal && self.shared.lacks_room.load(Ordering::Relaxed);
        if usable_count == 0 || lacks_room {
            compact::start_compaction_if_due(&self.shared);
            return Err(Refused::Full);
        }
        // What waits, and as much again that is being written, must find room besides the reserve; a third is for
        // what stays empty at the end of segments.
        let room_bytes = usable_count.saturating_mul(self.shared.settings.segment_bytes);
        self.shared.group_commit.queue.admit_within(room_bytes / 3, bytes, internal)
    }
}

/// A message with its outcomes and holds applied.
pub(crate) struct Folded {
    message: Message,
    states: Vec<RecipientState>,
    held: Option<Box<str>>,
    /// Why a part of its outcomes or holds could not be read; `None` if all were.
    lost: Option<SpoolFailure>,
    /// Extensions of a later version.
    unknown: Box<[u8]>,
}

/// Reads a hold or a release, or the reason that a hold has in a note of its own before it: an earlier version takes that
/// for a release, and then sees the hold.
fn hold_note(body: &[u8]) -> Result<Note, Malformed> {
    match body.split_first() {
        Some((&HOLD_REASON, text)) => {
            let text = std::str::from_utf8(text).map_err(|_| Malformed("the reason of a hold"))?;
            Ok(Note::HoldReason(text.into()))
        }
        _ => Ok(Note::Hold(body == [1])),
    }
}

/// The first byte of a hold's record with the reason of the hold.
const HOLD_REASON: u8 = 2;

/// At least what the past of a message takes in a batch.
fn states_bytes(states: &[RecipientState]) -> usize {
    states.iter().map(|s| 24 + s.last.as_ref().map_or(0, |l| l.1.text.len())).sum()
}

/// At least what a message takes in a batch.
fn message_bytes(message: &Message) -> usize {
    let in_memory: usize =
        message.content.parts().iter().map(|p| 16 + if let Part::Memory(b) = p { b.len() } else { 0 }).sum();
    let names: usize = message
        .envelope
        .recipients
        .iter()
        .map(|r| 8 + r.path.as_str().len() + r.orcpt.as_ref().map_or(0, |o| o.len()))
        .sum();
    512 + message.origin.text_bytes_max()
        + in_memory
        + names
        + message.envelope.envid.as_ref().map_or(0, |e| e.len())
        + crate::format::extension::bytes_max(&message.envelope)
}

impl Spool for LogSpool {
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        let (internal, urgency) = commit_queue::classify(transaction);
        let bytes = transaction.iter().map(|entry| commit::entry_bytes(entry) as u64).sum();
        let commit_queue = self.admit(bytes, internal)?;
        self.shared.group_commit.note_transaction();
        let work = Work::Transaction(std::mem::take(transaction));
        Ok(self.shared.group_commit.queue.push(commit_queue, work, bytes, urgency))
    }

    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        let commit_queue = self.admit(chunk.len() as u64, false)?;
        let chunk_id = self.shared.next_chunk.fetch_add(1, Ordering::Relaxed);
        let bytes = chunk.len() as u64;
        // Written behind the others, so that memory is not needed longer than the disk needs.
        self.shared.group_commit.queue.push(
            commit_queue,
            Work::Chunk(chunk_id, chunk),
            bytes,
            Urgency::Immediate,
        );
        Ok(ChunkId(chunk_id))
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        if self.shared.mutant.is(Mutant::KeepDiscarded) {
            return;
        }
        let mut index = self.shared.index();
        chunk_ids.iter().for_each(|chunk_id| index.abandon_chunk(chunk_id.0));
        drop(index);
        // A full log commits nothing that would do it.
        self.shared.recycle_dead();
    }

    fn durable(&self, commit_seq: CommitSeq) -> Durable {
        self.shared.group_commit.durable(commit_seq)
    }

    fn poll_durable(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>> {
        self.shared.group_commit.progress.look(commit_seq)
    }

    fn failed(&self) -> Failed {
        self.shared.group_commit.failed()
    }

    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure> {
        self.retrying(|| self.shared.message(Source::Disk, id))
    }

    fn read_cached(&self, id: QueueId) -> Option<SharedMessage> {
        self.shared.message(Source::Cache, id).ok()
    }

    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.retrying(|| self.shared.chunk(Source::Disk, chunk_id))
    }

    fn load_cached(&self, chunk_id: ChunkId) -> Option<Bytes> {
        self.shared.chunk(Source::Cache, chunk_id).ok()
    }

    fn room_bytes(&self) -> u64 {
        // Mail never gets the reserve.
        let reserve_bytes = segment_allocator::RESERVE as u64 * self.shared.settings.segment_bytes;
        match self.pressure().free_bytes {
            0 => 0,
            prepared => prepared
                .saturating_add(self.shared.allocator.unmade_bytes())
                .saturating_sub(reserve_bytes)
                .max(1),
        }
    }

    fn recover(&mut self, visit: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        let mut found =
            self.found.take().ok_or_else(|| SpoolFailure::Unusable("recovered already".to_owned()))?;
        let allocator = self.shared.allocator.clone();
        let single_stepped = allocator.is_single_stepped();
        allocator
            .tidy_names(&found.unfinished)
            .map_err(|e| SpoolFailure::Io(format!("tidy the spool's directory: {e}")))?;
        // Before anything is written, and before anything is freed.
        self.begin_epoch(&mut found)?;
        self.begin_retention(&mut found);
        let mut unread = found.unopened.clone();
        unread.extend(self.shared.index().parked.values().map(|segment| segment.name.clone()));
        self.shared
            .allocator
            .mark_parked(unread.iter().map(String::as_str), Mark::Unread)
            .and_then(|()| {
                // Segments behind a missing one may be freed before it is restored.
                let missing = found.missing.iter().map(|segment| segment.segment.as_str());
                self.shared.allocator.mark_parked(missing, Mark::Damaged)
            })
            .map_err(|e| SpoolFailure::Io(format!("mark what cannot be read: {e}")))?;
        let dead = found.take_dead(&mut self.shared.index());
        self.quarantine(dead, &mut found.report)?;
        if !single_stepped {
            let shared = self.shared.clone();
            self.start("spool-prepare", move || {
                allocator.run();
                // No commit may come for a segment and meet the failure.
                if let Some(failure) = allocator.failure()
                    && !shared.group_commit.closing.is_begun()
                {
                    shared.poison(SpoolFailure::Io(failure));
                }
            })?;
            let shared = self.shared.clone();
            self.start("spool-watch", move || shared.watch_place())?;
        }
        // Who prepares segments must not outlive a start that failed.
        let committer = self.rewrite_tail(&mut found).inspect_err(|_| self.shared.allocator.close())?;
        // A message that names a chunk may be where nothing can be read.
        if found.report.unread.is_empty() || self.shared.mutant.is(Mutant::DropTombstones) {
            self.shared.index().forget_orphans();
        }
        let shared = self.shared.clone();
        if single_stepped {
            self.stepper = Mutex::new(Some(Stepper::new(committer)));
        } else {
            self.start("spool-commit", move || {
                crate::sched::raise();
                committer.run();
                shared.allocator.close();
            })?;
        }
        self.shared.replay_with_totals(&mut found, visit);
        // Not before: it frees what is visited.
        let dead = {
            let mut index = self.shared.index();
            let current = index.current;
            index.take_dead_before(current, true)
        };
        self.quarantine(dead, &mut found.report)?;
        {
            let mut faults = self.shared.faults();
            faults.corrupt.clone_from(&found.report.corrupt);
            faults.unread.clone_from(&found.report.unread);
            faults.quarantined.clone_from(&found.report.quarantined);
        }
        // Not before: it moves records away from where they are visited.
        compact::start_compaction_if_due(&self.shared);
        Ok(found.report)
    }

    fn faults(&self) -> Vec<String> {
        let faults = self.shared.faults();
        let found = crate::fault_lines(&faults.corrupt, &faults.unread);
        let quarantined = faults.quarantined.iter().map(|name| {
            format!("quarantined: {name}; `postrider spool salvage` brings out what can be proved of it")
        });
        let compaction = faults.compaction.iter().map(|why| format!("compaction pauses: {why}"));
        found.chain(quarantined).chain(compaction).collect()
    }

    fn pressure(&self) -> Pressure {
        let shared = &self.shared;
        let free_bytes = if shared.allocator.usable_count() == 0 || shared.lacks_room.load(Ordering::Relaxed)
        {
            0
        } else {
            // While segments are being prepared there is room for one at least.
            let ready_bytes = shared.allocator.ready_bytes().max(shared.settings.segment_bytes);
            ready_bytes + shared.current_free.load(Ordering::Relaxed)
        };
        Pressure {
            free_bytes,
            message_count: shared.index().messages.len() as u64,
            awaits_room: shared.lacks_room.load(Ordering::Relaxed),
            ..shared.group_commit.pressure()
        }
    }

    fn commit_stats(&self) -> CommitStats {
        self.shared.group_commit.queue.stats()
    }

    fn close(&self) {
        // First: what the threads end with from now on is no failure.
        self.shared.group_commit.closing.begin();
        self.shared.group_commit.queue.close();
        self.shared.allocator.end();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A thread that panicked has poisoned the log.
            let _ = thread.join();
        }
        // The compaction thread, too: it holds the disk, and with it the lock. Nothing it waits for comes any more.
        let compactor = self.shared.compactor().take();
        compactor.into_iter().for_each(|thread| drop(thread.join()));
        let shared = &self.shared;
        // Without a commit nobody has written the last batch again that was found.
        let is_sound = !shared.group_commit.is_poisoned() && shared.group_commit.has_committed();
        while is_sound && !shared.allocator.is_single_stepped() && segment_index::make_one(shared, true) {}
    }
}

impl Drop for LogSpool {
    fn drop(&mut self) {
        self.close();
    }
}
