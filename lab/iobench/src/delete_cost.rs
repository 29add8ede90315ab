//! `postlab delete-cost`: what it costs to be rid of a message again. S4 found that removing files took as long as the
//! whole run; ours notes an outcome, and frees what is empty.

use crate::{
    device::Device,
    message_factory::{MessageFactory, delivered},
    rounds::{Figure, Progress, Rounds, disagreement, too_short_round},
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
/// Messages are stored in groups, as concurrent sessions would store them: each message is a transaction of its own, and a group starts when the
/// previous one is durable. They are settled in two ways: each group's outcomes together with the next group, as in a relay that keeps
/// up; or all after the last message, as when a queue is emptied.
///
/// All cases share a spool and take turns in short blocks (storing, settling alongside, settling alongside, storing, ...), so that a
/// disk that becomes slower or faster does so for both. Costs are measured until everything is durable.
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

/// Blocks of a round; storing alone and settling beside have half of them each.
const BLOCKS: u32 = 20;
/// Fewer blocks cannot stand in an order that is the same from both ends.
const FEWEST_BLOCKS: u32 = 4;

/// Seconds on the clock, and of the processor.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    wall: f64,
    cpu: f64,
}

const COLUMNS: [Column; 7] = [
    Column::left("backend", "backend", 11),
    Column::left("messages", "case", 24),
    Column::right("wall µs a message", "wall_us_per_message", 26),
    Column::right("of storing, %", "wall_percent_of_storing", 26),
    Column::right("CPU µs a message", "cpu_us_per_message", 26),
    Column::right("of storing, %", "cpu_percent_of_storing", 26),
    Column::right("in N", "messages", 7),
];

/// Costs of a round, and the messages that each was measured with.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    storing: (Cost, u32),
    beside: (Cost, u32),
    behind: (Cost, u32),
    /// Of the empty spool; no part of the costs.
    close_seconds: f64,
    commits: f64,
}

/// A spool, with a runtime on which its commits are awaited.
struct Store {
    spool: Box<dyn Spool>,
    runtime: Runtime,
    last: Option<CommitSeq>,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub fn run(args: &DeleteCostArgs) -> Result<(), String> {
    let groups = args.messages.div_ceil(args.sessions);
    if groups <= FEWEST_BLOCKS {
        return Err(format!(
            "{} messages are {groups} groups of {}: write -m {} or more",
            args.messages,
            args.sessions,
            args.sessions * (FEWEST_BLOCKS + 1)
        ));
    }
    let scratch = Scratch::new(&args.directory)?;
    let progress =
        Progress::new("store and settle", args.backend.len() as u64 * u64::from(args.rounds.count));
    let mut table = Table::new(args.format, &COLUMNS, Some(&progress));
    table.fact(Device::below(&args.directory)?.text());
    for backend in &args.backend {
        let mut rows = Rows::default();
        for _ in 0..args.rounds.count {
            if scratch.is_stopped() {
                break;
            }
            let Some(round) = round(args, *backend, &scratch.path().join("spool"))? else { break };
            rows.add(&round);
            progress.step();
        }
        if rows.closing.median().is_some() {
            rows.print(&mut table, *backend);
        }
    }
    table.note(format!(
        "{} messages of {} octets, {} at once, each durable before the next group. Of what is settled: how much more than \
         storing.",
        args.messages, args.length, args.sessions
    ));
    table.finish();
    Ok(())
}

/// What all rounds of one backend have measured.
#[derive(Debug, Default)]
struct Rows {
    cases: [Row; 3],
    closing: Figure,
    commits: Figure,
}

#[derive(Debug, Default)]
struct Row {
    wall_us: Figure,
    wall_percent: Figure,
    cpu_us: Figure,
    cpu_percent: Figure,
    messages: Figure,
    /// Of all work of the case in a round.
    seconds: Figure,
}

impl Row {
    /// Remarks that must be read with it.
    fn remarks(&self) -> Vec<String> {
        too_short_round(&self.seconds).into_iter().chain(disagreement(&self.wall_us)).collect()
    }
}

impl Rows {
    fn add(&mut self, round: &Round) {
        let storing = Cost::each(round.storing);
        let beside = Cost::each(round.beside);
        let more = Cost { wall: beside.wall - storing.wall, cpu: beside.cpu - storing.cpu };
        let costs =
            [(storing, round.storing.1), (more, round.beside.1), (Cost::each(round.behind), round.behind.1)];
        let seconds = [round.storing.0.wall, round.beside.0.wall, round.behind.0.wall];
        for ((row, (cost, messages)), seconds) in self.cases.iter_mut().zip(costs).zip(seconds) {
            row.seconds.push(seconds);
            row.wall_us.push(cost.wall * 1e6);
            row.wall_percent.push(cost.wall / storing.wall * 100.0);
            row.cpu_us.push(cost.cpu * 1e6);
            row.cpu_percent.push(cost.cpu / storing.cpu * 100.0);
            row.messages.push(f64::from(messages));
        }
        self.closing.push(round.close_seconds * 1e3);
        self.commits.push(round.commits);
    }

