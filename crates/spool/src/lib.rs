//! Makes messages durable: the [`Spool`] trait and its backends.
//!
//! When a commit sequence number is durable, 250 may be said: whatever happens to the power, the message is
//! delivered, bounced or still queued. After a crash a recipient may be tried again, never forgotten.
//! The spool uses no runtime: waiting is a plain [`std::future::Future`], reading may block.
//! The `queue` crate decides when an attempt is due.

mod closing;
mod commit_progress;
mod commit_queue;
mod commit_stats;
mod commit_waiters;
mod counting_disk;
mod dirs;
pub mod disk;
mod early;
mod export;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod group_commit;
mod inspect;
mod log;
mod migrate;
mod mutant;
mod null;
mod parallel;
mod sched;
mod sharded;
mod totals;

pub use commit_progress::block_on;
pub use commit_queue::max_batch_delay;
pub use commit_stats::CommitStats;
pub use commit_waiters::CommitWaiters;
pub use counting_disk::{CountingDisk, DiskCallCounter, DiskCalls};
pub use dirs::{DirSettings, DirSpool, Layout, Listed, Placement, QueueDirectory, SplitDisk};
pub use early::EarlySpool;
pub use export::{export_envelope, import_envelope};
pub use inspect::{SpoolReader, has_queue_directories, inspect, inspect_all, list};
pub use log::{
    LogSettings, LogSpool, WorkStep,
    dump::{LogItem, RecordBody, dump_batches, dump_log},
    salvage::{SalvageReport, Salvaged, salvage},
};
pub use migrate::migrate_message;
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use null::NullSpool;
pub use sharded::{ShardSelector, ShardedSpool};
pub use totals::{Imbalance, Totals};

use bytes::Bytes;
use mail::{ChunkId, Disposition, Envelope, Outcome, QueueId, SharedMessage, UnixMillis};
use std::{fmt, future::Future, pin::Pin};

/// Names a submitted transaction; those of one shard grow in the order of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitSeq(pub u64);

/// One change to the spool. A transaction is several that become durable together.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A new message. Parts of its content that are [`mail::Part::Stored`] came from [`Spool::store`].
    Accept(SharedMessage),
    /// A message from another spool with what became of it there, by [`migrate_message`]. Parts of its content that
    /// are stored came from this spool's [`Spool::store`].
    Import(Box<Recovered>),
    /// Results of attempts: `(recipient index, outcome)`. With `last`, no recipient is left and the
    /// message's space may be freed once this is durable.
    Outcome {
        /// Queue id of the message that was tried.
        id: QueueId,
        /// By recipient index in the envelope.
        results: Vec<(u32, Outcome)>,
        /// Nothing is left to do for the message.
        last: bool,
    },
    /// An operator's hold, release or deletion.
    Control {
        /// Queue id of the message that the operator changed.
        id: QueueId,
        /// Hold, release or deletion, which survives a restart.
        op: ControlOp,
    },
    /// Adds to the totals what the other entries do not say: recipients that a deletion ends, or what became of
    /// recipients in another spool.
    Count(Totals),
}

impl Entry {
    /// Returns the entry of an accepted message. A message that is held is one entry with its hold: no crash separates the two.
    pub fn of(message: SharedMessage, held: Option<Box<str>>) -> Self {
        let Some(reason) = held else { return Self::Accept(message) };
        let recipients = vec![RecipientState::default(); message.envelope.recipients.len()];
        Self::Import(Box::new(Recovered { message, recipients, held: Some(reason) }))
    }

    /// Returns whether the entry only records deferrals. It frees no space, so it may be dropped when the spool is
    /// full: at worst, these recipients are tried sooner after a crash.
    pub fn is_deferral(&self) -> bool {
        let is_deferred = |(_, outcome): &(u32, Outcome)| outcome.disposition == Disposition::Deferred;
        matches!(self, Self::Outcome { results, last: false, .. } if results.iter().all(is_deferred))
    }
}

/// A change that an operator may make to a queued message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlOp {
    /// Keep it, try nothing, for this reason.
    Hold(Box<str>),
    /// Undo [`ControlOp::Hold`].
    Release,
    /// Forget it; its space may be freed once this is durable. An [`Entry::Count`] says how many recipients end.
    Delete,
}

/// Entries that become durable together or not at all.
pub type Transaction = Vec<Entry>;

/// The reason why nothing was queued. For the client each reason is a 4yz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too much waits for the disk already: try again soon.
    Busy,
    /// No room; the reserve is for outcomes and DSNs.
    Full,
    /// One transaction is larger than the spool can ever store as a whole.
    TooLarge,
    /// A write or sync failed before: nothing can be promised until a restart.
    Poisoned,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the commit queue is full",
            Self::Full => "the spool has no room",
            Self::TooLarge => "one transaction is larger than a segment of the spool",
            Self::Poisoned => "the spool failed and stopped",
        })
    }
}

