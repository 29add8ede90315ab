//! `postlab syscalls`: which system calls processes make while a command runs, how long they take, and how
//! many there are a message; as S2's DTrace script has it.
//!
//! bpftrace counts them in the kernel where that works, which is nearly for nothing; else strace does, which slows
//! what it watches, so that its times are to be compared with each other only.

mod bpf;
mod histogram;
pub(crate) mod mix;
mod strace;

use crate::{
    signals,
    table::{Cell, Column, Format, Table},
    usage::{check_group, check_processes, members},
};
use clap::{Args, ValueEnum};
use histogram::Histogram;
use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Count system calls by phase: count, total, average
///
/// With -p or -g, those processes are watched while COMMAND runs, and for --then seconds after it, as a separate phase.
/// Otherwise COMMAND itself is watched. Needs bpftrace(8) and root, or strace(1).
#[derive(Debug, Args)]
pub(crate) struct SyscallsArgs {
    /// Processes to watch, and all that they start
    #[arg(short = 'p', value_name = "PID,…", value_delimiter = ',')]
    pids: Vec<u32>,
    /// All processes of this control group
    #[arg(short = 'g', long = "cgroup", value_name = "DIRECTORY")]
    group: Option<PathBuf>,
    /// Also show the count per message, for this number of messages
    #[arg(short = 'm', long = "messages", value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Continue for this time after the command has ended, to count deferred work
    #[arg(long, value_name = "SECONDS", value_parser = measure::arguments::seconds_of)]
    then: Option<Duration>,
    /// The tracer [default: bpftrace where it works]
    #[arg(long, value_enum)]
    with: Option<Counter>,
    /// Show how long the calls took: a histogram of each system call, p50 and p99. With strace, each call is recorded,
    /// which slows it down further
    #[arg(long)]
    histogram: bool,
    #[command(flatten)]
    format: Format,
    /// The command to measure; a phase
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The program that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Counter {
    Bpftrace,
    Strace,
}

impl Counter {
    /// The one that was asked for, or the one that works.
    fn choose(wish: Option<Self>) -> Self {
        wish.unwrap_or_else(|| if bpf::works() { Self::Bpftrace } else { Self::Strace })
    }

    fn attach(self, pids: &[u32], histogram: bool) -> Result<Box<dyn Tracer>, String> {
        match self {
            Self::Bpftrace => Ok(Box::new(bpf::Bpf::attach(pids, histogram)?)),
            Self::Strace => Ok(Box::new(strace::Strace::attach(pids, histogram)?)),
        }
    }

    /// A command of ours from its start, and whether it went well.
    fn traced(self, args: &SyscallsArgs, stop: &AtomicBool) -> Result<(Calls, bool), String> {
        match self {
            Self::Bpftrace => bpf::traced(args, stop),
            Self::Strace => strace::traced(args, stop),
        }
    }

    fn note(self) -> &'static str {
        match self {
            Self::Bpftrace => "Counted by bpftrace, in the kernel.",
            Self::Strace => "Times are strace's, which slows what it watches.",
        }
    }
}

/// Watches until it lets go.
trait Tracer {
    /// Lets go, and tells what was counted.
    fn detach(self: Box<Self>) -> Result<Calls, String>;
}

/// What was counted of one system call.
#[derive(Debug, Clone, Default, PartialEq)]
struct Row {
    count: u64,
    errors: u64,
    seconds: f64,
    /// Empty unless it was asked for.
    histogram: Histogram,
}

/// By name.
type Calls = BTreeMap<String, Row>;

/// For strace to attach or let go.
const ATTACH: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(20);

/// Watches and prints; false if the command failed.
pub(crate) fn run(args: &SyscallsArgs) -> Result<bool, String> {
    let stop = Arc::new(AtomicBool::new(false));
    signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    check_processes(&args.pids)?;
    let mut pids = args.pids.clone();
    if let Some(group) = &args.group {
        check_group(group)?;
        pids.extend(members(group));
        if pids.is_empty() {
            return Err(format!("watch {}: the control group has no processes", group.display()));
        }
    }
    let (mut phases, counter) = (Vec::new(), Counter::choose(args.with));
    let (program, arguments) = args.command.split_first().ok_or("no command")?;
    check_program(program)?;
    let failed = |e: std::io::Error| format!("run {program}: {e}");
    let good = if pids.is_empty() {
        let (table, good) = counter.traced(args, &stop)?;
        phases.push(("command", table));
        good
    } else {
        let tracer = counter.attach(&pids, args.histogram)?;
        let child = Command::new(program).args(arguments).stdout(args.format.child_stdout()).spawn();
        let status = child.and_then(|mut child| signals::wait(&mut child, &stop));
        phases.push(("command", tracer.detach()?));
        if let Some(time) = args.then.filter(|_| !stop.load(Relaxed)) {
            let tracer = counter.attach(&pids, args.histogram)?;
            let end = Instant::now() + time;
            while Instant::now() < end && !stop.load(Relaxed) {
                thread::sleep(TICK);
            }
            phases.push(("then", tracer.detach()?));
        }
        status.map_err(failed)?.success()
    };
    table(args, &phases, counter).finish();
    Ok(good)
}

