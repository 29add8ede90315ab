//! `postlab delete-cost`: what it costs to be rid of a message again. S4 found that removing files took as long as the
//! whole run; ours notes an outcome, and frees what is empty.

use crate::{
    device::Device,
    message_factory::{MessageFactory, delivered},
    rounds::{Figure, Progress, Rounds},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
    usage::cpu_time,
};
use clap::{Args, ValueEnum};
use mail::{Content, QueueId};
use spool::{CommitSeq, DirSettings, DirSpool, Entry, Layout, LogSettings, LogSpool, Refused, Spool};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};
use tokio::runtime::Runtime;

/// Measure what the deletion of stored messages costs
///
/// Stored by groups, each message a transaction of its own, the next group when all of one are durable: so many
/// sessions at once. Settled in two ways: each group's outcomes beside the next group, as in a relay that keeps up; and
/// all of them behind the last message, as when a queue is emptied.
///
/// Each round measures all cases twice, in one order and then in the opposite one, so that storing alone is first as often
/// as last. Costs are those until everything is durable; what closing the spool takes stands beside them.
#[derive(Debug, Args)]
pub struct DeleteCostArgs {
    /// The backend; several are measured in turn
    #[arg(long, value_enum, value_delimiter = ',', default_value = "log,queue-dirs")]
    backend: Vec<Backend>,
    /// Messages
    #[arg(short = 'm', value_name = "COUNT", default_value = "20000", value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,
    /// Messages at once
    #[arg(short = 's', value_name = "COUNT", default_value = "50", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,
    /// Octets of each
    #[arg(short = 'l', value_name = "BYTES", default_value = "1024", value_parser = clap::value_parser!(u32).range(1..=200_000))]
    length: u32,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    directory: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Backend {
    /// One log for all messages
    Log,
    /// Files for every message in queue directories
    QueueDirs,
}

/// The time at which stored messages end: never, beside the arrival of others, or behind all arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settle {
    Never,
    Beside,
    Behind,
}

/// The cases; storing alone is what the others are compared with.
const CASES: [Settle; 3] = [Settle::Never, Settle::Beside, Settle::Behind];

/// Seconds on the clock, and of the processor.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    wall: f64,
    cpu: f64,
}

const COLUMNS: [Column; 8] = [
    Column::left("backend", "backend", 11),
    Column::left("messages", "case", 24),
    Column::right("wall µs a message", "wall_us_per_message", 26),
    Column::right("of storing, %", "wall_percent_of_storing", 26),
    Column::right("CPU µs a message", "cpu_us_per_message", 26),
    Column::right("of storing, %", "cpu_percent_of_storing", 26),
    Column::right("close ms", "close_ms", 9),
    Column::right("commits", "commits", 7),
];

/// The figures of a run, until everything is durable, and of the close behind it.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    cost: Cost,
    close_seconds: f64,
    commits: f64,
}

