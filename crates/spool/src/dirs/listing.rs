//! All files of all queue directories, by what they are.

use super::{
    intent::{self, Step},
    line::Seal,
    names::Named,
    queues::Queues,
    shared::{PLACES_END, read_file},
};
use crate::{Mutation, SpoolFailure};
use std::collections::{BTreeMap, HashMap};

/// No intent is that long.
const INTENT_MAX: u64 = 1 << 30;

/// By number, the directory of each file.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Its messages are live; under which name the file is there.
    pub(super) envelopes: BTreeMap<u64, (u16, Named)>,
    pub(super) unfinished: BTreeMap<u64, u16>,
    pub(super) contents: HashMap<u64, u16>,
    pub(super) chunks: HashMap<u64, u16>,
    pub(super) intents: BTreeMap<u64, u16>,
    pub(super) drafts: Vec<(u16, Named)>,
    /// Files that are there in two directories: the second, left alone.
    pub(super) twice: Vec<String>,
    /// What intents append, for a reader that changes nothing.
    pub(super) patches: HashMap<u64, Vec<(u64, Vec<u8>)>>,
}

impl Listing {
    pub(super) fn of(queues: &Queues) -> Result<Self, SpoolFailure> {
        let mut all = Self::default();
        for (number, dir) in (0u16..).zip(&queues.dirs) {
            let mut take = |name: &str| {
                if let Some(named) = Named::of(name)
                    && !all.enter(number, named)
                {
                    all.twice
                        .push(format!("{}/{name}: a file of that name is in another directory", dir.name));
                }
            };
            let listed = dir.disk.each_name(&mut take);
            listed.map_err(|e| SpoolFailure::Io(format!("list {}: {e}", dir.name)))?;
        }
        Ok(all)
    }

    /// `false` when there is one already.
    fn enter(&mut self, dir: u16, named: Named) -> bool {
        match named {
            Named::Envelope(id) => {
                let is_first = !self.envelopes.contains_key(&id);
                self.envelopes.entry(id).or_insert((dir, named));
                is_first
            }
            Named::Unfinished(id) => self.unfinished.insert(id, dir).is_none(),
            Named::Content(id) => self.contents.insert(id, dir).is_none(),
            Named::Chunk(place) => self.chunks.insert(place, dir).is_none(),
            Named::Intent(number) => self.intents.insert(number, dir).is_none(),
            Named::Draft(_) => {
                self.drafts.push((dir, named));
                true
            }
        }
    }

    /// What the intents say, in their order; those that cannot be read, in words.
    pub(super) fn steps(
        &self,
        queues: &Queues,
        mutation: Mutation,
    ) -> Result<(Vec<Step>, Vec<String>), SpoolFailure> {
        let (mut steps, mut corrupt) = (Vec::new(), Vec::new());
        for (number, dir) in &self.intents {
            let (dir, name) = (queues.dir(*dir), Named::Intent(*number).file());
            let Some(bytes) = read_file(dir, &name, INTENT_MAX)? else { continue };
            match intent::read(*number, &bytes, Seal::mutated(*number, mutation)) {
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
        self.chunks.keys().copied().filter(|place| *place < PLACES_END).max()
    }

    /// The number of every intent of ours is below this. They are counted from 1: what has a number that none
    /// can come to is not ours, and behind it there may be no more.
    pub(super) fn next_intent(&self) -> u64 {
        const END: u64 = 1 << 63;
        self.intents.keys().filter(|number| **number < END).max().map_or(1, |number| number + 1)
    }
}
