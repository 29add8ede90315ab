//! Reads the directories and says what is in them: finishes what was agreed on, forgets what was not.

use super::{
    Shared,
    commit::Next,
    envelope::{self, Filed, Piece, Unreadable},
    finish::finish,
    index::{Chunk, Slot, content_of},
    listing::Listing,
    names::Named,
    note::Append,
    shared::read_envelope,
    written::told,
};
use crate::{Mutation, Recovered, RecoveryReport, SpoolFailure};
use mail::{QueueId, SharedMessage};
use std::{
    collections::{BTreeSet, HashSet},
    io,
};

/// What was read, besides what went into the index.
#[derive(Default)]
struct Scan {
    report: RecoveryReport,
    /// Envelope files with a torn end: where it begins.
    torn: Vec<(u64, u16, u64)>,
    /// The last append of every file that was written in the last round: to what offset.
    unproven: Vec<(u64, u16, Append, u64)>,
    chunks: HashSet<u64>,
    /// An envelope cannot be read: nobody knows which chunks are its own.
    lost_chunks: bool,
}

/// Everything found, and numbers for what comes.
pub(super) fn recover(
    shared: &Shared,
    visit: &mut dyn FnMut(Recovered),
) -> Result<(RecoveryReport, Next), SpoolFailure> {
    // Whoever wrote this may have been killed before it was durable: what is told from here on is.
    if !matches!(shared.mutation, Mutation::KeepTail | Mutation::SkipDirSync) {
        for home in shared.queues.homes() {
            home.disk.sync_all().map_err(|e| SpoolFailure::Io(format!("sync {}: {e}", home.name)))?;
        }
    }
    let mut listing = Listing::of(&shared.queues)?;
    let intent = listing.next_intent();
    let (steps, unread) = listing.steps(&shared.queues, shared.mutation)?;
    let mut scan = Scan::default();
    if !steps.is_empty() {
        let steps = if shared.mutation == Mutation::IgnoreBatchEnd { Vec::new() } else { steps };
        scan.report.batch_count = listing.intents.len() as u64 - unread.len() as u64;
        finish(shared, &mut listing, &steps, unread.is_empty())?;
    }
    let keep_unfinished = !unread.is_empty();
    scan.report.corrupt = unread;
    scan.read_all(shared, &listing, visit)?;
    scan.tidy(shared, &listing, keep_unfinished)?;
    shared.next_chunk.fetch_max(listing.next_chunk(), std::sync::atomic::Ordering::Relaxed);
    shared.look_for_room().map_err(|e| SpoolFailure::Io(format!("ask for room: {e}")))?;
    let round = scan.last_round() + 1;
    Ok((scan.report, Next { intent, round }))
}

/// The same for a reader that changes nothing.
pub(super) fn inspect(
    shared: &Shared,
    visit: &mut dyn FnMut(Recovered),
) -> Result<RecoveryReport, SpoolFailure> {
    let mut listing = Listing::of(&shared.queues)?;
    let (steps, unread) = listing.steps(&shared.queues, shared.mutation)?;
    listing.imagine(steps);
    let mut scan = Scan::default();
    scan.report.corrupt = unread;
    scan.read_all(shared, &listing, visit)?;
    Ok(scan.report)
}

pub(super) fn failed(shared: &Shared, doing: &str, dir: u16, named: Named, e: &io::Error) -> SpoolFailure {
    SpoolFailure::Io(format!("{doing} {}/{}: {}", shared.queues.dir(dir).name, named.file(), told(e)))
}

pub(super) fn sync(shared: &Shared, dirs: &BTreeSet<u16>) -> Result<(), SpoolFailure> {
    if shared.mutation == Mutation::SkipDirSync {
        return Ok(());
    }
    dirs.iter().map(|dir| shared.queues.dir(*dir)).try_for_each(|dir| {
        dir.disk.sync_dir().map_err(|e| SpoolFailure::Io(format!("sync {}: {e}", dir.name)))
    })
}

