//! `postlab queuerun`: S1's phases. What it costs a runner to read a queue directory and put it into an order.

use super::{
    DaemonArgs, Mta, copy, enqueue,
    hosts::HostArgs,
    make_directories,
    peer::PeerArgs,
    queue::{Order, gather},
    runners::{self, Run},
    why::{self, Emptied, Parts},
};
use crate::{
    Failure,
    device::Device,
    rounds::{Figure, Progress},
    scratch::Scratch,
    table::{Cell, Column, Format, Table},
};
use clap::{Args, ValueEnum as _};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
};

/// Measure reading and sorting a queue in each order, and delivering it
///
/// The paragraph below the table explains the figures by the measured phases. With --runners the queue is also
/// delivered: each runner reads, sorts and walks through the whole queue, and keeps a connection while the next
/// message is for the same host.
///
/// Each round begins with another order, and the first with a random one. With warm caches, an uncounted pass in each order
/// comes first.
#[derive(Debug, Args)]
pub(crate) struct QueuerunArgs {
    /// Messages in the queue
    #[arg(short = 'm', value_name = "COUNT", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) messages: u32,
    /// Only these orders
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) order: Vec<Order>,
    /// Drop the page cache before each round; needs root. With --mta: measure rounds with and without
    #[arg(long)]
    pub(super) cold: bool,
    /// The number of rounds; all are reported
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Measure a daemon's `queue run`, instead of files
    #[arg(long, value_enum)]
    mta: Option<Mta>,
    /// Also deliver the queue in each order, with this number of runners (with --mta: of connections)
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runners: Vec<u32>,
    #[command(flatten)]
    pub(super) hosts: HostArgs,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
    #[command(flatten)]
    pub(super) format: Format,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    pub(super) directory: PathBuf,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub(crate) fn run(args: &QueuerunArgs) -> Result<(), Failure> {
    if args.mta.is_some() {
        return Ok(super::passes::run(args)?);
    }
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let queue = make_directories(scratch.path(), 1)?.remove(0);
    let say = |e: io::Error| format!("use {}: {e}", queue.display());
    let named = if args.order.is_empty() { Order::value_variants() } else { &args.order };
    let orders: Vec<Order> = named.iter().copied().filter(Order::is_sendmails).collect();
    if orders.is_empty() {
        return Err(Failure::Usage("the orders fair and deadline are for --mta only".into()));
    }
    let hosts = args.hosts.count(!args.runners.is_empty())?;
    let each = orders.len() as u64 * u64::from(args.rounds);
    let progress = Progress::new("queue and run", each * (1 + args.runners.len() as u64) + 1);
    for number in 0..args.messages {
        // Scattered over the names as over the times they come.
        enqueue(&queue, number.wrapping_mul(2_654_435_761), hosts, 100, false).map_err(say)?;
        if scratch.is_stopped() {
            return Ok(());
        }
    }
    // What was queued shall not be written while it is read.
    fs::File::open(&queue).and_then(|queue| Ok(rustix::fs::syncfs(&queue)?)).map_err(say)?;
    thread::sleep(args.hosts.settle);
    progress.step();
    let mut parts: Vec<Parts> = orders.iter().map(|_| Parts::default()).collect();
    if !args.cold {
        // The first pass finds no order's caches as warm as the next will.
        for order in &orders {
            std::hint::black_box(gather(&queue, *order).map_err(say)?);
        }
    }
    // Round for round, so that noise meets all of them.
    for at in turns(orders.len(), args.rounds) {
        if scratch.is_stopped() {
            break;
        }
        args.empty_caches()?;
        let (works, phases) = gather(&queue, orders[at]).map_err(say)?;
        std::hint::black_box(&works);
        parts[at].push(&phases);
        progress.step();
    }
    let delivered = deliver(args, &queue, &orders, &scratch, &progress)?;
    drop(progress);
    let why = why::files(&orders, &parts, args.messages);
    let mut table = Table::new(args.format, &READING, None);
    table.fact(device.text());
    table.fact(format!("{} messages of {hosts} hosts; milliseconds", args.messages));
    if !delivered.is_empty() {
        table.part("reading", &READING);
    }
    add_reading(&mut table, &orders, parts, args.messages);
    add_lines(&mut table, &why);
    table.note(format!("{} {}", args.caches(), args.hosts.rest()));
    if !delivered.is_empty() {
        table.text("\n");
        add_deliveries(&mut table, &delivered);
        let walk = "Each runner reads, sorts and walks through the whole queue.";
        table.note(format!("{walk} {}", args.hosts.note()));
        add_lines(&mut table, &why::sooner(&emptied(&delivered))?);
    }
    table.finish();
    Ok(())
}

impl QueuerunArgs {
    /// Drops the page cache if that was asked for.
    fn empty_caches(&self) -> Result<(), String> {
        if self.cold {
            fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("empty the caches: {e}"))?;
        }
        Ok(())
    }

    fn caches(&self) -> &'static str {
        if self.cold { "Caches emptied before each round (cold)." } else { "Caches warm." }
    }
}

/// Returns the turns of `count` cases in all rounds. Each round begins one case later than the one before, and the first with any: no
/// case always comes behind the same one.
pub(super) fn turns(count: usize, rounds: u32) -> impl Iterator<Item = usize> {
    let first = fastrand::usize(..count.max(1));
    (0..rounds as usize).flat_map(move |round| (0..count).map(move |case| (first + round + case) % count))
}

