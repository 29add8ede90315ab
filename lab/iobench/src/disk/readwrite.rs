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
use measure::workers;
use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Write, read and remove small files from several processes at once
#[derive(Debug, Args)]
pub struct ReadwriteArgs {
    /// Sync each file, and the directory for its name
    #[arg(short = 's')]
    sync: bool,
    /// Files for each process
    #[arg(short = 'f', value_name = "COUNT", default_value = "100", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    files: u32,
    /// Processes, each with its own table of open files, as in t-readwrite
    #[arg(short = 'p', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    processes: u16,
    /// Threads of this process instead
    #[arg(long)]
    threads: bool,
    #[arg(long, hide = true)]
    worker: Option<u16>,
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

const COLUMNS: [Column; 8] = [
    Column::right("writers", "writers", 7),
    Column::left("as", "as", 9),
    Column::right("files", "files", 9),
    Column::right("files/s", "files_per_second", 26),
    SYNC_COLUMNS[0],
    SYNC_COLUMNS[1],
    SYNC_COLUMNS[2],
    SYNC_COLUMNS[3],
];

/// Measures and prints.
pub fn run(args: &ReadwriteArgs) -> Result<(), String> {
    if let Some(number) = args.worker {
        return worker(args, number);
    }
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let before = device.traffic();
    let mut times = Figure::default();
    let (mut syncs, mut rates, mut all) = (Times::default(), Figure::default(), 0);
    let progress = Progress::new("write and read", args.rounds.count.into());
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    for _ in 0..args.rounds.count {
        let (done, seconds) = round(args, &scratch, &mut syncs)?;
        table.text(&format!("{done} files in {seconds:.3} s, {} {}", args.processes, args.writers()));
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
    let writers = (u32::from(args.processes).into(), args.writers().into());
    table.record([writers.0, writers.1, all.into(), rates.into(), count, p50, p99, max]);
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

impl ReadwriteArgs {
    fn writers(&self) -> &'static str {
        if self.threads { "threads" } else { "processes" }
    }
}

/// Runs a round. Returns the number of files, and their time in seconds.
fn round(args: &ReadwriteArgs, scratch: &Scratch, syncs: &mut Times) -> Result<(u32, f64), String> {
    if !args.threads {
        return in_processes(args, scratch, syncs);
    }
    let begin = Instant::now();
    let is_stopped = || scratch.is_stopped();
    let results: Vec<_> = thread::scope(|scope| {
        let one = |i| scope.spawn(move || work(args, scratch.path(), i, &is_stopped));
        let threads: Vec<_> = (0..args.processes).map(one).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let seconds = begin.elapsed().as_secs_f64();
    let mut done = 0;
    for result in results {
        let (count, times) = result?;
        done += count;
        times.iter().for_each(|time| syncs.took(*time));
    }
    Ok((done, seconds))
}

/// A round of processes of this program: each prints its count of files, and the nanoseconds of each sync.
fn in_processes(args: &ReadwriteArgs, scratch: &Scratch, syncs: &mut Times) -> Result<(u32, f64), String> {
    let words = |number: u16| {
        let [number, files, size] =
            [u32::from(number), args.files, args.size].map(|number| number.to_string());
        let words = ["readwrite", "--worker", &number, "-f", &files, "--size", &size];
        let mut words: Vec<String> =
            words.into_iter().chain(args.sync.then_some("-s")).map(str::to_owned).collect();
        words.push(scratch.path().display().to_string());
        words
    };
    let (begin, texts) = workers::together((0..args.processes).map(words))?;
    let seconds = workers::now().saturating_sub(begin) as f64 / 1e9;
    let mut done = 0;
    for text in texts {
        let mut numbers = text.lines().filter_map(|line| line.parse::<u64>().ok());
        done += numbers.next().unwrap_or_default() as u32;
        numbers.for_each(|nanoseconds| syncs.took(Duration::from_nanos(nanoseconds)));
    }
    Ok((done, seconds))
}

/// Runs one of the processes, and writes its times to standard output.
fn worker(args: &ReadwriteArgs, number: u16) -> Result<(), String> {
    workers::ready()?;
    let (done, times) = work(args, &args.directory, number, &crate::signals::is_stopped)?;
    let times: String = times.iter().map(|time| format!("{}\n", time.as_nanos())).collect();
    let mut out = io::stdout().lock();
    write!(out, "{done}\n{times}").map_err(|e| format!("write the result: {e}"))
}

/// One writer's files, in a directory of its own, and the time of each sync.
fn work(
    args: &ReadwriteArgs,
    place: &Path,
    number: u16,
    is_stopped: &(dyn Fn() -> bool + Sync),
) -> Result<(u32, Vec<Duration>), String> {
    let directory = place.join(number.to_string());
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| format!("write and read {path}: {e}")
    };
    fs::create_dir(&directory).map_err(failed(&directory))?;
    let text = vec![b'x'; args.size as usize];
    let (mut syncs, mut done) = (Vec::new(), 0);
    let mut names = Vec::new();
    for i in 0..args.files {
        if is_stopped() {
            break;
        }
        let path = directory.join(i.to_string());
        let time = write(&directory, &path, &text, args.sync).map_err(failed(&path))?;
        syncs.extend(time);
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

/// Writes one file, and returns how long its syncs took; `None` without `sync`.
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
