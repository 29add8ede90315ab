//! `postlab queuedirs --mta postrider`: S0's tests through a real daemon, which queues and cannot deliver.

use super::{
    baseline::{self, Baseline},
    daemon::{Backend, Home, Spool},
    dirs::{Measured, QueuedirsArgs},
    slope::{Series, Slope},
    verdicts,
};
use crate::{
    arguments::arguments,
    device::Device,
    rounds::{Figure, Progress, disagreement, too_short},
    run::{append, begin, machine::Machine, make_directory},
    scratch::Scratch,
    source::{Phase, Plan, SourceArgs, measure},
    table::{Cell as TableCell, Column, Table},
    usage::Usage,
};
use serde::{Deserialize, Serialize};
use std::{fs::File, time::Instant};

/// S0 has a point for so many entries.
pub(super) const POINT: u64 = 500;
/// Each sender's messages before those that are measured.
const WARM_UP: u64 = 10;

/// What differs between the runs: backend, directories and senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    #[serde(flatten)]
    pub(super) spool: Spool,
    pub(super) senders: u32,
}

/// One run, as the file of results has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    #[serde(flatten)]
    pub(super) cell: Cell,
    round: u32,
    messages: u64,
    rate: f64,
    #[serde(default)]
    seconds: f64,
    /// The senders' time for a message: all of them together, by all messages.
    latency_us: f64,
    p99_us: f64,
    commits_per_message: f64,
    /// By the whole disk, others' included.
    flushes_per_message: Option<f64>,
    cpu_us_per_message: f64,
    /// The senders' time for a message, for each 500 of them.
    pub(super) points_us: Vec<f64>,
}

/// Measures and prints; Ctrl-C keeps what is done.
pub(super) fn run(args: &QueuedirsArgs) -> Result<Measured, String> {
    let scratch = Scratch::new(&args.directory)?;
    let home = Home::new(args.daemon.binary.as_deref(), scratch.path().join("postrider"))?;
    let cells = cells(args);
    scratch.needs(room(args, &cells))?;
    let directory = make_directory(&args.daemon.results, "queue create")?;
    let here = Machine::here(scratch.path());
    let file = begin(&directory, &here)?;
    let progress = Progress::new("queue", cells.len() as u64 * u64::from(args.rounds.count));
    let mut runs = Vec::new();
    // Round for round, so that noise meets all of them.
    for round in 1..=args.rounds.count {
        for cell in &cells {
            if scratch.is_stopped() {
                break;
            }
            match progress.during(&cell.text(), || one(args, &home, *cell, round, &file)) {
                // Ctrl-C reaches the daemon too.
                Err(_) if scratch.is_stopped() => break,
                run => runs.push(run?),
            }
            progress.step();
        }
    }
    drop(progress);
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fact(&here.disk);
    table.fact(home.ask(&["--version"])?.trim());
    cells.iter().for_each(|cell| add_row(&mut table, *cell, &runs));
    let verdicts = verdicts::text(&cells, &runs)?;
    table.text(&verdicts);
    verdicts.lines().filter(|line| !line.is_empty()).for_each(|line| table.silent_note(line));
    let version = home.ask(&["--version"])?;
    let load = format!("{} messages of {} octets by SMTP, {}", args.messages, args.length, version.trim());
    let mut result = Baseline::new(load, here.clone());
    let mut all_series = Vec::new();
    for run in &runs {
        let (name, points_ms) = (run.cell.text(), run.points_ms());
        result.push(&name, baseline::Round { rate: run.rate, points_ms: points_ms.clone() });
        let series = Series { title: format!("{name}, round {}", run.round), points: points_ms };
        if let Some(slope) = Slope::of(&series.points).filter(|_| args.slope) {
            table.note(format!("{}: {}", series.title, slope.text()));
        }
        all_series.push(series);
    }
    table.note("Durability: synced before 250. The next hop refuses connections: nothing is delivered.");
    if !scratch.is_stopped() {
        let grid = (&args.directories[..], &args.senders()[..]);
        args.peer.create(&mut table, grid, args.messages, args.rounds.count)?;
        args.peer.keep(&table, &directory)?;
    }
    if let Some(busy) = here.busy() {
        table.note(busy);
    }
    table.aside(&format!("\n{}", directory.display()));
    Ok((result, all_series, table))
}

impl Run {
    /// Milliseconds for each further 500 messages of all senders together.
    fn points_ms(&self) -> Vec<f64> {
        let by = f64::from(self.cell.senders) * 1e3 / POINT as f64;
        self.points_us.iter().map(|us| us / by).collect()
    }
}

/// Returns what is measured. The log has no directories to vary.
fn cells(args: &QueuedirsArgs) -> Vec<Cell> {
    let senders = args.senders();
    let spools = args.daemon.backend.iter().flat_map(|backend| {
        let directories = if *backend == Backend::Log { &[1][..] } else { &args.directories };
        directories.iter().map(|count| Spool { backend: *backend, directories: *count })
    });
    spools.flat_map(|spool| senders.iter().map(move |count| Cell { spool, senders: *count })).collect()
}

