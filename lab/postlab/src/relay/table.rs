//! The results for people: text and Markdown; and for programs: CSV and JSON.

use super::{
    bottleneck::Finding,
    case::{Case, METRICS, Server, cases},
    measure::RelayRun,
    require::Checked,
};
use crate::{
    run::{machine::Machine, overhead, runner::Kind, table::aligned},
    source::Phase,
    stat::spread::{Spread, shown},
};
use measure::table::push_record;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct Results<'r> {
    pub(super) machine: &'r Machine,
    pub(super) runs: &'r [RelayRun],
    pub(super) servers: Vec<Server<'r>>,
    pub(super) next_hop_ms: Option<f64>,
    pub(super) checked: Vec<Checked>,
    /// Differences between stock and tuned, by peer.
    pub(super) differences: Vec<(String, String)>,
}

/// The columns of the tables for people; the files have all.
const SHOWN: [&str; 11] =
    ["accepted", "drained", "p50", "p99", "backlog", "queued", "cpu", "memory", "writes", "flushes", "lab"];

/// A heading, and what is concluded about one server.
type Section = (String, Vec<String>);

impl Results<'_> {
    fn all_cases(&self) -> Vec<Case<'_>> {
        let mut all = cases(self.runs);
        let place = |case: &Case<'_>| self.servers.iter().position(|server| server.label == case.label);
        all.sort_by_key(|case| (case.kind, place(case), case.sessions));
        all
    }

    /// Rows of the main table, the heading first.
    fn rows(&self) -> Vec<Vec<String>> {
        let all = self.all_cases();
        let columns = METRICS.iter().filter(|metric| SHOWN.contains(&metric.key));
        let is_told = |case: &Case<'_>, key: &str, of| {
            case.figure(of).is_some_and(|spread| spread.max > 0.0 || key != "queued")
        };
        let columns: Vec<_> = columns.filter(|m| all.iter().any(|case| is_told(case, m.key, m.of))).collect();
        let mut heading = vec!["sessions".to_owned(), "server".to_owned(), "N".to_owned()];
        heading.extend(columns.iter().map(|metric| metric.title.to_owned()));
        let mut rows = vec![heading];
        for case in &all {
            let mut row = vec![case.sessions.to_string(), name(case).to_owned(), case.runs.len().to_string()];
            row.extend(columns.iter().map(|m| case.figure(m.of).map(|s| s.text()).unwrap_or_default()));
            rows.push(row);
        }
        rows
    }

    /// The cost of waiting for the disk: the same server without it is measured beside it.
    fn durability(&self, server: &Server<'_>) -> Option<String> {
        let (name, profile) = server.label.split_once(':')?;
        if !matches!(profile, "stock" | "tuned") {
            return None;
        }
        let (tuned, unsynced) = (format!("{name}:tuned"), format!("{name}:unsynced"));
        let Some(other) = self.servers.iter().find(|other| other.label == unsynced && profile == "tuned")
        else {
            let has_tuned = self.servers.iter().any(|other| other.label == tuned);
            let hint = format!("durability: measure {tuned} and {unsynced} to see its cost");
            return (profile == "tuned" || !has_tuned).then_some(hint);
        };
        let costs = server.cases.iter().filter_map(|case| {
            let twin = other.cases.iter().find(|twin| twin.sessions == case.sessions)?;
            let rates =
                |case: &Case<'_>| case.runs.iter().map(|run| run.run.drained_rate).collect::<Vec<_>>();
            Some(format!("{}: {}", sessions_text(case.sessions), overhead::cost(&rates(case), &rates(twin))?))
        });
        Some(format!("durability costs, drained/s: {}", costs.collect::<Vec<_>>().join("; ")))
    }

    /// Returns what was concluded about a server.
    fn section(&self, server: &Server<'_>) -> Section {
        let mut lines = Vec::new();
        let Some(case) = server.cases.iter().find(|case| case.sessions == server.judged) else {
            return (server.label.to_owned(), lines);
        };
        if let Some(about) = case.runs.first().map(|run| &run.about).filter(|about| !about.version.is_empty())
        {
            let known = |words: &str, text: &str| {
                if text.is_empty() { String::new() } else { format!("{words}{text}") }
            };
            lines.push(format!(
                "{}{}{}",
                about.version,
                known(", configuration ", &about.config_hash),
                known("; an accepted message survives ", &about.durability)
            ));
        }
        lines.extend(self.durability(server));
        lines.push(format!("knee {}", server.knee));
        lines.extend(bottleneck(&server.findings, server.judged));
        let sessions = case.sessions;
        let phases = case.phases();
        let time = |(phase, times): (&Phase, &crate::source::Times)| {
            format!("{phase} {}/{}", shown(times.p50_us / 1e3), shown(times.p99_us / 1e3))
        };
        let phases: Vec<String> = phases.iter().map(time).collect();
        lines.push(format!("phases at {}, p50/p99 in ms: {}", sessions_text(sessions), phases.join(", ")));
        let processes = case.processes();
        if !processes.is_empty() {
            let each: Vec<String> =
                processes.iter().map(|(name, us)| format!("{name} {}", shown(*us))).collect();
            lines.push(format!("CPU in µs a message: {}", each.join(", ")));
        }
        if let Some([waited, preempted, blocks]) = case.switches() {
            lines.push(format!(
                "a message: {} context switches to wait, {} because the time slice was over; {} blocks of 512 octets written",
                shown(waited),
                shown(preempted),
                shown(blocks)
            ));
        }
        let version = case.runs.first().map_or("", |run| run.about.version.as_str());
        match disk(case) {
            None if !version.is_empty() => {
                lines.push("disk: not seen: name the directory of the queue with --queue".to_owned());
            }
            disk => lines.extend(disk),
        }
        match delays(case) {
            None if version.starts_with("Postfix") => {
                lines.push("delays: no log of Postfix was found: name it with --log".to_owned());
            }
            delays => lines.extend(delays),
        }
        for case in &server.cases {
            let remarks = case.remarks().into_iter();
            lines.extend(remarks.map(|remark| format!("{}: {remark}", sessions_text(case.sessions))));
        }
        (server.label.to_owned(), lines)
    }

    /// Returns the tables and conclusions for the terminal.
    pub(super) fn text(&self) -> String {
        let mut out = aligned(&self.rows());
        for (title, lines) in self.sections() {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "\n{title}");
            for line in lines {
                let _ = writeln!(out, "  {line}");
            }
        }
        out
    }

    /// Returns them as a page in Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut out = String::from("# Relay\n\n");
        for (name, value) in self.machine.facts().iter().filter(|(_, value)| !value.is_empty()) {
            let _ = writeln!(out, "- {name}: {value}");
        }
        out.push_str("\nMedian (smallest–largest) of N runs.\n\n");
        let rows = self.rows();
        for (i, row) in rows.iter().enumerate() {
            let _ = writeln!(out, "| {} |", row.join(" | "));
            if i == 0 {
                let rule = row.iter().enumerate().map(|(i, _)| if i == 1 { "---" } else { "---:" });
                let _ = writeln!(out, "|{}|", rule.collect::<Vec<_>>().join("|"));
            }
        }
        for (title, lines) in self.sections() {
            let _ = writeln!(out, "\n## {title}\n");
            for line in lines {
                let _ = writeln!(out, "- {line}");
            }
        }
        for (peer, difference) in &self.differences {
            let _ = writeln!(out, "\n## {peer}: stock and tuned\n\n```diff\n{difference}\n```");
        }
        out
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections: Vec<Section> = self.servers.iter().map(|server| self.section(server)).collect();
        let mut remarks = Vec::new();
        for case in self.all_cases().into_iter().filter(|case| case.kind == Kind::Ceiling) {
            remarks
                .extend(case.remarks().into_iter().map(|r| format!("{}: {r}", sessions_text(case.sessions))));
        }
        remarks.extend(
            self.next_hop_ms
                .map(|ms| format!("the sink takes {} ms for a message of one session", shown(ms))),
        );
        if !remarks.is_empty() {
            sections.insert(0, ("ceiling".to_owned(), remarks));
        }
        if !self.checked.is_empty() {
            sections
                .push(("requirements".to_owned(), self.checked.iter().map(ToString::to_string).collect()));
        }
        sections
    }

    /// Returns one line for each case, with all figures.
    pub(super) fn csv(&self) -> String {
        let mut out = String::from("server,kind,sessions,runs,version,config_hash");
        for metric in &METRICS {
            let _ = write!(out, ",{0},{0}_min,{0}_max", metric.key);
        }
        out.push_str(",remarks\n");
        for case in self.all_cases() {
            let kind = if case.kind == Kind::Ceiling { "ceiling" } else { "relay" };
            let about = case.runs.first().map(|run| run.about.clone()).unwrap_or_default();
            let words = [name(&case), kind, &case.sessions.to_string(), &case.runs.len().to_string()]
                .map(str::to_owned)
                .into_iter()
                .chain([about.version, about.config_hash]);
            let figures = METRICS.iter().flat_map(|metric| match case.figure(metric.of) {
                Some(s) => [s.median, s.min, s.max].map(|value| format!("{value:.3}")),
                None => Default::default(),
            });
            push_record(&mut out, words.chain(figures).chain([case.remarks().join("; ")]));
        }
        out
    }

    /// Returns everything in one object.
    pub(super) fn json(&self) -> Value {
        let case = |case: &Case<'_>| {
            let figures = METRICS.iter().filter_map(|m| Some((m.key.to_owned(), spread(case.figure(m.of)?))));
            let processes: serde_json::Map<String, Value> =
                case.processes().into_iter().map(|(name, us)| (name, json!(us))).collect();
            json!({
                "server": name(case), "sessions": case.sessions, "runs": case.runs.len(),
                "about": case.runs.first().map(|run| &run.about),
                "figures": figures.collect::<serde_json::Map<_, _>>(),
                "phases_us": case.phases().into_iter().map(|(phase, t)| (phase.to_string(), json!(t)))
                    .collect::<serde_json::Map<_, _>>(),
                "cpu_us_per_message": processes,
                "delays": case.runs.last().and_then(|run| run.delays),
                "remarks": case.remarks(),
            })
        };
        let server = |server: &Server<'_>| {
            json!({ "server": server.label, "knee": server.knee, "judged_at_sessions": server.judged,
                "bottlenecks": server.findings })
        };
        json!({
            "machine": self.machine,
            "next_hop_ms": self.next_hop_ms,
            "cases": self.all_cases().iter().map(case).collect::<Vec<_>>(),
            "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
            "requirements": self.checked,
            "conclusions": self.sections(),
            "differences": self.differences.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        })
    }
}

