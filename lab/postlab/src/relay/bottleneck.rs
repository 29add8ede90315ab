//! The bottleneck of a case: a table of rules over measured quantities. Nothing here measures.

use super::{delays::Delays, explain::Mta};
use crate::source::{Phase, Times};
use serde::Serialize;
use std::collections::BTreeMap;

/// The medians of a case's runs, and what was measured beside them.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    pub(super) mta: Option<Mta>,
    pub(super) sessions: u32,
    pub(super) accepted: f64,
    pub(super) drained: f64,
    /// Accepted by a sink directly, with this number of sessions.
    pub(super) ceiling: Option<f64>,
    /// The time that the sink takes for a message of one session.
    pub(super) next_hop_ms: Option<f64>,
    pub(super) phases: BTreeMap<Phase, Times>,
    pub(super) cores: f64,
    pub(super) busy_share: f64,
    pub(super) mta_cores: Option<f64>,
    pub(super) other_cores: f64,
    /// The server's time includes that of processes which ended between two looks.
    pub(super) counts_ended: bool,
    /// The name with the highest processor time, that time, and that of its busiest process.
    pub(super) top: Option<(String, f64, f64)>,
    /// Tasks waiting for a disk, and the name with most of them.
    pub(super) disk_waits: f64,
    pub(super) disk_waits_of: String,
    pub(super) fsync_ms: Option<f64>,
    pub(super) dns_sockets: f64,
    pub(super) overflows_per_connection: f64,
    pub(super) sink_open_peak: f64,
    pub(super) idle_share: f64,
    pub(super) backlog_at_end: f64,
    pub(super) delays: Option<Delays>,
    /// The source sends at a rate, or with pauses.
    pub(super) is_paced: bool,
}

/// The kinds of bottleneck that a rule can name, the most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Cause {
    LoadGenerator,
    InFlowDelay,
    Dns,
    DeliveryConcurrency,
    SlowNextHop,
    SlowDisk,
    ListenQueue,
    ReplyTimer,
    SchedulerPauses,
    OneProcess,
    Cpu,
    OtherLoad,
}

/// What limits the rate, and what shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Finding {
    pub(super) cause: Cause,
    pub(super) evidence: String,
}

/// A rule: the cause, and the evidence if the quantities show it.
type Rule = (Cause, fn(&Evidence) -> Option<String>);

/// Each is silent on the cases of the others; the tests hold them to it.
const RULES: [Rule; 12] = [
    (Cause::LoadGenerator, load_generator),
    (Cause::InFlowDelay, in_flow_delay),
    (Cause::Dns, dns),
    (Cause::DeliveryConcurrency, delivery_concurrency),
    (Cause::SlowNextHop, slow_next_hop),
    (Cause::SlowDisk, slow_disk),
    (Cause::ListenQueue, listen_queue),
    (Cause::ReplyTimer, reply_timer),
    (Cause::SchedulerPauses, scheduler_pauses),
    (Cause::OneProcess, one_process),
    (Cause::Cpu, cpu),
    (Cause::OtherLoad, other_load),
];

/// Share of the ceiling from which source and sink are the limit.
const CEILING_SHARE: f64 = 0.8;
/// Of all processor time, from which there is none left.
const BUSY: f64 = 0.9;
/// Of all processor time, that the server must use for its own work to be the limit.
const OWN_SHARE: f64 = 0.35;
/// Of a core, from which a process has no more.
const FULL_CORE: f64 = 0.9;
/// A reply of the next hop that takes longer counts as slow.
const SLOW_HOP_MS: f64 = 20.0;
/// Syncs that take longer make the disk a candidate.
const SLOW_SYNC_MS: f64 = 5.0;
/// Messages that must wait in the server for its delivery to be the limit.
const BACKLOG: f64 = 20.0;
/// DNS sockets, on average, that are a wait for DNS.
const DNS_SOCKETS: f64 = 0.5;
/// A connection setup that is longer than the next hop explains.
const SLOW_SETUP_MS: f64 = 100.0;

/// Returns all causes that the quantities show, the most specific first. None: no bottleneck was found.
pub(super) fn findings(evidence: &Evidence) -> Vec<Finding> {
    // Nothing limits a rate that is reached; a message can still be late.
    let is_wanted = |cause: Cause| !evidence.is_rate_reached() || cause.is_of_latency();
    let rules = RULES.iter().filter(|(cause, _)| is_wanted(*cause));
    rules.filter_map(|(cause, rule)| Some(Finding { cause: *cause, evidence: rule(evidence)? })).collect()
}

