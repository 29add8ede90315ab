//! Reads the directories and says what is in them: finishes what was agreed on, forgets what was not.

use super::{
    Shared,
    commit::Next,
    envelope::{self, Filed, Piece, Unreadable},
    finish::finish,
    index::{Chunk, Slot, content_of},
    line::LineChecksum,
    listing::Listing,
    name_only::{place_by_clock, round_by_clock},
    names::Named,
    note::{Append, is_overtaken},
    pending_sync::told,
    shared::{ENVELOPE_MAX, is_ours, read_file},
    totals::{self, StoredTotals},
};
use crate::log::tolerant::with_retries;
use crate::{
    Recovered, RecoveryReport, SpoolFailure, mutant::Mutant, parallel::in_order, totals::open_recipients,
};
use mail::{QueueId, SharedMessage};
use std::{
    collections::{BTreeSet, HashSet},
    io,
};

/// The results of reading the directories, besides the index.
#[derive(Default)]
pub(super) struct Scan {
    report: RecoveryReport,
    /// Envelope files with a torn end: where it begins.
    torn: Vec<(u64, u16, u64)>,
    /// The last append of every file that was written in the last batch: to what offset.
    unproven: Vec<(u64, u16, Append, u64)>,
    chunks: HashSet<u64>,
    /// An envelope cannot be read: its chunks are not known.
    lost_chunks: bool,
}

/// An envelope file: its message, its directory, its name.
pub(super) type File = (u64, u16, Named);

/// What one envelope file said, before it is compared with others of the same message.
struct One {
    file: File,
    filed: Result<Filed, Unfiled>,
    /// The chunks that one names of which not more can be read.
    chunk_ids: Vec<u64>,
}

/// The reason why an envelope file gives no message.
enum Unfiled {
    Unreadable(Unreadable),
    /// The disk did not give it. It may at the next start.
    Unread(io::Error),
}

/// With more files to be written again they are synced together.
const SYNCED_ALONE: usize = 8;

/// So many files are read by a thread before it asks for more.
const PIECE: usize = 128;

/// Reads and decodes; none when it is not there. A file that the disk does not give harms no other message.
fn read_one(
    shared: &Shared,
    listing: &Listing,
    file: File,
    buffer: &mut Vec<u8>,
) -> Result<Option<One>, SpoolFailure> {
    let (id, dir, named) = file;
    let disk = &shared.queues.dir(dir).disk;
    match with_retries(|| disk.read(&named.file(), ENVELOPE_MAX, buffer)) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if is_ours(&e) || shared.mutant.is(Mutant::StopAtDamage) => {
            return Err(failed(shared, "read", dir, named, &e));
        }
        Err(e) => return Ok(Some(One { file, filed: Err(Unfiled::Unread(e)), chunk_ids: Vec::new() })),
    }
    let checksum = shared.checksum_of(id);
    let mut filed = envelope::read(QueueId(id), patched(listing, id, buffer, checksum), checksum);
    // Perhaps only the page cache has it wrong. A torn end is read again, too: it would be cut, and may be durable.
    let is_doubtful = !filed.as_ref().is_ok_and(|filed| filed.torn_bytes == 0 && filed.damaged.is_empty());
    if is_doubtful && disk.read_uncached(&named.file(), ENVELOPE_MAX, buffer).is_ok() {
        let again = envelope::read(QueueId(id), patched(listing, id, buffer, checksum), checksum);
        filed = match (filed, again) {
            (Ok(filed), Ok(again)) if again.says_less_than(&filed) => Ok(filed),
            (Ok(filed), Err(_)) => Ok(filed),
            (_, again) => again,
        };
    }
    let chunk_ids = if filed.is_err() { envelope::chunk_ids(buffer, checksum).collect() } else { Vec::new() };
    Ok(Some(One { file, filed: filed.map_err(Unfiled::Unreadable), chunk_ids }))
}

/// An envelope file with what intents say of it.
fn patched<'b>(listing: &Listing, id: u64, buffer: &'b mut Vec<u8>, checksum: LineChecksum) -> &'b [u8] {
    for (offset, patch) in listing.patches.get(&id).into_iter().flatten() {
        if is_overtaken(buffer, *offset, patch, checksum) {
            continue;
        }
        let (at, end) = (*offset as usize, (*offset as usize).saturating_add(patch.len()));
        if at <= buffer.len() {
            buffer.resize(buffer.len().max(end), 0);
            buffer[at..end].copy_from_slice(patch);
        }
    }
    buffer
}

