//! Queue directories: two files a message in directories of an operator's choosing, as Sendmail keeps
//! them, made durable in batches. docs/spool-directories.md has the bytes.
//!
//! A message is `ID.env`, its envelope and what became of it, and `ID.msg`, its content. It is accepted
//! when its envelope file has that name, and gone when the file is: both are one change of one name. What
//! happens in between is appended to the envelope file, line by line, each with a checksum.
//!
//! A batch commits what waits:
//!
//! 1. Chunks, content and envelopes are written, the envelopes as `ID.new`; every file is synced, then
//!    every directory with new files. A crash until here leaves files that no envelope names.
//! 2. When a transaction changes several messages, what shall become of them is written to one *intent*,
//!    which is synced, gets its name, and whose directory is synced. With that it will happen, to all of
//!    them; without, to none. It names bytes, offsets and ids, so that it may be done over again.
//! 3. Lines are appended and synced; `ID.new` becomes `ID.env`, envelopes of ended messages are removed;
//!    every directory whose names changed is synced. Only now the commit sequence numbers are durable.
//! 4. Content and chunks of ended messages, and the intent, are removed, without a sync: should they come
//!    back, no envelope names the former, and the latter change nothing.
//!
//! A write that finds no room is final only when the spool is being closed: until then new files are removed,
//! mail is refused, and the batch is written again when the disk may have room. A failed sync is final.
//!
//! A crash in the third step leaves some of what was not acknowledged: of one message what came first,
//! and of what an intent names all. That is less than the log promises, where transactions survive in
//! the order of their commit sequence numbers, and as much as [`Spool`] does.

mod commit;
mod commit_batch;
mod envelope;
pub(crate) mod find;
mod finish;
pub(crate) mod fuzz;
mod index;
mod intent;
mod line;
mod listing;
pub(crate) mod name_only;
mod names;
mod note;
mod pending_sync;
mod queues;
pub(crate) mod reader;
mod recover;
mod room;
mod shared;
mod space_monitor;
mod split_disk;
mod stepper;
pub(crate) mod totals;

pub use find::Layout;
pub use name_only::Listed;
pub use queues::{Placement, QueueDirectory};
pub use split_disk::SplitDisk;

use crate::{
    CommitSeq, CommitStats, ControlOp, Durable, Entry, Failed, Pressure, RecipientState, Recovered,
    RecoveryReport, Refused, Spool, SpoolFailure, Transaction,
    commit_queue::{self, Pending, Urgency},
    disk::RealDisk,
    mutant::{ActiveMutant, Mutant},
};
use bytes::Bytes;
use commit::DirCommitter;
use index::{Chunk, blocks};
use mail::{ChunkId, Message, QueueId, Recipient, SharedMessage};
use queues::Queues;
use shared::{Shared, Work};
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

/// How queue directories are used.
#[derive(Debug, Clone)]
pub struct DirSettings {
    /// All files together; zero: what the disk has.
    pub max_bytes: u64,
    /// Must stay free on the disk.
    pub min_free_bytes: u64,
    /// Beyond that, what only outcomes and reports may use.
    pub reserve_bytes: u64,
    /// Which queue directory new messages go to.
    pub placement: Placement,
    /// The directory for content, in [`DirSpool::open`]; without one, content is beside its envelope.
    pub content_path: Option<PathBuf>,
    /// Bytes that may wait for the commit thread; above, [`Refused::Busy`].
    pub queued_bytes_max: u64,
    /// Longest time that outcomes may wait for a commit that they can share.
    pub outcome_delay: Duration,
    /// Threads that read envelopes at the start.
    pub read_threads: usize,
}

impl Default for DirSettings {
    fn default() -> Self {
        Self {
            max_bytes: 0,
            min_free_bytes: 64 * 1024 * 1024,
            reserve_bytes: 16 * 1024 * 1024,
            placement: Placement::default(),
            content_path: None,
            queued_bytes_max: 32 * 1024 * 1024,
            outcome_delay: Duration::from_millis(50),
            read_threads: crate::parallel::default_threads(),
        }
    }
}

