//! `postlab fsync-check`: does a sync reach the medium? What the kernel counts is evidence: a sync that
//! neither wrote nor flushed promised nothing. What it cannot count, a device that lies about its cache,
//! shows by its speed if at all; only pulling the plug proves.

use super::{SYNC_COLUMNS, Times};
use crate::{
    device::{Device, Traffic},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use serde::Serialize;
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Find out whether synced data reaches the disk
///
/// Exit code 0 if nothing speaks against it, 1 if something does.
#[derive(Debug, Args)]
pub struct FsyncCheckArgs {
    /// Syncs
    #[arg(short = 'n', value_name = "COUNT", default_value = "200", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    count: u32,
    #[command(flatten)]
    format: Format,
    /// The file system to try
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// The observations.
#[derive(Debug, Clone, Serialize)]
struct Evidence {
    device: Device,
    syncs: u32,
    sync_p50_us: f64,
    sync_p99_us: f64,
    syncs_per_second: f64,
    writes_per_second_unsynced: f64,
    /// By the disk during the syncs; none where it is not counted.
    disk_writes: Option<u64>,
    disk_flushes: Option<u64>,
}

/// The verdict on the storage, from the observations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
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
    /// Nothing is counted here.
    Unknown,
}

/// A disk of 15,000 turns a minute meets the same place no more often than this.
const TURNS_PER_SECOND: f64 = 250.0;
const BLOCK: usize = 4096;

const COLUMNS: [Column; 8] = [
    Column::left("verdict", "verdict", 14),
    Column::right("syncs/s", "syncs_per_second", 9),
    Column::right("unsynced writes/s", "writes_per_second_unsynced", 17),
    Column::right("disk writes", "disk_writes", 11),
    Column::right("disk flushes", "disk_flushes", 12),
    SYNC_COLUMNS[0],
    SYNC_COLUMNS[1],
    SYNC_COLUMNS[2],
];

/// Measures, judges, prints; true if nothing speaks against the disk.
pub fn run(args: &FsyncCheckArgs) -> Result<bool, String> {
    let evidence = gather(args)?;
    let verdict = judge(&evidence);
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.text(&text(&evidence, verdict));
    table.fields(&serde_json::json!({ "verdict": verdict, "evidence": evidence }))?;
    table.silent_fact(evidence.device.text());
    let ms = |us: f64| Cell::Number(us / 1e3, 3);
    table.record([
        serde_json::json!(verdict).as_str().unwrap_or_default().into(),
        Cell::Number(evidence.syncs_per_second, 0),
        Cell::Number(evidence.writes_per_second_unsynced, 0),
        evidence.disk_writes.into(),
        evidence.disk_flushes.into(),
        evidence.syncs.into(),
        ms(evidence.sync_p50_us),
        ms(evidence.sync_p99_us),
    ]);
    table.silent_remark(verdict.text());
    table.silent_note("What the disk saw is that of others too.");
    table.finish();
    Ok(matches!(verdict, Verdict::Plausible | Verdict::Unknown))
}

fn gather(args: &FsyncCheckArgs) -> Result<Evidence, String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let path = scratch.path().join("block");
    let say = |e: io::Error| format!("write and sync {}: {e}", path.display());
    let file = File::create_new(&path).map_err(say)?;
    // In place, so that the file system has no reason of its own to write anything else.
    file.write_all_at(&[0; BLOCK], 0).and_then(|()| file.sync_all()).map_err(say)?;
    let begin = Instant::now();
    let unsynced = (0..args.count).try_for_each(|i| file.write_all_at(&[i as u8; BLOCK], 0));
    unsynced.map_err(say)?;
    let free = begin.elapsed();
    file.sync_all().map_err(say)?;
    let before = device.traffic();
    let (mut times, mut syncs) = (Times::default(), 0);
    let progress = crate::rounds::Progress::new("sync", args.count.into());
    let begin = Instant::now();
    for i in 0..args.count {
        progress.step();
        if scratch.is_stopped() {
            break;
        }
        file.write_all_at(&[i as u8; BLOCK], 0).map_err(say)?;
        let sync = Instant::now();
        file.sync_data().map_err(say)?;
        times.took(sync.elapsed());
        syncs += 1;
    }
    if syncs == 0 {
        return Err("sync: stopped before the first".into());
    }
    let elapsed = begin.elapsed();
    let traffic = before.zip(device.traffic()).map(|(before, after)| after.since(before));
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    Ok(Evidence {
        device,
        syncs,
        sync_p50_us: us(times.at(0.5)),
        sync_p99_us: us(times.at(0.99)),
        syncs_per_second: f64::from(syncs) / elapsed.as_secs_f64(),
        writes_per_second_unsynced: f64::from(args.count) / free.as_secs_f64(),
        disk_writes: traffic.map(|t: Traffic| t.writes),
        disk_flushes: traffic.map(|t| t.flushes),
    })
}

fn judge(e: &Evidence) -> Verdict {
    let wanted = u64::from(e.syncs) / 2;
    let cached = e.device.write_cache == "write back";
    match (e.disk_writes, e.disk_flushes) {
        _ if e.device.is_memory() => Verdict::Memory,
        (None, _) | (_, None) => Verdict::Unknown,
        // Others write too, so only too few is proof. Half, as a sync may share another's write.
        (Some(writes), _) if writes < wanted => Verdict::Ignored,
        (_, Some(flushes)) if cached && flushes < wanted => Verdict::NeverFlushed,
        _ if e.device.rotates == Some(true) && e.syncs_per_second > TURNS_PER_SECOND => Verdict::TooFast,
        _ => Verdict::Plausible,
    }
}

impl Verdict {
    /// As a sentence.
    fn text(self) -> &'static str {
        match self {
            Self::Memory => "NOT DURABLE: this file system is memory; nothing survives the power",
            Self::Ignored => "NOT DURABLE: syncs return, and the disk was not written to",
            Self::NeverFlushed => "SUSPICIOUS: the disk has a write cache, and syncs do not flush it",
            Self::TooFast => {
                "SUSPICIOUS: a disk that says it turns syncs faster than it can turn: its cache answers for it"
            }
            Self::Plausible => {
                "PLAUSIBLE: each sync wrote and, where there is a cache, flushed; proof is pulling the plug"
            }
            Self::Unknown => "UNKNOWN: the kernel counts nothing for this file system",
        }
    }
}

fn text(e: &Evidence, verdict: Verdict) -> String {
    let counted = |count: Option<u64>| count.map_or("not counted".to_owned(), |c| c.to_string());
    let words = verdict.text();
    format!(
        "{}\n{} syncs of {BLOCK} bytes: {:.0} a second, p50 {:.0} µs, p99 {:.0} µs; without sync {:.0} writes a second\n\
         the disk saw {} writes and {} flushes meanwhile, others' included\n{words}\n",
        e.device.text(),
        e.syncs,
        e.syncs_per_second,
        e.sync_p50_us,
        e.sync_p99_us,
        e.writes_per_second_unsynced,
        counted(e.disk_writes),
        counted(e.disk_flushes),
    )
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
            assert_eq!(judge(&evidence), verdict, "{evidence:?}");
        }
    }
}