/// Everything found, and numbers for what comes.
pub(super) fn recover(
    shared: &Shared,
    visit: &mut dyn FnMut(Recovered),
) -> Result<(RecoveryReport, Next), SpoolFailure> {
    let Begun { listing, mut scan, intent, keep_unfinished } = begin(shared)?;
    let stored = StoredTotals::read(shared);
    let left = scan.read_all(shared, &listing, visit)?;
    scan.mend(shared)?;
    scan.tidy(shared, &listing, keep_unfinished)?;
    totals::make_file(shared)?;
    *shared.totals() = stored.compare(left, &mut scan.report);
    shared.begin_chunk_ids();
    // From the last number of all there is no going on: all batches have it then, and none is proven.
    let batch = scan.last_round().saturating_add(1);
    Ok((scan.report, Next { intent, batch }))
}

/// Lists the messages by file names, without reading envelopes.
pub(super) fn list(shared: &Shared) -> Result<(Listing, RecoveryReport, Next), SpoolFailure> {
    let Begun { listing, mut scan, intent, keep_unfinished } = begin(shared)?;
    // Whose chunks they are is in the envelopes.
    scan.lost_chunks = true;
    scan.tidy(shared, &listing, keep_unfinished)?;
    shared.begin_chunk_ids();
    totals::make_file(shared)?;
    *shared.totals() = StoredTotals::read(shared).believe(&mut scan.report);
    scan.report.message_count = listing.envelopes.len() as u64;
    scan.report.corrupt.extend(listing.twice.iter().cloned());
    Ok((listing, scan.report, Next { intent, batch: round_by_clock(shared) }))
}

/// The state of a recovery before the first envelope is read.
struct Begun {
    listing: Listing,
    scan: Scan,
    /// Number of the next intent.
    intent: u64,
    keep_unfinished: bool,
}

fn begin(shared: &Shared) -> Result<Begun, SpoolFailure> {
    // Whoever wrote this may have been killed before it was durable: what is told from here on is.
    if !shared.mutant.is(Mutant::SkipTailRewrite) {
        for queue_dir in shared.queues.queue_dirs() {
            queue_dir
                .disk
                .sync_all()
                .map_err(|e| SpoolFailure::Io(format!("sync {}: {e}", queue_dir.name)))?;
        }
    }
    let mut listing = Listing::of(&shared.queues)?;
    let intent = listing.next_intent();
    let (steps, mut unread) = listing.steps(&shared.queues, shared.mutant)?;
    let mut scan = Scan::default();
    if !steps.is_empty() {
        let steps = if shared.mutant.is(Mutant::IgnoreBatchEnd) { Vec::new() } else { steps };
        scan.report.batch_count = listing.intents.len() as u64 - unread.len() as u64;
        let unfinished = finish(shared, &mut listing, &steps, unread.is_empty())?;
        unread.extend(unfinished);
    }
    let keep_unfinished = !unread.is_empty();
    scan.report.corrupt = unread;
    if !shared.mutant.is(Mutant::ReuseChunkId) {
        shared.reserve_chunk_ids_above(place_by_clock(shared));
    }
    listing.last_chunk().into_iter().for_each(|chunk_id| shared.reserve_chunk_ids_above(chunk_id));
    if keep_unfinished {
        outbid_unfinished(shared, &listing);
    }
    Ok(Begun { listing, scan, intent, keep_unfinished })
}

/// Reserves the chunk ids in unfinished envelope files, as far as they can be read: an intent may still accept these
/// messages.
fn outbid_unfinished(shared: &Shared, listing: &Listing) {
    let mut buffer = Vec::new();
    for (id, dir) in &listing.unfinished {
        let name = Named::Unfinished(*id).file();
        if shared.queues.dir(*dir).disk.read(&name, ENVELOPE_MAX, &mut buffer).is_ok() {
            envelope::chunk_ids(&buffer, shared.checksum_of(*id))
                .for_each(|chunk_id| shared.reserve_chunk_ids_above(chunk_id));
        }
    }
}

