//! `postlab bonnie`: Bonnie++'s phases, options, table and CSV line, and its rule that what ended within half a
//! second is shown as `+++++`.

mod bulk;
mod dice;
mod files;
mod report;
mod turns;

use crate::{
    device::Device,
    limits::memory_bytes,
    rounds::{Figure, Progress},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
};
use bulk::Bulk;
use clap::{ArgAction, Args, ValueEnum};
use dice::Dice;
use report::Phase;
use std::{
    io,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};
use turns::{PhaseStart, Sync};

/// Measure a file system with one large file and with many small ones, as Bonnie++ does
#[derive(Debug, Args)]
pub struct BonnieArgs {
    /// A directory on the disk to measure
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// MiB of the large file, or with a suffix k, m or g; and octets of a block, seeks and seekers; 0 skips the test
    /// [default: twice the memory]
    #[arg(short = 's', value_name = "SIZE[:BLOCK[:SEEKS[:SEEKERS]]]")]
    size: Option<String>,
    /// Small files, in units of 1024; their largest and smallest sizes, directories, and octets of a write; 0 skips the test;
    /// a largest size of -1 makes hard links, of -2 symbolic links
    #[arg(
        short = 'n',
        value_name = "COUNT[:MAX[:MIN[:DIRECTORIES[:CHUNK]]]]",
        default_value = "16",
        allow_hyphen_values = true
    )]
    number: String,
    /// The machine's name in the table
    #[arg(short = 'm', value_name = "NAME")]
    machine: Option<String>,
    /// MiB of memory; a large file smaller than twice this is refused; 0 turns the check off
    #[arg(short = 'r', value_name = "SIZE")]
    memory: Option<String>,
    /// Number of runs; each gives a CSV line
    #[arg(short = 'x', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Size of the part that is written and read octet by octet; without a size, that part is skipped [default: what takes
    /// a second]
    #[arg(short = 'f', value_name = "SIZE", num_args = 0..=1, default_missing_value = "0")]
    char_size: Option<String>,
    /// The number of copies of each test that run at the same time
    #[arg(short = 'c', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=256))]
    copies: u32,
    /// Run as this user, and with this group
    #[arg(short = 'u', value_name = "USER[:GROUP]")]
    user: Option<String>,
    /// Run with this group
    #[arg(short = 'g', value_name = "GROUP", requires = "user")]
    group: Option<String>,
    /// Coordinate this many processes that were started with -y s: they start each phase together; -1 ends such a coordinator
    #[arg(short = 'p', value_name = "PROCESSES", allow_hyphen_values = true, value_parser = clap::value_parser!(i32).range(-1..=1000))]
    serve: Option<i32>,
    /// Begin each phase together with the other processes of -p (s), or after a line on standard input (p)
    #[arg(short = 'y', value_name = "s|p", value_enum)]
    sync: Option<Sync>,
    /// Sync after each write
    #[arg(short = 'b')]
    syncs: bool,
    /// Direct I/O for the large file
    #[arg(short = 'D')]
    direct: bool,
    /// Only the CSV lines on standard output; the table goes to standard error
    #[arg(short = 'q', action = ArgAction::SetTrue)]
    quiet: bool,
    /// Random seed
    #[arg(short = 'z', value_name = "SEED", default_value = "42")]
    seed: u64,
    /// A file of random numbers, four octets each in network byte order, instead of a seed
    #[arg(short = 'Z', value_name = "FILE", conflicts_with = "seed")]
    random_file: Option<PathBuf>,
    /// The version of Bonnie++ whose CSV line is printed
    #[arg(long, value_enum, value_name = "VERSION", default_value = "1.02")]
    bonnie_csv: BonnieCsv,
    #[command(flatten)]
    format: Format,
}

/// The form of the CSV line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BonnieCsv {
    /// As of 2002
    #[value(name = "1.02")]
    Old,
    /// As of Debian's Bonnie++ 2.00, with latencies
    #[value(name = "1.98")]
    New,
}

