//! `postlab readwrite`: sendmail X's t-readwrite. Some processes write small files at once, read them back
//! and remove them; with -s each is synced before the next. Does it help to sync side by side?

use super::{SYNC_COLUMNS, Times};
use crate::{
    device::Device,
    rounds::{Figure, Progress, Rounds, too_short_round},
    scratch::Scratch,
    table::{Column, Format, Table},
};
use clap::Args;
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Write, read and remove small files from several threads at once
#[derive(Debug, Args)]
pub struct ReadwriteArgs {
    /// Sync each file, and the directory for its name
    #[arg(short = 's')]
    sync: bool,
    /// Files for each thread
    #[arg(short = 'f', value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Threads
    #[arg(short = 'p', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Octets of each file
    #[arg(long, value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    size: u32,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

const COLUMNS: [Column; 7] = [
    Column::right("threads", "threads", 7),
    Column::right("files", "files", 9),
    Column::right("files/s", "files_per_second", 26),
    SYNC_COLUMNS[0],
    SYNC_COLUMNS[1],
    SYNC_COLUMNS[2],
    SYNC_COLUMNS[3],
];

/// Measures and prints.
pub fn run(args: &ReadwriteArgs) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let before = device.traffic();
    let mut times = Figure::default();
    let (mut syncs, mut rates, mut all) = (Times::default(), Figure::default(), 0);
    let progress = Progress::new("write and read", args.rounds.count.into());
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    for _ in 0..args.rounds.count {
        let (done, seconds) = round(args, &scratch, &mut syncs)?;
        table.text(&format!("{done} files in {seconds:.3} s, {} threads", args.threads));
        if scratch.is_stopped() {
            break;
        }
        times.push(seconds);
        rates.push(f64::from(done) / seconds);
        all += done;
        progress.step();
    }
    table.text(&format!("files a second: {rates}"));
    let [count, p50, p99, max] = syncs.cells();
    table.record([u32::from(args.threads).into(), all.into(), rates.into(), count, p50, p99, max]);
    too_short_round(&times).into_iter().for_each(|remark| table.remark(remark));
    if args.sync {
        table.text(&syncs.line("sync"));
    }
    let durability = if args.sync { "file and directory synced (fsync)." } else { "not synced." };
    table.note(format!("Durability: {durability}"));
    if let (Some(before), Some(after)) = (before, device.traffic()) {
        let t = after.since(before);
        table.note(format!(
            "{} writes and {} flushes on {}, others' included",
            t.writes, t.flushes, device.disk
        ));
    }
    table.text(&device.text());
    table.silent_fact(device.text());
    table.finish();
    Ok(())
}

/// Runs a round. Returns the number of files, and their time in seconds.
fn round(args: &ReadwriteArgs, scratch: &Scratch, syncs: &mut Times) -> Result<(u32, f64), String> {
    let begin = Instant::now();
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..args.threads).map(|i| scope.spawn(move || work(args, scratch, i))).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let mut done = 0;
    for result in results {
        let (count, times) = result?;
        done += count;
        syncs.add(&times);
    }
    Ok((done, seconds))
}

/// One thread's files, in a directory of its own.
fn work(args: &ReadwriteArgs, scratch: &Scratch, thread: u16) -> Result<(u32, Times), String> {
    let directory = scratch.path().join(thread.to_string());
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| format!("write and read {path}: {e}")
    };
    fs::create_dir(&directory).map_err(failed(&directory))?;
    let text = vec![b'x'; args.size as usize];
    let (mut syncs, mut done) = (Times::default(), 0);
    let mut names = Vec::new();
    for i in 0..args.files {
        if scratch.is_stopped() {
            break;
        }
        let path = directory.join(i.to_string());
        let time = write(&directory, &path, &text, args.sync).map_err(failed(&path))?;
        time.into_iter().for_each(|time| syncs.took(time));
        names.push(path);
        done += 1;
    }
    let mut back = Vec::with_capacity(text.len());
    for path in names {
        back.clear();
        File::open(&path).and_then(|mut file| file.read_to_end(&mut back)).map_err(failed(&path))?;
        if back != text {
            return Err(format!("read {}: it is not what was written", path.display()));
        }
        fs::remove_file(&path).map_err(failed(&path))?;
    }
    fs::remove_dir(&directory).map_err(failed(&directory))?;
    Ok((done, syncs))
}

/// One file; how long its syncs took.
fn write(directory: &Path, path: &Path, text: &[u8], sync: bool) -> io::Result<Option<Duration>> {
    let mut file = File::create_new(path)?;
    file.write_all(text)?;
    if !sync {
        return Ok(None);
    }
    let begin = Instant::now();
    file.sync_all()?;
    // Otherwise a crash keeps the bytes and loses their name.
    File::open(directory)?.sync_all()?;
    Ok(Some(begin.elapsed()))
}
