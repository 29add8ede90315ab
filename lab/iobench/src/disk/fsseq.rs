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
    /// Sync after this many records; several, with commas, are tried in turn
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
    /// The longest duration of a round; its rate is that of what was written by then
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

/// How records are written, and of which sizes.
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

/// One size of record, measured in all rounds.
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
    if kind == Kind::Unbuffered {
        windows(&rates).iter().for_each(|window| table.note(window.text()));
    }
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

/// The commit window of Postrider's log on this disk, for records of one size.
#[derive(Debug, PartialEq)]
struct Window {
    size: u32,
    sync: Duration,
    /// Records for which one sync takes a ninth of the time of their writes.
    records: u32,
}

/// Returns the window for each size of which two rates are there. A group of C records takes one sync and C writes; both
/// times follow from the groups of the least and of the most records.
fn windows(rates: &[(u32, u32, f64)]) -> Vec<Window> {
    let (Some(least), Some(most)) = (rates.iter().map(|r| r.0).min(), rates.iter().map(|r| r.0).max()) else {
        return Vec::new();
    };
    let of = |(commit, size, rate): &(u32, u32, f64)| {
        let alone = rates.iter().find(|r| r.0 == least && r.1 == *size).map_or(0.0, |r| r.2);
        // A disk on which a sync costs nothing needs no window.
        if *commit != most || most == least || alone <= 0.0 || *rate <= alone {
            return None;
        }
        let (least, most) = (f64::from(least), f64::from(most));
        let sync = (1.0 / alone - 1.0 / rate) / (1.0 / least - 1.0 / most);
        let write = (1.0 / rate - sync / most).max(1e-9);
        let records = (9.0 * sync / write).ceil().clamp(1.0, f64::from(u32::MAX)) as u32;
        Some(Window { size: *size, sync: Duration::from_secs_f64(sync), records })
    };
    rates.iter().filter_map(of).collect()
}

impl Window {
    /// The window in words, by the rule of the daemon.
    fn text(&self) -> String {
        let ms = |time: Duration| time.as_secs_f64() * 1000.0;
        let delay = |unused| ms(spool::max_batch_delay(self.sync, self.records as usize, unused));
        format!(
            "{} octets: a sync takes {:.2} ms; {} records a sync reach 90 % of the rate without syncs. Window of Postrider's log \
             for so many senders: at most {:.1} ms, and {:.1} ms with idle processors",
            self.size,
            ms(self.sync),
            self.records,
            delay(0),
            delay(100)
        )
    }
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

/// The file that is written, with what its records contain.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with these times, as fsseq3 sees it.
    fn rate(commit: u32, sync_us: f64, write_us: f64) -> f64 {
        1e6 / (sync_us / f64::from(commit) + write_us)
    }

    #[test]
    fn the_window_follows_from_the_times_of_sync_and_write() {
        let rates: Vec<_> = [1, 10, 100].map(|commit| (commit, 512, rate(commit, 200.0, 2.0))).into();
        let found = windows(&rates);
        assert_eq!(found.len(), 1);
        assert!((found[0].sync.as_secs_f64() - 200e-6).abs() < 1e-9, "{found:?}");
        assert!((899..=901).contains(&found[0].records), "{found:?}");
        // Four syncs for each record are more than the limit of 4 ms; with idle processors two syncs are the limit.
        let text = found[0].text();
        assert!(text.ends_with("at most 4.0 ms, and 0.4 ms with idle processors"), "{text}");
    }

    #[test]
    fn a_disk_whose_syncs_cost_nothing_has_no_window() {
        assert_eq!(windows(&[(1, 512, 5000.0), (100, 512, 4900.0)]), []);
        assert_eq!(windows(&[(10, 512, 5000.0)]), []);
    }
}
