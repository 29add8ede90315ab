//! The operations that the spool calls.

use super::{DiskOp, NameChange, OpAction, SimDisk, State, eio, not_found};
use crate::disk::image::{Image, SECTOR};
use spool::disk::{Disk, File};
use std::{io, sync::Arc, time::Duration};

impl SimDisk {
    /// A change of names: at a cut it was made or not.
    fn change<T>(&self, run: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        match state.begin(DiskOp::Other)? {
            OpAction::Run => run(&mut state),
            OpAction::RunHalf(error) => {
                if state.rng.chance(50) {
                    // The caller never learns of it.
                    let _ = run(&mut state);
                }
                Err(error)
            }
        }
    }

    /// Something that leaves no trace.
    fn look<T>(&self, run: impl FnOnce(&State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        match state.begin(DiskOp::Other)? {
            OpAction::Run => run(&state),
            OpAction::RunHalf(error) => Err(error),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the name below this directory; `None` for files elsewhere.
    fn own<'n>(&self, path: &'n str) -> Option<&'n str> {
        path.strip_prefix(&self.prefix).filter(|name| !name.contains('/'))
    }

    fn file(&self, image: u64) -> Arc<dyn File> {
        Arc::new(SimFile { disk: self.clone(), image })
    }
}

impl Disk for SimDisk {
    fn lock(&self) -> io::Result<()> {
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.look(|state| {
            let own = state.names.keys().filter_map(|path| self.own(path));
            Ok(own.map(str::to_owned).collect())
        })
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let name = &*self.path(name);
        self.change(|state| {
            if state.names.contains_key(name) {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, name.to_owned()));
            }
            state.next_image += 1;
            let id = state.next_image;
            let stale = state.freed.pop().unwrap_or_default();
            state.images.insert(id, Image::over(stale));
            state.names.insert(name.to_owned(), id);
            state.unsynced_names.push(NameChange::Created(name.to_owned(), id));
            Ok(self.file(id))
        })
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let name = &*self.path(name);
        self.look(|state| state.names.get(name).map(|id| self.file(*id)).ok_or_else(|| not_found(name)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (&*self.path(from), &*self.path(to));
        self.change(|state| {
            let id = state.names.remove(from).ok_or_else(|| not_found(from))?;
            assert!(!state.names.contains_key(to), "{to} would be lost: {from} takes its name");
            state.names.insert(to.to_owned(), id);
            state.unsynced_names.push(NameChange::Renamed(from.to_owned(), to.to_owned(), id));
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = &*self.path(name);
        self.change(|state| {
            let id = state.names.remove(name).ok_or_else(|| not_found(name))?;
            state.unsynced_names.push(NameChange::Removed(name.to_owned(), id));
            Ok(())
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        let mut state = self.state();
        match state.begin(DiskOp::Sync) {
            Ok(OpAction::Run) => {
                state.sync_names(|path| self.own(path).is_some());
                Ok(())
            }
            Ok(OpAction::RunHalf(error)) => Err(error),
            Err(e) => {
                if !state.is_off {
                    state.unsynced_names.retain(|change| self.own(change.name()).is_none());
                }
                Err(e)
            }
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.state();
        match state.begin(DiskOp::Sync) {
            Ok(OpAction::Run) => {
                state.images.values_mut().for_each(Image::sync);
                state.sync_names(|_| true);
                Ok(())
            }
            Ok(OpAction::RunHalf(error)) => Err(error),
            Err(e) => {
                if !state.is_off {
                    state.images.values_mut().for_each(Image::forget_unsynced);
                    state.unsynced_names.clear();
                }
                Err(e)
            }
        }
    }

    fn clock(&self) -> Duration {
        Duration::from_millis(self.state().clock_ms)
    }

    fn random(&self) -> io::Result<u64> {
        Ok(self.state().random.bits())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.look(|state| Ok(state.capacity_bytes.saturating_sub(state.used_bytes())))
    }
}

struct SimFile {
    disk: SimDisk,
    image: u64,
}

impl State {
    /// The names of some files are on the medium as they are now.
    fn sync_names(&mut self, is_meant: impl Fn(&str) -> bool) {
        self.unsynced_names.retain(|change| !is_meant(change.name()));
        self.durable_names.retain(|path, _| !is_meant(path));
        let now = self.names.iter().filter(|(path, _)| is_meant(path));
        self.durable_names.extend(now.map(|(path, id)| (path.clone(), *id)));
        self.free_unnamed();
    }

    /// Gone once its removal is durable: nothing we test uses a file after that.
    fn image(&mut self, id: u64) -> io::Result<&mut Image> {
        self.images.get_mut(&id).ok_or_else(eio)
    }
}

impl File for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        let go = state.begin(DiskOp::Write)?;
        let at = offset as usize;
        if state.image(self.image)?.is_lost_at_the_ends(&(at..at + bytes.len())) {
            state.has_met_decay = true;
            return Err(eio());
        }
        let grows_bytes = (at + bytes.len()).saturating_sub(state.image(self.image)?.now.len()) as u64;
        if grows_bytes > 0 && state.used_bytes() + grows_bytes > state.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let half = state.rng.index(bytes.len() / SECTOR * 2 + 1) * SECTOR;
        let image = state.image(self.image)?;
        match go {
            OpAction::Run => {
                image.write(at, bytes);
                Ok(())
            }
            OpAction::RunHalf(error) => {
                image.write(at, &bytes[..half.min(bytes.len())]);
                Err(error)
            }
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        if let OpAction::RunHalf(error) = state.begin(DiskOp::Other)? {
            return Err(error);
        }
        let (image, at) = (state.image(self.image)?, offset as usize);
        let count = image.read(at, buffer)?;
        image.read_wrong(at, &mut buffer[..count]);
        Ok(count)
    }

    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        if let OpAction::RunHalf(error) = state.begin(DiskOp::Other)? {
            return Err(error);
        }
        let (image, at) = (state.image(self.image)?, offset as usize);
        image.forget_cached(&(at..at + buffer.len()));
        image.read(at, buffer)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        match state.begin(DiskOp::Sync) {
            Ok(OpAction::Run) => state.image(self.image).map(Image::sync),
            Ok(OpAction::RunHalf(error)) => Err(error),
            Err(e) => {
                if !state.is_off {
                    state.image(self.image)?.forget_unsynced();
                }
                Err(e)
            }
        }
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let go = state.begin(DiskOp::Other)?;
        let is_done = matches!(go, OpAction::Run) || state.rng.chance(50);
        let image = state.image(self.image)?;
        if is_done {
            image.truncate(length as usize);
        }
        if let OpAction::RunHalf(error) = go { Err(error) } else { Ok(()) }
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.disk.state();
        if let OpAction::RunHalf(error) = state.begin(DiskOp::Other)? {
            return Err(error);
        }
        Ok(state.image(self.image)?.now.len() as u64)
    }
}
