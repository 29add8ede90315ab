//! The controller: prepares all agents, lets them begin together, and adds up their results.

use super::{
    channel::{Channel, Message, VERSION},
    key::Key,
};
use crate::{
    hdr::Sums,
    rounds::{Progress, beside, too_short},
    source::Report,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use std::{
    net::{TcpStream, ToSocketAddrs as _},
    path::PathBuf,
    sync::{
        Arc, Barrier, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Options of a controller.
#[derive(Debug, Args)]
pub(super) struct ControlArgs {
    /// The key file
    #[arg(short = 'k', long, value_name = "FILE")]
    key: PathBuf,
    /// The agents
    #[arg(short = 'a', long, value_name = "HOST:PORT,…", value_delimiter = ',', required = true)]
    agents: Vec<String>,
    #[command(flatten)]
    format: Format,
    /// Append the times of all agents to this file as HDR histograms in log format V2
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// Options and target of the source, the same for each agent: `-m` and `--rate` are those of one agent
    #[arg(last = true, required = true)]
    source: Vec<String>,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// An agent says how far it is four times a second; one that says nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(60);
/// Between two looks at how far the agents are.
const LOOK: Duration = Duration::from_millis(200);

/// State that the threads of all agents share.
struct Shared {
    /// Messages that are done, by agent.
    done: Vec<AtomicU64>,
    stop: AtomicBool,
    /// When the first agent began.
    first_begin: OnceLock<Instant>,
    /// Some agent cannot begin: then none of them does.
    has_failed: AtomicBool,
    /// Reached when each agent is ready, or has failed.
    ready: Barrier,
}

/// Runs the source on all agents; false where messages failed.
pub(super) fn run(args: &ControlArgs) -> Result<bool, String> {
    let (config, name) = Key::read(&args.key)?.client()?;
    let shared = Arc::new(Shared {
        done: args.agents.iter().map(|_| AtomicU64::new(0)).collect(),
        stop: AtomicBool::new(false),
        first_begin: OnceLock::new(),
        has_failed: AtomicBool::new(false),
        ready: Barrier::new(args.agents.len()),
    });
    crate::signals::on_end({
        let shared = shared.clone();
        move || shared.stop.store(true, Relaxed)
    })?;
    let progress = Progress::new("agents", 0);
    let begin = Instant::now();
    let look = || {
        let done: u64 = shared.done.iter().map(|done| done.load(Relaxed)).sum();
        let seconds = begin.elapsed().as_secs();
        progress.running(format!("{} agents, {seconds} s: {done} messages", args.agents.len()));
    };
    let results = beside(LOOK, look, || {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..args.agents.len())
                .map(|i| {
                    let (config, name, shared) = (config.clone(), name.clone(), &shared);
                    scope.spawn(move || ask(args, i, config, name, shared))
                })
                .collect();
            threads
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".into())))
                .collect()
        })
    });
    drop(progress);
    print(args, results)
}

/// What an agent has sent at its end.
struct Sent {
    /// From the begin of the first agent to that of this one.
    begin_seconds: f64,
    report: Report,
    /// Its histograms, as a log of HdrHistogram.
    hdr: String,
}

/// Speaks with one agent, from the first message to the result.
fn ask(
    args: &ControlArgs,
    number: usize,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    shared: &Shared,
) -> Result<Sent, String> {
    let prepared = connect(&args.agents[number]).and_then(|socket| {
        let connection = ClientConnection::new(config, name).map_err(|e| e.to_string())?;
        let mut channel = Channel::new(connection, socket)?;
        channel.send(&Message::Prepare { version: VERSION, arguments: args.source.clone() })?;
        match next(&mut channel, shared)? {
            Message::Ready => Ok(channel),
            Message::Error(error) => Err(error),
            other => Err(format!("it said {other:?} for ready")),
        }
    });
    if prepared.is_err() {
        shared.has_failed.store(true, Relaxed);
    }
    // Every thread comes here once, whatever has happened to its agent.
    shared.ready.wait();
    let mut channel = prepared?;
    if shared.has_failed.load(Relaxed) {
        return Err("not begun, since another agent failed".to_owned());
    }
    let begin = Instant::now();
    let first = *shared.first_begin.get_or_init(|| begin);
    let begin_seconds = begin.saturating_duration_since(first).as_secs_f64();
    channel.send(&Message::Go)?;
    loop {
        match next(&mut channel, shared)? {
            Message::Done(count) => shared.done[number].store(count, Relaxed),
            Message::Result { report, hdr } => {
                return Ok(Sent { begin_seconds, report: *report, hdr });
            }
            Message::Error(error) => return Err(error),
            other => return Err(format!("it said {other:?} while mail was sent")),
        }
    }
}

fn connect(agent: &str) -> Result<TcpStream, String> {
    let addresses =
        agent.to_socket_addrs().map_err(|e| format!("find {agent}: {e}; an agent is HOST:PORT"))?;
    let mut error = format!("{agent} has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(socket) => return Ok(socket),
            Err(e) => error = format!("connect to {address}: {e}; does `postlab agent listen` run there?"),
        }
    }
    Err(error)
}

