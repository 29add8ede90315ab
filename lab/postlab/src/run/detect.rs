//! Remarks that must be read before a case's figures are believed: artefacts of the laboratory and of the machine,
//! named.

use super::runner::{Kind, Run};
use crate::{
    rounds::{DISAGREEMENT_SHARE, too_short},
    source::{
        Phase, Times,
        pause::{self, PhaseTimes, SplitReplies},
    },
    stat::spread::Spread,
};

/// Of the laboratory's share of all processor time, above which it measures itself.
const BUSY_SHARE: f64 = 0.85;

/// Returns what is remarkable about the runs, each in a sentence.
pub(crate) fn remarks(runs: &[&Run]) -> Vec<String> {
    let mut remarks = Vec::new();
    let incomplete = runs.iter().filter(|run| !run.complete).count();
    if incomplete > 0 {
        remarks.push(format!("{incomplete} INCOMPLETE: the sink got more or less than was accepted"));
    }
    let failed: u64 = runs.iter().map(|run| run.source.messages_failed).sum();
    if failed > 0 {
        remarks.push(format!("{failed} messages failed"));
    }
    remarks.extend(runs.iter().find_map(|run| too_short(run.source.sending_seconds())).map(str::to_owned));
    remarks.extend(runs.iter().find_map(|run| run.source.unanswered()));
    remarks.extend(pauses(runs));
    remarks.extend(client_bound(runs));
    remarks.extend(sink_bound(runs));
    remarks.extend(clock_limited(runs));
    remarks.extend(disagreement(runs));
    remarks
}

/// Returns the remarks about pauses of 40 or 200 ms in a phase, of the rounds taken together.
fn pauses(runs: &[&Run]) -> Vec<String> {
    let median = |phase: Phase, figure: fn(&Times) -> f64| {
        let times = runs.iter().filter_map(|run| run.source.times.get(&phase).map(figure));
        Spread::of(times).map(|spread| spread.median)
    };
    let remark = |phase: &Phase| {
        let count = runs.iter().filter_map(|run| run.source.times.get(phase)).map(|times| times.count).sum();
        let figure = |figure| Some(median(*phase, figure)? / 1e3);
        let (min_ms, p50_ms, p90_ms) = (figure(|t| t.min_us)?, figure(|t| t.p50_us)?, figure(|t| t.p90_us)?);
        let split = together(runs.iter().filter_map(|run| run.source.split_replies.get(phase)));
        pause::remark(PhaseTimes { phase: *phase, count, min_ms, p50_ms, p90_ms, split: split.as_ref() })
    };
    Phase::ALL.iter().filter_map(remark).collect()
}

/// Adds the counts up, and takes the medians of the times.
fn together<'r>(split: impl Iterator<Item = &'r SplitReplies>) -> Option<SplitReplies> {
    let all: Vec<&SplitReplies> = split.collect();
    let median = |count: fn(&SplitReplies) -> u64, p50: fn(&SplitReplies) -> f64| {
        Spread::of(all.iter().filter(|split| count(split) > 0).map(|split| p50(split)))
            .map_or(0.0, |s| s.median)
    };
    (!all.is_empty()).then(|| SplitReplies {
        usual_count: all.iter().map(|split| split.usual_count).sum(),
        usual_p50_us: median(|split| split.usual_count, |split| split.usual_p50_us),
        hurried_count: all.iter().map(|split| split.hurried_count).sum(),
        hurried_p50_us: median(|split| split.hurried_count, |split| split.hurried_p50_us),
    })
}

/// The laboratory used all the processor it could: the figure is its own.
fn client_bound(runs: &[&Run]) -> Option<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let busy = |run: &&Run| {
        let used = run.source.cpu_us_per_message * run.source.messages_sent as f64 / 1e6;
        (run.kind == Kind::Relay).then(|| used / (run.source.seconds.max(1e-9) * cores))
    };
    let share = Spread::of(runs.iter().filter_map(busy))?.median;
    (share > BUSY_SHARE)
        .then(|| format!("CLIENT-BOUND: source and sink used {:.0} % of all processors", share * 100.0))
}

/// The sink takes no faster: what the MTA could deliver is not seen.
fn sink_bound(runs: &[&Run]) -> Option<String> {
    let waits = |run: &&Run| {
        let pause = run.source.times.get(&Phase::Final).map(|t| t.p50_us)?;
        (run.kind == Kind::Ceiling && pause > 50_000.0).then_some(pause / 1e3)
    };
    let pause = Spread::of(runs.iter().filter_map(waits))?.median;
    Some(format!("SINK-BOUND: the sink itself takes {pause:.0} ms for the reply to a message"))
}