/// What is made in the phases with small files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File,
    HardLink,
    SymbolicLink,
}

/// The options after their check, with what they leave to the machine.
#[derive(Debug)]
struct Options {
    bytes: u64,
    chunk: usize,
    seeks: u32,
    seekers: u32,
    /// Nothing where time decides, 0 for none.
    char_bytes: Option<u64>,
    copies: u32,
    entry: Entry,
    file_chunk: usize,
    files: u32,
    file_max: u64,
    file_min: u64,
    directories: u32,
    syncs: bool,
    direct: bool,
    dice: Dice,
}

/// What one run has measured: twelve phases, and how its CSV line begins.
struct Done<'o> {
    options: &'o Options,
    name: String,
    seed: String,
    size: String,
    files: String,
    phases: [Option<Phase>; 12],
}

const MIB: u64 = 1 << 20;
/// Bonnie++ 1.02 takes no less without an option.
const LEAST_MIB: u64 = 300;

/// Measures and prints; Ctrl-C keeps the lines that are done.
pub fn run(args: &BonnieArgs) -> Result<(), String> {
    if let Some(count) = args.serve {
        return match count {
            0 => Err("-p 0: name the number of processes, or -1".into()),
            count => turns::serve(count),
        };
    }
    if let Some(user) = &args.user
        && std::env::var_os(AS_USER).is_none()
    {
        return run_as(user, args.group.as_deref());
    }
    let options = args.options()?;
    let turns = PhaseStart::new(args.sync)?;
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    scratch.needs(options.bytes.saturating_mul(options.copies.into()))?;
    let steps = 6 * (u64::from(options.bytes > 0) + u64::from(options.files > 0)) * u64::from(args.times);
    let progress = Progress::new("phases", steps);
    let mut phase_figures = [const { PhaseFigures::new() }; 12];
    for _ in 0..args.times {
        let say = |e: io::Error| format!("work in {}: {e}", scratch.path().display());
        let phases = match phases(&options, &scratch, &progress, &turns) {
            Err(_) if scratch.is_stopped() => break,
            phases => phases.map_err(say)?,
        };
        for (figures, phase) in phase_figures.iter_mut().zip(&phases) {
            phase.iter().for_each(|phase| figures.push(phase));
        }
        let done = args.done(&options, phases);
        let table = report::table(&done);
        let line = match args.bonnie_csv {
            BonnieCsv::Old => report::csv(&done),
            BonnieCsv::New => report::csv_of_2(&done),
        };
        match (args.format.is_text(), args.quiet) {
            (true, false) => print!("{table}{line}"),
            (true, true) => {
                eprint!("{table}");
                print!("{line}");
            }
            (false, _) => {}
        }
    }
    drop(progress);
    let durability = if options.syncs {
        "Durability: synced after each write."
    } else {
        "Durability: the large file is synced at its end, small files are not."
    };
    let mut tail = vec![device.text(), durability.to_owned()];
    let shown =
        report::NAMES.iter().zip(&phase_figures).filter(|(_, figures)| figures.rate.median().is_some());
    tail.extend(shown.map(|(name, figures)| format!("{name:<22} {}", figures.rate)));
    let tail = tail.join("\n");
    let mut table = Table::new(args.format, &COLUMNS, None);
    if args.quiet && args.format.is_text() {
        eprintln!("{tail}");
    } else {
        table.text(&tail);
    }
    table.silent_fact(device.text());
    table.silent_note(durability);
    for (i, figures) in phase_figures.into_iter().enumerate().filter(|(_, figures)| figures.is_measured()) {
        figures.record(&mut table, i);
    }
    table.finish();
    Ok(())
}

/// The name of the phase in [`report::NAMES`] has the unit too.
const COLUMNS: [Column; 5] = [
    Column::left("phase", "phase", 18),
    Column::right("KiB/s", "kib_per_second", 26),
    Column::right("operations/s", "operations_per_second", 26),
    Column::right("CPU %", "cpu_percent", 20),
    Column::right("longest operation ms", "longest_ms", 26),
];