/// A spool, and somebody to wait for it.
struct Store {
    spool: Box<dyn Spool>,
    runtime: Runtime,
    last: Option<CommitSeq>,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub fn run(args: &DeleteCostArgs) -> Result<(), String> {
    let scratch = Scratch::new(&args.directory)?;
    let progress =
        Progress::new("store and settle", args.backend.len() as u64 * u64::from(args.rounds.count));
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    table.fact(Device::below(&args.directory)?.text());
    'backends: for backend in &args.backend {
        let mut rows = [(); CASES.len()].map(|()| Row::default());
        for _ in 0..args.rounds.count {
            let Some(runs) = both_ways(args, *backend, &scratch)? else { break 'backends };
            let stored = runs[0].cost;
            rows[0].add(args, stored, stored, &runs[0]);
            for (row, run) in rows.iter_mut().zip(&runs).skip(1) {
                let more = Cost { wall: run.cost.wall - stored.wall, cpu: run.cost.cpu - stored.cpu };
                row.add(args, more, stored, run);
            }
            progress.step();
        }
        add_rows(&mut table, *backend, rows);
    }
    table.note(format!(
        "{} messages of {} octets, {} at once, each durable before the next group. Of what is settled: how much more than \
         storing. Each round is the mean of two runs, in both orders.",
        args.messages, args.length, args.sessions
    ));
    table.finish();
    Ok(())
}

/// Returns the means of each case in one order and in the opposite one; nothing after Ctrl-C.
fn both_ways(
    args: &DeleteCostArgs,
    backend: Backend,
    scratch: &Scratch,
) -> Result<Option<[Run; CASES.len()]>, String> {
    let mut sums = [Run::default(); CASES.len()];
    let path = scratch.path().join("spool");
    for case in (0..CASES.len()).chain((0..CASES.len()).rev()) {
        if scratch.is_stopped() {
            return Ok(None);
        }
        sums[case].add_half(once(args, backend, CASES[case], &path)?);
    }
    Ok(Some(sums))
}

impl Run {
    fn add_half(&mut self, run: Self) {
        self.cost.wall += run.cost.wall / 2.0;
        self.cost.cpu += run.cost.cpu / 2.0;
        self.close_seconds += run.close_seconds / 2.0;
        self.commits += run.commits / 2.0;
    }
}

fn add_rows(table: &mut Table<'_>, backend: Backend, rows: [Row; CASES.len()]) {
    let name = if backend == Backend::Log { "log" } else { "queue-dirs" };
    for (what, row) in ["stored", "and settled beside", "and settled behind"].into_iter().zip(rows) {
        table.row([
            name.into(),
            what.into(),
            row.wall_us.into(),
            row.wall_percent.into(),
            row.cpu_us.into(),
            row.cpu_percent.into(),
            Cell::Median(row.close_ms, 1),
            Cell::Median(row.commits, 0),
        ]);
    }
}

#[derive(Debug, Default)]
struct Row {
    wall_us: Figure,
    cpu_us: Figure,
    wall_percent: Figure,
    cpu_percent: Figure,
    close_ms: Figure,
    commits: Figure,
}

impl Row {
    fn add(&mut self, args: &DeleteCostArgs, cost: Cost, storing: Cost, run: &Run) {
        let each = 1e6 / f64::from(args.messages);
        self.wall_us.push(cost.wall * each);
        self.cpu_us.push(cost.cpu * each);
        self.wall_percent.push(cost.wall / storing.wall * 100.0);
        self.cpu_percent.push(cost.cpu / storing.cpu * 100.0);
        self.close_ms.push(run.close_seconds * 1e3);
        self.commits.push(run.commits);
    }
}

/// Runs a case on a new spool.
fn once(args: &DeleteCostArgs, backend: Backend, settle: Settle, path: &Path) -> Result<Run, String> {
    let mut store = Store::open(backend, path)?;
    let (mint, content) = (MessageFactory::new()?, Content::from_bytes(vec![b'x'; args.length as usize]));
    let mut before: Vec<QueueId> = Vec::new();
    let mut all = Vec::new();
    let clock = Clock::start();
    let mut left = args.messages;
    while left > 0 {
        let count = left.min(args.sessions);
        left -= count;
        let messages: Vec<_> = (0..count).map(|_| mint.message(content.clone())).collect();
        // What was accepted last is delivered while these come in.
        before.drain(..).try_for_each(|id| store.submit(&[delivered(id)], false))?;
        for message in &messages {
            store.submit(&[Entry::Accept(message.clone())], true)?;
        }
        let ids = messages.iter().map(|m| m.id);
        match settle {
            Settle::Never => {}
            Settle::Beside => before.extend(ids),
            Settle::Behind => all.extend(ids),
        }
        store.wait()?;
    }
    before.append(&mut all);
    before.drain(..).try_for_each(|id| store.submit(&[delivered(id)], true))?;
    store.wait()?;
    let (cost, pressure, closing) = (clock.read(), store.spool.pressure(), Instant::now());
    store.spool.close();
    drop(store);
    let (close_seconds, live) = (closing.elapsed().as_secs_f64(), pressure.message_count);
    let wanted = if settle == Settle::Never { u64::from(args.messages) } else { 0 };
    if live != wanted {
        return Err(format!("settle messages: {live} are in the spool, not {wanted}"));
    }
    std::fs::remove_dir_all(path).map_err(|e| format!("remove {}: {e}", path.display()))?;
    std::fs::File::open(path.parent().unwrap_or(path))
        .and_then(|place| Ok(rustix::fs::syncfs(&place)?))
        .map_err(|e| format!("sync: {e}"))?;
    Ok(Run { cost, close_seconds, commits: pressure.commit_count as f64 })
}

struct Clock(Instant, std::time::Duration);

impl Clock {
    fn start() -> Self {
        Self(Instant::now(), cpu_time())
    }

    fn read(&self) -> Cost {
        Cost { wall: self.0.elapsed().as_secs_f64(), cpu: cpu_time().saturating_sub(self.1).as_secs_f64() }
    }
}

impl Store {
    fn open(backend: Backend, path: &Path) -> Result<Self, String> {
        let say = |e: spool::SpoolFailure| format!("open a spool: {e}");
        let mut spool: Box<dyn Spool> = match backend {
            Backend::Log => {
                let settings = LogSettings { min_free_bytes: 0, ..LogSettings::default() };
                Box::new(LogSpool::open(path, settings).map_err(say)?)
            }
            Backend::QueueDirs => {
                let layout = Layout { directories: 1, hashed: 0 };
                let settings = DirSettings { min_free_bytes: 0, ..DirSettings::default() };
                Box::new(DirSpool::open(path, layout, settings).map_err(say)?)
            }
        };
        spool.recover(&mut |_| {}).map_err(say)?;
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Ok(Self { spool, runtime: runtime.map_err(|e| format!("start a runtime: {e}"))?, last: None })
    }

    /// Submits entries. If the commit queue has no room for them, waits for the last awaited commit.
    fn submit(&mut self, entries: &[Entry], awaited: bool) -> Result<(), String> {
        loop {
            match self.spool.submit(entries.to_vec()) {
                Ok(commit_seq) => {
                    if awaited {
                        self.last = Some(commit_seq);
                    }
                    return Ok(());
                }
                Err(Refused::Busy) => self.wait()?,
                Err(refused) => return Err(format!("use the spool: {refused}")),
            }
        }
    }

    fn wait(&mut self) -> Result<(), String> {
        let Some(commit_seq) = self.last else { return Ok(()) };
        self.runtime.block_on(self.spool.durable(commit_seq)).map_err(|e| format!("use the spool: {e}"))
    }
}