/// Queue directories, a backend of the spool.
pub struct DirSpool {
    shared: Arc<Shared>,
    recovered: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// In place of the threads, when the caller does their work.
    stepper: Option<Mutex<Option<DirCommitter>>>,
    /// The folder of the queue directories, locked.
    folder: Option<RealDisk>,
    /// Directories of the messages that were listed and may not be opened yet.
    listing: Option<listing::Listing>,
    /// Damage and read errors that the start found.
    faults: Vec<String>,
}

impl DirSpool {
    /// Opens queue directories. Nothing else may have them open.
    ///
    /// # Errors
    /// [`SpoolFailure::Unusable`] when another process has one of them, or there is none.
    pub fn on(queues: Vec<QueueDirectory>, settings: DirSettings) -> Result<Self, SpoolFailure> {
        Self::opened(queues, settings, ActiveMutant::default(), false)
    }

    /// Opens queue directories that break a rule, with threads or without (see [`DirSpool::single_stepped`]).
    #[cfg(feature = "mutants")]
    pub fn open_mutant(
        queues: Vec<QueueDirectory>,
        settings: DirSettings,
        mutant: Mutant,
        is_single_stepped: bool,
    ) -> Result<Self, SpoolFailure> {
        Self::opened(queues, settings, ActiveMutant::new(mutant), is_single_stepped)
    }

    fn opened(
        queues: Vec<QueueDirectory>,
        settings: DirSettings,
        mutant: ActiveMutant,
        single_stepped: bool,
    ) -> Result<Self, SpoolFailure> {
        let queues = Queues::new(queues, settings.placement)?;
        queues.lock()?;
        let shared = Arc::new(Shared::new(settings, queues, mutant));
        if single_stepped {
            // The caller would wait for room that only the caller can make.
            shared.group_commit.closing.begin();
        }
        let threads = Mutex::default();
        Ok(Self {
            shared,
            recovered: false,
            threads,
            stepper: single_stepped.then(Mutex::default),
            folder: None,
            listing: None,
            faults: Vec::new(),
        })
    }

    /// From here on, what is submitted is committed.
    fn begin(&mut self, committer: DirCommitter) -> Result<(), SpoolFailure> {
        if let Some(hand) = &mut self.stepper {
            *hand = Mutex::new(Some(committer));
            return Ok(());
        }
        let run = move || {
            crate::sched::raise();
            committer.run();
        };
        let start = |name, run: Box<dyn FnOnce() + Send>| {
            let shared = self.shared.clone();
            crate::parallel::start_thread(name, run, move |failure| shared.poison(failure))
        };
        let shared = self.shared.clone();
        let commit = start("spool-commit", Box::new(run))?;
        let room = start("spool-room", Box::new(move || shared.watch_room()))?;
        self.threads = Mutex::new(vec![commit, room]);
        Ok(())
    }

    fn admit(
        &self,
        bytes: u64,
        blocks: u64,
        internal: bool,
    ) -> Result<MutexGuard<'_, Pending<(Work, u64)>>, Refused> {
        let may_use_all = internal || self.shared.mutant.is(Mutant::SpendReserve);
        if !may_use_all && self.shared.room.free() < blocks {
            return Err(Refused::Full);
        }
        let pending = self.shared.group_commit.queue.admit(bytes, internal)?;
        self.shared.room.promise(blocks);
        Ok(pending)
    }
}

/// Returns the bytes that an entry takes in memory while it waits, and at most on the disk.
fn size(entry: &Entry) -> (u64, u64) {
    match entry {
        Entry::Accept(message) => message_size(message, &[]),
        Entry::Import(found) => message_size(&found.message, &found.recipients),
        Entry::Control { op: ControlOp::Hold(reason), .. } => (64 + reason.len() as u64, 0),
        Entry::Outcome { last: true, .. } | Entry::Control { .. } | Entry::Count(_) => (64, 0),
        Entry::Outcome { results, .. } => {
            let bytes = 64 + results.iter().map(|r| 32 + r.1.text.len() as u64).sum::<u64>();
            (bytes, blocks([bytes]))
        }
    }
}