/// Waits for the next message of an agent; at the first signal the agent is asked to end.
fn next(channel: &mut Channel<ClientConnection>, shared: &Shared) -> Result<Message, String> {
    let (begin, mut is_asked) = (Instant::now(), false);
    loop {
        if let Some(message) = channel.receive()? {
            return Ok(message);
        }
        if shared.stop.load(Relaxed) && !std::mem::replace(&mut is_asked, true) {
            channel.send(&Message::Stop)?;
        }
        if begin.elapsed() >= SILENCE {
            return Err("it says nothing any more".to_owned());
        }
    }
}

const COLUMNS: [Column; 8] = [
    Column::left("agent", "agent", 24),
    Column::right("messages", "messages", 10),
    Column::right("failed", "failed", 8),
    Column::right("s", "seconds", 9),
    Column::right("messages/s", "messages_per_second", 11),
    Column::right("p50 ms", "p50_ms", 9),
    Column::right("p99 ms", "p99_ms", 9),
    Column::right("max ms", "max_ms", 9),
];

/// Prints a row for each agent, and one for all: messages by the time from the first begin to the last 250 of any agent,
/// percentiles of the merged histograms.
fn print(args: &ControlArgs, results: Vec<Result<Sent, String>>) -> Result<bool, String> {
    let mut table = Table::new(args.format, &COLUMNS, None);
    let (mut sums, mut errors) = (Sums::default(), Vec::new());
    let (mut reports, mut span_seconds) = (Vec::new(), 0.0f64);
    for (agent, result) in args.agents.iter().zip(results) {
        match result {
            Ok(Sent { begin_seconds, report, hdr }) => {
                span_seconds = span_seconds.max(begin_seconds + report.sending_seconds());
                // An agent that sent nothing has no histogram.
                if !report.times.is_empty() {
                    sums.read(hdr.as_bytes()).map_err(|e| format!("read the histograms of {agent}: {e}"))?;
                }
                let ms = |us: fn(&crate::source::Times) -> f64| number(report.message_ms(us));
                let quantiles = [ms(|t| t.p50_us), ms(|t| t.p99_us), ms(|t| t.max_us)];
                row(&mut table, agent, &report, report.sending_seconds(), quantiles);
                let remarks = report
                    .remarks()
                    .into_iter()
                    .chain(too_short(report.sending_seconds()).map(str::to_owned));
                remarks.for_each(|remark| table.remark(format!("{agent}: {}", remark.trim())));
                reports.push(report);
            }
            Err(error) => errors.push(format!("{agent}: {error}")),
        }
    }
    if let Some(first) = reports.first() {
        let all = Report {
            messages_sent: reports.iter().map(|r| r.messages_sent).sum(),
            messages_failed: reports.iter().map(|r| r.messages_failed).sum(),
            ..first.clone()
        };
        let times = sums.times("message");
        let ms = |us: fn(&crate::source::Times) -> f64| number(times.as_ref().map(|times| us(times) / 1e3));
        let quantiles = [ms(|t| t.p50_us), ms(|t| t.p99_us), ms(|t| t.max_us)];
        row(&mut table, "all", &all, span_seconds, quantiles);
    }
    table.finish();
    if let Some(path) = args.hdr.as_deref().filter(|_| !reports.is_empty()) {
        sums.append_to(path)?;
    }
    if let Some(error) = errors.first() {
        errors[1..].iter().for_each(|more| eprintln!("postlab: {more}"));
        return Err(error.clone());
    }
    Ok(reports.iter().all(Report::is_good))
}

fn number(value: Option<f64>) -> Cell {
    value.map_or(Cell::Empty, |value| Cell::Number(value, 2))
}

fn row(table: &mut Table<'_>, name: &str, report: &Report, seconds: f64, [p50, p99, max]: [Cell; 3]) {
    table.row([
        name.into(),
        report.messages_sent.into(),
        report.messages_failed.into(),
        Cell::Number(seconds, 2),
        Cell::Number(report.messages_sent as f64 / seconds.max(1e-9), 1),
        p50,
        p99,
        max,
    ]);
}
