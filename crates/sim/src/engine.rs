//! The engines under test, driven by hand: which, on what part of the disk, and how its work is done.

use crate::{disk::SimDisk, seed::Rng};
use spool::{
    Choice, DirSettings, DirSpool, LogSettings, LogSpool, Mutation, QueueDirectory, Recovered,
    RecoveryReport, Spool, SpoolFailure, Turn,
};
use std::{fmt, ops::Deref, str::FromStr, sync::Arc, time::Duration};

/// Which engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// The log.
    #[default]
    Log,
    /// Queue directories.
    Directories,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Log { "log" } else { "directories" })
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let engines = [Self::Log, Self::Directories];
        engines
            .into_iter()
            .find(|engine| engine.to_string() == text)
            .ok_or_else(|| format!("log or directories, not {text}"))
    }
}

/// How it is set up, from the seed.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) engine: Engine,
    pub(crate) log: LogSettings,
    mutation: Mutation,
    queue_count: usize,
    /// Files lie in directories below.
    is_hashed: bool,
    choice: Choice,
}

impl Setup {
    pub(crate) fn new(engine: Engine, log: LogSettings, mutation: Mutation, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let choice = [Choice::RoundRobin, Choice::Random, Choice::Fewest][rng.index(3)];
        Self { engine, log, mutation, queue_count: 1 + rng.index(4), is_hashed: rng.chance(30), choice }
    }

    pub(crate) fn open(&self, disk: &SimDisk) -> Result<Subject, SpoolFailure> {
        match self.engine {
            Engine::Log => {
                let log = LogSpool::by_hand(Arc::new(disk.clone()), self.log.clone(), self.mutation)?;
                Ok(Subject::Log(Box::new(log)))
            }
            Engine::Directories => {
                let queues = (0..self.queue_count).map(|n| self.queue(disk, n)).collect();
                let settings = DirSettings {
                    max_bytes: self.log.max_bytes,
                    min_free_bytes: 0,
                    reserve_bytes: 64 * 1024,
                    choice: self.choice,
                    queued_bytes_max: self.log.queued_bytes_max,
                    outcome_delay: Duration::ZERO,
                    // Threads would read in an order that no seed decides.
                    read_threads: 1,
                };
                let spool = DirSpool::by_hand(queues, settings, self.mutation)?;
                Ok(Subject::Directories(Box::new(spool)))
            }
        }
    }

    fn queue(&self, disk: &SimDisk, number: usize) -> QueueDirectory {
        let name = format!("q{number}");
        let mut queue = QueueDirectory::flat(&*name, Arc::new(disk.directory(&name)));
        if self.is_hashed {
            queue.open.clear();
            for below in 0..2 {
                let name = format!("{name}/{below}");
                queue.open.push(queue.disks.len());
                queue.disks.push((name.clone(), Arc::new(disk.directory(&name))));
            }
        }
        queue
    }
}

/// A spool without threads.
pub(crate) enum Subject {
    Log(Box<LogSpool>),
    Directories(Box<DirSpool>),
}

impl Subject {
    pub(crate) fn turn(&self, turn: Turn) -> bool {
        match self {
            Self::Log(spool) => spool.turn(turn),
            Self::Directories(spool) => spool.turn(turn),
        }
    }

    /// What is there; of queue directories perhaps by name first, and then one after the other.
    pub(crate) fn recover(
        &mut self,
        is_listed: bool,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<RecoveryReport, SpoolFailure> {
        match self {
            Self::Log(spool) => spool.recover(visit),
            Self::Directories(spool) if is_listed => {
                let (listed, mut report) = spool.recover_listed(false)?;
                // Not in the order of their files.
                let ids: Vec<_> = listed.iter().rev().map(|one| one.id).collect();
                for some in ids.chunks(16) {
                    let (found, opened) = spool.open_listed(some)?;
                    report.corrupt.extend(opened.corrupt);
                    report.torn_bytes += opened.torn_bytes;
                    found.into_iter().for_each(&mut *visit);
                }
                Ok(report)
            }
            Self::Directories(spool) => spool.recover(visit),
        }
    }
}

impl Deref for Subject {
    type Target = dyn Spool;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Log(spool) => &**spool,
            Self::Directories(spool) => &**spool,
        }
    }
}