fn message_size(message: &Message, states: &[RecipientState]) -> (u64, u64) {
    // Each byte of a name or text may take three; each recipient and part has a line.
    let names = |r: &Recipient| 64 + 3 * (r.path.as_str().len() + r.orcpt.as_ref().map_or(0, |o| o.len()));
    let names: usize = message.envelope.recipients.iter().map(names).sum();
    let names = names + 3 * crate::format::extension::bytes_max(&message.envelope);
    let past = |s: &RecipientState| 128 + 3 * s.last.as_ref().map_or(0, |(_, outcome)| outcome.text.len());
    let past: usize = states.iter().map(past).sum();
    let envelope =
        512 + 3 * message.origin.text_bytes_max() + names + past + 64 * message.content.parts().len();
    let content = commit_batch::memory_bytes(message) as u64;
    (envelope as u64 + content, blocks([envelope as u64, content]))
}

impl Spool for DirSpool {
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused> {
        let (mut bytes, mut blocks) = (0, 0);
        let (internal, urgency) = commit_queue::classify(transaction);
        for entry in transaction.iter() {
            let (more_bytes, more_blocks) = size(entry);
            (bytes, blocks) = (bytes + more_bytes, blocks + more_blocks);
        }
        let pending = self.admit(bytes, blocks, internal)?;
        self.shared.group_commit.note_transaction();
        Ok(self.shared.group_commit.queue.push(
            pending,
            (Work::Transaction(std::mem::take(transaction)), blocks),
            bytes,
            urgency,
        ))
    }

    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused> {
        let length = chunk.len() as u64;
        let blocks = blocks([length]);
        let pending = self.admit(length, blocks, false)?;
        let chunk_id = self.shared.new_chunk_id();
        let known = Chunk { dir: None, length_bytes: chunk.len() as u32, sum: crc32c::crc32c(&chunk) };
        self.shared.index().chunks.insert(chunk_id, known);
        // Written behind the others, so that memory is not needed longer than the disk needs.
        self.shared.group_commit.queue.push(
            pending,
            (Work::Chunk(chunk_id, chunk), blocks),
            length,
            Urgency::Immediate,
        );
        Ok(ChunkId(chunk_id))
    }

    fn discard_chunks(&self, chunk_ids: &[ChunkId]) {
        if self.shared.mutant.is(Mutant::KeepDiscarded) {
            return;
        }
        for chunk_id in chunk_ids {
            let chunk = self.shared.index().take_chunk(chunk_id.0);
            // One that is not written yet will not be, or goes when it is.
            if let Some(dir) = chunk.and_then(|chunk| chunk.dir)
                && let Ok(pending) = self.shared.group_commit.queue.admit(0, true)
            {
                self.shared.group_commit.queue.push(
                    pending,
                    (Work::Forget(chunk_id.0, dir), 0),
                    0,
                    Urgency::Lazy,
                );
            }
        }
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
        self.shared.read(id).map(SharedMessage::new)
    }

    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        self.shared.load(chunk_id)
    }

    fn recover(&mut self, visit: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure> {
        if std::mem::replace(&mut self.recovered, true) {
            return Err(SpoolFailure::Unusable("recovered already".to_owned()));
        }
        let (report, next) = recover::recover(&self.shared, visit)?;
        self.begin(DirCommitter::new(self.shared.clone(), next))?;
        self.faults = crate::fault_lines(&report.corrupt, &report.unread).collect();
        Ok(report)
    }

    fn faults(&self) -> Vec<String> {
        self.faults.clone()
    }

    fn pressure(&self) -> Pressure {
        let shared = &self.shared;
        Pressure {
            free_bytes: shared.room.free(),
            message_count: shared.index().messages.len() as u64,
            awaits_room: shared.room.is_lacking(),
            ..shared.group_commit.pressure()
        }
    }

    fn commit_stats(&self) -> CommitStats {
        self.shared.group_commit.queue.stats()
    }

    fn close(&self) {
        self.shared.group_commit.queue.close();
        self.shared.group_commit.closing.begin();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // A thread that panicked has poisoned the spool.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Drop for DirSpool {
    fn drop(&mut self) {
        self.close();
    }
}
