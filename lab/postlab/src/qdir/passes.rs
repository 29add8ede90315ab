//! `postlab queuerun --mta postrider`: S1's phases as the daemon's own program goes through its queue.

use super::{
    copy,
    daemon::{Backend, Home, Spool},
    hosts::host,
    order::{QueuerunArgs, add_lines},
    why::{self, Emptied, Reading},
};
use crate::{
    arguments::exactly,
    rounds::{Figure, Progress},
    run::{append, begin, machine::Machine, make_directory},
    scratch::Scratch,
    source::{Plan, SourceArgs, measure},
    table::{Cell, Column, Table},
};
use serde::{Deserialize, Serialize};
use std::{fs::File, thread, time::Instant};

/// `postrider queue run`'s orders.
const ORDERS: [&str; 10] = [
    "priority",
    "filename",
    "host",
    "modification",
    "random",
    "time",
    "none",
    "fair",
    "deadline",
    "smallest",
];
/// The fill of a queue needs no sync for each message.
const FILLERS: u32 = 50;
const LENGTH: u32 = 1024;

/// The figures that `postrider queue run` printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Phases {
    messages: u64,
    queue_read_us: u64,
    queue_sort_us: u64,
    sum_us: u64,
    time_to_first_delivery_us: Option<u64>,
    time_to_empty_us: Option<u64>,
    delivered: u64,
    #[serde(default)]
    lock_conflicts: u64,
    /// Connections that the sinks had.
    #[serde(default)]
    connections: u64,
}

/// One pass, as the file of results has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Pass {
    backend: Backend,
    order: String,
    cold: bool,
    /// 0: read and sorted only.
    runners: u32,
    round: u32,
    #[serde(flatten)]
    phases: Phases,
}

/// What differs between the passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    order: &'static str,
    cold: bool,
    runners: u32,
}

/// Measures and prints; Ctrl-C keeps what is done.
pub(super) fn run(args: &QueuerunArgs) -> Result<(), String> {
    let scratch = Scratch::new(&args.directory)?;
    let here = Machine::here(scratch.path());
    let directory = make_directory(&args.daemon.results, "queue run")?;
    let file = begin(&directory, &here)?;
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.fact(&here.disk);
    for backend in &args.daemon.backend {
        let home = Home::new(args.daemon.binary.as_deref(), scratch.path().join(backend.name()))?;
        let spool = Spool { backend: *backend, directories: 1 };
        let held = fill(&home, spool, args)?;
        let version = home.ask(&["--version"])?;
        table.fact(format!("{}, {}, {held} messages; milliseconds", version.trim(), backend.name()));
        let passes = rounds(args, &home, spool, &scratch, &file)?;
        let cases = cases(args);
        // Each backend has the heading again.
        table.part("", &COLUMNS);
        cases.iter().for_each(|case| add_row(&mut table, *backend, case, &passes));
        add_lines(&mut table, &why::daemon(&warm(&cases, &passes)));
        add_lines(&mut table, &why::sooner(&emptied(&cases, &passes))?);
        table.note(args.hosts.rest());
        if !args.runners.is_empty() {
            table.note(args.hosts.note());
        }
        if scratch.is_stopped() {
            break;
        }
    }
    if !scratch.is_stopped() {
        args.peer.sort(&mut table, args.messages, args.rounds)?;
        args.peer.keep(&table, &directory)?;
    }
    table.aside(&format!("\n{}", directory.display()));
    table.finish();
    Ok(())
}

