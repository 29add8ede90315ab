//! The backends under test, single-stepped: which backend, on what part of the disk, and how its work is done.

use crate::mutant::Mutant;
use crate::{disk::SimDisk, seed::Rng};
use spool::{
    CommitSeq, DirSettings, DirSpool, LogSettings, LogSpool, Placement, QueueDirectory, Recovered,
    RecoveryReport, ShardSelector, ShardedSpool, SplitDisk, Spool, SpoolFailure, WorkStep, disk::Disk,
};
use std::{fmt, ops::Deref, str::FromStr, sync::Arc, time::Duration};

/// Which spool a seed tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// Every message goes to the log.
    #[default]
    Log,
    /// Queue directories alone.
    QueueDirs,
    /// The log for some messages, queue directories for the others.
    Both,
}

/// The transactions that may survive a crash, of those that were not reported as durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// The first ones, in the order of submission.
    Prefix,
    /// Any; of each message the first ones, in the order of submission.
    Subset,
}

impl Backend {
    /// Returns the rule of each shard.
    pub fn survivors(self) -> &'static [Survivors] {
        match self {
            Self::Log => &[Survivors::Prefix],
            Self::QueueDirs => &[Survivors::Subset],
            Self::Both => &[Survivors::Prefix, Survivors::Subset],
        }
    }

    /// Transactions may name messages that have nothing to do with each other.
    pub fn is_joint(self) -> bool {
        self == Self::QueueDirs
    }
}

/// Returns the function that chooses the log or the queue directories for a message.
pub fn chooser() -> ShardSelector {
    Box::new(|envelope| envelope.recipients.len() % 2)
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Log => "log",
            Self::QueueDirs => "queue-dirs",
            Self::Both => "both",
        })
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let backends = [Self::Log, Self::QueueDirs, Self::Both];
        backends
            .into_iter()
            .find(|backend| backend.to_string() == text)
            .ok_or_else(|| format!("log, directories or both, not {text}"))
    }
}

/// How the spool of a seed is set up, restart after restart.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) backend: Backend,
    pub(crate) log: LogSettings,
    mutant: Mutant,
    queue_count: usize,
    /// Files lie in directories below.
    is_hashed: bool,
    /// Content lies in directories of its own.
    is_content_apart: bool,
    placement: Placement,
}

impl Setup {
    pub(crate) fn new(backend: Backend, log: LogSettings, mutant: Mutant, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let placement = [Placement::RoundRobin, Placement::Random, Placement::LeastUsed][rng.index(3)];
        let (queue_count, is_hashed) = (1 + rng.index(4), rng.chance(30));
        let is_content_apart = rng.chance(30);
        Self { backend, log, mutant, queue_count, is_hashed, is_content_apart, placement }
    }

    pub(crate) fn open(&self, disk: &SimDisk) -> Result<Subject, SpoolFailure> {
        match self.backend {
            Backend::Log => Ok(Subject::Log(Box::new(self.log(disk)?))),
            Backend::QueueDirs => Ok(Subject::QueueDirs(Box::new(self.directories(disk)?))),
            Backend::Both => {
                let log = self.log(&disk.directory(LOG_DIRECTORY))?;
                let stores: Vec<Box<dyn SingleStepped>> =
                    vec![Box::new(log), Box::new(self.directories(disk)?)];
                Ok(Subject::Both(Box::new(ShardedSpool::new(stores, chooser()))))
            }
        }
    }

    /// The report of a recovery as the callers of the spool see it.
    pub(crate) fn reported(&self, report: RecoveryReport) -> RecoveryReport {
        if self.mutant != Mutant::HideCorruption {
            return report;
        }
        let (corrupt, unread, quarantined) = Default::default();
        RecoveryReport { corrupt, unread, quarantined, torn_bytes: 0, ..report }
    }

    fn log(&self, disk: &SimDisk) -> Result<LogSpool, SpoolFailure> {
        LogSpool::open_mutant(self.mutant.over(disk.clone()), self.log.clone(), self.mutant.of_spool(), true)
    }

