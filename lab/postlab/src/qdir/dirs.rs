//! `postlab queuedirs`: S0's tests. Does it help senders that work at once to spread a queue over directories,
//! and does an entry cost more the more there are?

use super::{
    DaemonArgs, Mta, answer,
    baseline::{self, Baseline},
    peer::PeerArgs,
    slope::{self, POINT, Series, Slope},
    work::{self, Share},
};
use crate::{
    Failure,
    device::{Device, Traffic},
    rounds::{Figure, Progress, Rounds, disagreement, too_short_round},
    run::machine::Machine,
    scratch::Scratch,
    stat::Confidence,
    table::{Column, Format, Table},
};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Measure queue creation with several directories and senders
///
/// Shows both the rate of all senders together and the time that one message takes. With ten senders, the rate can fall to a
/// fifth while the time grows fiftyfold.
#[derive(Debug, Args)]
pub(crate) struct QueuedirsArgs {
    /// The number of queue directories; several are measured in turn
    #[arg(short = 'q', value_name = "COUNT,…", value_delimiter = ',', default_value = "1,5,10,20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) directories: Vec<u32>,
    /// The number of concurrent senders; several are measured in turn [default: 1,10; with --mta 1,10,20,30,100]
    #[arg(short = 's', value_name = "COUNT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    senders: Vec<u32>,
    /// Messages
    #[arg(short = 'm', value_name = "COUNT", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) messages: u32,
    /// Size of each message in octets
    #[arg(short = 'l', value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u32).range(..=1 << 24))]
    pub(super) length: u32,
    /// Do not sync
    #[arg(short = 'S')]
    pub(super) no_sync: bool,
    /// Measure how the cost of an entry grows with the number of entries, and draw it
    #[arg(long)]
    pub(super) slope: bool,
    /// With --slope: also write the picture to a file
    #[arg(long, value_name = "FILE", requires = "slope")]
    svg: Option<PathBuf>,
    /// Queue directories with all files in them, or with 16 subdirectories; several are measured in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "flat", conflicts_with = "mta")]
    pub(super) layout: Vec<Layout>,
    /// The number of processes among which the senders are distributed; several are measured in turn
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', default_value = "1", conflicts_with = "mta", value_parser = clap::value_parser!(u32).range(1..=100))]
    processes: Vec<u32>,
    /// Write the result to a file, to compare with it later
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    output: Option<PathBuf>,
    /// Compare with a result that -o wrote. The exit code is 1 if a case became slower
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    #[arg(long, hide = true, value_parser = Share::parse)]
    worker: Option<Share>,
    /// Measure a daemon over SMTP with connections that stay open, instead of files
    #[arg(long, value_enum, conflicts_with = "no_sync")]
    mta: Option<Mta>,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
    #[command(flatten)]
    pub(super) rounds: Rounds,
    #[command(flatten)]
    pub(super) format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    pub(super) directory: PathBuf,
}

impl QueuedirsArgs {
    /// A daemon shares what it syncs among many more.
    pub(super) fn senders(&self) -> Vec<u32> {
        match (self.senders.is_empty(), self.mta) {
            (false, _) => self.senders.clone(),
            (true, None) => vec![1, 10],
            (true, Some(_)) => vec![1, 10, 20, 30, 100],
        }
    }
}

/// The files of a queue directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Layout {
    /// In the directory itself
    Flat,
    /// In 16 subdirectories
    Hashed,
}

/// What differs between the measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) senders: u32,
    pub(super) directories: u32,
    pub(super) processes: u32,
    pub(super) is_hashed: bool,
}

impl Setting {
    pub(super) fn layout(&self) -> &'static str {
        if self.is_hashed { "hashed" } else { "flat" }
    }

    fn name(&self) -> String {
        let Self { senders, directories, processes, .. } = self;
        format!("{directories} directories, {senders} senders, {}, {processes} processes", self.layout())
    }
}

/// What each round of a setting has measured.
#[derive(Debug, Default)]
struct Figures {
    rate: Figure,
    point: Figure,
    latency: Figure,
    writes: Figure,
    seconds: Figure,
    series: Vec<Series>,
    done: u32,
}

impl Figures {
    /// Remarks that must be read with them.
    fn remarks(&self) -> Vec<String> {
        too_short_round(&self.seconds).into_iter().chain(disagreement(&self.rate)).collect()
    }
}

