//! A case: a server with a number of sessions, its runs, and the figures over them.

use super::{
    bottleneck::{Evidence, Finding, findings},
    explain::Mta,
    knee::{Knee, knee},
    measure::RelayRun,
    observe::ProcessUse,
};
use crate::{
    run::{detect, runner::Kind},
    source::{Phase, Times},
    stat::spread::Spread,
};
use std::collections::BTreeMap;

/// A figure of a run: its key in options and files, its title with unit, and how it is read.
pub(super) struct Metric {
    pub(super) key: &'static str,
    pub(super) title: &'static str,
    pub(super) of: fn(&RelayRun) -> Option<f64>,
}

/// All figures of a run, in the order of the tables.
pub(super) const METRICS: [Metric; 15] = [
    Metric { key: "accepted", title: "accepted/s", of: |r| Some(r.run.source.rate) },
    Metric { key: "drained", title: "drained/s", of: |r| Some(r.run.drained_rate) },
    Metric { key: "p50", title: "p50 ms", of: |r| r.run.source.message_ms(|t| t.p50_us) },
    Metric { key: "p90", title: "p90 ms", of: |r| r.run.source.message_ms(|t| t.p90_us) },
    Metric { key: "p99", title: "p99 ms", of: |r| r.run.source.message_ms(|t| t.p99_us) },
    Metric { key: "p999", title: "p99.9 ms", of: |r| r.run.source.message_ms(|t| t.p999_us) },
    Metric { key: "max", title: "max ms", of: |r| r.run.source.message_ms(|t| t.max_us) },
    Metric { key: "backlog", title: "backlog", of: |r| is_relay(r).then_some(r.run.backlog_peak as f64) },
    Metric { key: "queued", title: "still queued", of: |r| is_relay(r).then(|| queued(r)) },
    Metric { key: "failed", title: "failed", of: |r| Some(r.run.source.messages_failed as f64) },
    Metric { key: "cpu", title: "CPU µs/msg", of: |r| r.run.mta_cpu_us_per_message },
    Metric { key: "memory", title: "MiB", of: |r| r.run.mta_peak_mib },
    Metric { key: "writes", title: "writes/msg", of: |r| r.run.writes_per_message },
    Metric { key: "flushes", title: "flushes/msg", of: |r| r.run.flushes_per_message },
    Metric { key: "lab", title: "lab µs/msg", of: |r| Some(r.run.source.cpu_us_per_message) },
];

fn is_relay(run: &RelayRun) -> bool {
    run.run.kind == Kind::Relay
}

fn queued(run: &RelayRun) -> f64 {
    run.run.source.messages_sent.saturating_sub(run.run.received) as f64
}

/// A server with a number of sessions, its runs, and the figures over them.
#[derive(Debug)]
pub(super) struct Case<'r> {
    pub(super) label: &'r str,
    pub(super) kind: Kind,
    pub(super) sessions: u32,
    pub(super) runs: Vec<&'r RelayRun>,
}

/// A server with its cases, in increasing order of sessions, and the conclusions.
#[derive(Debug)]
pub(super) struct Server<'r> {
    pub(super) label: &'r str,
    pub(super) cases: Vec<Case<'r>>,
    pub(super) knee: Knee,
    /// The case at the knee, or with the most sessions, and its bottlenecks.
    pub(super) judged: u32,
    pub(super) findings: Vec<Finding>,
}

/// Facts that are known beside the runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Which server it is, by label.
    pub(super) mtas: BTreeMap<String, Mta>,
    pub(super) next_hop_ms: Option<f64>,
    /// The source sends at a rate, or with pauses.
    pub(super) is_paced: bool,
}

