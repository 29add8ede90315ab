//! `postlab fsperf1`: sendmail X's fsperf1, the life of a queue file over and over: open or create, write,
//! sync, close, rename.

use super::Times;
use crate::rounds::{Figure, Progress, Rounds, too_short_round};
use crate::table::{Column, Format, Table};
use crate::{device::Device, scratch::Scratch};
use clap::{ArgAction, Args};
use std::{
    collections::HashSet,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

/// Create, sync, rename and delete queue files: OPERATIONS on FILES names
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct FsperfArgs {
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// Create each file and remove it when its name comes round again; otherwise files are there before the
    /// clock starts
    #[arg(short = 'c')]
    create: bool,
    /// Rename each file twice
    #[arg(short = 'r')]
    rename: bool,
    /// Do not sync
    #[arg(short = 'S')]
    no_sync: bool,
    /// Kilobytes (1024 octets) written by each operation, as in the original
    #[arg(short = 's', value_name = "KB", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1 << 14))]
    size_kb: u32,
    /// Levels of directories, 00 to 99 each
    #[arg(short = 'h', value_name = "LEVELS", default_value = "0", value_parser = clap::value_parser!(u8).range(0..=2))]
    levels: u8,
    /// Make all files before the clock starts, and use those
    #[arg(short = 'p')]
    populate: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// Number of operations
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    operations: u32,
    /// Number of file names to rotate through
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

impl FsperfArgs {
    /// Returns what each file has in it.
    fn text(&self) -> Vec<u8> {
        vec![b'x'; self.size_kb as usize * 1024]
    }
}

/// Measures and prints.
pub fn run(args: &FsperfArgs) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let mut times = Figure::default();
    let (mut syncs, mut rates) = (Times::default(), Figure::default());
    let progress =
        Progress::new("operate on files", u64::from(args.operations) * u64::from(args.rounds.count));
    let before = device.traffic();
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    for number in 0..args.rounds.count {
        let directory = scratch.path().join(format!("round{number}"));
        let (done, seconds) = round(args, &directory, &scratch, &mut syncs, &progress)?;
        table.text(&format!("{done} operations on {} files in {seconds:.3} s", args.files));
        if scratch.is_stopped() {
            break;
        }
        times.push(seconds);
        rates.push(f64::from(done) / seconds);
        // The next round shall find no more than this one did.
        fs::remove_dir_all(&directory).map_err(|e| format!("remove {}: {e}", directory.display()))?;
    }
    table.text(&format!("operations a second: {rates}, each of {} KB", args.size_kb));
    table.record([args.operations.into(), args.files.into(), args.size_kb.into(), (&rates).into()]);
    too_short_round(&times).into_iter().for_each(|remark| table.remark(remark));
    syncs.line("fsync").lines().for_each(|line| table.note(line));
    let durability = if args.no_sync { "not synced." } else { "each file synced (fsync), no directory." };
    table.note(format!("Durability: {durability}"));
    if let (Some(before), Some(after)) = (before, device.traffic()) {
        let t = after.since(before);
        let (writes, flushes) = (t.writes, t.flushes);
        table.note(format!("{writes} writes and {flushes} flushes on {}, others' included", device.disk));
    }
    table.note(device.text());
    table.finish();
    Ok(())
}

const COLUMNS: [Column; 4] = [
    Column::right("operations", "operations", 10),
    Column::right("files", "files", 8),
    Column::right("KB", "kb", 6),
    Column::right("operations a second", "operations_per_second", 34),
];

/// Runs a round. Returns the number of operations, and their time in seconds.
fn round(
    args: &FsperfArgs,
    directory: &Path,
    scratch: &Scratch,
    syncs: &mut Times,
    progress: &Progress,
) -> Result<(u32, f64), String> {
    let paths: Vec<PathBuf> = (0..args.files).map(|i| directory.join(name(i, args.levels))).collect();
    prepare(args, &paths)?;
    let text = args.text();
    let begin = Instant::now();
    let mut done = 0;
    for i in 0..args.operations {
        if scratch.is_stopped() {
            break;
        }
        let path = &paths[i as usize % paths.len()];
        // A name that comes round again is that of an old message.
        let is_old = i >= args.files;
        operate(args, path, is_old, &text, syncs).map_err(|e| format!("use {}: {e}", path.display()))?;
        done += 1;
        progress.step();
    }
    Ok((done, begin.elapsed().as_secs_f64()))
}

/// `07/31/123` with two levels: neighbours lie apart.
fn name(number: u32, levels: u8) -> PathBuf {
    let level = |l: u8| format!("{:02}", number / 100u32.pow(l.into()) % 100);
    (0..levels).map(level).chain([number.to_string()]).collect()
}

fn prepare(args: &FsperfArgs, paths: &[PathBuf]) -> Result<(), String> {
    let directories: HashSet<&Path> = paths.iter().filter_map(|p| p.parent()).collect();
    for directory in directories {
        fs::create_dir_all(directory).map_err(|e| format!("create {}: {e}", directory.display()))?;
    }
    if args.populate || !args.create {
        for path in paths {
            fs::write(path, args.text()).map_err(|e| format!("create {}: {e}", path.display()))?;
        }
        // What was made before the clock starts shall not be written while it runs.
        rustix::fs::sync();
    }
    Ok(())
}

fn operate(args: &FsperfArgs, path: &Path, is_old: bool, text: &[u8], syncs: &mut Times) -> io::Result<()> {
    let creates = args.create && !args.populate;
    if creates && is_old {
        fs::remove_file(path)?;
    }
    let mut file = OpenOptions::new().write(true).create_new(creates).open(path)?;
    file.write_all(text)?;
    if !args.no_sync {
        let begin = Instant::now();
        file.sync_all()?;
        syncs.took(begin.elapsed());
    }
    drop(file);
    if args.rename {
        let other = path.with_extension("r");
        fs::rename(path, &other)?;
        fs::rename(&other, path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_kilobytes_as_in_the_original() {
        let args = measure::arguments::arguments::<FsperfArgs>(&["-S -c -s 32 4 4"]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(directory.path()).unwrap();
        let (mut syncs, progress) = (Times::default(), Progress::new("test", 4));
        round(&args, scratch.path(), &scratch, &mut syncs, &progress).unwrap();
        assert_eq!(fs::metadata(scratch.path().join("3")).unwrap().len(), 32 * 1024);
    }

    #[test]
    fn names_are_hashed_over_the_levels() {
        assert_eq!(name(1234, 0), PathBuf::from("1234"));
        assert_eq!(name(1234, 1), PathBuf::from("34/1234"));
        assert_eq!(name(1234, 2), PathBuf::from("34/12/1234"));
    }
}