/// Sends mail that stays.
fn fill(home: &Home, spool: Spool, args: &QueuerunArgs) -> Result<u64, String> {
    let (messages, users) = (args.messages, home.path.join("recipients"));
    let hosts = args.hosts.count(!args.runners.is_empty())?;
    let list: String = (0..hosts).map(|number| format!("recipient@{}\n", host(number))).collect();
    std::fs::write(&users, list).map_err(|e| format!("write {}: {e}", users.display()))?;
    let daemon = home.start(spool)?;
    let (sessions, count, length) = (FILLERS.to_string(), messages.to_string(), LENGTH.to_string());
    let words = [
        "-d",
        "-s",
        &sessions,
        "-m",
        &count,
        "-l",
        &length,
        "--users",
        &users.to_string_lossy(),
        &daemon.endpoint,
    ];
    let source: SourceArgs = exactly(words)?;
    let report = measure(&source, &source.setup()?, &Plan::new(source.messages, None, Instant::now()))?;
    let held = daemon.counters()?.messages;
    daemon.stop()?;
    if report.messages_failed > 0 || held != report.messages_sent {
        return Err(format!("fill the queue: {held} of {messages} are in it: {:?}", report.failures));
    }
    File::open(&home.path)
        .and_then(|place| Ok(rustix::fs::syncfs(&place)?))
        .map_err(|e| format!("sync: {e}"))?;
    Ok(held)
}

fn cases(args: &QueuerunArgs) -> Vec<Case> {
    let wanted = |order: &&str| args.order.is_empty() || args.order.iter().any(|o| o.name() == *order);
    let orders = || ORDERS.iter().copied().filter(wanted);
    let caches = if args.cold { &[false, true][..] } else { &[false] };
    let read = caches.iter().flat_map(|cold| orders().map(|order| Case { order, cold: *cold, runners: 0 }));
    let deliver =
        args.runners.iter().flat_map(|n| orders().map(|order| Case { order, cold: false, runners: *n }));
    read.chain(deliver).collect()
}

fn rounds(
    args: &QueuerunArgs,
    home: &Home,
    spool: Spool,
    scratch: &Scratch,
    file: &File,
) -> Result<Vec<Pass>, String> {
    let cases = cases(args);
    let progress = Progress::new("go through", cases.len() as u64 * u64::from(args.rounds));
    let mut passes = Vec::new();
    // Round for round, so that noise meets all of them.
    for (turn, at) in super::order::turns(cases.len(), args.rounds).enumerate() {
        if scratch.is_stopped() {
            return Ok(passes);
        }
        let case = cases[at];
        let phases =
            if case.runners == 0 { read(home, spool, case) } else { deliver(args, home, spool, case) };
        let phases = match phases {
            // Ctrl-C reaches the programs it starts too.
            Err(_) if scratch.is_stopped() => return Ok(passes),
            phases => phases?,
        };
        let Case { order, cold, runners } = case;
        let round = 1 + (turn / cases.len()) as u32;
        let pass = Pass { backend: spool.backend, order: order.into(), cold, runners, round, phases };
        append(file, &pass)?;
        passes.push(pass);
        progress.step();
    }
    Ok(passes)
}

/// Reads and sorts; the queue stays as it is.
fn read(home: &Home, spool: Spool, case: Case) -> Result<Phases, String> {
    home.configure(spool, "")?;
    if case.cold {
        std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("empty the caches: {e}"))?;
    }
    phases(&home.ask(&["queue", "run", "--dry-run", "--json", "--order", case.order])?)
}

/// Delivers all of it to the sinks, and puts back the queue as it was.
fn deliver(args: &QueuerunArgs, home: &Home, spool: Spool, case: Case) -> Result<Phases, String> {
    let (data, kept) = (home.data(), home.path.join("kept"));
    copy(&data, &kept)?;
    thread::sleep(args.hosts.settle);
    let sinks = args.hosts.start()?;
    home.configure(spool, &sinks.routes())?;
    let runners = case.runners.to_string();
    let said = home.ask(&["queue", "run", "--json", "--order", case.order, "--runners", &runners]);
    let taken = sinks.stop()?;
    home.empty()?;
    std::fs::rename(&kept, &data).map_err(|e| format!("put back {}: {e}", data.display()))?;
    let phases = phases(&said?)?;
    let (Phases { messages, delivered, .. }, received) = (&phases, taken.messages);
    if received != *messages || delivered != messages {
        return Err(format!(
            "run the queue: of {messages} it delivered {delivered}, the sinks have {received}"
        ));
    }
    Ok(Phases { connections: taken.sessions, ..phases })
}