/// Measures and prints; Ctrl-C keeps the rows that are done. False if a case became slower than the baseline.
pub(crate) fn run(args: &QueuedirsArgs) -> Result<bool, Failure> {
    if let Some(share) = args.worker {
        return Ok(work::worker(args, share).map(|()| true)?);
    }
    if args.slope
        && let Some(why) = slope::why_none((args.messages / POINT) as usize)
    {
        return Err(Failure::Usage(format!("--slope: {why}")));
    }
    // A file that cannot be read must not be noticed after an hour.
    let old = args.baseline.as_deref().map(Baseline::read).transpose()?;
    let (result, series, mut table) =
        if args.mta.is_some() { super::create::run(args)? } else { files(args)? };
    if args.slope {
        series.iter().for_each(|series| table.text(&slope::scatter(series)));
        if let Some(path) = &args.svg {
            std::fs::write(path, slope::svg(&series))
                .map_err(|e| format!("write {}: {e}", path.display()))?;
        }
    }
    if let Some(path) = &args.output {
        result.write(path)?;
    }
    let comparison = old.map(|old| result.against(&old, Confidence::parse("95")?)).transpose()?;
    if let Some(comparison) = &comparison {
        table.text("\nA: the baseline; B: this run");
        comparison.add_to(&mut table);
    }
    table.finish();
    Ok(comparison.is_none_or(|comparison| comparison.is_good()))
}

impl QueuedirsArgs {
    fn settings(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        for senders in self.senders() {
            for directories in &self.directories {
                for layout in &self.layout {
                    // A process without a sender is none.
                    for processes in self.processes.iter().filter(|count| **count <= senders) {
                        all.push(Setting {
                            senders,
                            directories: *directories,
                            processes: *processes,
                            is_hashed: *layout == Layout::Hashed,
                        });
                    }
                }
            }
        }
        all
    }

    fn durability(&self) -> &'static str {
        if self.no_sync {
            "not synced"
        } else {
            "both files synced (fsync), the directory not, as Sendmail has it without REQUIRES_DIR_FSYNC (not on Linux)"
        }
    }
}