impl Scan {
    /// Every envelope file, in the order of the ids.
    fn read_all(
        &mut self,
        shared: &Shared,
        listing: &Listing,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<(), SpoolFailure> {
        self.report.corrupt.extend(listing.twice.iter().cloned());
        for (id, (dir, named)) in &listing.envelopes {
            let place = shared.queues.dir(*dir);
            let Some(mut bytes) = read_envelope(place, *named)? else { continue };
            for (offset, patch) in listing.patches.get(id).into_iter().flatten() {
                let (at, end) = (*offset as usize, (*offset as usize).saturating_add(patch.len()));
                if at <= bytes.len() {
                    bytes.resize(bytes.len().max(end), 0);
                    bytes[at..end].copy_from_slice(patch);
                }
            }
            let name = format!("{}/{}", place.name, named.file());
            match envelope::read(QueueId(*id), &bytes, shared.seal(*id)) {
                Ok(filed) => self.take(shared, listing, *id, *dir, &name, filed, visit),
                Err(version @ Unreadable::Version(_)) => {
                    return Err(SpoolFailure::Unusable(format!("{name}: {version}")));
                }
                Err(damaged) => {
                    self.report.corrupt.push(format!("{name}: {damaged}"));
                    self.lost_chunks = true;
                }
            }
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self,
        shared: &Shared,
        listing: &Listing,
        id: u64,
        dir: u16,
        name: &str,
        filed: Filed,
        visit: &mut dyn FnMut(Recovered),
    ) {
        let (content_bytes, chunks) = content_of(&filed.pieces);
        self.chunks.extend(chunks.iter().copied());
        let damaged = filed.damaged.iter().map(|at| format!("{name}: byte {at}: a line cannot be read"));
        self.report.corrupt.extend(damaged);
        // Half a message must not be delivered.
        let lost = chunks.iter().find(|place| !listing.chunks.contains_key(place));
        if let Some(place) = lost {
            let chunk = Named::Chunk(*place).file();
            return self.report.corrupt.push(format!("{name}: {chunk} of its content is missing"));
        }
        if content_bytes > 0 && listing.contents.get(&id) != Some(&dir) {
            return self.report.corrupt.push(format!("{name}: its content is missing"));
        }
        if filed.torn_bytes > 0 {
            self.report.torn_bytes += filed.torn_bytes;
            self.torn.push((id, dir, filed.end));
        }
        if let Some(append) = filed.last {
            if append.round > self.last_round() {
                self.unproven.clear();
            }
            if append.round >= self.last_round() {
                self.unproven.push((id, dir, append, filed.end));
            }
        }
        let mut index = shared.index();
        for piece in &filed.pieces {
            let Piece::Chunk { place, length_bytes, sum } = *piece else { continue };
            let dir = listing.chunks.get(&place).copied();
            index.add_chunk(place, Chunk { dir, length_bytes, sum });
        }
        index.add(&shared.queues.dirs, id, Slot { dir, envelope_bytes: filed.end, content_bytes, chunks });
        drop(index);
        self.report.message_count += 1;
        let message = SharedMessage::new(filed.message);
        visit(Recovered { message, recipients: filed.states, held: filed.held });
    }

    fn last_round(&self) -> u64 {
        self.unproven.first().map_or(0, |(_, _, append, _)| append.round)
    }

    /// When the sync of the last round failed, what it appended can still be read and is not on the disk,
    /// and no sync brings it there: only writing it again does.
    fn write_again(&self, shared: &Shared) -> Result<(), SpoolFailure> {
        for (id, dir, append, end) in &self.unproven {
            let named = Named::Envelope(*id);
            let file = shared.queues.dir(*dir).disk.open(&named.file());
            let written = file.and_then(|file| {
                let mut bytes = vec![0; (end - append.base) as usize];
                file.read_at(append.base, &mut bytes)?;
                file.write_at(append.base, &bytes)?;
                file.sync_data()
            });
            written.map_err(|e| failed(shared, "write again", *dir, named, &e))?;
        }
        Ok(())
    }

    /// Cuts torn ends, removes what belongs to nobody.
    fn tidy(&self, shared: &Shared, listing: &Listing, keep_unfinished: bool) -> Result<(), SpoolFailure> {
        if shared.mutation != Mutation::KeepTail {
            for (id, dir, end) in &self.torn {
                let named = Named::Envelope(*id);
                let file = shared.queues.dir(*dir).disk.open(&named.file());
                let cut = file.and_then(|file| {
                    file.truncate(*end)?;
                    file.sync_data()
                });
                cut.map_err(|e| failed(shared, "cut", *dir, named, &e))?;
            }
            self.write_again(shared)?;
        }
        let mut scraps = listing.drafts.clone();
        if !keep_unfinished {
            scraps.extend(listing.unfinished.iter().map(|(id, dir)| (*dir, Named::Unfinished(*id))));
            let orphans = listing.contents.iter().filter(|(id, _)| !listing.envelopes.contains_key(id));
            scraps.extend(orphans.map(|(id, dir)| (*dir, Named::Content(*id))));
        }
        if !keep_unfinished && !self.lost_chunks {
            let orphans = listing.chunks.iter().filter(|(place, _)| !self.chunks.contains(place));
            scraps.extend(orphans.map(|(place, dir)| (*dir, Named::Chunk(*place))));
        }
        scraps.sort_unstable_by_key(|(dir, named)| (*dir, named.file()));
        let mut dirs = BTreeSet::new();
        for (dir, named) in scraps {
            let removed = shared.queues.dir(dir).disk.remove(&named.file());
            removed.map_err(|e| failed(shared, "remove", dir, named, &e))?;
            dirs.insert(dir);
        }
        sync(shared, &dirs)
    }
}
