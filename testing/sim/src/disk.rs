//! A disk in memory that tells what was synced from what was only written. When the power goes, any
//! of the unsynced sectors may survive, in any order, and any of the unsynced names.

mod calls;
mod decay;
mod image;

pub use decay::{Decay, PAGE};

use crate::seed::Rng;
use image::Image;
use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What goes wrong at an operation, and at those behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The operation is done in part, and every later one fails: the power or the process is gone.
    Cut,
    /// The operation fails with this error number.
    Once(i32),
    /// The operation and all after it fail with this error number.
    ForGood(i32),
    /// The next write is done in part, and then the disk is full for a moment.
    Short,
    /// The next sync fails with EIO. What was unsynced never reaches the disk, but can still be read,
    /// and later syncs say that all is well (measured on ext4, xfs and btrfs).
    Sync,
}

/// A name that came or went and is not durable yet.
#[derive(Debug, Clone)]
enum NameChange {
    Created(String, u64),
    Renamed(String, String, u64),
    Removed(String, u64),
}

#[derive(Debug, Clone)]
struct State {
    images: BTreeMap<u64, Image>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    /// The bytes in the blocks of removed files; new files lie over them.
    freed: Vec<Vec<u8>>,
    capacity_bytes: u64,
    next_image: u64,
    operation_count: u64,
    faults: Vec<(u64, Fault)>,
    is_off: bool,
    /// The error of every further operation; `None` while the disk works.
    broken: Option<i32>,
    /// An operation has failed that should not have.
    has_failed: bool,
    /// A write touched a page that decay has made unreadable.
    has_met_decay: bool,
    /// The wall clock, in milliseconds since 1970.
    clock_ms: u64,
    rng: Rng,
    /// The stream for the spool's own random numbers; the other stream has been counted on.
    random: Rng,
}

impl NameChange {
    /// Returns the name that the change is about; of a rename, the new one.
    fn name(&self) -> &str {
        match self {
            Self::Created(name, _) | Self::Renamed(_, name, _) | Self::Removed(name, _) => name,
        }
    }
}

/// The extent to which a disk operation is done.
enum OpAction {
    Run,
    /// Done in part, then fails.
    RunHalf(io::Error),
}

/// The kind of a disk operation, which decides the faults that may strike it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DiskOp {
    Write,
    Sync,
    Other,
}

/// The time at which a simulation begins: some day of 2027, in milliseconds since 1970.
pub const START_MS: u64 = 1_800_000_000_000;

/// Input/output error.
pub const EIO: i32 = 5;
/// No space left on device.
pub const ENOSPC: i32 = 28;
/// Too many open files.
pub const EMFILE: i32 = 24;

/// One directory of the disk as one process sees it. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    /// Before the names of its files; empty for the disk's own directory.
    prefix: String,
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

fn is_off() -> io::Error {
    io::Error::other("the power is off")
}

fn not_found(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, name.to_owned())
}

impl State {
    /// Counts an operation and says what becomes of it.
    fn begin(&mut self, op: DiskOp) -> io::Result<OpAction> {
        if self.is_off {
            return Err(is_off());
        }
        self.operation_count += 1;
        let count = self.operation_count;
        let strikes = |fault: &Fault| match fault {
            Fault::Sync => op == DiskOp::Sync,
            Fault::Short => op == DiskOp::Write,
            Fault::Cut | Fault::Once(_) | Fault::ForGood(_) => true,
        };
        let due = |(at, fault): &(u64, Fault)| *at <= count && strikes(fault);
        let fault = self.faults.iter().position(due).map(|at| self.faults.remove(at).1);
        self.has_failed |= fault.is_some();
        match fault {
            Some(Fault::Cut) => {
                self.is_off = true;
                return Ok(OpAction::RunHalf(is_off()));
            }
            Some(Fault::Short) => return Ok(OpAction::RunHalf(io::Error::from_raw_os_error(ENOSPC))),
            Some(Fault::ForGood(error)) => self.broken = Some(error),
            Some(Fault::Once(error)) => return Err(io::Error::from_raw_os_error(error)),
            Some(Fault::Sync) => return Err(eio()),
            None => {}
        }
        self.broken.map_or(Ok(OpAction::Run), |error| Err(io::Error::from_raw_os_error(error)))
    }

