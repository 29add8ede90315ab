//! Evidence on whether a sync reaches the disk. The kernel counts writes and flushes: a sync that made neither promised nothing.
//! A device that lies about its cache shows by its speed, if at all; only a power cut proves.
//!
//! [`Evidence::gather`] measures, and [`Evidence::verdict`] judges. [`device`] finds the storage below a directory.

pub mod device;

use device::Device;
use serde::Serialize;
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    time::{Duration, Instant},
};

/// Bytes that each sync writes.
pub const BLOCK_BYTES: usize = 4096;
/// A disk of 15,000 turns a minute meets the same place no more often than this.
const TURNS_PER_SECOND: f64 = 250.0;

/// What a measurement of a disk has found.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence {
    /// The storage that was measured.
    pub device: Device,
    /// Syncs that were measured.
    pub syncs: u32,
    /// Half of the syncs took no longer.
    pub sync_p50_us: f64,
    /// 99 of 100 syncs took no longer.
    pub sync_p99_us: f64,
    /// Syncs in a second.
    pub syncs_per_second: f64,
    /// Writes in a second without a sync.
    pub writes_per_second_unsynced: f64,
    /// Writes of the disk during the syncs; none where it is not counted.
    pub disk_writes: Option<u64>,
    /// Flushes of the disk during the syncs; none where it is not counted.
    pub disk_flushes: Option<u64>,
}

/// The verdict on the storage, from the observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Gone when the power goes.
    Memory,
    /// Syncs return and the disk heard nothing.
    Ignored,
    /// A cache that may forget is written to, and no flush was sent.
    NeverFlushed,
    /// Faster than a disk can turn.
    TooFast,
    /// Nothing speaks against it.
    Plausible,
    /// The kernel counts nothing for this file system.
    Unknown,
}

impl Evidence {
    /// Writes a block of a file and syncs it, `count` times, unless `goes_on` says no before.
    ///
    /// # Errors
    /// A write or a sync fails, or there was no sync.
    pub fn gather(
        device: Device,
        file: &File,
        count: u32,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> io::Result<Self> {
        // In place, so that the file system has no reason of its own to write anything else.
        file.write_all_at(&[0; BLOCK_BYTES], 0)?;
        file.sync_all()?;
        let begin = Instant::now();
        (0..count).try_for_each(|i| file.write_all_at(&[i as u8; BLOCK_BYTES], 0))?;
        let free = begin.elapsed();
        file.sync_all()?;
        let before = device.traffic();
        let mut times: Vec<Duration> = Vec::with_capacity(count as usize);
        let begin = Instant::now();
        for i in 0..count {
            if !goes_on() {
                break;
            }
            file.write_all_at(&[i as u8; BLOCK_BYTES], 0)?;
            let sync = Instant::now();
            file.sync_data()?;
            times.push(sync.elapsed());
        }
        let elapsed = begin.elapsed();
        let traffic = before.zip(device.traffic()).map(|(before, after)| after.since(before));
        times.sort_unstable();
        let last =
            times.len().checked_sub(1).ok_or_else(|| io::Error::other("stopped before the first sync"))?;
        let us = |part: f64| times[(last as f64 * part).round() as usize].as_secs_f64() * 1e6;
        Ok(Self {
            device,
            syncs: times.len() as u32,
            sync_p50_us: us(0.5),
            sync_p99_us: us(0.99),
            syncs_per_second: times.len() as f64 / elapsed.as_secs_f64(),
            writes_per_second_unsynced: f64::from(count) / free.as_secs_f64(),
            disk_writes: traffic.map(|t| t.writes),
            disk_flushes: traffic.map(|t| t.flushes),
        })
    }

    /// Returns what the measurement says about the syncs of the disk.
    pub fn verdict(&self) -> Verdict {
        let wanted = u64::from(self.syncs) / 2;
        let cached = self.device.write_cache == "write back";
        match (self.disk_writes, self.disk_flushes) {
            _ if self.device.is_memory() => Verdict::Memory,
            (None, _) | (_, None) => Verdict::Unknown,
            // Others write too, so only too few is proof. Half, as a sync may share another's write.
            (Some(writes), _) if writes < wanted => Verdict::Ignored,
            (_, Some(flushes)) if cached && flushes < wanted => Verdict::NeverFlushed,
            _ if self.device.rotates == Some(true) && self.syncs_per_second > TURNS_PER_SECOND => {
                Verdict::TooFast
            }
            _ => Verdict::Plausible,
        }
    }
}

impl Verdict {
    /// Returns the verdict as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::Memory => "NOT DURABLE: this file system is memory; nothing survives the power",
            Self::Ignored => "NOT DURABLE: syncs return, and the disk was not written to",
            Self::NeverFlushed => "SUSPICIOUS: the disk has a write cache, and syncs do not flush it",
            Self::TooFast => {
                "SUSPICIOUS: a disk that says it turns syncs faster than it can turn: its cache answers for it"
            }
            Self::Plausible => {
                "PLAUSIBLE: every sync wrote to the disk, and flushed its cache if it has one; only a power cut proves it"
            }
            Self::Unknown => "UNKNOWN: the kernel counts nothing for this file system",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(
        file_system: &str,
        cache: &str,
        rotates: bool,
        rate: f64,
        counted: Option<(u64, u64)>,
    ) -> Evidence {
        let (file_system, write_cache) = (file_system.to_owned(), cache.to_owned());
        Evidence {
            device: Device { file_system, write_cache, rotates: Some(rotates), ..Device::default() },
            syncs: 100,
            sync_p50_us: 1.0,
            sync_p99_us: 1.0,
            syncs_per_second: rate,
            writes_per_second_unsynced: 1e6,
            disk_writes: counted.map(|c| c.0),
            disk_flushes: counted.map(|c| c.1),
        }
    }

    #[test]
    fn each_verdict_has_its_evidence() {
        for (evidence, verdict) in [
            (evidence("tmpfs", "", false, 1e6, None), Verdict::Memory),
            (evidence("ext4", "write back", false, 1e5, Some((3, 3))), Verdict::Ignored),
            (evidence("ext4", "write back", false, 1e4, Some((100, 1))), Verdict::NeverFlushed),
            (evidence("ext4", "write through", false, 1e3, Some((100, 0))), Verdict::Plausible),
            (evidence("ext4", "write back", true, 900.0, Some((100, 100))), Verdict::TooFast),
            (evidence("ext4", "write back", true, 100.0, Some((100, 100))), Verdict::Plausible),
            (evidence("nfs", "", false, 100.0, None), Verdict::Unknown),
        ] {
            assert_eq!(evidence.verdict(), verdict, "{evidence:?}");
        }
    }
}
