//! State that the commit thread shares with its callers.

use super::{
    DirSettings,
    envelope::{self, Filed, Piece},
    index::Index,
    line::LineChecksum,
    names::Named,
    queues::{Dir, Queues},
    room::{Allowed, Room},
    totals::Slot,
};
use crate::log::tolerant::with_retries;
use crate::{
    SpoolFailure, Transaction,
    group_commit::GroupCommit,
    mutant::{ActiveMutant, Mutant},
};
use bytes::Bytes;
use mail::{ChunkId, Content, Message, Part, QueueId, UnixMillis};
use std::{
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// No envelope file is that long; a longer one is not believed.
pub(super) const ENVELOPE_MAX: u64 = 1 << 30;

/// With fewer files left to be made the disk is full, whatever room it has: those of the messages that
/// wait come to thousands.
const FREE_FILES_MIN: u64 = 10_000;

/// No chunk has a number that high: above are the numbers of stores, where there are several. A name or a
/// line that says so is not ours, and nothing is counted on from there.
pub(super) const PLACES_END: u64 = 1 << 55;

/// Work for the commit thread.
pub(super) enum Work {
    Transaction(Transaction),
    Chunk(u64, Bytes),
    /// Remove the file of this chunk from this directory.
    Forget(u64, u16),
}

pub(super) struct Shared {
    pub(super) settings: DirSettings,
    pub(super) queues: Queues,
    /// Work, each with the room that was reserved for it.
    pub(super) group_commit: GroupCommit<(Work, u64)>,
    index: Mutex<Index>,
    pub(super) room: Room,
    /// One at a time looks for room: what was seen earlier must not be noted later.
    looking: Mutex<()>,
    next_chunk: AtomicU64,
    /// The value of `next_chunk` when the start was over.
    first_chunk: AtomicU64,
    /// The last batch of every message that was opened later than at the start.
    opened_batch: AtomicU64,
    /// The totals with everything that was committed.
    totals: Mutex<Slot>,
    pub(super) mutant: ActiveMutant,
}

impl Shared {
    pub(super) fn new(settings: DirSettings, queues: Queues, mutant: ActiveMutant) -> Self {
        let index = Index { pending: vec![0; queues.queue_count()], ..Index::default() };
        Self {
            group_commit: GroupCommit::new(settings.queued_bytes_max, None),
            settings,
            queues,
            index: Mutex::new(index),
            room: Room::default(),
            looking: Mutex::default(),
            next_chunk: AtomicU64::new(0),
            first_chunk: AtomicU64::new(0),
            opened_batch: AtomicU64::new(0),
            totals: Mutex::default(),
            mutant,
        }
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn totals(&self) -> MutexGuard<'_, Slot> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn checksum_of(&self, number: u64) -> LineChecksum {
        LineChecksum::of(number, self.mutant)
    }

    /// Chunks to come have higher numbers than this one: it may be lost, and whoever names it must not find
    /// another in its place.
    pub(super) fn reserve_chunk_ids_above(&self, chunk_id: u64) {
        if chunk_id < PLACES_END {
            self.next_chunk.fetch_max(chunk_id + 1, Ordering::Relaxed);
        }
    }

    /// Reserves numbers above that of a chunk that an envelope names.
    pub(super) fn reserve_named_chunk_id(&self, chunk_id: u64) {
        if !self.mutant.is(Mutant::ReuseChunkId) {
            self.reserve_chunk_ids_above(chunk_id);
        }
    }

    /// Everything that may name a chunk was looked at, as far as it can be.
    pub(super) fn begin_chunk_ids(&self) {
        self.first_chunk.store(self.next_chunk.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns a number that no chunk has had.
    pub(super) fn new_chunk_id(&self) -> u64 {
        self.next_chunk.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of chunks before this one since the start. Unlike the id of the chunk, that number does not
    /// depend
    /// on the clock, so that a simulation puts the chunk's file into the same directory again.
    pub(super) fn ordinal_of(&self, chunk_id: u64) -> u64 {
        chunk_id.wrapping_sub(self.first_chunk.load(Ordering::Relaxed))
    }

    /// Batches to come have higher numbers than this one.
    pub(super) fn reserve_batches_above(&self, batch: u64) {
        self.opened_batch.fetch_max(batch, Ordering::Relaxed);
    }

    /// Returns this number, unless a batch had a higher one.
    pub(super) fn batch_after(&self, next: u64) -> u64 {
        next.max(self.opened_batch.load(Ordering::Relaxed).saturating_add(1))
    }

    /// Asks the disks of the queue directories; the fullest counts.
    pub(super) fn look_for_room(&self) -> io::Result<()> {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free_bytes = u64::MAX;
        for queue_dir in self.queues.queue_dirs() {
            free_bytes = free_bytes.min(queue_dir.disk.free_bytes()?);
            if queue_dir.disk.free_files()? < FREE_FILES_MIN {
                free_bytes = 0;
            }
        }
        let allowed = Allowed {
            max_bytes: self.settings.max_bytes,
            keep_bytes: self.settings.min_free_bytes.saturating_add(self.settings.reserve_bytes),
        };
        self.room.look(allowed, free_bytes, self.index().used_bytes);
        Ok(())
    }

    /// The wall clock of the first queue directory's disk.
    pub(super) fn clock(&self) -> Duration {
        self.queues.queue_dirs().next().map_or(Duration::ZERO, |queue_dir| queue_dir.disk.clock())
    }

    pub(super) fn now(&self) -> UnixMillis {
        UnixMillis(self.clock().as_millis() as u64)
    }

    /// Ends the spool. Only the first failure is reported.
    pub(super) fn poison(&self, failure: SpoolFailure) {
        self.group_commit.poison(failure, || {});
    }

    /// Reads a message, with its content, from its files. Blocks on the disk.
    pub(super) fn read(&self, id: QueueId) -> Result<Message, SpoolFailure> {
        let dir = self.index().messages.get(&id.0).ok_or(SpoolFailure::Missing)?.dir;
        let dir = self.queues.dir(dir);
        let name = Named::Envelope(id.0).file();
        let corrupt = |why| SpoolFailure::Corrupt(format!("{}/{name}: {why}", dir.name));
        let filed = read_checked(dir, &name, ENVELOPE_MAX, |bytes| {
            envelope::read(id, &bytes, self.checksum_of(id.0)).map_err(corrupt)
        })?;
        let disputed = self.index().disputed(&filed.pieces).next();
        if let Some((chunk_id, _)) = disputed {
            let text =
                format!("{}/{name}: {} is not what was stored", dir.name, Named::Chunk(chunk_id).file());
            return Err(SpoolFailure::Corrupt(text));
        }
        let content = read_content(dir, id, &filed)?;
        Ok(Message { content, ..filed.message })
    }

    pub(super) fn load(&self, chunk_id: ChunkId) -> Result<Bytes, SpoolFailure> {
        let chunk = self.index().chunks.get(&chunk_id.0).copied().ok_or(SpoolFailure::Missing)?;
        let dir = self.queues.dir(chunk.dir.ok_or(SpoolFailure::Missing)?);
        let name = Named::Chunk(chunk_id.0).file();
        let most_bytes = u64::from(chunk.length_bytes) + 1;
        read_checked(dir, &name, most_bytes, |bytes| {
            if !chunk.is_right(&bytes) {
                return Err(SpoolFailure::Corrupt(format!("{}/{name}: not what was stored", dir.name)));
            }
            Ok(bytes.into())
        })
    }
}

/// Reads a file and checks it. One that looks damaged is read a second time, past the page cache.
fn read_checked<T>(
    dir: &Dir,
    name: &str,
    max_bytes: u64,
    check: impl Fn(Vec<u8>) -> Result<T, SpoolFailure>,
) -> Result<T, SpoolFailure> {
    let bytes = read_file(dir, name, max_bytes)?.ok_or(SpoolFailure::Missing)?;
    check(bytes).or_else(|failure| {
        let mut bytes = Vec::new();
        match with_retries(|| dir.disk.read_uncached(name, max_bytes, &mut bytes)) {
            Ok(()) => check(bytes),
            Err(_) => Err(failure),
        }
    })
}

/// The pieces of a message's content file, each checked; chunks are named only.
fn read_content(dir: &Dir, id: QueueId, filed: &Filed) -> Result<Content, SpoolFailure> {
    let name = Named::Content(id.0).file();
    let (length, _) = super::index::content_of(&filed.pieces);
    if length == 0 {
        return content_of(dir, &name, filed, Bytes::new(), length);
    }
    read_checked(dir, &name, length + 1, |bytes| content_of(dir, &name, filed, bytes.into(), length))
}

fn content_of(
    dir: &Dir,
    name: &str,
    filed: &Filed,
    mut rest: Bytes,
    length: u64,
) -> Result<Content, SpoolFailure> {
    let corrupt = || SpoolFailure::Corrupt(format!("{}/{name}: not what was stored", dir.name));
    if rest.len() as u64 != length {
        return Err(corrupt());
    }
    let mut parts = Vec::with_capacity(filed.pieces.len());
    for piece in &filed.pieces {
        parts.push(match *piece {
            Piece::Chunk { chunk_id, length_bytes, .. } => {
                Part::Stored { chunk_id: ChunkId(chunk_id), length_bytes }
            }
            Piece::Here { length_bytes, sum } => {
                let bytes = rest.split_to(length_bytes as usize);
                if crc32c::crc32c(&bytes) != sum {
                    return Err(corrupt());
                }
                Part::Memory(bytes)
            }
        });
    }
    Ok(Content::new(filed.message.content.traits, parts))
}

/// A file, at most so much of it; none when it is not there.
pub(super) fn read_file(dir: &Dir, name: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, SpoolFailure> {
    let mut bytes = Vec::new();
    match with_retries(|| dir.disk.read(name, max_bytes, &mut bytes)) {
        Ok(()) => Ok(Some(bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(SpoolFailure::Io(format!("read {}/{name}: {e}", dir.name))),
    }
}

/// Is it this process that cannot read, and not this file that cannot be read? Then no other can be, either.
pub(super) fn is_ours(e: &io::Error) -> bool {
    const OURS: [i32; 3] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM];
    e.raw_os_error().is_some_and(|error| OURS.contains(&error))
}
