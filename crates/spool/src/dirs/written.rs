//! Changes to files and names, collected until they are made durable together.

use super::{Shared, names::Named};
use crate::{Mutation, SpoolFailure, disk::File};
use std::{collections::BTreeSet, io, sync::Arc, time::Instant};

/// Files and names that are changed and not durable yet.
pub(super) struct Written<'a> {
    shared: &'a Shared,
    files: Vec<(u16, Named, Arc<dyn File>)>,
    dirs: BTreeSet<u16>,
}

impl<'a> Written<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, files: Vec::new(), dirs: BTreeSet::new() }
    }

    fn failed(&self, doing: &str, dir: u16, named: Named, e: &io::Error) -> SpoolFailure {
        let place = format!("{}/{}", self.shared.queues.dir(dir).name, named.file());
        SpoolFailure::Io(format!("{doing} {place}: {}", told(e)))
    }

    pub(super) fn create(
        &mut self,
        dir: u16,
        named: Named,
        write: impl FnOnce(&dyn File) -> io::Result<()>,
    ) -> Result<(), SpoolFailure> {
        let made = self.shared.queues.dir(dir).disk.create(&named.file());
        let file = made.map_err(|e| self.failed("create", dir, named, &e))?;
        write(&*file).map_err(|e| self.failed("write", dir, named, &e))?;
        self.files.push((dir, named, file));
        self.dirs.insert(dir);
        Ok(())
    }

    pub(super) fn change(
        &mut self,
        dir: u16,
        named: Named,
        write: impl FnOnce(&dyn File) -> io::Result<()>,
    ) -> Result<(), SpoolFailure> {
        let opened = self.shared.queues.dir(dir).disk.open(&named.file());
        let file = opened.map_err(|e| self.failed("open", dir, named, &e))?;
        write(&*file).map_err(|e| self.failed("write", dir, named, &e))?;
        self.files.push((dir, named, file));
        Ok(())
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

    pub(super) fn sync_files(&mut self) -> Result<(), SpoolFailure> {
        if self.shared.mutation == Mutation::SkipSync {
            self.files.clear();
        }
        let started = Instant::now();
        for (dir, named, file) in std::mem::take(&mut self.files) {
            // The first failure is final: the pages are marked clean, a second sync would say OK.
            let again =
                |e| if self.shared.mutation == Mutation::RetrySync { file.sync_data() } else { Err(e) };
            file.sync_data().or_else(again).map_err(|e| self.failed("sync", dir, named, &e))?;
        }
        self.shared.note_sync(started);
        Ok(())
    }

    /// Bytes, then names.
    pub(super) fn sync(mut self) -> Result<(), SpoolFailure> {
        self.sync_files()?;
        if self.shared.mutation == Mutation::SkipDirSync {
            return Ok(());
        }
        for dir in self.dirs {
            let dir = self.shared.queues.dir(dir);
            let again =
                |e| if self.shared.mutation == Mutation::RetrySync { dir.disk.sync_dir() } else { Err(e) };
            dir.disk
                .sync_dir()
                .or_else(again)
                .map_err(|e| SpoolFailure::Io(format!("sync {}: {}", dir.name, told(&e))))?;
        }
        Ok(())
    }
}

/// An error in words; a full disk always in the same.
pub(super) fn told(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk has no room for one".to_owned()
        }
        _ => e.to_string(),
    }
}