    fn directories(&self, disk: &SimDisk) -> Result<DirSpool, SpoolFailure> {
        let queues = (0..self.queue_count).map(|n| self.queue(disk, n)).collect();
        let settings = DirSettings {
            max_bytes: self.log.max_bytes,
            min_free_bytes: 0,
            reserve_bytes: 64 * 1024,
            placement: self.placement,
            content_path: None,
            queued_bytes_max: self.log.queued_bytes_max,
            outcome_delay: Duration::ZERO,
            // Threads would read in an order that no seed decides.
            read_threads: 1,
        };
        DirSpool::open_mutant(queues, settings, self.mutant.of_spool(), true)
    }

    /// Does a file of the disk belong to the log?
    pub(crate) fn is_of_log(&self, file: &str) -> bool {
        match self.backend {
            Backend::Log => true,
            Backend::QueueDirs => false,
            Backend::Both => file.split_once('/').is_some_and(|(directory, _)| directory == LOG_DIRECTORY),
        }
    }

    /// A directory, with another one for content where that lies apart.
    fn directory(&self, disk: &SimDisk, name: &str) -> Arc<dyn Disk> {
        let envelopes = self.mutant.over(disk.directory(name));
        if !self.is_content_apart {
            return envelopes;
        }
        let contents = self.mutant.over(disk.directory(&format!("content-{name}")));
        Arc::new(SplitDisk::new(envelopes, contents))
    }

    fn queue(&self, disk: &SimDisk, number: usize) -> QueueDirectory {
        let name = format!("q{number}");
        let mut queue = QueueDirectory::flat(&*name, self.directory(disk, &name));
        if self.is_hashed {
            queue.open.clear();
            for below in 0..2 {
                let name = format!("{name}/{below}");
                queue.open.push(queue.disks.len());
                queue.disks.push((name.clone(), self.directory(disk, &name)));
            }
        }
        queue
    }
}

/// Directory of the log beside queue directories.
const LOG_DIRECTORY: &str = "log";

/// A spool without threads: the caller does their work step by step.
pub(crate) trait SingleStepped: Spool {
    /// Does one step of work; returns whether there was anything to do.
    fn step(&self, step: WorkStep) -> bool;
}

impl SingleStepped for LogSpool {
    fn step(&self, step: WorkStep) -> bool {
        Self::step(self, step)
    }
}

impl SingleStepped for DirSpool {
    fn step(&self, step: WorkStep) -> bool {
        Self::step(self, step)
    }
}

/// The spool under test; its work is done by steps.
pub(crate) enum Subject {
    Log(Box<LogSpool>),
    QueueDirs(Box<DirSpool>),
    Both(Box<ShardedSpool<dyn SingleStepped>>),
}

impl Subject {
    pub(crate) fn step(&self, step: WorkStep) -> bool {
        match self {
            Self::Log(spool) => spool.step(step),
            Self::QueueDirs(spool) => spool.step(step),
            // Each has threads of its own.
            Self::Both(spool) => spool.stores().iter().filter(|store| store.step(step)).count() > 0,
        }
    }

    /// Returns why the spool stores nothing more; `None` while it does.
    pub(crate) fn failure(&self) -> Option<SpoolFailure> {
        let of = |spool: &dyn Spool| spool.poll_durable(CommitSeq(u64::MAX))?.err();
        match self {
            Self::Both(spool) => spool.stores().iter().find_map(|store| of(&**store)),
            Self::Log(_) | Self::QueueDirs(_) => of(&**self),
        }
    }

    /// Recovers the messages; those of queue directories perhaps by name first, and then one after the other.
    pub(crate) fn recover(
        &mut self,
        is_listed: bool,
        visit: &mut dyn FnMut(Recovered),
    ) -> Result<RecoveryReport, SpoolFailure> {
        match self {
            Self::Log(spool) => spool.recover(visit),
            Self::QueueDirs(spool) if is_listed => {
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
            Self::QueueDirs(spool) => spool.recover(visit),
            Self::Both(spool) => spool.recover(visit),
        }
    }
}

impl Deref for Subject {
    type Target = dyn Spool;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Log(spool) => &**spool,
            Self::QueueDirs(spool) => &**spool,
            Self::Both(spool) => &**spool,
        }
    }
}
