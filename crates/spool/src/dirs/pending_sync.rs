//! Changes to files and names, collected until they are made durable together.

use super::{Shared, names::Named};
use crate::{
    SpoolFailure,
    disk::{File, lacks_room},
};
use std::{collections::BTreeSet, io, sync::Arc, time::Instant};

/// Files and names that are changed and not durable yet.
pub(super) struct Written<'a> {
    shared: &'a Shared,
    /// Files that were made.
    made: Vec<(u16, Named)>,
    files: Vec<(u16, Named, Arc<dyn File>)>,
    dirs: BTreeSet<u16>,
}

/// Why a file was not written or not synced.
pub(super) struct Unwritten {
    pub(super) failure: SpoolFailure,
    /// A write or sync found no room, nothing worse.
    pub(super) lacks_room: bool,
}

impl<'a> Written<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, made: Vec::new(), files: Vec::new(), dirs: BTreeSet::new() }
    }

    fn failed(&self, doing: &str, dir: u16, named: Named, e: &io::Error) -> SpoolFailure {
        let chunk_id = format!("{}/{}", self.shared.queues.dir(dir).name, named.file());
        SpoolFailure::Io(format!("{doing} {chunk_id}: {}", told(e)))
    }

    fn unwritten(&self, doing: &str, dir: u16, named: Named, e: &io::Error) -> Unwritten {
        Unwritten { failure: self.failed(doing, dir, named, e), lacks_room: lacks_room(e) }
    }

    pub(super) fn create(
        &mut self,
        dir: u16,
        named: Named,
        write: impl FnOnce(&dyn File) -> io::Result<()>,
    ) -> Result<(), Unwritten> {
        let made = self.shared.queues.dir(dir).disk.create(&named.file());
        let file = made.map_err(|e| self.unwritten("create", dir, named, &e))?;
        self.made.push((dir, named));
        write(&*file).map_err(|e| self.unwritten("write", dir, named, &e))?;
        self.files.push((dir, named, file));
        self.dirs.insert(dir);
        Ok(())
    }

    pub(super) fn change(
        &mut self,
        dir: u16,
        named: Named,
        write: impl FnOnce(&dyn File) -> io::Result<()>,
    ) -> Result<(), Unwritten> {
        let opened = self.shared.queues.dir(dir).disk.open(&named.file());
        let file = opened.map_err(|e| self.unwritten("open", dir, named, &e))?;
        write(&*file).map_err(|e| self.unwritten("write", dir, named, &e))?;
        self.files.push((dir, named, file));
        Ok(())
    }

    /// Removes new files, which no envelope names yet.
    pub(super) fn undo(self) -> Result<(), SpoolFailure> {
        self.made.iter().try_for_each(|(dir, named)| {
            let removed = self.shared.queues.dir(*dir).disk.remove(&named.file());
            removed.map_err(|e| self.failed("remove", *dir, *named, &e))
        })
    }

    pub(super) fn rename(&mut self, dir: u16, from: Named, to: Named) -> Result<(), SpoolFailure> {
        self.dirs.insert(dir);
        let renamed = self.shared.queues.dir(dir).disk.rename(&from.file(), &to.file());
        renamed.map_err(|e| self.failed("rename", dir, from, &e))
    }

    pub(super) fn remove(&mut self, dir: u16, named: Named) -> Result<(), SpoolFailure> {
        self.dirs.insert(dir);
        let removed = self.shared.queues.dir(dir).disk.remove(&named.file());
        removed.map_err(|e| self.failed("remove", dir, named, &e))
    }

    /// One by one: a sync of the whole file system was measured for batches of 10 and of 64 messages, is
    /// about as fast (within a fifth), and waits for what other programs wrote.
    pub(super) fn sync_files(&mut self) -> Result<(), Unwritten> {
        let started = Instant::now();
        for (dir, named, file) in std::mem::take(&mut self.files) {
            // The first failure is final: the pages are marked clean, a second sync would say OK.
            file.sync_data().map_err(|e| self.unwritten("sync", dir, named, &e))?;
        }
        self.shared.group_commit.note_sync(started.elapsed().as_micros() as u64);
        Ok(())
    }

    /// Bytes, then names.
    pub(super) fn sync(&mut self) -> Result<(), Unwritten> {
        self.sync_files()?;
        for dir in std::mem::take(&mut self.dirs) {
            let dir = self.shared.queues.dir(dir);
            dir.disk.sync_dir().map_err(|e| {
                let failure = SpoolFailure::Io(format!("sync {}: {}", dir.name, told(&e)));
                Unwritten { failure, lacks_room: lacks_room(&e) }
            })?;
        }
        Ok(())
    }
}

/// An error in words; a full disk always in the same.
pub(super) fn told(e: &io::Error) -> String {
    if lacks_room(e) { "the disk has no room for one".to_owned() } else { e.to_string() }
}
