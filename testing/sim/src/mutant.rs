//! Rules broken on purpose, on the disk, in the spool, in the acceptor, in the engine or in a report. The tests must notice each of them.

use crate::disk::EIO;
use spool::disk::{Disk, File};
use std::{fmt, io, sync::Arc, time::Duration};

/// A rule that something breaks on purpose: the simulator has to notice each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mutant {
    /// Nothing is broken.
    #[default]
    None,
    /// Below the spool.
    Disk(DiskMutant),
    /// In the spool.
    Spool(spool::Mutant),
    /// In the acceptor.
    Accept(accept::Mutant),
    /// In the message engine.
    Engine(engine::Mutant),
    /// Places that a start found damaged or unreadable are not reported.
    HideCorruption,
}

/// A rule that a disk breaks, so that the code above it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskMutant {
    /// A sync of a file returns at once.
    SkipSync,
    /// A sync of a directory or of the file system does nothing.
    SkipDirSync,
    /// A failed sync is tried again, and the second result is returned.
    RetrySync,
    /// All random numbers are equal: checksums of a generation are valid in the next.
    ConstantRandom,
    /// A read past the page cache returns what the page cache has.
    SkipSecondRead,
    /// Bytes that cannot be read are returned as damaged bytes.
    ReadErrorIsDamage,
}

impl Mutant {
    /// Rules whose breach is noticed while synced bytes stay as they are.
    pub const OF_CRASHES: [Self; 10] = [
        Self::Disk(DiskMutant::SkipSync),
        Self::Disk(DiskMutant::SkipDirSync),
        Self::Disk(DiskMutant::RetrySync),
        Self::Disk(DiskMutant::ConstantRandom),
        Self::Spool(spool::Mutant::IgnoreBatchEnd),
        Self::Spool(spool::Mutant::AnswerEarly),
        Self::Spool(spool::Mutant::SkipTailRewrite),
        Self::Spool(spool::Mutant::ReuseEarly),
        Self::Spool(spool::Mutant::DropOutcome),
        Self::Spool(spool::Mutant::StaleTotals),
    ];

    /// Rules on the intact rest of a spool of which a part is damaged.
    pub const OF_DAMAGE: [Self; 4] = [
        Self::Spool(spool::Mutant::ReuseChunkId),
        Self::Spool(spool::Mutant::StopAtDamage),
        Self::Spool(spool::Mutant::KeepDamaged),
        Self::HideCorruption,
    ];

    /// Rules on headers that are damaged.
    pub const OF_HEADERS: [Self; 2] =
        [Self::Spool(spool::Mutant::TrustZeroHeader), Self::Spool(spool::Mutant::IgnoreHeaderCopy)];

    /// Rules on reads that fail, or return wrong bytes, for a while.
    pub const OF_READING: [Self; 4] = [
        Self::Spool(spool::Mutant::ReuseNumbers),
        Self::Spool(spool::Mutant::DropTombstones),
        Self::Disk(DiskMutant::ReadErrorIsDamage),
        Self::Disk(DiskMutant::SkipSecondRead),
    ];

    /// Rules on a spool that is full.
    pub const OF_SPACE: [Self; 2] =
        [Self::Spool(spool::Mutant::KeepDiscarded), Self::Spool(spool::Mutant::SpendReserve)];