fn name<'c>(case: &Case<'c>) -> &'c str {
    if case.kind == Kind::Ceiling { "ceiling" } else { case.label }
}

/// `1 session`, `10 sessions`
pub(crate) fn sessions_text(count: u32) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

fn spread(spread: Spread) -> Value {
    json!({ "median": spread.median, "min": spread.min, "max": spread.max })
}

fn bottleneck(findings: &[Finding], sessions: u32) -> Vec<String> {
    let Some((first, others)) = findings.split_first() else {
        return vec![format!("bottleneck at {}: none found", sessions_text(sessions))];
    };
    let mut lines =
        vec![format!("bottleneck at {}: {}: {}", sessions_text(sessions), first.cause, first.evidence)];
    lines.extend(others.iter().map(|other| format!("also {}: {}", other.cause, other.evidence)));
    lines
}

fn disk(case: &Case<'_>) -> Option<String> {
    let sync = case.figure(|run| run.observed.fsync_ms)?;
    let waits = |run: &RelayRun| Some(run.observed.processes.values().map(|p| p.disk_waits).sum());
    let waits = case.figure(waits)?;
    let flushes = case
        .figure(|run| run.run.flushes_per_message)
        .map(|s| format!("{} flushes a message, ", shown(s.median)));
    Some(format!(
        "disk: {}{} ms for a write with fsync, {} tasks wait for it on average",
        flushes.unwrap_or_default(),
        shown(sync.median),
        shown(waits.median)
    ))
}

fn delays(case: &Case<'_>) -> Option<String> {
    let delays = case.runs.last()?.delays?;
    Some(format!(
        "delays logged by Postfix, mean of {} deliveries in ms: before the queue manager (a) {}, in the queue manager (b) {}, \
         connection setup (c) {}, transmission (d) {}",
        delays.deliveries,
        shown(delays.before_queue_manager_ms),
        shown(delays.queue_manager_ms),
        shown(delays.connection_ms),
        shown(delays.transmission_ms)
    ))
}