    /// A file without a name that no crash can bring back: its blocks are free.
    fn free_unnamed(&mut self) {
        let named: Vec<u64> = self.names.values().chain(self.durable_names.values()).copied().collect();
        let gone: Vec<u64> = self.images.keys().filter(|id| !named.contains(id)).copied().collect();
        for id in gone {
            self.freed.extend(self.images.remove(&id).map(|image| image.now));
        }
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|id| self.images.get(id)).map(|i| i.now.len() as u64).sum()
    }

    /// Each unsynced name change survives or does not.
    fn cut_names(&mut self, rng: &mut Rng) {
        for change in std::mem::take(&mut self.unsynced_names) {
            match change {
                _ if rng.chance(50) => {}
                NameChange::Created(name, id) => drop(self.durable_names.insert(name, id)),
                NameChange::Renamed(from, to, id) => {
                    self.durable_names.remove(&from);
                    self.durable_names.insert(to, id);
                }
                NameChange::Removed(name, id) => {
                    if self.durable_names.get(&name) == Some(&id) {
                        self.durable_names.remove(&name);
                    }
                }
            }
        }
        self.names = self.durable_names.clone();
        self.free_unnamed();
    }
}

impl SimDisk {
    /// Returns an empty disk with so much room.
    pub fn new(seed: u64, capacity_bytes: u64) -> Self {
        Self::of(State {
            images: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            unsynced_names: Vec::new(),
            freed: Vec::new(),
            capacity_bytes,
            next_image: 0,
            operation_count: 0,
            faults: Vec::new(),
            is_off: false,
            broken: None,
            has_failed: false,
            has_met_decay: false,
            clock_ms: START_MS,
            rng: Rng::new(seed),
            random: Rng::new(seed ^ 0x7261_6e64_6f6d),
        })
    }

    fn of(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), prefix: String::new() }
    }

    /// Another directory of the same disk; there is no need to make it.
    pub fn directory(&self, name: &str) -> Self {
        Self { state: self.state.clone(), prefix: format!("{name}/") }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets something go wrong at an operation; the first is number one.
    pub fn plan(&self, operation: u64, fault: Fault) {
        self.state().faults.push((operation, fault));
    }

    /// Operations so far.
    pub fn operation_count(&self) -> u64 {
        self.state().operation_count
    }

    /// Is something planned that has not come?
    pub fn is_planned(&self) -> bool {
        !self.state().faults.is_empty()
    }

    /// Files there are.
    pub fn file_names(&self) -> Vec<String> {
        self.state().names.keys().cloned().collect()
    }

    /// Files that take room: not the one whose name says which epoch the log is in.
    pub fn spool_files(&self) -> Vec<String> {
        let mut names = self.file_names();
        names.retain(|name| !name.ends_with(".epoch"));
        names
    }

    /// Has the planned cut come?
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// Has nothing gone wrong so far?
    pub fn is_well(&self) -> bool {
        let state = self.state();
        !state.is_off && state.broken.is_none() && !state.has_failed
    }

    /// Cuts the power: every further operation fails.
    pub fn cut(&self) {
        self.state().is_off = true;
    }

    /// Sets the time that its wall clock shows; nothing else moves it.
    pub fn set_clock(&self, clock_ms: u64) {
        self.state().clock_ms = clock_ms;
    }

    /// Sets the number of bytes that the disk holds.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        self.state().capacity_bytes = capacity_bytes;
    }

    fn restarted(&self) -> State {
        let state = self.state().clone();
        State {
            operation_count: 0,
            faults: Vec::new(),
            is_off: false,
            broken: None,
            has_failed: false,
            has_met_decay: false,
            ..state
        }
    }

    /// The disk after the process died and the machine did not: what was written can be read, and is
    /// as unsynced as before.
    pub fn after_kill(&self) -> Self {
        Self::of(self.restarted())
    }

    /// The disk after a power cut: of what was not synced, any part.
    pub fn after_crash(&self, seed: u64) -> Self {
        let (mut state, mut rng) = (self.restarted(), Rng::new(seed));
        state.images.values_mut().for_each(|image| image.cut_power(&mut rng));
        state.images.values_mut().for_each(Image::drop_cache);
        state.cut_names(&mut rng);
        Self::of(state)
    }

    /// Flips one bit of something that was synced and is not zero; in which file, its directory before it.
    pub fn flip_bit(&self, seed: u64) -> Option<String> {
        let (mut guard, mut rng) = (self.state(), Rng::new(seed));
        let state = &mut *guard;
        let names: Vec<(&String, &u64)> = state.names.iter().collect();
        (0..names.len() * 4).find_map(|_| {
            let (name, id) = names[rng.index(names.len())];
            let image = state.images.get_mut(id)?;
            image.flip_bit(&mut rng).then(|| name.clone())
        })
    }
}