/// What all runs have measured of one phase.
#[derive(Debug)]
struct PhaseFigures {
    rate: Figure,
    cpu_percent: Figure,
    longest_ms: Figure,
    /// Runs that were too short for a rate.
    short: u32,
}

impl PhaseFigures {
    const fn new() -> Self {
        Self { rate: Figure::new(), cpu_percent: Figure::new(), longest_ms: Figure::new(), short: 0 }
    }

    fn push(&mut self, phase: &Phase) {
        self.longest_ms.push(phase.longest.as_secs_f64() * 1e3);
        let Some(rate) = phase.rate() else {
            self.short += 1;
            return;
        };
        self.rate.push(rate);
        self.cpu_percent.push(phase.cpu_seconds / phase.seconds * 100.0);
    }

    fn is_measured(&self) -> bool {
        self.longest_ms.median().is_some()
    }

    fn record(self, table: &mut Table<'_>, number: usize) {
        let name = report::NAMES[number].trim_end_matches(", K/s").trim_end_matches("/s");
        // All of the large file but the seeks is KiB.
        let (kib, operations) = if number < 5 { (Some(self.rate), None) } else { (None, Some(self.rate)) };
        table.record([
            Cell::from(name),
            kib.into(),
            operations.into(),
            self.cpu_percent.into(),
            self.longest_ms.into(),
        ]);
        if self.short > 0 {
            table.silent_remark(format!(
                "too short in {} runs: below {} s",
                self.short,
                report::SHORT_SECONDS
            ));
        }
    }
}

/// Set in the process of the other user.
const AS_USER: &str = "POSTLAB_BONNIE_USER";

