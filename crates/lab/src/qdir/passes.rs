//! `postlab queuerun --mta postrider`: S1's phases as the daemon's own program goes through its queue.

use super::{
    daemon::{Backend, Home, Spool},
    order::QueuerunArgs,
};
use crate::{
    arguments::arguments,
    rounds::{Figure, Progress},
    run::{append, begin, machine::Machine, make_directory},
    scratch::Scratch,
    sink::served::Served,
    source::{Plan, SourceArgs, measure},
    stat::spread::shown,
};
use serde::{Deserialize, Serialize};
use std::{fs::File, path::Path, process::Command, time::Instant};

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

/// The figures that the queue run printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Phases {
    messages: u64,
    queue_read_us: u64,
    queue_sort_us: u64,
    sum_us: u64,
    time_to_first_delivery_us: Option<u64>,
    time_to_empty_us: Option<u64>,
    delivered: u64,
}

/// One pass, as it is kept.
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

/// The parameters that are varied.
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
    println!("{}", here.disk);
    for backend in &args.daemon.backend {
        let home = Home::new(args.daemon.binary.as_deref(), scratch.path().join(backend.name()))?;
        let spool = Spool { backend: *backend, directories: 1 };
        let held = fill(&home, spool, args.messages)?;
        println!("{}, {}, {held} messages; milliseconds", home.ask(&["--version"])?.trim(), backend.name());
        let passes = rounds(args, &home, spool, &scratch, &file)?;
        print!("{}", table(&cases(args), &passes));
        if scratch.is_stopped() {
            break;
        }
    }
    if !scratch.is_stopped() {
        let text = args.peer.sort(args.messages, args.rounds)?;
        std::fs::write(directory.join("peer.txt"), &text).map_err(|e| format!("keep the peer's: {e}"))?;
        print!("{text}");
    }
    println!("\n{}", directory.display());
    Ok(())
}

/// Sends mail that stays.
fn fill(home: &Home, spool: Spool, messages: u32) -> Result<u64, String> {
    let daemon = home.start(spool)?;
    let words = format!("-d -N -s {FILLERS} -m {messages} -l {LENGTH} {}", daemon.endpoint);
    let source: SourceArgs = arguments(&[&words])?;
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
    for round in 1..=args.rounds {
        for case in &cases {
            if scratch.is_stopped() {
                return Ok(passes);
            }
            let phases =
                if case.runners == 0 { read(home, spool, *case) } else { deliver(home, spool, *case) };
            let phases = match phases {
                // Ctrl-C reaches the programs it starts too.
                Err(_) if scratch.is_stopped() => return Ok(passes),
                phases => phases?,
            };
            let Case { order, cold, runners } = *case;
            let pass = Pass { backend: spool.backend, order: order.into(), cold, runners, round, phases };
            append(file, &pass)?;
            passes.push(pass);
            progress.step();
        }
    }
    Ok(passes)
}

/// Reads and sorts; the queue stays as it is.
fn read(home: &Home, spool: Spool, case: Case) -> Result<Phases, String> {
    home.configure(spool, None)?;
    if case.cold {
        std::fs::write("/proc/sys/vm/drop_caches", "3").map_err(|e| format!("empty the caches: {e}"))?;
    }
    phases(&home.ask(&["queue", "run", "--dry-run", "--json", "--order", case.order])?)
}

/// Delivers all of it to a sink of our own, and puts back the queue as it was.
fn deliver(home: &Home, spool: Spool, case: Case) -> Result<Phases, String> {
    let (data, kept) = (home.data(), home.path.join("kept"));
    copy(&data, &kept)?;
    let sink = Served::start(&arguments(&["-m 20000 127.0.0.1:0"])?)?;
    home.configure(spool, Some(&sink.address))?;
    let runners = case.runners.to_string();
    let said = home.ask(&["queue", "run", "--json", "--order", case.order, "--runners", &runners]);
    let received = sink.sink_state.counts().messages;
    sink.stop()?;
    home.empty()?;
    std::fs::rename(&kept, &data).map_err(|e| format!("put back {}: {e}", data.display()))?;
    let phases = phases(&said?)?;
    if received != phases.messages || phases.delivered != phases.messages {
        let Phases { messages, delivered, .. } = phases;
        return Err(format!(
            "run the queue: of {messages} it delivered {delivered}, the sink has {received}"
        ));
    }
    Ok(phases)
}

fn phases(said: &str) -> Result<Phases, String> {
    serde_json::from_str(said.trim()).map_err(|e| format!("read `{}`: {e}", said.trim()))
}

/// cp keeps times and owners, which an order may ask for.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().map_err(|e| format!("run cp: {e}"))?;
    if !done.success() {
        return Err(format!("copy {}: cp ended with {done}", from.display()));
    }
    // The copy is not to be written while a queue is gone through.
    File::open(to).and_then(|place| Ok(rustix::fs::syncfs(&place)?)).map_err(|e| format!("sync: {e}"))
}

fn table(cases: &[Case], passes: &[Pass]) -> String {
    let mut out = format!(
        "{:<13} {:>6} {:>8} {:>26} {:>26} {:>26} {:>10} {:>26} {:>26}\n",
        "order",
        "caches",
        "runners",
        "queue-read",
        "queue-sort",
        "sum",
        "µs/message",
        "first delivery",
        "empty"
    );
    for case in cases {
        let of = |value: &dyn Fn(&Phases) -> Option<u64>| {
            let mut figure = Figure::new();
            let mine = |p: &&Pass| p.order == case.order && p.cold == case.cold && p.runners == case.runners;
            let values = passes.iter().filter(mine).filter_map(|pass| value(&pass.phases));
            values.for_each(|us| figure.push(us as f64 / 1e3));
            figure
        };
        let sum = of(&|p| Some(p.sum_us));
        let Some(median) = sum.median() else { continue };
        let count = passes.first().map_or(1, |pass| pass.phases.messages.max(1));
        out += &format!(
            "{:<13} {:>6} {:>8} {:>26} {:>26} {sum:>26} {:>10} {:>26} {:>26}\n",
            case.order,
            if case.cold { "cold" } else { "warm" },
            if case.runners == 0 { "-".to_owned() } else { case.runners.to_string() },
            of(&|p| Some(p.queue_read_us)),
            of(&|p| Some(p.queue_sort_us)),
            shown(median * 1e3 / count as f64),
            of(&|p| p.time_to_first_delivery_us),
            of(&|p| p.time_to_empty_us),
        );
    }
    out
}
