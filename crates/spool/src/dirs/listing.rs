//! All files of all queue directories, by what they are.

use super::{
    intent::{self, Step},
    line::LineChecksum,
    names::Named,
    queues::Queues,
    shared::{PLACES_END, is_ours},
};
use crate::log::tolerant::with_retries;
use crate::{SpoolFailure, mutant::ActiveMutant};
use std::{
    collections::{BTreeMap, HashMap},
    io,
};

/// No intent is that long.
const INTENT_MAX: u64 = 1 << 30;

/// By number, the directory of each file.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Live messages, with the name under which each envelope file is there.
    pub(super) envelopes: BTreeMap<u64, (u16, Named)>,
    pub(super) unfinished: BTreeMap<u64, u16>,
    pub(super) contents: HashMap<u64, u16>,
    pub(super) chunks: HashMap<u64, u16>,
    pub(super) intents: BTreeMap<u64, u16>,
    pub(super) drafts: Vec<(u16, Named)>,
    /// Files that are there in two directories: those left alone, in words.
    pub(super) twice: Vec<String>,
    /// Chunks that are there in two directories: the other ones. Which is right is in an envelope.
    pub(super) chunk_copies: HashMap<u64, Vec<u16>>,
    /// Bytes that intents append to each envelope file, for a reader that changes nothing.
    pub(super) patches: HashMap<u64, Vec<(u64, Vec<u8>)>>,
}

impl Listing {
    pub(super) fn of(queues: &Queues) -> Result<Self, SpoolFailure> {
        let (mut all, mut copies) = (Self::default(), Vec::new());
        for (number, dir) in (0u16..).zip(&queues.dirs) {
            let mut take = |name: &str| {
                if let Some(named) = Named::of(name)
                    && !all.enter(number, named)
                {
                    copies.push((number, named));
                }
            };
            let listed = dir.disk.each_name(&mut take);
            listed.map_err(|e| SpoolFailure::Io(format!("list {}: {e}", dir.name)))?;
        }
        let left = all.choose(copies);
        let told = |(dir, named): (u16, Named)| {
            format!("{}/{}: a file of that name is in another directory", queues.dir(dir).name, named.file())
        };
        all.twice = left.into_iter().map(told).collect();
        Ok(all)
    }

    /// `false` when there is one already.
    fn enter(&mut self, dir: u16, named: Named) -> bool {
        match named {
            Named::Envelope(id) => *self.envelopes.entry(id).or_insert((dir, named)) == (dir, named),
            Named::Unfinished(id) => *self.unfinished.entry(id).or_insert(dir) == dir,
            Named::Content(id) => *self.contents.entry(id).or_insert(dir) == dir,
            Named::Chunk(chunk_id) => *self.chunks.entry(chunk_id).or_insert(dir) == dir,
            Named::Intent(number) => *self.intents.entry(number).or_insert(dir) == dir,
            Named::Draft(_) => {
                self.drafts.push((dir, named));
                true
            }
            Named::Totals => true, // no name is read as this
        }
    }

    /// Of files that are there more than once the ones that belong together; what is left alone. A stray
    /// copy of one of a message's files must not part it from the others.
    fn choose(&mut self, copies: Vec<(u16, Named)>) -> Vec<(u16, Named)> {
        let mut everywhere: BTreeMap<u64, Vec<(u16, Named)>> = BTreeMap::new();
        let mut left = Vec::new();
        for (dir, named) in copies {
            match named {
                Named::Envelope(id) | Named::Unfinished(id) | Named::Content(id) => {
                    everywhere.entry(id).or_default().push((dir, named));
                }
                Named::Chunk(chunk_id) => {
                    self.chunk_copies.entry(chunk_id).or_default().push(dir);
                    left.push((dir, named));
                }
                Named::Intent(_) | Named::Draft(_) | Named::Totals => left.push((dir, named)),
            }
        }
        for (id, mut files) in everywhere {
            files.extend(self.envelopes.get(&id).copied());
            files.extend(self.unfinished.get(&id).map(|dir| (*dir, Named::Unfinished(id))));
            files.extend(self.contents.get(&id).map(|dir| (*dir, Named::Content(id))));
            files.sort_unstable_by_key(|(dir, _)| *dir);
            left.extend(self.choose_of_one(id, &files));
        }
        left
    }