/// Adds sentences, a note for each line.
pub(super) fn add_lines(table: &mut Table<'_>, text: &str) {
    text.lines().for_each(|line| table.note(line));
}

const READING: [Column; 9] = [
    Column::left("order", "order", 13),
    Column::right("queue-read ms", "queue_read_ms", 30),
    Column::right("queue-sort ms", "queue_sort_ms", 30),
    Column::right("sum ms", "sum_ms", 30),
    Column::right("of first %", "percent_of_first", 10),
    Column::right("µs/message", "us_per_message", 10),
    Column::other("listing ms", "list_ms"),
    Column::other("reading of envelopes ms", "envelopes_ms"),
    Column::other("tests of locks ms", "locks_ms"),
];

fn add_reading(table: &mut Table<'_>, orders: &[Order], parts: Vec<Parts>, messages: u32) {
    let first = parts.first().and_then(|p| p.sum.median()).unwrap_or_default();
    for (order, parts) in orders.iter().zip(parts) {
        let Some(median) = parts.sum.median() else { continue };
        table.row([
            order.name().into(),
            parts.read.into(),
            parts.sort.into(),
            parts.sum.into(),
            Cell::Number(median / first.max(1e-9) * 100.0, 1),
            Cell::Number(median * 1e3 / f64::from(messages), 2),
            parts.list.into(),
            parts.facts.into(),
            parts.locks.into(),
        ]);
    }
}

/// What one delivery of the whole queue has measured.
struct Delivered {
    order: Order,
    runners: u32,
    run: Run,
}

/// Delivers a copy of the queue in each order and with each number of runners.
fn deliver(
    args: &QueuerunArgs,
    queue: &Path,
    orders: &[Order],
    scratch: &Scratch,
    progress: &Progress,
) -> Result<Vec<Delivered>, String> {
    let mut all = Vec::new();
    if args.runners.is_empty() {
        return Ok(all);
    }
    let sinks = args.hosts.start()?;
    let (addresses, live) = (sinks.addresses(), scratch.path().join("live"));
    for _ in 0..args.rounds {
        for (runners, order) in args.runners.iter().flat_map(|n| orders.iter().map(move |o| (*n, *o))) {
            if scratch.is_stopped() {
                return Ok(all);
            }
            copy(queue, &live)?;
            thread::sleep(args.hosts.settle);
            args.empty_caches()?;
            let run = runners::run(&live, order, runners, &addresses, scratch)?;
            if !scratch.is_stopped() {
                if run.delivered != u64::from(args.messages) {
                    return Err(format!(
                        "deliver the queue: {} of {} were delivered",
                        run.delivered, args.messages
                    ));
                }
                all.push(Delivered { order, runners, run });
            }
            fs::remove_dir_all(&live).map_err(|e| format!("empty {}: {e}", live.display()))?;
            progress.step();
        }
    }
    let (taken, sent) = (sinks.stop()?, all.iter().map(|one| one.run.delivered).sum::<u64>());
    if taken.messages != sent {
        return Err(format!("deliver the queue: {sent} were delivered, the sinks have {}", taken.messages));
    }
    Ok(all)
}

/// The runs of each case, in the order of the first round.
fn cases(all: &[Delivered]) -> Vec<(u32, Order, Vec<Run>)> {
    let mut cases: Vec<(u32, Order, Vec<Run>)> = Vec::new();
    for one in all {
        match cases.iter_mut().find(|case| (case.0, case.1) == (one.runners, one.order)) {
            Some(case) => case.2.push(one.run),
            None => cases.push((one.runners, one.order, vec![one.run])),
        }
    }
    cases
}

fn emptied(all: &[Delivered]) -> Vec<Emptied> {
    let ms = |run: &Run| run.last.as_secs_f64() * 1e3;
    let case = |(runners, order, runs): (u32, Order, Vec<Run>)| Emptied {
        runners,
        order: order.name(),
        ms: runs.iter().map(ms).collect(),
    };
    cases(all).into_iter().map(case).collect()
}

const DELIVERIES: [Column; 7] = [
    Column::right("runners", "runners", 7),
    Column::left("order", "order", 13),
    Column::right("first delivery ms", "first_delivery_ms", 28),
    Column::right("time to empty ms", "time_to_empty_ms", 28),
    Column::right("lock conflicts", "lock_conflicts", 26),
    Column::right("gone", "gone", 26),
    Column::right("connections", "connections", 26),
];

fn add_deliveries(table: &mut Table<'_>, all: &[Delivered]) {
    table.part("deliveries", &DELIVERIES);
    for (runners, order, runs) in cases(all) {
        let of = |value: &dyn Fn(&Run) -> f64| runs.iter().map(value).collect::<Figure>();
        table.row([
            runners.into(),
            order.name().into(),
            of(&|run| run.first.unwrap_or_default().as_secs_f64() * 1e3).into(),
            of(&|run| run.last.as_secs_f64() * 1e3).into(),
            of(&|run| run.conflicts as f64).into(),
            of(&|run| run.gone as f64).into(),
            of(&|run| run.connections as f64).into(),
        ]);
    }
}