impl Case<'_> {
    /// A figure's median and spread over the runs.
    pub(super) fn figure(&self, of: impl Fn(&RelayRun) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| of(run)))
    }

    fn median(&self, of: impl Fn(&RelayRun) -> Option<f64>) -> Option<f64> {
        self.figure(of).map(|spread| spread.median)
    }

    /// Returns the median over all runs, for each phase.
    pub(super) fn phases(&self) -> BTreeMap<Phase, Times> {
        let phases: Vec<Phase> =
            self.runs.iter().flat_map(|run| run.run.source.times.keys().copied()).collect();
        phases.into_iter().filter_map(|phase| Some((phase, self.times(phase)?))).collect()
    }

    fn times(&self, phase: Phase) -> Option<Times> {
        let at = |figure: fn(&Times) -> f64| self.median(|run| run.run.source.times.get(&phase).map(figure));
        Some(Times {
            count: at(|t| t.count as f64)? as u64,
            mean_us: at(|t| t.mean_us)?,
            min_us: at(|t| t.min_us)?,
            p50_us: at(|t| t.p50_us)?,
            p90_us: at(|t| t.p90_us)?,
            p99_us: at(|t| t.p99_us)?,
            p999_us: at(|t| t.p999_us)?,
            max_us: at(|t| t.max_us)?,
        })
    }

    /// Processor time of each process by name, in microseconds a message: medians, the highest first. Processes that
    /// were too short to be seen are the last.
    pub(super) fn processes(&self) -> Vec<(String, f64)> {
        let names: Vec<&String> = self.runs.iter().flat_map(|run| run.observed.processes.keys()).collect();
        let each =
            |run: &RelayRun, cores: f64| cores * run.observed.seconds * 1e6 / run.run.received.max(1) as f64;
        let of = |name: &String| {
            self.median(|run| Some(each(run, run.observed.processes.get(name).map_or(0.0, |p| p.cores))))
        };
        let mut uses: BTreeMap<String, f64> = BTreeMap::new();
        for name in names {
            uses.insert(name.clone(), of(name).unwrap_or_default());
        }
        let mut sorted: Vec<(String, f64)> = uses.into_iter().filter(|(_, us)| *us >= 0.5).collect();
        sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let seen: f64 = sorted.iter().map(|(_, us)| us).sum();
        let short = self.median(|run| run.run.mta_cpu_us_per_message).map(|all| all - seen);
        // Below a tenth it is the coarse clock of the processes.
        if let Some(short) = short.filter(|short| *short > seen * 0.1) {
            sorted.push(("processes too short to be seen".to_owned(), short));
        }
        sorted
    }

    /// Context switches of all processes that were seen, voluntary and involuntary, and the blocks that they wrote, for each
    /// message: medians.
    pub(super) fn switches(&self) -> Option<[f64; 3]> {
        let of = |value: fn(&ProcessUse) -> u64| {
            self.median(|run| {
                let sum: u64 = run.observed.processes.values().map(value).sum();
                (!run.observed.processes.is_empty()).then_some(sum as f64 / run.run.received.max(1) as f64)
            })
        };
        Some([of(|p| p.voluntary_switches)?, of(|p| p.involuntary_switches)?, of(|p| p.out_blocks)?])
    }

    /// Returns whether the server's processor time includes processes that ended between two looks, in each run.
    fn counts_ended(&self) -> bool {
        self.runs.iter().all(|run| run.observed.counts_ended)
    }

    /// Remarks on the figures, each a sentence.
    pub(super) fn remarks(&self) -> Vec<String> {
        let runs: Vec<&crate::run::runner::Run> = self.runs.iter().map(|run| &run.run).collect();
        let mut remarks = detect::remarks(&runs);
        let others = self.median(|run| Some(run.observed.other_cores)).unwrap_or_default();
        let cores = self.median(|run| Some(run.observed.cores as f64)).unwrap_or(1.0);
        let earlier = self.runs.iter().map(|run| run.earlier).max().unwrap_or_default();
        if earlier > 0 {
            remarks.push(format!(
                "EARLIER MAIL: {earlier} messages of a run before were still in the server, and count when they arrive; use a longer --drain"
            ));
        }
        let has_seen_some = self.runs.iter().any(|run| run.observed.mta_cores.is_some());
        if has_seen_some && !self.counts_ended() {
            remarks.push(
                "the CPU time of processes that ended between two looks is not counted: the server has no control group of its own"
                    .to_owned(),
            );
        } else if self.kind == Kind::Relay && !has_seen_some && !rustix::process::geteuid().is_root() {
            remarks.push(format!(
                "PROCESSES NOT SEEN: only root sees those of other users; what a server on this machine uses counts among the \
                 {others:.2} of {cores:.0} cores of others, and CPU is not named as its bottleneck"
            ));
        } else if others > cores * OTHERS_SHARE {
            remarks.push(format!("BUSY MACHINE: other processes used {others:.2} of {cores:.0} cores"));
        }
        remarks
    }

    /// Returns the quantities by which the rules find the bottleneck.
    pub(super) fn evidence(&self, ceiling: Option<f64>, known: &Known) -> Evidence {
        let of = |figure: &dyn Fn(&RelayRun) -> f64| self.median(|run| Some(figure(run))).unwrap_or_default();
        let last = self.runs.last();
        let processes = last.map(|run| &run.observed.processes);
        let most = |by: fn(&ProcessUse) -> f64| {
            processes?
                .iter()
                .max_by(|a, b| by(a.1).total_cmp(&by(b.1)))
                .map(|(name, using)| (name.clone(), using))
        };
        let waits = |run: &RelayRun| run.observed.processes.values().map(|p| p.disk_waits).sum::<f64>();
        Evidence {
            mta: known.mtas.get(self.label).copied(),
            sessions: self.sessions,
            accepted: of(&|r| r.run.source.rate),
            drained: of(&|r| r.run.drained_rate),
            ceiling,
            next_hop_ms: known.next_hop_ms,
            phases: self.phases(),
            cores: of(&|r| r.observed.cores as f64),
            busy_share: of(&|r| r.observed.busy_share),
            mta_cores: self.median(|r| r.observed.mta_cores),
            other_cores: of(&|r| r.observed.other_cores),
            counts_ended: self.counts_ended(),
            top: most(|p| p.cores).map(|(name, using)| (name, using.cores, using.busiest_cores)),
            disk_waits: of(&waits),
            disk_waits_of: most(|p| p.disk_waits).map(|(name, _)| name).unwrap_or_default(),
            fsync_ms: self.median(|r| r.observed.fsync_ms),
            dns_sockets: of(&|r| r.observed.dns_sockets),
            overflows_per_connection: of(&|r| {
                r.observed.listen_overflows as f64 / r.run.source.connections.max(1) as f64
            }),
            sink_open_peak: of(&|r| r.observed.sink_open_peak as f64),
            idle_share: of(&|r| r.observed.idle_share),
            backlog_at_end: of(&|r| r.observed.backlog_at_end as f64),
            delays: last.and_then(|run| run.delays),
            is_paced: known.is_paced,
        }
    }
}