fn phases(said: &str) -> Result<Phases, String> {
    serde_json::from_str(said.trim()).map_err(|e| format!("read `{}`: {e}", said.trim()))
}

/// Collects the figure of a case from its passes.
fn figure(passes: &[Pass], case: &Case, value: &dyn Fn(&Phases) -> Option<f64>) -> Figure {
    let mut figure = Figure::new();
    let mine = |p: &&Pass| p.order == case.order && p.cold == case.cold && p.runners == case.runners;
    passes.iter().filter(mine).filter_map(|pass| value(&pass.phases)).for_each(|value| figure.push(value));
    figure
}

/// Reading and sorting with a warm cache.
fn warm(cases: &[Case], passes: &[Pass]) -> Vec<Reading> {
    let row = |case: &Case| {
        let mine = passes.iter().filter(|p| p.order == case.order && !p.cold && p.runners == 0);
        let of = |value: fn(&Phases) -> u64| mine.clone().map(|p| value(&p.phases) as f64 / 1e3).collect();
        Reading { order: case.order, read_ms: of(|p| p.queue_read_us), sort_ms: of(|p| p.queue_sort_us) }
    };
    cases.iter().filter(|case| !case.cold && case.runners == 0).map(row).collect()
}

/// The times to an empty queue of all cases that deliver.
fn emptied(cases: &[Case], passes: &[Pass]) -> Vec<Emptied> {
    let row = |case: &Case| {
        let mine = |p: &&Pass| p.order == case.order && p.runners == case.runners;
        let ms = |pass: &Pass| Some(pass.phases.time_to_empty_us? as f64 / 1e3);
        let ms = passes.iter().filter(mine).filter_map(ms).collect();
        Emptied { runners: case.runners, order: case.order.to_owned(), ms }
    };
    cases.iter().filter(|case| case.runners > 0).map(row).collect()
}

const COLUMNS: [Column; 12] = [
    Column::other("backend", "backend"),
    Column::left("order", "order", 13),
    Column::right("caches", "caches", 6),
    Column::right("runners", "runners", 8),
    Column::right("queue-read ms", "queue_read_ms", 26),
    Column::right("queue-sort ms", "queue_sort_ms", 26),
    Column::right("sum ms", "sum_ms", 26),
    Column::right("µs/message", "us_per_message", 10),
    Column::right("first delivery ms", "first_delivery_ms", 26),
    Column::right("empty ms", "time_to_empty_ms", 26),
    Column::right("lock conflicts", "lock_conflicts", 20),
    Column::right("connections", "connections", 24),
];

fn add_row(table: &mut Table<'_>, backend: Backend, case: &Case, passes: &[Pass]) {
    let of = |value: &dyn Fn(&Phases) -> Option<f64>| figure(passes, case, value);
    let ms = |value: fn(&Phases) -> Option<u64>| of(&|p| Some(value(p)? as f64 / 1e3));
    let counted = |value: fn(&Phases) -> u64| of(&|p| p.time_to_empty_us.map(|_| value(p) as f64));
    let sum = ms(|p| Some(p.sum_us));
    let Some(median) = sum.median() else { return };
    let count = passes.first().map_or(1, |pass| pass.phases.messages.max(1));
    table.row([
        backend.name().into(),
        case.order.into(),
        if case.cold { "cold" } else { "warm" }.into(),
        (case.runners > 0).then_some(case.runners).into(),
        ms(|p| Some(p.queue_read_us)).into(),
        ms(|p| Some(p.queue_sort_us)).into(),
        sum.into(),
        Cell::Number(median * 1e3 / count as f64, 2),
        ms(|p| p.time_to_first_delivery_us).into(),
        ms(|p| p.time_to_empty_us).into(),
        counted(|p| p.lock_conflicts).into(),
        counted(|p| p.connections).into(),
    ]);
}