impl Cause {
    /// Does it make single messages late, also far below the highest rate?
    fn is_of_latency(self) -> bool {
        matches!(self, Self::InFlowDelay | Self::Dns | Self::ListenQueue | Self::ReplyTimer)
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::LoadGenerator => "load generator",
            Self::InFlowDelay => "in_flow_delay",
            Self::Dns => "DNS",
            Self::DeliveryConcurrency => "delivery concurrency",
            Self::SlowNextHop => "slow next hop",
            Self::SlowDisk => "fsync of a slow disk",
            Self::ListenQueue => "listen queue",
            Self::ReplyTimer => "reply timer",
            Self::SchedulerPauses => "pauses of the queue scheduler",
            Self::OneProcess => "one process",
            Self::Cpu => "CPU",
            Self::OtherLoad => "CPU, which other processes use",
        })
    }
}

impl Evidence {
    /// Does the server accept faster than it delivers?
    fn has_backlog(&self) -> bool {
        self.backlog_at_end >= BACKLOG && self.drained < self.accepted * 0.95
    }

    /// Does the server accept and deliver all that a source with a rate or pauses offers it? That is what the ceiling is then.
    fn is_rate_reached(&self) -> bool {
        let is_reached = |ceiling: f64| self.accepted >= ceiling * CEILING_SHARE;
        self.is_paced && !self.has_backlog() && self.ceiling.is_some_and(is_reached)
    }

    fn time(&self, phase: Phase, figure_us: impl Fn(&Times) -> f64) -> f64 {
        self.phases.get(&phase).map_or(0.0, |times| figure_us(times) / 1e3)
    }
}

fn load_generator(e: &Evidence) -> Option<String> {
    // Where messages wait in the server, its delivery is the limit, however fast it accepts.
    let ceiling = e.ceiling.filter(|ceiling| e.accepted >= ceiling * CEILING_SHARE && !e.has_backlog())?;
    Some(format!(
        "the server accepts {:.0} messages a second, {:.0} % of what source and sink reach without it ({ceiling:.0})",
        e.accepted,
        e.accepted / ceiling * 100.0
    ))
}

/// Postfix's cleanup waits a second for each message while the queue manager is behind.
fn in_flow_delay(e: &Evidence) -> Option<String> {
    if e.mta.is_some_and(|mta| mta != Mta::Postfix) || e.mta.is_none() {
        return None;
    }
    let second = |us: f64| (950_000.0..1_250_000.0).contains(&us);
    let in_phase = |(phase, t): (&Phase, &Times)| {
        let quantiles = [("50", t.p50_us), ("90", t.p90_us), ("99", t.p99_us), ("99.9", t.p999_us)];
        let slow: Vec<&str> = quantiles.iter().filter(|(_, us)| second(*us)).map(|(name, _)| *name).collect();
        // A pause of always the same time lies between two quantiles; a slow server's times go on growing.
        (slow.len() >= 2).then(|| (phase.to_string(), slow.join(" and "), t.min_us / 1e3))
    };
    let own = [Phase::Connect, Phase::Quit, Phase::Message, Phase::Rset];
    let (phase, quantiles, min) =
        e.phases.iter().filter(|(phase, _)| !own.contains(phase)).find_map(in_phase)?;
    Some(format!(
        "percentiles {quantiles} of {phase} are 1 s, and the fastest is {min:.1} ms: Postfix pauses its input while the queue \
         manager is behind (in_flow_delay = 1s)"
    ))
}

fn dns(e: &Evidence) -> Option<String> {
    if e.dns_sockets >= DNS_SOCKETS {
        return Some(format!("on average {:.1} DNS queries of the server wait for a reply", e.dns_sockets));
    }
    let delays = e.delays?;
    let hop = e.next_hop_ms?;
    (delays.connection_ms >= SLOW_SETUP_MS && hop < SLOW_HOP_MS && delays.connection_ms > delays.transmission_ms)
        .then(|| {
            format!(
                "Postfix logs {:.0} ms for connection setup with DNS (delay c) and {:.0} ms for transmission (d); the sink itself \
                 takes {hop:.1} ms",
                delays.connection_ms, delays.transmission_ms
            )
        })
}

fn delivery_concurrency(e: &Evidence) -> Option<String> {
    (e.has_backlog() && (1.0..=2.0).contains(&e.sink_open_peak)).then(|| {
        format!(
            "never more than {:.0} connections to the sink, while {:.0} messages waited in the server",
            e.sink_open_peak, e.backlog_at_end
        )
    })
}

fn slow_next_hop(e: &Evidence) -> Option<String> {
    let hop = e.next_hop_ms.filter(|ms| *ms >= SLOW_HOP_MS)?;
    // By Little's law: the connections on which a message was in transmission.
    let used = e.drained * hop / 1e3;
    (used >= e.sink_open_peak * 0.5).then(|| {
        format!(
            "the next hop takes {hop:.0} ms for a message; at {:.0} a second that keeps {used:.1} of at most {:.0} connections busy",
            e.drained, e.sink_open_peak
        )
    })
}

