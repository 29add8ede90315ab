//! `postlab iostat`: what a disk and some processes did while a command ran, and how much of it a message:
//! S4's modified iostat with getrusage(2) beside it.

use crate::device::{Device, Traffic};
use crate::{
    signals,
    table::{Cell, Column, Format, Table},
    usage::{Watch, check_group, check_processes, members},
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
    /// Number of lines, if no command is given
    #[arg(short = 'c', value_name = "COUNT", default_value = "12", value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// Processes to count
    #[arg(short = 'p', value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// All processes of this control group, including those that start later
    #[arg(short = 'g', long = "cgroup", value_name = "DIRECTORY")]
    group: Option<PathBuf>,
    /// Divide the figures by this many messages
    #[arg(short = 'm', long = "messages", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// A directory on the disk to measure
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,
    #[command(flatten)]
    format: Format,
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
    check_processes(&args.pids)?;
    args.group.as_deref().map_or(Ok(()), check_group)?;
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let first = device.traffic();
    let mut child = start(args)?;
    let mut table = Table::new(args.format, &INTERVALS, None);
    table.fact(device.text());
    table.part("intervals", &INTERVALS);
    let mut looker = Looker { args, device: &device, watch: Watch::default(), before: first, table };
    looker.look(child.as_ref());
    let good = looker.intervals(child.as_mut(), &stop)?;
    let Looker { mut table, watch, .. } = looker;
    if let Some((first, last)) = first.zip(device.traffic()) {
        add_disk(&mut table, &last.since(first), args.messages);
    }
    add_processes(&mut table, &watch, args.messages);
    table.finish();
    Ok(good)
}

/// Columns of the table with a line for each interval.
const INTERVALS: [Column; 6] = [
    Column::right("s", "seconds", 8),
    Column::right("reads", "reads", 10),
    Column::right("writes", "writes", 10),
    Column::right("flushes", "flushes", 10),
    Column::right("KB read", "kib_read", 12),
    Column::right("KB written", "kib_written", 12),
];

/// The disk while all was measured; the text has it as a line.
const DISK: [Column; 10] = [
    Column::other("reads", "reads"),
    Column::other("writes", "writes"),
    Column::other("flushes", "flushes"),
    Column::other("discards", "discards"),
    Column::other("KB read", "kib_read"),
    Column::other("KB written", "kib_written"),
    Column::other("messages", "messages"),
    Column::other("writes a message", "writes_per_message"),
    Column::other("flushes a message", "flushes_per_message"),
    Column::other("KB written a message", "kib_written_per_message"),
];

/// Sums of the processes of each name; with a number of messages, of one of them.
const PROCESSES: [Column; 12] = processes([
    "user_ms",
    "system_ms",
    "in_blocks",
    "out_blocks",
    "read_calls",
    "write_calls",
    "voluntary_switches",
    "involuntary_switches",
    "major_faults",
]);
const PROCESSES_PER_MESSAGE: [Column; 12] = processes([
    "user_ms_per_message",
    "system_ms_per_message",
    "in_blocks_per_message",
    "out_blocks_per_message",
    "read_calls_per_message",
    "write_calls_per_message",
    "voluntary_switches_per_message",
    "involuntary_switches_per_message",
    "major_faults_per_message",
]);

const fn processes(keys: [&'static str; 9]) -> [Column; 12] {
    [
        Column::left("process", "process", 16),
        Column::right("count", "count", 5),
        Column::right("user ms", keys[0], 10),
        Column::right("system ms", keys[1], 10),
        Column::right("inblock", keys[2], 9),
        Column::right("oublock", keys[3], 9),
        Column::right("reads", keys[4], 9),
        Column::right("writes", keys[5], 9),
        Column::right("nvcsw", keys[6], 9),
        Column::right("nivcsw", keys[7], 9),
        Column::right("majflt", keys[8], 9),
        Column::right("peak MiB", "peak_mib", 9),
    ]
}

fn start(args: &IostatArgs) -> Result<Option<Child>, String> {
    let Some((program, arguments)) = args.command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(arguments).stdout(args.format.child_stdout()).spawn();
    child.map(Some).map_err(|e| format!("run {program}: {e}"))
}

struct Looker<'a> {
    args: &'a IostatArgs,
    device: &'a Device,
    watch: Watch,
    before: Option<Traffic>,
    table: Table<'a>,
}

impl Looker<'_> {
    fn look(&mut self, child: Option<&Child>) {
        let group = self.args.group.as_deref().map(members).unwrap_or_default();
        self.watch.look(self.args.pids.iter().copied().chain(group).chain(child.map(Child::id)));
    }

    /// A line each, until the command ends or it is enough; true unless the command failed.
    fn intervals(&mut self, mut child: Option<&mut Child>, stop: &AtomicBool) -> Result<bool, String> {
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
            self.table.row([
                Cell::Number(at.as_secs_f64(), 1),
                t.reads.into(),
                t.writes.into(),
                t.flushes.into(),
                (t.read_sectors / 2).into(),
                (t.written_sectors / 2).into(),
            ]);
        }
        self.before = now;
    }
}

fn add_disk(table: &mut Table<'_>, t: &Traffic, messages: Option<u64>) {
    table.part("disk", &DISK);
    let other = t.flushes + t.discards;
    table.text(&format!("disk, others' included: {} writes, {} reads, {other} other", t.writes, t.reads));
    let each = |count: u64, unit: f64| messages.map(|messages| count as f64 / unit / messages as f64);
    let of = [each(t.writes, 1.0), each(t.flushes, 1.0), each(t.written_sectors, 2.0)];
    if let ([Some(writes), Some(flushes), Some(kib)], Some(messages)) = (of, messages) {
        table.text(&format!(
            "a message (N={messages}): {writes:.3} writes, {flushes:.3} flushes, {kib:.2} KB written"
        ));
    }
    let [writes, flushes, kib] = of.map(|value| value.map_or(Cell::Empty, |value| Cell::Number(value, 3)));
    table.record([
        t.reads.into(),
        t.writes.into(),
        t.flushes.into(),
        t.discards.into(),
        (t.read_sectors / 2).into(),
        (t.written_sectors / 2).into(),
        messages.into(),
        writes,
        flushes,
        kib,
    ]);
    table.silent_remark("others' included");
}

/// Adds a row for each name; without a message count the sums.
fn add_processes(table: &mut Table<'_>, watch: &Watch, messages: Option<u64>) {
    table.part("processes", if messages.is_some() { &PROCESSES_PER_MESSAGE } else { &PROCESSES });
    let by = messages.unwrap_or(1) as f64;
    let ms = |time: Duration| Cell::Number(time.as_secs_f64() * 1e3 / by, 3);
    let each =
        |count: u64| if messages.is_some() { Cell::Number(count as f64 / by, 3) } else { count.into() };
    for (name, (count, u)) in watch.by_name() {
        table.row([
            name.into(),
            count.into(),
            ms(u.user),
            ms(u.system),
            each(u.in_blocks),
            each(u.out_blocks),
            each(u.read_calls),
            each(u.write_calls),
            each(u.voluntary_switches),
            each(u.involuntary_switches),
            each(u.major_faults),
            Cell::Number(u.peak_kib as f64 / 1024.0, 1),
        ]);
    }
    if messages.is_some() {
        table.text("All but the count and the peak are for one message.");
    }
}
