//! `postlab iostat`: what a disk and some processes did while a command ran, and how much of it a message:
//! S4's modified iostat with getrusage(2) beside it.

use crate::device::{Device, Traffic};
use crate::{
    signals,
    usage::{Watch, members},
};
use clap::Args;
use std::{
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Count disk writes and the CPU time of processes for each message
///
/// Measures until COMMAND ends, or for a number of intervals. The exit code is 1 if the command fails.
#[derive(Debug, Args)]
pub struct IostatArgs {
    /// Print a line every SECONDS seconds
    #[arg(short = 'w', value_name = "SECONDS", default_value = "5", value_parser = measure::arguments::seconds_of)]
    interval: Duration,
    /// Lines, where there is no command
    #[arg(short = 'c', value_name = "COUNT", default_value = "12", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Processes to count
    #[arg(short = 'p', value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// All processes of this control group, also later ones
    #[arg(short = 'g', long = "cgroup", value_name = "DIRECTORY")]
    group: Option<PathBuf>,
    /// Show the figures for one of so many messages
    #[arg(short = 'm', long = "messages", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// A directory on the disk to measure
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    /// The command to run while measuring
    #[arg(last = true)]
    command: Vec<String>,
}

/// Short enough to see the last of a process that ends.
const TICK: Duration = Duration::from_millis(100);

/// Counts and prints; false if the command failed.
pub fn run(args: &IostatArgs) -> Result<bool, String> {
    let device = Device::below(&args.directory)?;
    if device.traffic().is_none() && args.pids.is_empty() && args.group.is_none() && args.command.is_empty() {
        return Err(format!("count on {}: the kernel counts nothing there", device.text()));
    }
    if let Some(gone) = args.pids.iter().find(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(format!("watch process {gone}: there is none"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    println!("{}", device.text());
    let first = device.traffic();
    let mut child = start(&args.command)?;
    let mut looker = Looker { args, device: &device, watch: Watch::default(), before: first };
    looker.look(child.as_ref());
    let good = looker.intervals(child.as_mut(), &stop)?;
    if let Some((first, last)) = first.zip(device.traffic()) {
        print!("{}", disk_text(&last.since(first), args.messages));
    }
    print!("{}", processes_text(&looker.watch, args.messages));
    Ok(good)
}

fn start(command: &[String]) -> Result<Option<Child>, String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(arguments).spawn();
    child.map(Some).map_err(|e| format!("run {program}: {e}"))
}

struct Looker<'a> {
    args: &'a IostatArgs,
    device: &'a Device,
    watch: Watch,
    before: Option<Traffic>,
}

impl Looker<'_> {
    fn look(&mut self, child: Option<&Child>) {
        let group = self.args.group.as_deref().map(members).unwrap_or_default();
        self.watch.look(self.args.pids.iter().copied().chain(group).chain(child.map(Child::id)));
    }

    /// A line each, until the command ends or it is enough; true unless the command failed.
    fn intervals(&mut self, mut child: Option<&mut Child>, stop: &AtomicBool) -> Result<bool, String> {
        println!(
            "{:>8} {:>10} {:>10} {:>10} {:>12} {:>12}",
            "s", "reads", "writes", "flushes", "KB read", "KB written"
        );
        let begin = Instant::now();
        let mut next = self.args.interval;
        let (mut lines, mut is_told) = (0, false);
        loop {
            thread::sleep(TICK.min(self.args.interval));
            self.look(child.as_deref());
            if begin.elapsed() >= next {
                self.line(begin.elapsed());
                next += self.args.interval;
                lines += 1;
            }
            if let Some(child) = &mut child {
                let ended = child.try_wait().map_err(|e| format!("wait for the command: {e}"))?;
                if let Some(status) = ended {
                    self.line(begin.elapsed());
                    return Ok(status.success());
                }
                // Ctrl-C reached it with us, SIGTERM did not.
                if stop.load(Relaxed) && !std::mem::replace(&mut is_told, true) {
                    signals::end(child);
                }
            } else if lines >= self.args.count || stop.load(Relaxed) {
                return Ok(true);
            }
        }
    }

    fn line(&mut self, at: Duration) {
        let now = self.device.traffic();
        if let Some((before, now)) = self.before.zip(now) {
            let t = now.since(before);
            println!(
                "{:>8.1} {:>10} {:>10} {:>10} {:>12} {:>12}",
                at.as_secs_f64(),
                t.reads,
                t.writes,
                t.flushes,
                t.read_sectors / 2,
                t.written_sectors / 2
            );
        }
        self.before = now;
    }
}

fn disk_text(t: &Traffic, messages: Option<u64>) -> String {
    let other = t.flushes + t.discards;
    let mut out = format!("disk, others' included: {} writes, {} reads, {other} other\n", t.writes, t.reads);
    if let Some(messages) = messages {
        let each = |count: u64| count as f64 / messages as f64;
        out += &format!(
            "a message (N={messages}): {:.3} writes, {:.3} flushes, {:.2} KB written\n",
            each(t.writes),
            each(t.flushes),
            each(t.written_sectors) / 2.0
        );
    }
    out
}

/// A line for each name; without a message count the sums.
fn processes_text(watch: &Watch, messages: Option<u64>) -> String {
    let mut out = format!(
        "{:<16} {:>5} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
        "process",
        "count",
        "user ms",
        "system ms",
        "inblock",
        "oublock",
        "reads",
        "writes",
        "nvcsw",
        "nivcsw",
        "majflt",
        "peak MiB"
    );
    let by = messages.unwrap_or(1) as f64;
    for (name, (count, u)) in watch.by_name() {
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / by;
        let each = |count: u64| {
            if messages.is_some() { format!("{:.3}", count as f64 / by) } else { count.to_string() }
        };
        out += &format!(
            "{name:<16} {count:>5} {:>10.3} {:>10.3} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9.1}\n",
            ms(u.user),
            ms(u.system),
            each(u.in_blocks),
            each(u.out_blocks),
            each(u.read_calls),
            each(u.write_calls),
            each(u.voluntary_switches),
            each(u.involuntary_switches),
            each(u.major_faults),
            u.peak_kib as f64 / 1024.0
        );
    }
    out + if messages.is_some() { "All but the count and the peak are for one message.\n" } else { "" }
}
