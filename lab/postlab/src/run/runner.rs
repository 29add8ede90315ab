//! One run: a sink, perhaps an MTA, a source; until the sink has everything, or nothing comes any more.

use super::{
    idle,
    monitor::ResourceMonitor,
    scenario::{Experiment, Mta, Scenario, Variant},
};
use crate::{
    address::{Endpoint, Family},
    device::Device,
    relay::sessions_text,
    rounds::{Progress, beside},
    sink::{SinkCounts, SinkState, StoreCounts, served::Served},
    source::{LiveView, Plan, Report, measure},
    usage::Usage,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Whether an MTA is between source and sink.
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

/// What is run: one variant, with one number of sessions, in one round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) scenario: &'a Scenario,
    /// Directory of the scenario, for its scripts.
    pub(crate) directory: &'a Path,
    pub(crate) variant: &'a Variant,
    pub(crate) kind: Kind,
    pub(crate) round: u32,
    pub(crate) sessions: u32,
    /// Of the same round.
    pub(crate) raw_tcp_mb_per_second: Option<f64>,
    /// Shows what runs.
    pub(crate) progress: &'a Progress,
}

/// What one run has measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) kind: Kind,
    /// Of the scenario; empty where nothing is varied.
    #[serde(default)]
    pub(crate) variant: String,
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
    /// By the MTA's disk, others' included.
    #[serde(default)]
    pub(crate) writes_per_message: Option<f64>,
    #[serde(default)]
    pub(crate) flushes_per_message: Option<f64>,
    /// All the MTA's processes together, at their highest.
    #[serde(default)]
    pub(crate) mta_peak_mib: Option<f64>,
    /// Resources that the MTA's processes used, by name: the number of processes, and their usage.
    #[serde(default)]
    pub(crate) processes: BTreeMap<String, (u32, Usage)>,
    /// Connections that were open and silent meanwhile.
    #[serde(default)]
    pub(crate) idle: u32,
    /// Octets that the sink read, commands included.
    #[serde(default)]
    pub(crate) sink_bytes: Option<u64>,
    /// A bare TCP connection over the loopback in the same round, in megabytes a second.
    #[serde(default)]
    pub(crate) raw_tcp_mb_per_second: Option<f64>,
    /// The work of the sink's store, if it has one.
    #[serde(default)]
    pub(crate) store: Option<StoreCounts>,
    pub(crate) moments: Vec<Moment>,
}

impl Run {
    /// Returns the octets that the sink read, in megabytes a second.
    pub(crate) fn mb_per_second(&self) -> Option<f64> {
        self.sink_bytes.map(|bytes| bytes as f64 / 1e6 / self.drained_seconds.max(1e-9))
    }

    /// Returns a figure of the sink's store for each message in it.
    pub(crate) fn of_store(&self, count: impl Fn(&StoreCounts) -> u64) -> Option<f64> {
        let store = self.store.as_ref().filter(|store| store.stored > 0)?;
        Some(count(store) as f64 / store.stored as f64)
    }
}

/// Between two looks at the counters.
const TICK: Duration = Duration::from_millis(10);
/// For an MTA to listen once it was started.
const START: Duration = Duration::from_secs(20);

/// Runs source and sink once, with the MTA of a relay between them.
pub(crate) fn run(case: &Case<'_>, stop: &AtomicBool) -> Result<Run, String> {
    let Case { scenario, variant, kind, .. } = *case;
    let mta = scenario.mta.as_ref().filter(|_| kind == Kind::Relay);
    // A sink that refuses would be the source's failure here, and no ceiling.
    let plain = Variant { sink_options: String::new(), ..variant.clone() };
    let is_beside = mta.is_none() && scenario.experiment == Experiment::Relay;
    let sink = Served::start(&scenario.sink(if is_beside { &plain } else { variant })?)?;
    let result = match mta {
        None => send(case, None, &sink, stop),
        Some(mta) => shell(case, variant.before.as_deref(), &sink.address)
            .and_then(|()| shell(case, mta.start.as_deref(), &sink.address))
            .and_then(|()| wait_for(&mta.endpoint))
            .and_then(|()| send(case, Some(mta), &sink, stop)),
    };
    let stopped = mta.map_or(Ok(()), |mta| {
        let stopped = shell(case, mta.stop.as_deref(), &sink.address);
        shell(case, variant.after.as_deref(), &sink.address).and(stopped)
    });
    sink.stop()?;
    let run = result?;
    stopped?;
    Ok(Run { kind, variant: variant.name.clone(), round: case.round, ..run })
}

