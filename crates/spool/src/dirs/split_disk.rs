//! Two directories as one: envelopes and intents in the first, content and chunks in the second, perhaps on another disk.
//!
//! A commit syncs the files and directories that it has written before it gives an envelope its name. Here the sync of the
//! directory syncs that of the content first, so an accepted message never names content that is not durable.

use super::names::Named;
use crate::disk::{Disk, File};
use mail::UnixMillis;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// A disk of two directories: envelopes and intents in the first, content and chunks in the second.
pub struct SplitDisk {
    envelopes: Arc<dyn Disk>,
    contents: Arc<dyn Disk>,
    /// Names of content were made that are not durable. A removed name may come back: no envelope names it then.
    has_new_content: AtomicBool,
}

fn is_content(name: &str) -> bool {
    matches!(Named::of(name), Some(Named::Content(_) | Named::Chunk(_)))
}

impl SplitDisk {
    /// Puts content on a disk of its own. Content that is beside its envelope is found there, too.
    pub fn new(envelopes: Arc<dyn Disk>, contents: Arc<dyn Disk>) -> Self {
        Self { envelopes, contents, has_new_content: AtomicBool::new(false) }
    }

    /// Tries the disk of a file; for content the other one, too.
    fn with<T>(&self, name: &str, mut act: impl FnMut(&dyn Disk) -> io::Result<T>) -> io::Result<T> {
        if !is_content(name) {
            return act(&*self.envelopes);
        }
        match act(&*self.contents) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => act(&*self.envelopes),
            done => done,
        }
    }
}

impl Disk for SplitDisk {
    fn lock(&self) -> io::Result<()> {
        self.envelopes.lock()?;
        self.contents.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        self.each_name(&mut |name| names.push(name.to_owned()))?;
        Ok(names)
    }

    fn each_name(&self, each: &mut dyn FnMut(&str)) -> io::Result<()> {
        self.envelopes.each_name(each)?;
        self.contents.each_name(&mut |name| {
            if is_content(name) {
                each(name);
            }
        })
    }

    fn read(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.with(name, |disk| disk.read(name, max_bytes, buffer))
    }

    fn read_uncached(&self, name: &str, max_bytes: u64, buffer: &mut Vec<u8>) -> io::Result<()> {
        self.with(name, |disk| disk.read_uncached(name, max_bytes, buffer))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        if !is_content(name) {
            return self.envelopes.create(name);
        }
        // Before the name is made: a sync in between must not miss it.
        self.has_new_content.store(true, Ordering::SeqCst);
        self.contents.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.with(name, |disk| disk.open(name))
    }

    fn changed(&self, name: &str) -> io::Result<UnixMillis> {
        self.with(name, |disk| disk.changed(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        assert!(!is_content(from) && !is_content(to), "content keeps its name");
        self.envelopes.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.with(name, |disk| disk.remove(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        if self.has_new_content.swap(false, Ordering::SeqCst) {
            // A failed sync is final for the spool; another attempt must not be taken for a success.
            self.contents.sync_dir().inspect_err(|_| self.has_new_content.store(true, Ordering::SeqCst))?;
        }
        self.envelopes.sync_dir()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.contents.sync_all()?;
        self.envelopes.sync_all()
    }

    fn check_place(&self) -> io::Result<()> {
        self.contents.check_place()?;
        self.envelopes.check_place()
    }

    /// Returns the free space of the fuller of the two.
    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.envelopes.free_bytes()?.min(self.contents.free_bytes()?))
    }

    fn clock(&self) -> Duration {
        self.envelopes.clock()
    }

    fn random(&self) -> io::Result<u64> {
        self.envelopes.random()
    }

    fn free_files(&self) -> io::Result<u64> {
        Ok(self.envelopes.free_files()?.min(self.contents.free_files()?))
    }
}
