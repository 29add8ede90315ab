//! One run: a sink, perhaps an MTA, a source; until the sink has everything, or nothing comes any more.

use super::scenario::{Mta, Scenario};
use crate::{
    address::{Endpoint, Family},
    sink::{Hall, Sink},
    source::{Plan, Report, measure},
};
use rustix::{
    io::Errno,
    net::{SocketFlags, SocketType, connect, socket_with},
};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Which part of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Ceiling,
    Relay,
}

/// A moment: what the source had settled, and what the sink had.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Moment {
    pub(crate) seconds: f64,
    pub(crate) settled: u64,
    pub(crate) received: u64,
}

/// What a run gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    pub(crate) round: u32,
    pub(crate) sessions: u32,
    pub(crate) source: Report,
    /// Messages at the sink, from this run's begin.
    pub(crate) received: u64,
    /// Until the last of them.
    pub(crate) drained_seconds: f64,
    pub(crate) drained_rate: f64,
    /// Messages accepted and not at the sink yet, at the worst moment seen.
    pub(crate) backlog_peak: u64,
    /// The sink has all that was accepted, no more and no less.
    pub(crate) complete: bool,
    /// Processor time of the MTA's control group.
    pub(crate) mta_cpu_us_per_message: Option<f64>,
    pub(crate) moments: Vec<Moment>,
}

/// Between two looks at the counters.
const TICK: Duration = Duration::from_millis(10);
/// For an MTA to listen once it was started.
const START: Duration = Duration::from_secs(20);

/// A sink that serves in this process.
struct Served {
    hall: Arc<Hall>,
    address: String,
    thread: JoinHandle<Result<(), String>>,
}

impl Served {
    fn start(scenario: &Scenario) -> Result<Self, String> {
        let args = scenario.sink()?;
        let sink = Sink::open(&args)?;
        let (hall, address) = (sink.hall(), sink.address()?);
        let threads = args.threads.map(usize::from);
        let thread = thread::spawn(move || sink.serve(args.model, threads));
        Ok(Self { hall, address, thread })
    }

    fn stop(self) -> Result<(), String> {
        self.hall.stop();
        self.thread.join().unwrap_or_else(|_| Err("the sink panicked".into()))
    }
}

/// Does one run.
pub(crate) fn run(
    scenario: &Scenario,
    kind: Kind,
    round: u32,
    sessions: u32,
    stop: &AtomicBool,
) -> Result<Run, String> {
    let sink = Served::start(scenario)?;
    let mta = scenario.mta.as_ref().filter(|_| kind == Kind::Relay);
    let result = match mta {
        None => send(scenario, None, &sink, sessions, stop),
        Some(mta) => shell(mta.start.as_deref(), &sink.address)
            .and_then(|()| wait_for(&mta.endpoint))
            .and_then(|()| send(scenario, Some(mta), &sink, sessions, stop)),
    };
    let stopped = mta.map_or(Ok(()), |mta| shell(mta.stop.as_deref(), &sink.address));
    sink.stop()?;
    let run = result?;
    stopped?;
    Ok(Run { kind, round, ..run })
}