/// Why something stored cannot be read, or will not become durable.
#[derive(Debug, Clone)]
pub enum SpoolFailure {
    /// Doing what, to what: why. After a failed write or sync it is final.
    Io(String),
    /// Stored bytes are not what was written: where, and what is wrong.
    Corrupt(String),
    /// There is no such message or chunk, or it has ended.
    Missing,
    /// Another process has the spool open, or its format is not ours.
    Unusable(String),
}

impl fmt::Display for SpoolFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what) | Self::Corrupt(what) | Self::Unusable(what) => f.write_str(what),
            Self::Missing => f.write_str("not in the spool"),
        }
    }
}

impl std::error::Error for SpoolFailure {}

/// Resolves once everything up to its commit sequence number would survive a power cut, or never will.
pub type Durable = Pin<Box<dyn Future<Output = Result<(), SpoolFailure>> + Send>>;

/// Resolves to the failure after which the spool stores nothing more.
pub type Failed = Pin<Box<dyn Future<Output = SpoolFailure> + Send>>;

/// A live message as it is after a restart.
#[derive(Debug, Clone)]
pub struct Recovered {
    /// Envelope and content; the content's parts are all [`mail::Part::Stored`].
    pub message: SharedMessage,
    /// Parallel to the envelope's recipients.
    pub recipients: Vec<RecipientState>,
    /// Why an operator, a rule or a route holds it; none if it is not held. Empty where the reason is not known.
    pub held: Option<Box<str>>,
}

/// What all outcomes of one recipient add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecipientState {
    /// Delivered or failed: nothing left to do.
    pub settled: bool,
    /// Attempts that were noted.
    pub attempt_count: u32,
    /// The last noted outcome, and when it was noted.
    pub last: Option<(UnixMillis, Outcome)>,
}

/// What a recovery has read and repaired, for the log and for `spool check`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Live messages handed over.
    pub message_count: u64,
    /// Whole batches applied.
    pub batch_count: u64,
    /// Bytes of a torn tail that were cut: nothing acknowledged was in them.
    pub torn_bytes: u64,
    /// Places that are corrupt, in words; each was left where it is for `spool salvage`.
    pub corrupt: Vec<String>,
    /// Places that the disk did not give back, in words: each was left as it is, and its messages join the queue at a
    /// start that can read it again.
    pub unread: Vec<String>,
    /// Names of the damaged files that were taken out of the log and kept.
    pub quarantined: Vec<String>,
    /// Copies of messages in another spool than the one they were recovered from. They are ended.
    pub copies: Vec<SecondCopy>,
    /// The totals: how many recipients were accepted so far, and how they ended.
    pub totals: Totals,
    /// Differences between the stored totals and the recipients that were found, one for each spool.
    pub imbalances: Vec<Imbalance>,
}

/// A second copy of a recovered message: a spool directory was copied, for instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondCopy {
    /// Queue id, the same in both copies.
    pub id: QueueId,
    /// The states of its recipients according to this copy: recipients that are settled here are not to be
    /// served again.
    pub recipients: Vec<RecipientState>,
}

impl RecoveryReport {
    /// Takes in what the recovery of another spool did.
    pub fn add(&mut self, other: Self) {
        self.message_count += other.message_count;
        self.batch_count += other.batch_count;
        self.torn_bytes += other.torn_bytes;
        self.corrupt.extend(other.corrupt);
        self.unread.extend(other.unread);
        self.quarantined.extend(other.quarantined);
        self.copies.extend(other.copies);
        self.totals.add(&other.totals);
        self.imbalances.extend(other.imbalances);
    }

    /// Returns the problems that an operator must see, a sentence each.
    pub fn problems(&self) -> impl Iterator<Item = String> + '_ {
        let corrupt = self.corrupt.iter().map(|what| format!("the spool is damaged: {what}"));
        let unread = self.unread.iter().map(|what| format!("the spool cannot be read: {what}"));
        let quarantined = self.quarantined.iter().map(|name| {
            format!("the spool has a quarantined segment: {name}; see `postrider spool salvage`")
        });
        let imbalances = self.imbalances.iter().map(|one| format!("recipients are not accounted for: {one}"));
        corrupt.chain(unread).chain(quarantined).chain(imbalances)
    }

    /// Takes in the totals that were stored, if there are any, and the number of recipients that were found.
    fn note_totals(&mut self, stored: Option<Totals>, found: u64) {
        // A spool of a version without totals begins with what it has.
        self.totals = stored.unwrap_or(Totals { accepted: found, ..Totals::default() });
        self.imbalances.extend(self.totals.agree(found));
    }

    /// Takes note of a message that could not be read.
    fn note(&mut self, failure: &SpoolFailure) {
        match failure {
            SpoolFailure::Io(what) => self.unread.push(what.clone()),
            other => self.corrupt.push(other.to_string()),
        }
    }

    /// Was everything read as it was written? What an earlier start quarantined does not count.
    pub fn is_complete(&self) -> bool {
        self.corrupt.is_empty() && self.unread.is_empty()
    }
}

