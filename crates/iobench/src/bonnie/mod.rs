//! `postlab bonnie`: Bonnie++'s phases, options, table and CSV line, and its rule that what ended within half a
//! second is shown as `+++++`.

mod bulk;
mod files;
mod report;

use crate::{
    device::Device,
    limits::memory_bytes,
    rounds::{Figure, Progress},
    scratch::Scratch,
};
use bulk::Bulk;
use clap::{ArgAction, Args};
use report::Phase;
use std::{io, path::PathBuf};

/// Measure a file system with one large file and with many small ones, as Bonnie++ does
#[derive(Debug, Args)]
pub struct BonnieArgs {
    /// A directory on the disk to measure
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// MiB of the large file, or with k, m or g behind; and octets of a block, seeks and seekers; 0 is none
    /// [default: twice the memory]
    #[arg(short = 's', value_name = "SIZE[:BLOCK[:SEEKS[:SEEKERS]]]")]
    size: Option<String>,
    /// Small files, in units of 1024; their largest and smallest sizes, and directories; 0 is none
    #[arg(short = 'n', value_name = "COUNT[:MAX[:MIN[:DIRECTORIES]]]", default_value = "16")]
    number: String,
    /// The machine's name in the table
    #[arg(short = 'm', value_name = "NAME")]
    machine: Option<String>,
    /// MiB of memory; a large file below twice of it is refused; 0: anything goes
    #[arg(short = 'r', value_name = "SIZE")]
    memory: Option<String>,
    /// Number of runs; each gives a CSV line
    #[arg(short = 'x', value_name = "COUNT", default_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Size of the part that is written and read octet by octet; without a size, there is none
    #[arg(short = 'f', value_name = "SIZE", num_args = 0..=1, default_missing_value = "0", default_value = "20m")]
    char_size: String,
    /// Sync after each write
    #[arg(short = 'b')]
    syncs: bool,
    /// Direct I/O for the large file
    #[arg(short = 'D')]
    direct: bool,
    /// Only the CSV lines on standard output; the table goes to standard error
    #[arg(short = 'q', action = ArgAction::SetTrue)]
    quiet: bool,
    /// Seed of all chance
    #[arg(short = 'z', value_name = "SEED", default_value = "42")]
    seed: u64,
}

/// The options, checked.
#[derive(Debug, PartialEq)]
struct Options {
    bytes: u64,
    chunk: usize,
    seeks: u32,
    seekers: u32,
    char_bytes: Option<u64>,
    files: u32,
    file_max: u64,
    file_min: u64,
    directories: u32,
    syncs: bool,
    direct: bool,
    seed: u64,
}

/// One time through.
struct Done {
    name: String,
    size: String,
    files: String,
    phases: [Option<Phase>; 12],
}

const MIB: u64 = 1 << 20;
/// Bonnie++ 1.02 takes no less without an option.
const LEAST_MIB: u64 = 300;

/// Measures and prints; Ctrl-C keeps the lines that are done.
pub fn run(args: &BonnieArgs) -> Result<(), String> {
    let options = args.options()?;
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    scratch.needs(options.bytes)?;
    let steps = 6 * (u64::from(options.bytes > 0) + u64::from(options.files > 0)) * u64::from(args.times);
    let progress = Progress::new("phases", steps);
    let mut figures = [const { Figure::new() }; 12];
    for _ in 0..args.times {
        let say = |e: io::Error| format!("work in {}: {e}", scratch.path().display());
        let phases = match phases(&options, &scratch, &progress) {
            Err(_) if scratch.is_stopped() => break,
            phases => phases.map_err(say)?,
        };
        for (figure, phase) in figures.iter_mut().zip(&phases) {
            if let Some(rate) = phase.and_then(|p| p.rate()) {
                figure.push(rate);
            }
        }
        let done = args.done(&options, phases);
        let table = report::table(&done);
        if args.quiet {
            eprint!("{table}");
        } else {
            print!("{table}");
        }
        print!("{}", report::csv(&done));
    }
    drop(progress);
    let durability = if options.syncs {
        "Durability: synced after each write."
    } else {
        "Durability: the large file is synced at its end, small files are not."
    };
    let mut tail = vec![device.text(), durability.to_owned()];
    let shown = report::NAMES.iter().zip(&figures).filter(|(_, figure)| figure.median().is_some());
    tail.extend(shown.map(|(name, figure)| format!("{name:<22} {figure}")));
    let tail = tail.join("\n");
    if args.quiet {
        eprintln!("{tail}");
    } else {
        println!("{tail}");
    }
    Ok(())
}

fn phases(options: &Options, scratch: &Scratch, progress: &Progress) -> io::Result<[Option<Phase>; 12]> {
    let bulk = if options.bytes > 0 { Bulk::run(options, scratch, progress)? } else { [None; 6] };
    let files = if options.files > 0 { files::run(options, scratch, progress)? } else { [None; 6] };
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
        let char_bytes = size(&self.char_size, MIB)?;
        let count = |parts: &[&str], i: usize, default: u64| {
            let count = number(parts, i, 1, default)?;
            u32::try_from(count).map_err(|_| format!("`{count}` is too many"))
        };
        let options = Options {
            bytes,
            chunk: number(&parts, 1, 1, 8192)? as usize,
            seeks: count(&parts, 2, 8192)?,
            seekers: count(&parts, 3, 5)?,
            char_bytes: (char_bytes > 0).then_some(char_bytes),
            files: count(&files, 0, 16)?,
            file_max: number(&files, 1, 1, 0)?,
            file_min: number(&files, 2, 1, 0)?,
            directories: count(&files, 3, 0)?,
            syncs: self.syncs,
            direct: self.direct,
            seed: self.seed,
        };
        options.check()
    }

    fn done(&self, options: &Options, phases: [Option<Phase>; 12]) -> Done {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let w = options;
        let mut files = format!("{}:{}:{}", w.files, w.file_max, w.file_min);
        if w.directories > 0 {
            files += &format!("/{}", w.directories);
        }
        Done {
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
    number.ok_or(format!("`{text}` is no size"))
}
