//! One run: mail for a fixed time through a server into the sink, until the sink has everything or nothing comes any more.

use super::{
    delays::{Delays, Log},
    observe::{Observed, Observer, Traffics},
    owner::Processes,
    table::sessions_text,
    target::{About, Started},
};
use crate::{
    arguments::arguments,
    rounds::{Progress, beside},
    run::{
        runner::{Kind, Moment, Run, drained_seconds},
        scenario::{Scenario, Variant},
    },
    sink::{SinkState, served::Served},
    source::{LiveView, Plan, Report, SourceArgs, measure},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// One run, as the file of results has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RelayRun {
    #[serde(flatten)]
    pub(crate) run: Run,
    pub(crate) about: About,
    /// A session sends all its messages over one connection.
    pub(crate) keeps_connections: bool,
    /// What the machine and the server used during the run.
    pub(crate) observed: Observed,
    /// Of Postfix, where its log can be read.
    pub(crate) delays: Option<Delays>,
    /// Messages of runs before that were still in the server, and count when they arrive.
    #[serde(default)]
    pub(crate) earlier: u64,
}

/// What all runs have in common.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) keeps_connections: bool,
    pub(super) duration: Duration,
    /// For the rest of the queue, once the source has ended.
    pub(super) drain: Duration,
    pub(super) stop: &'a AtomicBool,
    /// Messages that the sink has when everything has arrived.
    pub(super) expected: AtomicU64,
    /// Shows what runs.
    pub(super) progress: &'a Progress,
}

/// What distinguishes a run from others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) label: &'a str,
    pub(super) about: &'a About,
    pub(super) round: u32,
    pub(super) sessions: u32,
}

/// Between two looks at the counters.
const TICK: Duration = Duration::from_millis(10);
/// Between two moments that are kept.
const MOMENT: f64 = 0.1;
/// For the load before what is measured: processes start, caches fill.
const WARM_UP: Duration = Duration::from_secs(1);
/// A queue from which nothing came for so long is not waited for.
const IDLE: Duration = Duration::from_secs(15);
/// For a sink: room for the connections of any server.
pub(super) const ROOMY: &str = "-m 20000";
/// More than any server takes in a run; the time ends it.
pub(super) const MESSAGES: u64 = 1_000_000_000;

