//! `postlab fsseq1` to `fsseq4`: sendmail X's programs of these names. Each writes a log, and syncs it after
//! so many records; they differ in what a record is.

use crate::rounds::{Figure, Progress, Rounds, too_short_round};
use crate::table::{Column, Format, Table};
use crate::{device::Device, scratch::Scratch};
use clap::Args;
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Options of all four
#[derive(Debug, Args)]
pub struct FsseqArgs {
    /// Sync after so many records; several, with commas, are tried in turn
    #[arg(short = 'C', value_name = "COUNT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    commit: Vec<u32>,
    /// Sync after each record: the same as -C 1
    #[arg(short = 'f')]
    each: bool,
    /// Octets of a record; several are tried in turn
    #[arg(short = 's', value_name = "BYTES,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    sizes: Vec<u32>,
    /// Records [default: as the original]
    #[arg(short = 'n', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    records: Option<u32>,
    /// No round lasts longer; its rate is that of what was written until then
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = measure::arguments::seconds_of)]
    limit: Duration,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

/// The four ways of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Lines made by the formatter, buffered.
    Lines,
    /// Records of one content, buffered.
    Buffered,
    /// A write(2) for each record, as many records as make 40,000 KB.
    Unbuffered,
    /// Records of small sizes, 100,000 of them, for comparison with databases.
    Records,
}

impl Kind {
    fn sizes(self) -> &'static [u32] {
        match self {
            Self::Lines => &[24],
            Self::Buffered => &[256, 1024, 4096, 8192, 16384],
            Self::Unbuffered => &[512, 1024, 2048, 4096, 8192],
            Self::Records => &[20, 100, 512, 1024, 2048],
        }
    }

    fn commits(self) -> &'static [u32] {
        match self {
            Self::Lines => &[100, 50, 10, 5, 2, 1],
            Self::Buffered | Self::Unbuffered => &[1, 2, 5, 10, 50, 100],
            Self::Records => &[100_000, 10_000, 1000, 100],
        }
    }

    fn records(self, size: u32) -> u32 {
        match self {
            Self::Lines => 20_000,
            Self::Buffered => 2000,
            Self::Unbuffered => 40_960_000 / size,
            Self::Records => 100_000,
        }
    }
}

/// One cell of the table, all rounds.
#[derive(Debug, Default)]
struct Cell {
    records: u32,
    seconds: Figure,
    kb_per_second: Figure,
    per_second: Figure,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub fn run(args: &FsseqArgs, kind: Kind) -> Result<(), String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let mut commits = if args.commit.is_empty() { Vec::new() } else { args.commit.clone() };
    if args.each {
        commits.push(1);
    }
    if commits.is_empty() {
        commits = kind.commits().to_vec();
    }
    let sizes = if args.sizes.is_empty() { kind.sizes().to_vec() } else { args.sizes.clone() };
    let progress = Progress::new("write and sync", (commits.len() * sizes.len()) as u64);
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    table.fact(device.text());
    let mut rates = Vec::new();
    for commit in &commits {
        for size in &sizes {
            let cell = cell(args, kind, *commit, *size, &scratch)?;
            if scratch.is_stopped() && cell.records == 0 {
                break;
            }
            let (s, kb, each) = (&cell.seconds, &cell.kb_per_second, &cell.per_second);
            let row =
                [(*commit).into(), (*size).into(), cell.records.into(), s.into(), kb.into(), each.into()];
            table.row(row);
            too_short_round(s).into_iter().for_each(|remark| table.remark(remark));
            rates.push((*commit, *size, cell.per_second.median().unwrap_or_default()));
            progress.step();
        }
    }
    gains(&rates).lines().for_each(|line| table.note(line));
    table.note("Durability: synced (fsync) after every C records; C records may be lost in a crash.");
    table.finish();
    Ok(())
}

const COLUMNS: [Column; 6] = [
    Column::right("C", "commit", 6),
    Column::right("bytes", "bytes", 6),
    Column::right("records", "records", 8),
    Column::right("s", "seconds", 30),
    Column::right("KB/s", "kb_per_second", 30),
    Column::right("records/s", "records_per_second", 30),
];

/// Returns the gain of committing in groups, for each size.
fn gains(rates: &[(u32, u32, f64)]) -> String {
    let mut out = String::new();
    let (Some(least), Some(most)) = (rates.iter().map(|r| r.0).min(), rates.iter().map(|r| r.0).max()) else {
        return out;
    };
    for (commit, size, rate) in rates.iter().filter(|r| r.0 == most && most > least) {
        let alone = rates.iter().find(|r| r.0 == least && r.1 == *size).map_or(0.0, |r| r.2);
        if alone > 0.0 {
            out += &format!("{size} octets: C={commit} is {:.1} times C={least}\n", rate / alone);
        }
    }
    out
}

fn cell(args: &FsseqArgs, kind: Kind, commit: u32, size: u32, scratch: &Scratch) -> Result<Cell, String> {
    let mut cell = Cell::default();
    let path = scratch.path().join("log");
    for _ in 0..args.rounds.count {
        if scratch.is_stopped() {
            break;
        }
        let most = args.records.unwrap_or(kind.records(size));
        let write = || -> io::Result<(u32, u64, Duration)> {
            let mut log = Log::create(&path, kind, size)?;
            let begin = Instant::now();
            let mut done = 0;
            while done < most && begin.elapsed() < args.limit && !scratch.is_stopped() {
                let group = commit.min(most - done);
                (done..done + group).try_for_each(|i| log.write(i))?;
                log.sync()?;
                done += group;
            }
            Ok((done, log.bytes, begin.elapsed()))
        };
        let (done, bytes, time) = write().map_err(|e| format!("write and sync {}: {e}", path.display()))?;
        std::fs::remove_file(&path).map_err(|e| format!("remove {}: {e}", path.display()))?;
        if done < most && scratch.is_stopped() {
            break; // A round that was cut has no rate.
        }
        cell.records = cell.records.max(done);
        let seconds = time.as_secs_f64();
        cell.seconds.push(seconds);
        cell.kb_per_second.push(bytes as f64 / 1024.0 / seconds);
        cell.per_second.push(f64::from(done) / seconds);
    }
    Ok(cell)
}

/// The file, written in one of the four ways.
struct Log {
    kind: Kind,
    file: BufWriter<File>,
    record: Vec<u8>,
    bytes: u64,
}

impl Log {
    fn create(path: &Path, kind: Kind, size: u32) -> io::Result<Self> {
        let file = File::create_new(path)?;
        Ok(Self { kind, file: BufWriter::new(file), record: vec![b'x'; size as usize], bytes: 0 })
    }

    fn write(&mut self, number: u32) -> io::Result<()> {
        self.bytes += match self.kind {
            Kind::Lines => {
                // Formatting is part of what this one measures.
                let line = format!("{number:010} {:<width$}\n", "R", width = self.record.len().max(13) - 12);
                self.file.write_all(line.as_bytes())?;
                line.len() as u64
            }
            Kind::Buffered => {
                self.file.write_all(&self.record)?;
                self.record.len() as u64
            }
            Kind::Unbuffered | Kind::Records => {
                self.file.get_mut().write_all(&self.record)?;
                self.record.len() as u64
            }
        };
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}
