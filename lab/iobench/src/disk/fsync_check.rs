//! `postlab fsync-check`: does a sync reach the medium? The crate `sync_check` measures and judges.

use super::SYNC_COLUMNS;
use crate::{
    device::Device,
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use machine::disk::{BLOCK_BYTES, Evidence, Verdict};
use std::{fs::File, io, path::PathBuf};

/// Find out whether synced data reaches the disk
///
/// The exit code is 0 if nothing suggests otherwise, and 1 if something does.
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
    let verdict = evidence.verdict();
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
    let progress = crate::rounds::Progress::new("sync", args.count.into());
    let mut goes_on = || {
        progress.step();
        !scratch.is_stopped()
    };
    Evidence::gather(device, &file, args.count, &mut goes_on).map_err(say)
}

fn text(e: &Evidence, verdict: Verdict) -> String {
    let counted = |count: Option<u64>| count.map_or("not counted".to_owned(), |c| c.to_string());
    let words = verdict.text();
    format!(
        "{}\n{} syncs of {BLOCK_BYTES} bytes: {:.0} a second, p50 {:.0} µs, p99 {:.0} µs; without sync {:.0} writes a second\n\
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