/// The rounds as they are kept, the points of each, and the table.
pub(super) type Measured = (Baseline, Vec<Series>, Table<'static>);

const COLUMNS: [Column; 10] = [
    Column::right("senders", "senders", 7),
    Column::right("dirs", "directories", 5),
    Column::right("layout", "layout", 6),
    Column::right("processes", "processes", 9),
    Column::right("messages", "messages", 8),
    Column::right("messages/s", "messages_per_second", 32),
    Column::right("ms for 500 entries", "ms_for_500_entries", 32),
    Column::right("p50 ms of a message", "p50_ms_per_message", 28),
    Column::right("disk writes a message", "disk_writes_per_message", 26),
    Column::other("growth in µs for each 1000 entries", "growth_us_for_1000_entries"),
];

/// Measures files that are made here.
fn files(args: &QueuedirsArgs) -> Result<Measured, String> {
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let settings = args.settings();
    if settings.is_empty() {
        return Err("--processes: each process needs a sender: more of -s, or fewer processes".into());
    }
    // Queues stay until the end: for a minute ext4 looks at every inode of a file that was removed before it takes
    // another one, so that removing a queue makes the next one slower.
    let kept = (settings.len() as u64 * u64::from(args.rounds.count)).saturating_mul(args.messages.into());
    scratch.needs(kept.saturating_mul(super::message_bytes(args.length)))?;
    let progress = Progress::new("enqueue", settings.len() as u64 * u64::from(args.rounds.count));
    let load = format!("{} messages of {} octets, {}", args.messages, args.length, args.durability());
    let here = Machine::here(scratch.path());
    let mut result = Baseline::new(load, here.clone());
    let mut all_series = Vec::new();
    let mut rates: Vec<answer::Rates> = Vec::new();
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fact(device.text());
    for setting in settings {
        let figures = one(args, setting, &scratch, &device, &mut result, &progress)?;
        if figures.done == 0 {
            break;
        }
        let Setting { senders, directories, processes, .. } = setting;
        let remarks = figures.remarks();
        let Figures { rate, point, latency, writes, series, done, .. } = figures;
        rates.push(answer::Rates {
            setting,
            rates: rate.values().to_vec(),
            is_doubtful: !remarks.is_empty(),
        });
        let slopes: Vec<Slope> = series.iter().filter_map(|series| Slope::of(&series.points)).collect();
        let slope: Figure = slopes.iter().map(Slope::us_per_thousand).collect();
        progress.beside(|| {
            table.row([
                senders.into(),
                directories.into(),
                setting.layout().into(),
                processes.into(),
                done.into(),
                rate.into(),
                point.into(),
                latency.into(),
                writes.into(),
                slope.into(),
            ]);
            remarks.into_iter().for_each(|remark| table.remark(remark));
        });
        for slope in slopes.iter().filter(|_| args.slope) {
            progress.beside(|| table.remark(format!("{:>22} {}", "", slope.text())));
        }
        all_series.extend(series);
    }
    drop(progress);
    here.busy().into_iter().for_each(|busy| table.note(busy));
    table.note(format!("Durability: {}.", args.durability()));
    table.note("Writes are those of the whole disk until everything is on it.");
    let answer = answer::text(&rates)?;
    table.text(&answer);
    answer.lines().filter(|line| !line.is_empty()).for_each(|line| table.silent_note(line));
    Ok((result, all_series, table))
}

/// Measures all rounds of one setting.
fn one(
    args: &QueuedirsArgs,
    setting: Setting,
    scratch: &Scratch,
    device: &Device,
    result: &mut Baseline,
    progress: &Progress,
) -> Result<Figures, String> {
    let mut figures = Figures::default();
    for number in 0..args.rounds.count {
        let parent = scratch.path().join(format!(
            "queue-{}-{}-{}-{}-{number}",
            setting.senders,
            setting.directories,
            setting.layout(),
            setting.processes
        ));
        make(&parent, setting)?;
        // What was written before must not count here.
        sync(scratch.path())?;
        let before = device.traffic();
        let step = format!("{} senders, {} directories", setting.senders, setting.directories);
        let round = progress.during(&step, || work::round(args, &parent, setting, scratch))?;
        if scratch.is_stopped() {
            break;
        }
        sync(scratch.path())?;
        let written = |(before, now): (Traffic, Traffic)| now.since(before).writes as f64;
        if let Some(writes) = before.zip(device.traffic()).map(written) {
            figures.writes.push(writes / f64::from(round.done.max(1)));
        }
        figures.done = round.done;
        let rate = f64::from(round.done) / round.seconds.max(1e-9);
        figures.rate.push(rate);
        figures.seconds.push(round.seconds);
        if !round.points.is_empty() {
            figures.point.push(round.points.iter().sum::<f64>() / round.points.len() as f64);
        }
        figures.latency.push(round.times.at(0.5).as_secs_f64() * 1e3);
        let name = setting.name();
        result.push(&name, baseline::Round { rate, points_ms: round.points.clone() });
        figures.series.push(Series { title: format!("{name}, round {}", number + 1), points: round.points });
        progress.step();
    }
    Ok(figures)
}

fn sync(path: &Path) -> Result<(), String> {
    std::fs::File::open(path)
        .and_then(|place| Ok(rustix::fs::syncfs(&place)?))
        .map_err(|e| format!("sync: {e}"))
}

/// Makes an empty queue with the directories of the setting.
fn make(parent: &Path, setting: Setting) -> Result<(), String> {
    for path in work::paths(parent, setting.directories, setting.is_hashed) {
        std::fs::create_dir_all(&path).map_err(|e| format!("create {}: {e}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_are_too_short_or_disagree_have_a_remark() {
        let of = |seconds: [f64; 3], rate: [f64; 3]| {
            let [seconds, rate] = [seconds, rate].map(|values| values.into_iter().collect());
            Figures { seconds, rate, ..Figures::default() }.remarks()
        };
        assert_eq!(of([0.1, 0.004, 0.1], [9.0, 9.0, 9.0]), ["too short: the shortest round took 0.004 s"]);
        assert_eq!(
            of([0.1; 3], [1.0, 9.0, 9.0]),
            ["REPEATS DISAGREE: 1.00 to 9.00; round 1 is furthest off"]
        );
        assert!(of([0.1; 3], [9.0; 3]).is_empty());
    }
}