impl Bench<'_> {
    /// Source straight into a sink of its own that replies at once.
    pub(super) fn ceiling(&self, case: &Case<'_>) -> Result<RelayRun, String> {
        let served = Served::start(&arguments(&[ROOMY, "127.0.0.1:0"])?)?;
        let result = self.run(case, &served.address, None, &served.sink_state);
        served.stop()?;
        result
    }

    /// Through a server that was started.
    pub(super) fn relay(
        &self,
        case: &Case<'_>,
        started: &Started,
        sink: &SinkState,
    ) -> Result<RelayRun, String> {
        if started.is_fresh() {
            self.expected.store(sink.counts().messages, Relaxed);
        }
        // What a server that runs on has kept of the run before would count in this one.
        self.drain(self.expected.load(Relaxed), sink);
        let warm_up = WARM_UP.min(self.duration);
        let args = self.source(case.sessions, &started.endpoint, warm_up)?;
        let (warm, _) = self.sent(&args, warm_up, &mut |_| {}, |_| {})?;
        let expected = self.expected.fetch_add(warm.messages_sent, Relaxed) + warm.messages_sent;
        self.drain(expected, sink);
        let earlier = expected.saturating_sub(sink.counts().messages);
        let run = RelayRun { earlier, ..self.run(case, &started.endpoint, Some(started), sink)? };
        self.expected.fetch_add(run.run.source.messages_sent, Relaxed);
        Ok(run)
    }

    /// The median time of a message straight into the sink with one session, in milliseconds: what the next hop takes itself.
    pub(super) fn next_hop_ms(&self, sink_address: &str) -> Result<Option<f64>, String> {
        // One session may be too slow for the rate: times from the due time would be those of its queue.
        let mut args = self.source(1, sink_address, WARM_UP)?;
        args.rate = None;
        let (report, _) = self.sent(&args, WARM_UP, &mut |_| {}, |_| {})?;
        self.expected.fetch_add(report.messages_sent, Relaxed);
        Ok(report.message_ms(|times| times.p50_us))
    }

    fn run(
        &self,
        case: &Case<'_>,
        endpoint: &str,
        started: Option<&Started>,
        sink: &SinkState,
    ) -> Result<RelayRun, String> {
        let processes = started.map_or(Processes::Unknown, |started| {
            let group = started.cgroup.clone().filter(|group| group.is_dir());
            group.map_or_else(|| Processes::behind(endpoint), Processes::Group)
        });
        let log = started.and_then(|started| started.log.as_deref()).map(Log::from_now);
        let mut observer = Observer::new(processes, started.and_then(|started| started.queue.as_deref()));
        let first = sink.counts().messages;
        let begin = Instant::now();
        let moments = Mutex::new(Vec::<Moment>::new());
        let (backlog_at_end, is_sent) = (AtomicU64::new(0), AtomicBool::new(false));
        let name = if started.is_some() { case.label } else { "ceiling" };
        let step = format!("{name}, {}", sessions_text(case.sessions));
        let mut view = None::<LiveView>;
        let mut look = |plan: &Plan| {
            let traffic = Traffics {
                settled: plan.progress().0,
                received: sink.counts().messages - first,
                sink_open: sink.open_sessions(),
            };
            if is_sent.load(Relaxed) {
                observer.all_sent();
            }
            observer.look(traffic);
            keep(&moments, begin, traffic);
            if self.progress.is_visible() {
                let view = view.get_or_insert_with(|| LiveView::new(step.clone(), plan));
                view.look(plan, Some(traffic.received), Instant::now())
                    .into_iter()
                    .for_each(|line| self.progress.running(line));
            }
        };
        let args = self.source(case.sessions, endpoint, self.duration)?;
        let (report, sending_from) = self.sent(&args, self.duration, &mut look, |report: &Report| {
            let received = sink.counts().messages - first;
            backlog_at_end.store(report.messages_sent.saturating_sub(received), Relaxed);
            is_sent.store(true, Relaxed);
            self.drain(first + report.messages_sent, sink);
        })?;
        let observed = observer.finish(backlog_at_end.load(Relaxed));
        let received = sink.counts().messages - first;
        let drained_seconds = drained_seconds(sink, sending_from, &report);
        let moments = moments.into_inner().unwrap_or_default();
        let delays = log.and_then(|log| log.delays());
        let run = Run {
            kind: if started.is_some() { Kind::Relay } else { Kind::Ceiling },
            variant: case.label.to_owned(),
            round: case.round,
            sessions: case.sessions,
            received,
            drained_seconds,
            drained_rate: received as f64 / drained_seconds.max(1e-9),
            backlog_peak: moments
                .iter()
                .map(|m| m.settled.saturating_sub(m.received))
                .max()
                .unwrap_or_default(),
            complete: received == report.messages_sent,
            mta_cpu_us_per_message: observed.mta_seconds.map(|used| each(used * 1e6, received)),
            writes_per_message: observed.writes.map(|count| each(count as f64, received)),
            flushes_per_message: observed.flushes.map(|count| each(count as f64, received)),
            mta_peak_mib: observed.peak_mib,
            processes: BTreeMap::new(),
            idle: 0,
            sink_bytes: None,
            raw_tcp_mb_per_second: None,
            store: None,
            source: report,
            moments,
        };
        Ok(RelayRun {
            run,
            about: case.about.clone(),
            keeps_connections: self.keeps_connections,
            observed,
            delays,
            earlier: 0,
        })
    }

    /// Returns the options of the source for a part of the measurement that sends for `duration`.
    fn source(&self, sessions: u32, endpoint: &str, duration: Duration) -> Result<SourceArgs, String> {
        let mut args = self.scenario.source(&Variant::default(), sessions, MESSAGES, endpoint)?;
        args.duration = Some(duration);
        Ok(args)
    }

    /// Sends for as long as `duration`, then does `and_then`; looks all the time. Returns the begin, too.
    fn sent(
        &self,
        args: &SourceArgs,
        duration: Duration,
        look: &mut (dyn FnMut(&Plan) + Send),
        and_then: impl FnOnce(&Report),
    ) -> Result<(Report, Instant), String> {
        let setup = args.setup()?;
        let plan = args.plan();
        // In an open loop, messages that were due are sent even if the server is behind.
        let last_begin = duration + if args.rate.is_some() { self.drain } else { Duration::ZERO };
        let watch = || {
            let elapsed = plan.begin().elapsed();
            // Messages that have begun are accepted to their end, unless the server has stopped.
            if elapsed >= last_begin {
                plan.close();
            }
            if elapsed >= last_begin + self.drain || self.stop.load(Relaxed) {
                plan.stop();
            }
            look(&plan);
        };
        beside(TICK, watch, || {
            let report = measure(args, &setup, &plan)?;
            and_then(&report);
            // The end of the time is no early one.
            Ok((Report { stopped_early: self.stop.load(Relaxed), ..report }, plan.begin()))
        })
    }

    /// Returns when the sink has `wanted`, or nothing came for long, or the time for it is over.
    fn drain(&self, wanted: u64, sink: &SinkState) {
        let begin = Instant::now();
        let (mut seen, mut since) = (sink.counts().messages, begin);
        while seen < wanted
            && since.elapsed() < IDLE
            && begin.elapsed() < self.drain
            && !self.stop.load(Relaxed)
        {
            thread::sleep(TICK / 10);
            let now = sink.counts().messages;
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
        }
    }
}

fn each(amount: f64, messages: u64) -> f64 {
    amount / messages.max(1) as f64
}

fn keep(moments: &Mutex<Vec<Moment>>, begin: Instant, traffic: Traffics) {
    let seconds = begin.elapsed().as_secs_f64();
    if let Ok(mut moments) = moments.lock()
        && moments.last().is_none_or(|last| seconds - last.seconds >= MOMENT)
    {
        moments.push(Moment { seconds, settled: traffic.settled, received: traffic.received });
    }
}

/// Sends one message and waits for it; an error says why it did not arrive.
pub(super) fn probe(
    scenario: &Scenario,
    endpoint: &str,
    sink: &SinkState,
    wait: Duration,
) -> Result<(), super::explain::Lost> {
    use super::explain::Lost;
    let args = scenario.source(&Variant::default(), 1, 1, endpoint).map_err(Lost::NotSent)?;
    let setup = args.setup().map_err(Lost::NotSent)?;
    let first = sink.counts().messages;
    let plan = Plan::new(1, None, Instant::now());
    let report = measure(&args, &setup, &plan).map_err(Lost::NotSent)?;
    if report.messages_sent == 0 {
        let (reason, _) = report.failures.into_iter().next().unwrap_or_default();
        return Err(Lost::Refused(reason));
    }
    let begin = Instant::now();
    while sink.counts().messages == first {
        if begin.elapsed() >= wait {
            return Err(Lost::NotArrived(wait));
        }
        thread::sleep(TICK);
    }
    Ok(())
}