fn send(
    scenario: &Scenario,
    mta: Option<&Mta>,
    sink: &Served,
    sessions: u32,
    stop: &AtomicBool,
) -> Result<Run, String> {
    let endpoint = mta.map_or(sink.address.as_str(), |mta| mta.endpoint.as_str());
    let patience = Duration::from_secs(mta.map_or(10, |mta| mta.patience_seconds));
    if mta.is_some() && scenario.load.warm_up > 0 {
        let args = scenario.source(1, scenario.load.warm_up, endpoint)?;
        let plan = Plan::new(args.messages, None, Instant::now());
        let report = measure(&args, &args.setup()?, &plan)?;
        drain(sink, report.messages_sent, patience, stop);
    }
    let args = scenario.source(sessions, scenario.messages(mta.is_none()), endpoint)?;
    let setup = args.setup()?;
    let first = sink.hall.tally().messages;
    let cpu = mta.and_then(cpu_time);
    let plan = Plan::new(args.messages, args.rate, Instant::now());
    let begin = plan.begin();
    let (moments, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let received = || sink.hall.tally().messages - first;
    let look = || Moment {
        seconds: begin.elapsed().as_secs_f64(),
        settled: plan.progress().0,
        received: received(),
    };
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                push(&moments, look());
                if stop.load(Relaxed) {
                    plan.stop();
                }
                thread::sleep(TICK);
            }
        });
        let report = measure(&args, &setup, &plan);
        if let Ok(report) = &report {
            drain(sink, first + report.messages_sent, patience, stop);
        }
        over.store(true, Relaxed);
        report
    })?;
    push(&moments, look());
    let moments = moments.into_inner().unwrap_or_default();
    let got = received();
    let drained_seconds =
        sink.hall.last_message().map_or(0.0, |at| at.saturating_duration_since(begin).as_secs_f64());
    let used = cpu.zip(mta.and_then(cpu_time)).map(|(before, after)| after.saturating_sub(before));
    Ok(Run {
        kind: Kind::Ceiling,
        round: 0,
        sessions,
        received: got,
        drained_seconds,
        drained_rate: got as f64 / drained_seconds.max(1e-9),
        backlog_peak: moments.iter().map(|m| m.settled.saturating_sub(m.received)).max().unwrap_or_default(),
        complete: got == report.messages_sent,
        mta_cpu_us_per_message: used.map(|t| t.as_secs_f64() * 1e6 / got.max(1) as f64),
        source: report,
        moments,
    })
}

fn push(moments: &Mutex<Vec<Moment>>, moment: Moment) {
    if let Ok(mut moments) = moments.lock() {
        moments.push(moment);
    }
}

/// Returns when the sink has `wanted`, or nothing new came for as long as `patience`.
fn drain(sink: &Served, wanted: u64, patience: Duration, stop: &AtomicBool) {
    let (mut seen, mut since) = (sink.hall.tally().messages, Instant::now());
    while seen < wanted && since.elapsed() < patience && !stop.load(Relaxed) {
        thread::sleep(TICK / 10);
        let now = sink.hall.tally().messages;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// Runs a command of the scenario to its end.
fn shell(command: Option<&str>, sink: &str) -> Result<(), String> {
    let Some(command) = command else { return Ok(()) };
    let port = sink.rsplit(':').next().unwrap_or_default();
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).env("SINK_PORT", port).stdin(Stdio::null()).stdout(Stdio::null());
    let status = shell.status().map_err(|e| format!("run `{command}`: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("run `{command}`: it ended with {status}")) }
}

/// Until somebody listens there. Only a refusal is worth waiting for.
fn wait_for(endpoint: &str) -> Result<(), String> {
    let addresses = Endpoint::parse(endpoint, Some(25))?.resolve(Family::Any)?;
    let say = |e: Errno| format!("connect to the MTA at {endpoint}: {}", std::io::Error::from(e));
    let begin = Instant::now();
    loop {
        let connected = addresses.iter().try_for_each(|address| {
            let socket =
                socket_with(address.address_family(), SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            connect(&socket, address)
        });
        match connected {
            Ok(()) => return Ok(()),
            Err(Errno::CONNREFUSED | Errno::NOENT) if begin.elapsed() < START => thread::sleep(TICK * 5),
            Err(error) => return Err(say(error)),
        }
    }
}

/// Of the MTA's control group, either version.
fn cpu_time(mta: &Mta) -> Option<Duration> {
    let group = mta.cgroup.as_deref()?;
    let second = fs::read_to_string(format!("{group}/cpu.stat")).ok().and_then(|text| {
        let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        line.trim().parse().ok().map(Duration::from_micros)
    });
    second.or_else(|| {
        let text = fs::read_to_string(format!("{group}/cpuacct.usage")).ok()?;
        text.trim().parse().ok().map(Duration::from_nanos)
    })
}