fn slow_disk(e: &Evidence) -> Option<String> {
    let most = e.disk_waits / f64::from(e.sessions.max(1));
    // On a fast disk only a server that does nothing else is limited by it.
    let is_waiting = most >= 0.7 || (e.fsync_ms.is_none() && most >= 0.5);
    let is_slow = e.fsync_ms.is_some_and(|ms| ms >= SLOW_SYNC_MS) && e.disk_waits >= 0.7;
    (is_waiting || is_slow).then(|| {
        let sync =
            e.fsync_ms.map(|ms| format!("; a write with fsync takes {ms:.1} ms there")).unwrap_or_default();
        format!(
            "on average {:.1} tasks of the server wait for the disk, most of them {}{sync}",
            e.disk_waits, e.disk_waits_of
        )
    })
}

/// The kernel repeats a connection request after 1 s, then after 2 and 4 more.
fn listen_queue(e: &Evidence) -> Option<String> {
    let p99 = e.time(Phase::Connect, |t| t.p99_us);
    (e.overflows_per_connection >= 0.005 && p99 >= 900.0).then(|| {
        format!(
            "{:.1} % of the connections found the listen queue full and were tried again by the kernel; 1 of 100 takes {p99:.0} ms",
            e.overflows_per_connection * 100.0
        )
    })
}

/// A wait for a clock takes the same time again and again; work does not.
fn reply_timer(e: &Evidence) -> Option<String> {
    let is_step = |ms: f64| [40.0, 200.0].iter().any(|step| (ms - step).abs() < step * 0.06);
    let phases = e.phases.keys().filter(|phase| **phase != Phase::Message);
    let phase = phases.copied().find(|phase| {
        let (p50, p90) = (e.time(*phase, |t| t.p50_us), e.time(*phase, |t| t.p90_us));
        is_step(p50) && is_step(p90)
    })?;
    let ms = e.time(phase, |t| t.p50_us);
    Some(format!(
        "the reply of phase {phase} takes {ms:.0} ms again and again: a timer or a delayed acknowledgement, not work"
    ))
}

fn scheduler_pauses(e: &Evidence) -> Option<String> {
    (e.has_backlog() && e.idle_share >= 0.4).then(|| {
        format!(
            "the sink got nothing in {:.0} % of the time in which messages waited in the server ({:.0} at the end)",
            e.idle_share * 100.0,
            e.backlog_at_end
        )
    })
}

fn one_process(e: &Evidence) -> Option<String> {
    let (name, cores, busiest) = e.top.as_ref()?;
    let is_alone = *busiest >= FULL_CORE && *cores < busiest * 1.2;
    (is_alone && e.cores >= 2.0 && e.busy_share < BUSY).then(|| {
        format!("one process {name} uses {:.0} % of a core, and other cores are free", busiest * 100.0)
    })
}

fn cpu(e: &Evidence) -> Option<String> {
    let own = e.mta_cores.filter(|_| e.busy_share >= BUSY)?;
    let enough = e.cores * OWN_SHARE;
    if e.other_cores > own {
        return (!e.counts_ended && own + e.other_cores >= enough).then(|| format!(
            "{:.0} % of all processor time is used; the server uses {own:.2} of {:.0} cores, and {:.2} more are used by other \
             programs or by processes of the server that ended too soon to be seen: a service of systemd is seen whole",
            e.busy_share * 100.0,
            e.cores,
            e.other_cores
        ));
    }
    (own >= enough).then(|| {
        let top = e
            .top
            .as_ref()
            // Its time is that of the whole run, the server's that of sending: a part is no more than the whole.
            .map(|(name, cores, _)| (name, cores.min(own)))
            .map(|(name, cores)| {
                // Processes that end soon are not seen.
                let share =
                    if cores * 2.0 > own { "most of it" } else { "of the processes that were seen, most" };
                format!(", {share}: {name} ({cores:.2})")
            })
            .unwrap_or_default();
        format!(
            "{:.0} % of all processor time is used; the server uses {own:.2} of {:.0} cores{top}",
            e.busy_share * 100.0,
            e.cores
        )
    })
}

/// The machine has no processor time left, and the server had less of it than others.
fn other_load(e: &Evidence) -> Option<String> {
    let own = e.mta_cores?;
    (e.counts_ended && e.busy_share >= BUSY && e.other_cores > own).then(|| {
        format!(
            "{:.0} % of all processor time is used; processes other than the server, source and sink use {:.2} of {:.0} cores: \
             repeat on a quiet machine",
            e.busy_share * 100.0,
            e.other_cores,
            e.cores
        )
    })
}

#[cfg(test)]
mod tests;