/// For a reader that changes nothing.
pub(super) fn inspect(
    shared: &Shared,
    visit: &mut dyn FnMut(Recovered),
) -> Result<RecoveryReport, SpoolFailure> {
    let (listing, report) = imagined(shared)?;
    let mut scan = Scan { report, ..Scan::default() };
    let before = StoredTotals::read(shared);
    let left = scan.read_all(shared, &listing, visit)?;
    let stored = StoredTotals::read(shared);
    // Beside a daemon, what was read is of several moments.
    if stored.is_as_new_as(&before) {
        stored.compare(left, &mut scan.report);
    } else {
        stored.believe(&mut scan.report);
    }
    Ok(scan.report)
}

/// The files as they would be if what was agreed on were done.
pub(super) fn imagined(shared: &Shared) -> Result<(Listing, RecoveryReport), SpoolFailure> {
    let mut listing = Listing::of(&shared.queues)?;
    let (steps, corrupt) = listing.steps(&shared.queues, shared.mutant)?;
    listing.imagine(steps);
    Ok((listing, RecoveryReport { corrupt, ..RecoveryReport::default() }))
}

pub(super) fn failed(shared: &Shared, doing: &str, dir: u16, named: Named, e: &io::Error) -> SpoolFailure {
    SpoolFailure::Io(format!("{doing} {}/{}: {}", shared.queues.dir(dir).name, named.file(), told(e)))
}

pub(super) fn sync(shared: &Shared, dirs: &BTreeSet<u16>) -> Result<(), SpoolFailure> {
    dirs.iter().map(|dir| shared.queues.dir(*dir)).try_for_each(|dir| {
        dir.disk.sync_dir().map_err(|e| SpoolFailure::Io(format!("sync {}: {e}", dir.name)))
    })
}

/// Has the file in this directory the bytes that a record tells of?
fn is_right(shared: &Shared, dir: u16, chunk_id: u64, chunk: &Chunk) -> bool {
    let most_bytes = u64::from(chunk.length_bytes) + 1;
    let bytes = read_file(shared.queues.dir(dir), &Named::Chunk(chunk_id).file(), most_bytes);
    matches!(bytes, Ok(Some(bytes)) if chunk.is_right(&bytes))
}

/// A chunk that an earlier message names, too, and that is not this one's: numbers of lost chunks were given
/// again once. Only then, and when a chunk is there twice, chunks are read at a start.
fn foreign_chunk(shared: &Shared, listing: &Listing, pieces: &[Piece]) -> Option<u64> {
    let disputed: Vec<_> = shared.index().disputed(pieces).collect();
    let is_foreign = |(chunk_id, chunk): &(u64, Chunk)| {
        !listing.chunk_dirs(*chunk_id).any(|dir| is_right(shared, dir, *chunk_id, chunk))
    };
    disputed.iter().find(|one| is_foreign(one)).map(|(chunk_id, _)| *chunk_id)
}

/// A message's chunks, each where its file is; of several files the one that is right.
fn chunks_of(shared: &Shared, listing: &Listing, pieces: &[Piece]) -> Vec<(u64, Chunk)> {
    let chunk = |piece: &Piece| {
        let Piece::Chunk { chunk_id, length_bytes, sum } = *piece else { return None };
        let chunk = Chunk { dir: listing.chunks.get(&chunk_id).copied(), length_bytes, sum };
        let mut dirs = listing.chunk_dirs(chunk_id);
        let right = listing
            .chunk_copies
            .get(&chunk_id)
            .and_then(|_| dirs.find(|dir| is_right(shared, *dir, chunk_id, &chunk)));
        Some((chunk_id, Chunk { dir: right.or(chunk.dir), ..chunk }))
    };
    pieces.iter().filter_map(chunk).collect()
}