fn send(case: &Case<'_>, mta: Option<&Mta>, sink: &Served, stop: &AtomicBool) -> Result<Run, String> {
    let Case { scenario, variant, sessions, progress, .. } = *case;
    let endpoint = mta.map_or(sink.address.as_str(), |mta| mta.endpoint.as_str());
    let idle_timeout = Duration::from_secs(mta.map_or(10, |mta| mta.idle_timeout_seconds));
    if mta.is_some() && scenario.load.warm_up > 0 {
        let args = scenario.source(variant, 1, scenario.load.warm_up, endpoint)?;
        let (setup, plan) = (args.setup()?, Plan::new(args.messages, None, Instant::now()));
        let look = || {
            if stop.load(Relaxed) {
                plan.stop();
            }
        };
        let report = beside(TICK, look, || measure(&args, &setup, &plan))?;
        drain(sink, report.messages_sent, idle_timeout, stop);
    }
    let args = scenario.source(variant, sessions, scenario.messages(variant, mta.is_none()), endpoint)?;
    let setup = args.setup()?;
    let before = sink.sink_state.counts();
    let first = before.messages;
    let idle = mta.map_or(Ok(Vec::new()), |mta| idle::open(&mta.endpoint, variant.idle))?;
    let gauge = mta.map(ResourceMonitor::new);
    // A store without an MTA is the sink's own, in the current directory.
    let store = mta.is_none() && before.store.is_some();
    let disk = store.then(|| Device::below(Path::new(".")).ok()).flatten();
    if disk.is_some() {
        sync_store()?;
    }
    let traffic = disk.as_ref().and_then(Device::traffic);
    let plan = args.plan();
    let begin = plan.begin();
    let moments = Mutex::new(Vec::new());
    let received = || sink.sink_state.counts().messages - first;
    let look = || Moment {
        seconds: begin.elapsed().as_secs_f64(),
        settled: plan.progress().0,
        received: received(),
    };
    let mut next_look = Instant::now();
    let name = [if mta.is_some() { "relay" } else { "ceiling" }, &variant.name, &sessions_text(sessions)];
    let step = name.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ");
    let mut view = LiveView::new(step, &plan);
    let watch = || {
        push(&moments, look());
        if progress.is_visible()
            && let Some(line) = view.look(&plan, Some(received()), Instant::now())
        {
            progress.running(line);
        }
        if let Some(gauge) = gauge.as_ref().filter(|_| next_look <= Instant::now()) {
            gauge.look();
            next_look = Instant::now() + TICK * 25;
        }
        if stop.load(Relaxed) {
            plan.stop();
        }
    };
    let report = beside(TICK, watch, || {
        let report = measure(&args, &setup, &plan)?;
        drain(sink, first + report.messages_sent, idle_timeout, stop);
        Ok::<_, String>(report)
    })?;
    push(&moments, look());
    let moments = moments.into_inner().unwrap_or_default();
    let got = received();
    let after = sink.sink_state.counts();
    let drained_seconds = drained_seconds(&sink.sink_state, begin, &report);
    let mut measured = gauge.map(|gauge| gauge.read(got)).unwrap_or_default();
    if let Some((before, disk)) = traffic.zip(disk) {
        sync_store()?;
        let of_message = |count: u64| (got > 0).then(|| count as f64 / got as f64);
        let written = disk.traffic().map(|now| now.since(before));
        measured.writes_per_message = written.and_then(|written| of_message(written.writes));
        measured.flushes_per_message = written.and_then(|written| of_message(written.flushes));
    }
    Ok(Run {
        kind: Kind::Ceiling,
        variant: String::new(),
        round: 0,
        sessions,
        received: got,
        drained_seconds,
        drained_rate: got as f64 / drained_seconds.max(1e-9),
        backlog_peak: moments.iter().map(|m| m.settled.saturating_sub(m.received)).max().unwrap_or_default(),
        complete: got == report.messages_sent,
        mta_cpu_us_per_message: measured.cpu_us_per_message,
        writes_per_message: measured.writes_per_message,
        flushes_per_message: measured.flushes_per_message,
        mta_peak_mib: measured.peak_mib,
        processes: measured.processes,
        idle: idle.len() as u32,
        sink_bytes: Some(after.bytes - before.bytes),
        raw_tcp_mb_per_second: case.raw_tcp_mb_per_second,
        store: stored_between(&before, &after),
        source: report,
        moments,
    })
}