/// Times of a few ticks of the clock are the clock's.
fn clock_limited(runs: &[&Run]) -> Option<String> {
    let p50 = Spread::of(runs.iter().filter_map(|run| run.source.message_ms(|t| t.p50_us)))?.median;
    (p50 < 0.002).then(|| "CLOCK-LIMITED: times below 2 µs are not told apart".to_owned())
}

/// Repeats that disagree, and which of them is off.
fn disagreement(runs: &[&Run]) -> Option<String> {
    let spread = Spread::of(runs.iter().map(|run| run.drained_rate))?;
    if runs.len() < 3 || spread.max - spread.min < spread.median * DISAGREEMENT_SHARE {
        return None;
    }
    let distance = |run: &&&Run| (run.drained_rate - spread.median).abs();
    let off = runs.iter().max_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some(format!(
        "REPEATS DISAGREE: {:.0} to {:.0} a second; round {} is furthest off",
        spread.min, spread.max, off.round
    ))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run of a second with 1000 messages, each taking `p50_ms`.
    pub(crate) fn run(kind: &str, round: u32, rate: f64, p50_ms: f64, cpu_us: f64) -> Run {
        let us = p50_ms * 1e3;
        let times = serde_json::json!({ "count": 1000, "mean_us": us, "min_us": us, "p50_us": us, "p90_us": us,
            "p99_us": us, "p999_us": us, "max_us": us });
        let source = serde_json::json!({ "messages_sent": 1000, "messages_failed": 0, "recipients": 1000,
            "connections": 1, "seconds": 1000.0 / rate, "rate": rate, "bytes_out": 1, "bytes_in": 1,
            "cpu_us_per_message": cpu_us, "stopped_early": false, "times": { "message": times.clone(), "final": times },
            "failures": {} });
        let run = serde_json::json!({ "kind": kind, "round": round, "sessions": 1, "source": source,
            "received": 1000, "drained_seconds": 1000.0 / rate, "drained_rate": rate, "backlog_peak": 0,
            "complete": true, "mta_cpu_us_per_message": null, "moments": [] });
        serde_json::from_value(run).unwrap()
    }

    fn told(runs: &[Run]) -> String {
        remarks(&runs.iter().collect::<Vec<_>>()).join("; ")
    }

    #[test]
    fn artefacts_are_named_and_good_runs_are_not() {
        assert_eq!(told(&[run("relay", 1, 500.0, 2.0, 100.0)]), "");
        assert_eq!(
            told(&[run("relay", 1, 5.0, 200.3, 100.0)]),
            "PAUSE: a pause of 200 ms in content, cause unknown; no acknowledgement of this machine was awaited"
        );
        assert!(told(&[run("relay", 1, 24.0, 41.0, 100.0)]).contains("a pause of 41 ms in content"));
        assert!(told(&[run("relay", 1, 500.0, 2.0, 1e6)]).contains("CLIENT-BOUND"));
        assert!(
            told(&[run("ceiling", 1, 10.0, 101.0, 1.0)]).contains("SINK-BOUND: the sink itself takes 101 ms")
        );
        assert!(told(&[run("ceiling", 1, 900.0, 0.001, 1.0)]).contains("CLOCK-LIMITED"));
        assert!(told(&[run("relay", 1, 9000.0, 2.0, 1.0)]).contains("too short to trust"));
    }

    #[test]
    fn a_pause_in_quit_is_found_and_an_acknowledgement_is_named_only_with_evidence() {
        let paused = |split: serde_json::Value| {
            let mut run = serde_json::to_value(run("relay", 1, 5.0, 2.0, 100.0)).unwrap();
            let mut times = run["source"]["times"]["final"].clone();
            for figure in ["p50_us", "p90_us"] {
                times[figure] = 201_000.0.into();
            }
            run["source"]["times"]["quit"] = times;
            run["source"]["split_replies"] = split;
            serde_json::from_value(run).unwrap()
        };
        let whole: Run = paused(serde_json::json!({}));
        assert!(told(&[whole]).starts_with("PAUSE: a pause of 201 ms in QUIT, cause unknown"));
        let evidence = serde_json::json!({ "quit": { "usual_count": 800, "usual_p50_us": 201_000.0, "hurried_count": 200,
            "hurried_p50_us": 90.0 } });
        let split: Run = paused(evidence);
        assert!(told(&[split.clone(), split]).starts_with("DELAYED ACK: a pause of 201 ms in QUIT"));
    }

    #[test]
    fn repeats_that_disagree_name_the_one_that_is_off() {
        let runs = [
            run("relay", 1, 500.0, 2.0, 1.0),
            run("relay", 2, 100.0, 2.0, 1.0),
            run("relay", 3, 510.0, 2.0, 1.0),
        ];
        assert!(told(&runs).contains("REPEATS DISAGREE: 100 to 510 a second; round 2 is furthest off"));
    }
}