impl Scan {
    /// Every envelope file, in the order of the ids. Threads read and decode, this one takes. Returns the number of
    /// recipients that are left.
    fn read_all(
        &mut self,
        shared: &Shared,
        listing: &Listing,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<u64, SpoolFailure> {
        let mut left = 0;
        let mut visit = |found: Recovered| {
            left += open_recipients(&found.recipients);
            visit(found);
        };
        self.report.corrupt.extend(listing.twice.iter().cloned());
        let all: Vec<File> = listing.envelopes.iter().map(|(id, (dir, named))| (*id, *dir, *named)).collect();
        let pieces: Vec<&[File]> = all.chunks(PIECE).collect();
        let read = |piece: &&[File]| {
            let mut buffer = Vec::new();
            piece.iter().map(|file| read_one(shared, listing, *file, &mut buffer)).collect()
        };
        in_order(shared.settings.read_threads, &pieces, read, |piece: Vec<Result<Option<_>, _>>| {
            piece.into_iter().try_for_each(|one| match one? {
                Some(one) => self.take(shared, listing, one, &mut visit),
                None => Ok(()),
            })
        })?;
        Ok(left)
    }

    /// Reads one file, and hands over its message.
    pub(super) fn read_one(
        &mut self,
        shared: &Shared,
        listing: &Listing,
        file: File,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<(), SpoolFailure> {
        let Some(one) = read_one(shared, listing, file, &mut Vec::new())? else { return Ok(()) };
        let unproven = std::mem::take(&mut self.unproven);
        self.take(shared, listing, one, visit)?;
        // Which batch was the last is not known: any may have been.
        self.unproven.extend(unproven);
        Ok(())
    }

    fn take(
        &mut self,
        shared: &Shared,
        listing: &Listing,
        one: One,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<(), SpoolFailure> {
        let (id, dir, named) = one.file;
        let name = || format!("{}/{}", shared.queues.dir(dir).name, named.file());
        one.chunk_ids.iter().for_each(|chunk_id| shared.reserve_named_chunk_id(*chunk_id));
        match one.filed {
            Ok(filed) => self.take_filed(shared, listing, (id, dir), filed, name, visit),
            Err(Unfiled::Unreadable(version @ Unreadable::Version(_))) => {
                return Err(SpoolFailure::Unusable(format!("{}: {version}", name())));
            }
            Err(Unfiled::Unreadable(damaged)) => {
                self.report.corrupt.push(format!("{}: {damaged}", name()));
                self.lost_chunks = true;
            }
            Err(Unfiled::Unread(e)) => {
                self.report.corrupt.push(format!("{}: cannot be read: {e}", name()));
                self.lost_chunks = true;
            }
        }
        Ok(())
    }

    fn take_filed(
        &mut self,
        shared: &Shared,
        listing: &Listing,
        (id, dir): (u64, u16),
        filed: Filed,
        name: impl Fn() -> String,
        visit: &mut dyn FnMut(Recovered),
    ) {
        let (content_bytes, chunks) = content_of(&filed.pieces);
        self.chunks.extend(chunks.iter().copied());
        chunks.iter().for_each(|chunk_id| shared.reserve_named_chunk_id(*chunk_id));
        let damaged = filed.damaged.iter().map(|at| format!("{}: byte {at}: a line cannot be read", name()));
        self.report.corrupt.extend(damaged);
        // Half a message must not be delivered.
        let lost = chunks.iter().find(|chunk_id| !listing.chunks.contains_key(chunk_id));
        if let Some(chunk_id) = lost {
            let chunk = Named::Chunk(*chunk_id).file();
            return self.report.corrupt.push(format!("{}: {chunk} of its content is missing", name()));
        }
        if let Some(chunk_id) = foreign_chunk(shared, listing, &filed.pieces) {
            let chunk = Named::Chunk(chunk_id).file();
            return self.report.corrupt.push(format!("{}: {chunk} is not what was stored", name()));
        }
        if content_bytes > 0 && listing.contents.get(&id) != Some(&dir) {
            return self.report.corrupt.push(format!("{}: its content is missing", name()));
        }
        if filed.torn_bytes > 0 {
            self.report.torn_bytes += filed.torn_bytes;
            self.torn.push((id, dir, filed.end));
        }
        if let Some(append) = filed.last {
            if append.batch > self.last_round() {
                self.unproven.clear();
            }
            if append.batch >= self.last_round() {
                self.unproven.push((id, dir, append, filed.end));
            }
        }
        let found = chunks_of(shared, listing, &filed.pieces);
        let mut index = shared.index();
        // Those that another message named are this one's.
        let disputed: Vec<_> = index.disputed(&filed.pieces).collect();
        disputed.iter().for_each(|(chunk_id, _)| index.disown_chunk(*chunk_id));
        found.into_iter().for_each(|(chunk_id, chunk)| index.add_chunk(chunk_id, chunk));
        index.add(&shared.queues.dirs, id, Slot { dir, envelope_bytes: filed.end, content_bytes, chunks });
        drop(index);
        self.report.message_count += 1;
        let message = SharedMessage::new(filed.message);
        visit(Recovered { message, recipients: filed.states, held: filed.held });
    }

    pub(super) fn into_report(self) -> RecoveryReport {
        self.report
    }

    pub(super) fn last_round(&self) -> u64 {
        self.unproven.iter().map(|(_, _, append, _)| append.batch).max().unwrap_or(0)
    }

    /// Writes the appends of the last batch again. If their sync failed, they can be read and are not on the disk,
    /// and no sync brings them there: only writing them again does.
    fn write_again(&self, shared: &Shared) -> Result<(), SpoolFailure> {
        // One sync for many files; for few it would wait for what other programs wrote.
        let at_once = self.unproven.len() > SYNCED_ALONE;
        let mut queues = BTreeSet::new();
        for (id, dir, append, end) in &self.unproven {
            let named = Named::Envelope(*id);
            let chunk_id = shared.queues.dir(*dir);
            let written = chunk_id.disk.open(&named.file()).and_then(|file| {
                let mut bytes = vec![0; (end - append.base) as usize];
                file.read_at(append.base, &mut bytes)?;
                file.write_at(append.base, &bytes)?;
                if at_once { Ok(()) } else { file.sync_data() }
            });
            written.map_err(|e| failed(shared, "write again", *dir, named, &e))?;
            queues.insert((chunk_id.queue, *dir));
        }
        // Those of a queue directory are on one file system.
        let mut queues: Vec<_> = queues.into_iter().filter(|_| at_once).collect();
        queues.dedup_by_key(|(queue, _)| *queue);
        queues.iter().map(|(_, dir)| shared.queues.dir(*dir)).try_for_each(|dir| {
            dir.disk.sync_all().map_err(|e| SpoolFailure::Io(format!("sync {}: {e}", dir.name)))
        })
    }

    /// Cuts torn ends, and writes what may be no more than read.
    pub(super) fn mend(&self, shared: &Shared) -> Result<(), SpoolFailure> {
        if shared.mutant.is(Mutant::SkipTailRewrite) {
            return Ok(());
        }
        for (id, dir, end) in &self.torn {
            let named = Named::Envelope(*id);
            let file = shared.queues.dir(*dir).disk.open(&named.file());
            let cut = file.and_then(|file| {
                file.truncate(*end)?;
                file.sync_data()
            });
            cut.map_err(|e| failed(shared, "cut", *dir, named, &e))?;
        }
        self.write_again(shared)
    }

    /// Removes what belongs to no message, and asks for room.
    fn tidy(&self, shared: &Shared, listing: &Listing, keep_unfinished: bool) -> Result<(), SpoolFailure> {
        let mut scraps = listing.drafts.clone();
        if !keep_unfinished {
            scraps.extend(listing.unfinished.iter().map(|(id, dir)| (*dir, Named::Unfinished(*id))));
            let orphans = listing.contents.iter().filter(|(id, _)| !listing.envelopes.contains_key(id));
            scraps.extend(orphans.map(|(id, dir)| (*dir, Named::Content(*id))));
        }
        if !keep_unfinished && !self.lost_chunks {
            let orphans = listing.chunks.iter().filter(|(chunk_id, _)| !self.chunks.contains(chunk_id));
            scraps.extend(orphans.map(|(chunk_id, dir)| (*dir, Named::Chunk(*chunk_id))));
        }
        scraps.sort_unstable_by_key(|(dir, named)| (*dir, named.file()));
        let mut dirs = BTreeSet::new();
        for (dir, named) in scraps {
            let removed = shared.queues.dir(dir).disk.remove(&named.file());
            removed.map_err(|e| failed(shared, "remove", dir, named, &e))?;
            dirs.insert(dir);
        }
        sync(shared, &dirs)?;
        shared.look_for_room().map_err(|e| SpoolFailure::Io(format!("ask for room: {e}")))
    }
}