    /// Chooses among the files of one message, in the order of their directories.
    fn choose_of_one(&mut self, id: u64, files: &[(u16, Named)]) -> Vec<(u16, Named)> {
        let dirs = |named| files.iter().filter(move |(_, other)| *other == named).map(|(dir, _)| *dir);
        let (envelope, unfinished, content) =
            (Named::Envelope(id), Named::Unfinished(id), Named::Content(id));
        let is_beside_content = |dir: &u16| dirs(content).any(|other| other == *dir);
        let best = |named| dirs(named).find(is_beside_content).or_else(|| dirs(named).next());
        let (accepted, waiting) = (best(envelope), best(unfinished));
        let queue_dir = accepted.or(waiting);
        let filled = queue_dir.filter(is_beside_content).or_else(|| dirs(content).next());
        self.envelopes.extend(accepted.map(|dir| (id, (dir, envelope))));
        self.unfinished.extend(waiting.map(|dir| (id, dir)));
        self.contents.extend(filled.map(|dir| (id, dir)));
        let chosen = [(accepted, envelope), (waiting, unfinished), (filled, content)];
        files.iter().copied().filter(|(dir, named)| !chosen.contains(&(Some(*dir), *named))).collect()
    }

    /// Returns each directory that has a file of the chunk: a crash can leave two.
    pub(super) fn chunk_dirs(&self, chunk_id: u64) -> impl Iterator<Item = u16> {
        self.chunks
            .get(&chunk_id)
            .into_iter()
            .chain(self.chunk_copies.get(&chunk_id).into_iter().flatten())
            .copied()
    }

    /// Returns the steps of the intents, in their order, and the intents that cannot be read, in words. Nothing else
    /// waits
    /// for an intent that the disk does not give.
    pub(super) fn steps(
        &self,
        queues: &Queues,
        mutant: ActiveMutant,
    ) -> Result<(Vec<Step>, Vec<String>), SpoolFailure> {
        let (mut steps, mut corrupt, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for (number, dir) in &self.intents {
            let (dir, name) = (queues.dir(*dir), Named::Intent(*number).file());
            match with_retries(|| dir.disk.read(&name, INTENT_MAX, &mut bytes)) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) if is_ours(&e) => {
                    return Err(SpoolFailure::Io(format!("read {}/{name}: {e}", dir.name)));
                }
                Err(e) => {
                    corrupt.push(format!("{}/{name}: cannot be read: {e}", dir.name));
                    continue;
                }
            }
            let checksum = LineChecksum::of(*number, mutant);
            let mut read = intent::read(*number, &bytes, checksum);
            // Perhaps only memory has it wrong.
            if read.is_err() && dir.disk.read_uncached(&name, INTENT_MAX, &mut bytes).is_ok() {
                read = intent::read(*number, &bytes, checksum);
            }
            match read {
                Ok(more) => steps.extend(more),
                Err(why) => corrupt.push(format!("{}/{name}: {}", dir.name, why.0)),
            }
        }
        Ok((steps, corrupt))
    }

    /// As if the steps were done.
    pub(super) fn imagine(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Finish(id) => {
                    if let Some(dir) = self.unfinished.get(&id.0) {
                        self.envelopes.entry(id.0).or_insert((*dir, Named::Unfinished(id.0)));
                    }
                }
                Step::Append(id, offset, bytes) => {
                    self.patches.entry(id.0).or_default().push((offset, bytes));
                }
                Step::Remove(id) => drop(self.envelopes.remove(&id.0)),
            }
        }
    }

    /// Of all chunk files the last number we may have given.
    pub(super) fn last_chunk(&self) -> Option<u64> {
        self.chunks.keys().copied().filter(|chunk_id| *chunk_id < PLACES_END).max()
    }

    /// The number of every intent of ours is below this. They are counted from 1: what has a number that none
    /// can come to is not ours, and behind it there may be no more.
    pub(super) fn next_intent(&self) -> u64 {
        const END: u64 = 1 << 63;
        self.intents.keys().filter(|number| **number < END).max().map_or(1, |number| number + 1)
    }
}