/// Of all processors; above it the figures are those of a busy machine.
const OTHERS_SHARE: f64 = 0.15;

/// Sorts runs into cases: ceilings first, then the servers in the order in which they were named.
pub(super) fn cases(runs: &[RelayRun]) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for run in runs {
        let (label, kind, sessions) = (run.run.variant.as_str(), run.run.kind, run.run.sessions);
        match cases.iter_mut().find(|c| (c.label, c.kind, c.sessions) == (label, kind, sessions)) {
            Some(case) => case.runs.push(run),
            None => cases.push(Case { label, kind, sessions, runs: vec![run] }),
        }
    }
    cases
}

/// The servers of the runs with their conclusions, in the order of `labels`.
pub(super) fn servers<'r>(runs: &'r [RelayRun], labels: &'r [String], known: &Known) -> Vec<Server<'r>> {
    let (ceilings, _): (Vec<Case<'r>>, Vec<_>) =
        cases(runs).into_iter().partition(|c| c.kind == Kind::Ceiling);
    let server = |label: &'r String| {
        let of = |case: &Case<'_>| case.kind == Kind::Relay && case.label == label;
        let mut cases: Vec<Case<'r>> = cases(runs).into_iter().filter(of).collect();
        cases.sort_by_key(|case| case.sessions);
        let rates = |case: &Case<'_>| Some((case.sessions, case.figure(|r| Some(r.run.drained_rate))?));
        let knee = knee(&cases.iter().filter_map(rates).collect::<Vec<_>>());
        // Behind the knee a limit shows more clearly than at it: the first case with a finding counts.
        let from = match knee {
            Knee::At(sessions) => cases.iter().position(|case| case.sessions == sessions)?,
            _ => cases.len().checked_sub(1)?,
        };
        let judge = |case: &Case<'_>| {
            let ceiling = ceilings.iter().find(|ceiling| ceiling.sessions == case.sessions);
            let ceiling = ceiling.and_then(|case| case.median(|r| Some(r.run.source.rate)));
            (case.sessions, findings(&case.evidence(ceiling, known)))
        };
        let judgements: Vec<_> = cases[from..].iter().map(judge).collect();
        let found = judgements.iter().find(|(_, findings)| !findings.is_empty()).or(judgements.first());
        let (judged, findings) = found.cloned()?;
        Some(Server { label, judged, cases, knee, findings })
    };
    labels.iter().filter_map(server).collect()
}