/// Returns the bytes that queue directories take until the end: two files a message, of whole blocks.
fn room(args: &QueuedirsArgs, cells: &[Cell]) -> u64 {
    let kept = cells.iter().filter(|cell| cell.spool.backend == Backend::QueueDirs).count() as u64;
    let messages = (kept * u64::from(args.rounds.count)).saturating_mul(args.messages.into());
    messages.saturating_mul(super::message_bytes(args.length))
}

fn one(args: &QueuedirsArgs, home: &Home, cell: Cell, round: u32, file: &File) -> Result<Run, String> {
    // A log is few files, and large.
    if cell.spool.backend == Backend::Log {
        home.empty()?;
    } else {
        home.leave();
    }
    // What the last run left is not to be written while this one is measured.
    let _ = File::open(&home.path).and_then(|place| Ok(rustix::fs::syncfs(&place)?));
    let daemon = home.start(cell.spool)?;
    let source_with = |messages: u64| {
        let words = format!("-d -s {} -m {messages} -l {} {}", cell.senders, args.length, daemon.endpoint);
        arguments::<SourceArgs>(&[&words])
    };
    let warm = source_with(u64::from(cell.senders) * WARM_UP)?;
    measure(&warm, &warm.setup()?, &Plan::new(warm.messages, None, Instant::now()))?;
    let source = source_with(args.messages.into())?;
    let setup = source.setup()?;
    let (before, disk) = (daemon.counters()?, Device::below(&home.path)?);
    let (flushes, used) = (disk.traffic(), Usage::of(daemon.pid()));
    let plan = Plan::new(source.messages, None, Instant::now()).marking(POINT);
    let report = measure(&source, &setup, &plan)?;
    let (traffic, now) = (disk.traffic(), Usage::of(daemon.pid()));
    let after = daemon.counters()?;
    daemon.stop()?;
    let sent = warm.messages + report.messages_sent;
    if after.messages != sent || report.messages_failed > 0 {
        let held = after.messages;
        return Err(format!("queue mail: {sent} were accepted, {held} are queued: {:?}", report.failures));
    }
    let each = |count: u64| count as f64 / report.messages_sent.max(1) as f64;
    let senders_us = f64::from(cell.senders) * 1e6;
    let marks = plan.marks();
    let begins = std::iter::once(&std::time::Duration::ZERO).chain(&marks);
    let points = begins.zip(&marks).map(|(a, b)| (*b - *a).as_secs_f64() * senders_us / POINT as f64);
    let used = used.zip(now).map(|(before, now)| now.since(&before)).unwrap_or_default();
    let run = Run {
        cell,
        round,
        messages: report.messages_sent,
        rate: report.rate,
        seconds: report.sending_seconds(),
        latency_us: report.seconds * senders_us / report.messages_sent.max(1) as f64,
        p99_us: report.times.get(&Phase::Message).map_or(0.0, |times| times.p99_us),
        commits_per_message: each(after.commits - before.commits),
        flushes_per_message: flushes.zip(traffic).map(|(before, now)| each(now.since(before).flushes)),
        cpu_us_per_message: (used.user + used.system).as_secs_f64() * 1e6
            / report.messages_sent.max(1) as f64,
        points_us: points.collect(),
    };
    append(file, &run)?;
    Ok(run)
}

const COLUMNS: [Column; 10] = [
    Column::left("backend", "backend", 11),
    Column::right("dirs", "directories", 4),
    Column::right("senders", "senders", 7),
    Column::right("messages", "messages", 8),
    Column::right("messages/s", "messages_per_second", 24),
    Column::right("a sender's µs a message", "sender_us_per_message", 27),
    Column::right("p99 ms", "p99_ms", 7),
    Column::right("commits/msg", "commits_per_message", 11),
    Column::right("flushes/msg", "disk_flushes_per_message", 11),
    Column::right("CPU µs", "cpu_us_per_message", 7),
];

fn add_row(table: &mut Table<'_>, cell: Cell, runs: &[Run]) {
    let of = |value: &dyn Fn(&Run) -> Option<f64>| {
        runs.iter().filter(|run| run.cell == cell).filter_map(value).collect::<Figure>()
    };
    let median = |value: &dyn Fn(&Run) -> Option<f64>| TableCell::Median(of(value), 2);
    let Some(run) = runs.iter().find(|run| run.cell == cell) else { return };
    table.row([
        cell.spool.backend.name().into(),
        cell.spool.directories.into(),
        cell.senders.into(),
        run.messages.into(),
        of(&|run| Some(run.rate)).into(),
        of(&|run| Some(run.latency_us)).into(),
        median(&|run| Some(run.p99_us / 1e3)),
        median(&|run| Some(run.commits_per_message)),
        median(&|run| run.flushes_per_message),
        median(&|run| Some(run.cpu_us_per_message)),
    ]);
    let of_cell = || runs.iter().filter(|run| run.cell == cell);
    // What an old result did not keep is not judged.
    let short = of_cell().filter(|run| run.seconds > 0.0).find_map(|run| too_short(run.seconds));
    short.into_iter().for_each(|remark| table.remark(remark));
    disagreement(&of(&|run| Some(run.rate))).into_iter().for_each(|remark| table.remark(remark));
}