/// Returns the time from the begin to the last message at the sink. A sink can have a message before the source reads the 250;
/// only a message that was accepted is drained.
pub(crate) fn drained_seconds(sink: &SinkState, begin: Instant, report: &Report) -> f64 {
    let last = sink.last_message().map_or(0.0, |at| at.saturating_duration_since(begin).as_secs_f64());
    last.max(report.accepted_seconds)
}

/// Returns the work of the store between two moments.
fn stored_between(before: &SinkCounts, after: &SinkCounts) -> Option<StoreCounts> {
    after.store.map(|store| store.since(before.store.unwrap_or_default()))
}

/// Writes what waits to be written, which must not count among the writes of another run.
fn sync_store() -> Result<(), String> {
    let synced = File::open(".").and_then(|place| Ok(rustix::fs::syncfs(&place)?));
    synced.map_err(|e| format!("sync the store: {e}"))
}

fn push(moments: &Mutex<Vec<Moment>>, moment: Moment) {
    if let Ok(mut moments) = moments.lock() {
        moments.push(moment);
    }
}

/// Returns when the sink has `wanted`, or nothing new came for as long as `idle_timeout`.
fn drain(sink: &Served, wanted: u64, idle_timeout: Duration, stop: &AtomicBool) {
    let (mut seen, mut since) = (sink.sink_state.counts().messages, Instant::now());
    while seen < wanted && since.elapsed() < idle_timeout && !stop.load(Relaxed) {
        thread::sleep(TICK / 10);
        let now = sink.sink_state.counts().messages;
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
    }
}

/// EX_UNAVAILABLE of sysexits.h: the machine has not what a variant needs.
const UNAVAILABLE: i32 = 69;
/// The begin of the message about such a variant.
pub(crate) const NOT_AVAILABLE: &str = "NOT AVAILABLE";

/// Runs a command of the scenario to its end.
fn shell(case: &Case<'_>, command: Option<&str>, sink: &str) -> Result<(), String> {
    let Some(command) = command else { return Ok(()) };
    let port = sink.rsplit(':').next().unwrap_or_default();
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", command])
        .env("SINK_PORT", port)
        .env("SCENARIOS", case.directory)
        .envs(&case.variant.env)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // Ctrl-C ends the run, which then stops the MTA as the scenario says; neither is to die of it.
    shell.process_group(0);
    let status = shell.status().map_err(|e| format!("run `{command}`: {e}"))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(UNAVAILABLE) => Err(format!("{NOT_AVAILABLE}: `{command}` says so")),
        _ => Err(format!("run `{command}`: it ended with {status}")),
    }
}

/// Until somebody listens there. Only a refusal is worth waiting for.
fn wait_for(endpoint: &str) -> Result<(), String> {
    let addresses = Endpoint::parse(endpoint, Some(25))?.resolve(Family::Any)?;
    let say = |e: Errno| format!("connect to the MTA at {endpoint}: {}", std::io::Error::from(e));
    let begin = Instant::now();
    loop {
        let connected = addresses.iter().try_for_each(|address| idle::connection(address, None).map(drop));
        match connected {
            Ok(()) => return Ok(()),
            Err(Errno::CONNREFUSED | Errno::NOENT) if begin.elapsed() < START => thread::sleep(TICK * 5),
            Err(error) => return Err(say(error)),
        }
    }
}