    /// Finds one of [`Mutant::OF_CRASHES`] by its name.
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::None].into_iter().chain(Self::OF_CRASHES).find(|mutant| mutant.to_string() == name)
    }

    /// Returns the rule that the spool breaks; `None` if another part does.
    pub fn of_spool(self) -> spool::Mutant {
        if let Self::Spool(mutant) = self { mutant } else { spool::Mutant::None }
    }

    /// Returns the rule that the acceptor breaks; `None` if another part does.
    pub fn of_accept(self) -> accept::Mutant {
        if let Self::Accept(mutant) = self { mutant } else { accept::Mutant::None }
    }

    /// Returns the rule that the engine breaks; `None` if another part does.
    pub fn of_engine(self) -> engine::Mutant {
        if let Self::Engine(mutant) = self { mutant } else { engine::Mutant::None }
    }

    /// Puts the broken rule between a disk and the code above.
    pub fn over(self, disk: impl Disk) -> Arc<dyn Disk> {
        match self {
            Self::Disk(mutant) => Arc::new(MutantDisk { disk: Arc::new(disk), mutant }),
            _ => Arc::new(disk),
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(mutant) => write!(f, "{mutant:?}"),
            Self::Spool(mutant) => write!(f, "{mutant:?}"),
            Self::Accept(mutant) => write!(f, "{mutant:?}"),
            Self::Engine(mutant) => write!(f, "{mutant:?}"),
            Self::None | Self::HideCorruption => write!(f, "{self:?}"),
        }
    }
}

/// Passes calls on to a disk, except those that break the rule.
struct MutantDisk {
    disk: Arc<dyn Disk>,
    mutant: DiskMutant,
}

impl MutantDisk {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(MutantFile { file, mutant: self.mutant })
    }
}

/// Runs a sync as a disk with this broken rule does.
fn run_sync(mutant: DiskMutant, skipped: DiskMutant, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match mutant {
        _ if mutant == skipped => Ok(()),
        DiskMutant::RetrySync => sync().or_else(|_| sync()),
        _ => sync(),
    }
}

impl Disk for MutantDisk {
    fn lock(&self) -> io::Result<()> {
        self.disk.lock()
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.create(name).map(|file| self.file(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.open(name).map(|file| self.file(file))
    }

    fn changed(&self, name: &str) -> io::Result<mail::UnixMillis> {
        self.disk.changed(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn sync_dir(&self) -> io::Result<()> {
        run_sync(self.mutant, DiskMutant::SkipDirSync, || self.disk.sync_dir())
    }

    fn sync_all(&self) -> io::Result<()> {
        run_sync(self.mutant, DiskMutant::SkipDirSync, || self.disk.sync_all())
    }

    fn check_place(&self) -> io::Result<()> {
        self.disk.check_place()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn clock(&self) -> Duration {
        self.disk.clock()
    }

    fn random(&self) -> io::Result<u64> {
        if self.mutant == DiskMutant::ConstantRandom { Ok(0) } else { self.disk.random() }
    }

    fn free_files(&self) -> io::Result<u64> {
        self.disk.free_files()
    }
}

struct MutantFile {
    file: Arc<dyn File>,
    mutant: DiskMutant,
}

/// Put in place of bytes, so that a checksum fails.
const DAMAGED: u8 = 0xa5;

impl MutantFile {
    fn or_damaged(&self, read: io::Result<usize>, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match read {
            Err(e) if self.mutant == DiskMutant::ReadErrorIsDamage && e.raw_os_error() == Some(EIO) => {
                let length = self.file.len()?.saturating_sub(offset).min(buffer.len() as u64) as usize;
                buffer[..length].fill(DAMAGED);
                Ok(length)
            }
            read => read,
        }
    }
}

impl File for MutantFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn write_zeros(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.write_zeros(offset, length)
    }

    fn fill(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.fill(offset, length)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.or_damaged(self.file.read_at(offset, buffer), offset, buffer)
    }

    fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read_cached(offset, buffer)
    }

    fn read_uncached(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if self.mutant == DiskMutant::SkipSecondRead {
            return self.file.read_at(offset, buffer);
        }
        self.or_damaged(self.file.read_uncached(offset, buffer), offset, buffer)
    }

    fn will_read(&self, from: u64, length: u64) {
        self.file.will_read(from, length);
    }

    fn sync_data(&self) -> io::Result<()> {
        run_sync(self.mutant, DiskMutant::SkipSync, || self.file.sync_data())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
}
