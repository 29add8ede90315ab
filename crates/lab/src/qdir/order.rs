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
    device::Device,
    rounds::{Figure, Progress},
    scratch::Scratch,
};
use clap::{Args, ValueEnum as _};
use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
};

/// Measure reading and sorting of a queue in each order, and its delivery
///
/// The paragraph below the table explains the figures by the measured phases. With --runners the queue is also
/// delivered: each runner reads, sorts and walks through the whole queue, and keeps a connection while the next
/// message is for the same host.
#[derive(Debug, Args)]
pub(crate) struct QueuerunArgs {
    /// Messages in the queue
    #[arg(short = 'm', value_name = "COUNT", default_value = "30000", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(super) messages: u32,
    /// Only these orders
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) order: Vec<Order>,
    /// Drop the page cache before each round; needs root. With --mta: rounds with and without
    #[arg(long)]
    pub(super) cold: bool,
    /// The number of rounds; all are reported
    #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// Measure a daemon's `queue run`, instead of files
    #[arg(long, value_enum)]
    mta: Option<Mta>,
    /// Also deliver the queue in each order, with this number of runners; with --mta of connections
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runners: Vec<u32>,
    #[command(flatten)]
    pub(super) hosts: HostArgs,
    #[command(flatten)]
    pub(super) daemon: DaemonArgs,
    #[command(flatten)]
    pub(super) peer: PeerArgs,
    /// A directory on the disk to measure
    #[arg(default_value = ".")]
    pub(super) directory: PathBuf,
}

/// Measures and prints; Ctrl-C keeps the rows that are done.
pub(crate) fn run(args: &QueuerunArgs) -> Result<(), String> {
    if args.mta.is_some() {
        return super::passes::run(args);
    }
    let device = Device::below(&args.directory)?;
    let scratch = Scratch::new(&args.directory)?;
    let queue = make_directories(scratch.path(), 1)?.remove(0);
    let say = |e: io::Error| format!("use {}: {e}", queue.display());
    let named = if args.order.is_empty() { Order::value_variants() } else { &args.order };
    let orders: Vec<Order> = named.iter().copied().filter(Order::is_sendmails).collect();
    if orders.is_empty() {
        return Err("sort files: those orders are --mta's only".into());
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
    // Round for round, so that noise meets all of them.
    for _ in 0..args.rounds {
        for (order, parts) in orders.iter().zip(&mut parts) {
            if scratch.is_stopped() {
                break;
            }
            args.empty_caches()?;
            let (works, phases) = gather(&queue, *order).map_err(say)?;
            std::hint::black_box(&works);
            parts.push(&phases);
            progress.step();
        }
    }
    let delivered = deliver(args, &queue, &orders, &scratch, &progress)?;
    drop(progress);
    println!("{}\n{} messages of {hosts} hosts; milliseconds", device.text(), args.messages);
    print!("{}", reading(&orders, &parts, args.messages));
    print!("{}", why::files(&orders, &parts, args.messages));
    println!("{} {}", args.caches(), args.hosts.rest());
    if !delivered.is_empty() {
        print!("\n{}", deliveries(&delivered));
        println!("Each runner reads, sorts and walks through the whole queue. {}", args.hosts.note());
        print!("{}", why::sooner(&emptied(&delivered))?);
    }
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

fn reading(orders: &[Order], parts: &[Parts], messages: u32) -> String {
    let mut out = format!(
        "{:<13} {:>30} {:>30} {:>30} {:>8} {:>10}\n",
        "order", "queue-read", "queue-sort", "sum", "of first", "µs/message"
    );
    let first = parts.first().and_then(|p| p.sum.median()).unwrap_or_default();
    for (order, parts) in orders.iter().zip(parts) {
        let Some(median) = parts.sum.median() else { continue };
        out += &format!(
            "{:<13} {:>30} {:>30} {:>30} {:>7.1}% {:>10.2}\n",
            order.name(),
            parts.read,
            parts.sort,
            parts.sum,
            median / first.max(1e-9) * 100.0,
            median * 1e3 / f64::from(messages)
        );
    }
    out
}

/// One delivery of the whole queue.
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

fn deliveries(all: &[Delivered]) -> String {
    let mut out = format!(
        "{:>7} {:<13} {:>28} {:>28} {:>26} {:>26} {:>26}\n",
        "runners", "order", "first delivery ms", "time to empty ms", "lock conflicts", "gone", "connections"
    );
    for (runners, order, runs) in cases(all) {
        let of = |value: &dyn Fn(&Run) -> f64| {
            let mut figure = Figure::new();
            runs.iter().for_each(|run| figure.push(value(run)));
            figure
        };
        out += &format!(
            "{runners:>7} {:<13} {:>28} {:>28} {:>26} {:>26} {:>26}\n",
            order.name(),
            of(&|run| run.first.unwrap_or_default().as_secs_f64() * 1e3),
            of(&|run| run.last.as_secs_f64() * 1e3),
            of(&|run| run.conflicts as f64),
            of(&|run| run.gone as f64),
            of(&|run| run.connections as f64),
        );
    }
    out
}