    fn print(self, table: &mut Table<'_>, backend: Backend) {
        let name = if backend == Backend::Log { "log" } else { "queue-dirs" };
        for (what, row) in ["stored", "and settled beside", "and settled behind"].into_iter().zip(self.cases)
        {
            let remarks = row.remarks();
            table.row([
                name.into(),
                what.into(),
                row.wall_us.into(),
                row.wall_percent.into(),
                row.cpu_us.into(),
                row.cpu_percent.into(),
                Cell::Median(row.messages, 0),
            ]);
            remarks.into_iter().for_each(|remark| table.remark(remark));
        }
        table.note(format!(
            "{name}: {:.0} commits; the close of the empty spool took {:.1} ms (medians)",
            self.commits.median().unwrap_or_default(),
            self.closing.median().unwrap_or_default()
        ));
    }
}

/// Measures all cases once, on a new spool; none if a signal stopped it.
fn round(args: &DeleteCostArgs, backend: Backend, path: &Path) -> Result<Option<Round>, String> {
    let mut store = Store::open(backend, path)?;
    let (mint, content) = (MessageFactory::new()?, Content::from_bytes(vec![b'x'; args.length as usize]));
    let groups = args.messages.div_ceil(args.sessions);
    // A multiple of four, whose order is the same from both ends, and before them a block that is not counted: it pays for the
    // spool's first segments and directories.
    let blocks = 1 + BLOCKS.min(groups - 1) / FEWEST_BLOCKS * FEWEST_BLOCKS;
    let (mut round, mut left) = (Round::default(), args.messages);
    let (mut last, mut all): (Vec<QueueId>, Vec<QueueId>) = Default::default();
    for block in 0..blocks {
        let settles = matches!(block % 4, 2 | 3);
        let (clock, before) = (Clock::start(), left);
        let end = u64::from(args.messages) * u64::from(blocks - 1 - block) / u64::from(blocks);
        while u64::from(left) > end {
            if crate::signals::is_stopped() {
                return Ok(None);
            }
            let count = left.min(args.sessions);
            left -= count;
            let messages: Vec<_> = (0..count).map(|_| mint.message(content.clone())).collect();
            if settles {
                // The last group is delivered while this one comes in.
                last.drain(..).try_for_each(|id| store.submit(&[delivered(id)], false))?;
            }
            for message in &messages {
                store.submit(&[Entry::Accept(message.clone())], true)?;
            }
            all.append(&mut last);
            last.extend(messages.iter().map(|m| m.id));
            store.wait()?;
        }
        if block == 0 {
            continue;
        }
        let (cost, messages) = if settles { &mut round.beside } else { &mut round.storing };
        cost.add(clock.read());
        *messages += before - left;
    }
    all.append(&mut last);
    round.behind.1 = u32::try_from(all.len()).map_err(|e| e.to_string())?;
    let clock = Clock::start();
    for id in all.drain(..) {
        if crate::signals::is_stopped() {
            return Ok(None);
        }
        store.submit(&[delivered(id)], true)?;
    }
    store.wait()?;
    round.behind.0 = clock.read();
    let (pressure, closing) = (store.spool.pressure(), Instant::now());
    store.spool.close();
    drop(store);
    round.close_seconds = closing.elapsed().as_secs_f64();
    round.commits = pressure.commit_count as f64;
    if pressure.message_count != 0 {
        return Err(format!("settle messages: {} are still in the spool", pressure.message_count));
    }
    std::fs::remove_dir_all(path).map_err(|e| format!("remove {}: {e}", path.display()))?;
    std::fs::File::open(path.parent().unwrap_or(path))
        .and_then(|place| Ok(rustix::fs::syncfs(&place)?))
        .map_err(|e| format!("sync: {e}"))?;
    Ok(Some(round))
}

impl Cost {
    fn add(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
    }

    /// Divides the cost by the number of messages.
    fn each((whole, messages): (Self, u32)) -> Self {
        let messages = f64::from(messages.max(1));
        Self { wall: whole.wall / messages, cpu: whole.cpu / messages }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_case_whose_work_is_too_short_has_the_remark() {
        let mut rows = Rows::default();
        let work = |wall| (Cost { wall, cpu: 0.001 }, 100);
        for storing in [0.3, 0.4] {
            rows.add(&Round {
                storing: work(storing),
                beside: work(0.5),
                behind: work(0.019),
                close_seconds: 0.001,
                commits: 1.0,
            });
        }
        let remarks = rows.cases.each_ref().map(Row::remarks);
        assert_eq!(remarks, [vec![], vec![], vec!["too short: the shortest round took 0.019 s".to_owned()]]);
    }
}