/// Describes what a start found damaged or could not read, a line each.
fn fault_lines<'a>(corrupt: &'a [String], unread: &'a [String]) -> impl Iterator<Item = String> + 'a {
    let unread = unread.iter().map(|what| {
        format!("cannot be read: {what}; it stays as it is, and its messages join the queue at a start that can read it")
    });
    corrupt.iter().map(|what| format!("damaged: {what}")).chain(unread)
}

/// Room, speed and health: what back-pressure is decided from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    /// Bytes queued for the next commits.
    pub queued_bytes: u64,
    /// Bytes that can be accepted at once; zero before [`Refused::Full`]. [`Spool::room_bytes`] is all.
    pub free_bytes: u64,
    /// Messages that still have recipients without a final outcome.
    pub message_count: u64,
    /// Commits (syncs) so far.
    pub commit_count: u64,
    /// Transactions in those commits.
    pub transaction_count: u64,
    /// Duration of the last sync in microseconds.
    pub last_sync_us: u64,
    /// A write or sync has failed, and nothing more is stored.
    pub poisoned: bool,
    /// A commit found no room on the disk, and is tried again until it does.
    pub awaits_room: bool,
}

/// Keeps messages so that they survive a crash. One conformance suite runs against every backend.
pub trait Spool: Send + Sync + 'static {
    /// Queues one atomic transaction for the next commit. No I/O on the caller's thread. An accepted
    /// message is committed when somebody waits for it, at the latest with what comes next.
    fn submit(&self, mut transaction: Transaction) -> Result<CommitSeq, Refused> {
        self.submit_or_keep(&mut transaction)
    }

    /// Submits a transaction as [`Spool::submit`] does. A transaction that is refused stays with the caller; one that
    /// is queued is taken.
    fn submit_or_keep(&self, transaction: &mut Transaction) -> Result<CommitSeq, Refused>;

    /// Queues a piece of content that is too large to keep in memory, while it arrives. It becomes
    /// durable at the latest with the [`Entry::Accept`] that names the place. Without one it is
    /// garbage after a restart.
    fn store(&self, chunk: Bytes) -> Result<ChunkId, Refused>;

    /// Stores a chunk of a message with this envelope, whose chunks all lie where it will.
    fn store_for(&self, _envelope: &Envelope, chunk: Bytes) -> Result<ChunkId, Refused> {
        self.store(chunk)
    }

    /// The chunks will not be accepted: their space may be freed.
    fn discard_chunks(&self, chunk_ids: &[ChunkId]);

    /// Returns the number of orders in which transactions become durable, each on a disk of its own.
    fn shard_count(&self) -> usize {
        1
    }

    /// The order that a commit sequence number stands in, counted from 0.
    fn shard(&self, _ticket: CommitSeq) -> usize {
        0
    }

    /// Resolves once everything up to `commit_seq` in its shard would survive a power cut.
    fn durable(&self, commit_seq: CommitSeq) -> Durable;

    /// Returns the result of [`Spool::durable`] if it would resolve at once.
    fn poll_durable(&self, commit_seq: CommitSeq) -> Option<Result<(), SpoolFailure>>;

    /// Resolves when the spool can store nothing more: a write or sync failed, a thread of the spool panicked,
    /// or the spool was closed. Resolves even if no caller waits for a commit sequence number. A daemon must end then.
    fn failed(&self) -> Failed;

    /// A stored message: envelope, and content whose small parts are in memory and whose large ones
    /// are named. May block on the disk.
    fn read(&self, id: QueueId) -> Result<SharedMessage, SpoolFailure>;

    /// Returns the message if no disk has to be waited for; never blocks. `None` is no verdict on the message.
    fn read_cached(&self, _id: QueueId) -> Option<SharedMessage> {
        None
    }

    /// Returns a chunk of content. May block on the disk.
    fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure>;

    /// Returns the chunk if no disk has to be waited for; never blocks.
    fn load_cached(&self, _place: ChunkId) -> Option<Bytes> {
        None
    }

    /// At startup, before anything is submitted: every live message once, with the folded state of
    /// its recipients.
    fn recover(&mut self, found: &mut dyn FnMut(Recovered)) -> Result<RecoveryReport, SpoolFailure>;

    /// Room, commit latency, health.
    fn pressure(&self) -> Pressure;

    /// Returns the numbers of group commit. Copies a histogram: for people who look.
    fn commit_stats(&self) -> CommitStats {
        CommitStats::default()
    }

    /// Returns the faults of the stored bytes, in sentences: what cannot be read, what is quarantined, why room is
    /// not
    /// given back. Empty when all is well.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Bytes that can be accepted until [`Refused::Full`], with those that the disk reports. Asks it:
    /// for people who look.
    fn room_bytes(&self) -> u64 {
        self.pressure().free_bytes
    }

    /// Commits what is queued and stops; afterwards every submit is [`Refused::Poisoned`].
    fn close(&self);
}