/// Checks that a program can be executed. A tracer would start and fail.
///
/// # Errors
/// There is no such program.
pub(crate) fn check_program(program: &str) -> Result<(), String> {
    if is_program(program) { Ok(()) } else { Err(format!("run {program}: there is no such program")) }
}

/// Returns whether a program can be executed, by its path or as a name in `PATH`.
fn is_program(program: &str) -> bool {
    let is_executable = |path: &Path| {
        let mode = path.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.permissions().mode());
        mode.is_some_and(|mode| mode & 0o111 != 0)
    };
    if program.contains('/') {
        return is_executable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| is_executable(&directory.join(program)))
}

/// Returns the rows by time, the longest first.
fn dearest(table: &Calls) -> Vec<(&String, &Row)> {
    let mut rows: Vec<_> = table.iter().collect();
    rows.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    rows
}

/// The seed's columns, and the calls a message.
const CALLS: [Column; 7] = [
    Column::other("phase", "phase"),
    Column::left("syscall", "syscall", 20),
    Column::right("count", "count", 10),
    Column::right("total µs", "total_us", 12),
    Column::right("average µs", "average_us", 12),
    Column::right("errors", "errors", 8),
    Column::right("a message", "count_per_message", 12),
];

/// For JSON and CSV: a row for each bucket. The text has bars.
const BUCKETS: [Column; 5] = [
    Column::other("phase", "phase"),
    Column::other("syscall", "syscall"),
    Column::other("from µs", "from_us"),
    Column::other("to µs", "to_us"),
    Column::other("count", "count"),
];

/// The tables of the phases, the dearest call first, and their histograms.
fn table(args: &SyscallsArgs, phases: &[(&'static str, Calls)], counter: Counter) -> Table<'static> {
    let mut table = Table::new(args.format, &CALLS, None);
    let each = |count: u64| args.messages.map(|n| count as f64 / n as f64);
    for (phase, calls) in phases {
        table.part(if args.histogram { "calls" } else { "" }, &CALLS);
        table.text(&format!("{phase}: one run"));
        for (name, row) in dearest(calls) {
            let total = row.seconds * 1e6;
            table.row([
                (*phase).into(),
                name.as_str().into(),
                row.count.into(),
                Cell::Number(total, 0),
                Cell::Number(total / row.count.max(1) as f64, 2),
                row.errors.into(),
                each(row.count).map_or(Cell::Empty, |each| Cell::Number(each, 3)),
            ]);
        }
    }
    let with_histogram = |(_, row): &(&String, &Row)| !row.histogram.is_empty();
    for (phase, calls) in phases {
        for (name, row) in dearest(calls).into_iter().filter(with_histogram) {
            let [p50, p99] = [0.5, 0.99].map(|share| histogram::time(row.histogram.at(share)));
            table.text(&format!("\n{phase}, {name}: {} calls, p50 {p50}, p99 {p99}", row.count));
            table.text(&row.histogram.text());
            table.part("histogram", &BUCKETS);
            for (from, to, count) in row.histogram.buckets() {
                let bounds = [from, to].map(|us| Cell::Number(us, 3));
                let [from, to] = bounds;
                table.record([Cell::from(*phase), name.as_str().into(), from, to, count.into()]);
            }
        }
    }
    table.note(counter.note());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_its_path_and_by_its_name() {
        assert!(is_program("sh") && is_program("/bin/sh"));
        assert!(!is_program("/no/such") && !is_program("/etc/passwd") && !is_program("/bin"));
    }

    #[test]
    fn the_table_of_strace_is_read() {
        let text = "% time     seconds     calls    errors syscall\n------ ----------- --------- --------- -------\n\
                    75.10    0.000120        30           fsync\n24.90    0.000040         2         1 openat\n\
                    ------ ----------- --------- --------- -------\n100.00    0.000160        32         1 total\n";
        let table = strace::parse(text);
        assert_eq!(table["fsync"], Row { count: 30, seconds: 0.00012, ..Row::default() });
        assert_eq!((table["openat"].errors, table.len()), (1, 2));
    }
}