/// Runs this program again as another user.
fn run_as(user: &str, group: Option<&str>) -> Result<(), String> {
    let (user, own_group) = user.split_once(':').map_or((user, None), |(user, group)| (user, Some(group)));
    let entry = |kind: &str, name: &str| -> Result<Vec<String>, String> {
        let output = Command::new("getent").args([kind, name]).stdin(Stdio::null()).output();
        let output = output.map_err(|e| format!("run getent: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if text.is_empty() {
            return Err(format!("-u: {kind} has no {name}"));
        }
        Ok(text.split(':').map(str::to_owned).collect())
    };
    let number = |fields: &[String], i: usize| fields.get(i).and_then(|n| n.parse::<u32>().ok());
    let passwd = entry("passwd", user)?;
    let gid = match group.or(own_group) {
        Some(group) => number(&entry("group", group)?, 2),
        None => number(&passwd, 3),
    };
    let ids = number(&passwd, 2).zip(gid).ok_or(format!("-u: {user} has no number"))?;
    let own = std::env::current_exe().map_err(|e| format!("find this program: {e}"))?;
    let mut command = Command::new(own);
    command.args(std::env::args_os().skip(1)).env(AS_USER, user).uid(ids.0).gid(ids.1);
    let status = command.status().map_err(|e| format!("run as {user}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("run as {user}: it ended with {status}")) }
}

fn phases(
    options: &Options,
    scratch: &Scratch,
    progress: &Progress,
    turns: &PhaseStart,
) -> io::Result<[Option<Phase>; 12]> {
    let bulk = if options.bytes > 0 { Bulk::run(options, scratch, progress, turns)? } else { [None; 6] };
    let files = if options.files > 0 { files::run(options, scratch, progress, turns)? } else { [None; 6] };
    Ok(std::array::from_fn(|i| if i < 6 { bulk[i] } else { files[i - 6] }))
}

impl BonnieArgs {
    fn options(&self) -> Result<Options, String> {
        let memory_mib = self.memory.as_deref().map_or(Ok(memory_bytes()), |t| size(t, MIB))? / MIB;
        let default = (memory_mib * 2).max(LEAST_MIB).to_string();
        let parts: Vec<&str> = self.size.as_deref().unwrap_or(&default).split(':').collect();
        let number = |parts: &[&str], i: usize, unit: u64, default: u64| {
            parts.get(i).map_or(Ok(default), |text| size(text, unit))
        };
        let bytes = number(&parts, 0, MIB, 0)?;
        if bytes > 0 && bytes / 2 / MIB < memory_mib {
            return Err(format!(
                "a file of {} MiB lies in a memory of {memory_mib} MiB: make it twice as large (-s), or say -r 0",
                bytes / MIB
            ));
        }
        let files: Vec<&str> = self.number.split(':').collect();
        let char_bytes = self.char_size.as_deref().map(|text| size(text, MIB)).transpose()?;
        let entry = match files.get(1) {
            Some(&"-1") => Entry::HardLink,
            Some(&"-2") => Entry::SymbolicLink,
            _ => Entry::File,
        };
        let seeded = || Ok(Dice::Seeded(fastrand::Rng::with_seed(self.seed)));
        let dice = self.random_file.as_deref().map_or_else(seeded, Dice::read)?;
        let count = |parts: &[&str], i: usize, default: u64| {
            let count = number(parts, i, 1, default)?;
            u32::try_from(count).map_err(|_| format!("`{count}` is too many"))
        };
        let options = Options {
            bytes,
            chunk: number(&parts, 1, 1, 8192)? as usize,
            seeks: count(&parts, 2, 8192)?,
            seekers: count(&parts, 3, 5)?,
            char_bytes,
            copies: self.copies,
            entry,
            file_chunk: number(&files, 4, 1, 8192)? as usize,
            files: count(&files, 0, 16)?,
            file_max: if entry == Entry::File { number(&files, 1, 1, 0)? } else { 0 },
            file_min: number(&files, 2, 1, 0)?,
            directories: count(&files, 3, 0)?,
            syncs: self.syncs,
            direct: self.direct,
            dice,
        };
        options.check()
    }

    fn done<'o>(&self, options: &'o Options, phases: [Option<Phase>; 12]) -> Done<'o> {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let w = options;
        let max = match w.entry {
            Entry::File => w.file_max.to_string(),
            Entry::HardLink => "link".into(),
            Entry::SymbolicLink => "symlnk".into(),
        };
        let mut files = format!("{}:{max}", w.files);
        if w.entry == Entry::File {
            files += &format!(":{}", w.file_min);
        }
        if w.directories > 0 {
            files += &format!("/{}", w.directories);
        }
        Done {
            options,
            seed: self.random_file.as_ref().map_or(self.seed.to_string(), |path| path.display().to_string()),
            name: self.machine.clone().unwrap_or_else(host),
            size: format!("{}M", w.bytes / MIB),
            files: if w.files == 0 && w.bytes > 0 { String::new() } else { files },
            phases,
        }
    }
}

impl Options {
    fn check(self) -> Result<Self, String> {
        if !self.chunk.is_power_of_two() || !(256..=1 << 20).contains(&self.chunk) {
            return Err(format!("a block of {} octets is no power of two from 256 to 1048576", self.chunk));
        }
        if self.file_chunk == 0 || self.file_chunk > 1 << 20 {
            return Err(format!("small files: a write of {} octets is not in 1 to 1048576", self.file_chunk));
        }
        let many = self.files.max(self.directories) > 1 << 16;
        if self.file_min > self.file_max || self.file_max > 1 << 30 || many {
            let bounds = "at most 65536:1g:1g:65536, and the smallest is not above the largest";
            return Err(format!("small files: {bounds}"));
        }
        if self.bytes > 0 && (self.seekers == 0 || self.seekers > 256 || self.bytes < self.chunk as u64) {
            return Err("the large file has a block at least, and 1 to 256 seekers".into());
        }
        Ok(self)
    }
}

/// A number, in `unit`s unless it ends with k, m or g.
fn size(text: &str, unit: u64) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, unit),
    };
    let number = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    number.ok_or(format!("`{text}` is not a size"))
}
