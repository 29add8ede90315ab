//! Cliffs: message sizes at which the rate drops by more than the further octets explain.

use super::{
    runner::{Kind, Run},
    scenario::Scenario,
    table::{cases, column},
};
use std::collections::BTreeMap;

/// Fewer rounds prove no cliff.
const LEAST_ROUNDS: u32 = 3;
/// A rate that falls by a larger share of the one before falls off a cliff.
const DROP: f64 = 0.2;

/// A size of message, with the rates that were measured with it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    bytes: u64,
    rate: f64,
}

/// Returns the cliffs between neighbouring sizes of a scenario whose variants have several, as sentences.
pub(crate) fn text(scenario: &Scenario, runs: &[Run]) -> String {
    let variants = scenario.variants();
    let mut series: BTreeMap<(u32, Kind), Vec<Point>> = BTreeMap::new();
    for ((sessions, variant, kind), runs) in cases(scenario, runs) {
        let options = variants.get(variant).map(|v| v.options.as_str()).unwrap_or_default();
        let bytes = length(&format!("{} {options}", scenario.load.options));
        let rate = column(&runs, |run| Some(run.drained_rate)).map(|spread| spread.median);
        if let (Some(bytes), Some(rate)) = (bytes, rate) {
            series.entry((sessions, kind)).or_default().push(Point { bytes, rate });
        }
    }
    let mut out = String::new();
    for ((sessions, kind), mut points) in series {
        points.sort_by_key(|point| point.bytes);
        points.dedup_by_key(|point| point.bytes);
        let kind = if kind == Kind::Ceiling { "ceiling" } else { "relay" };
        let found = cliffs(&points);
        let rounds =
            runs.iter().filter(|run| run.sessions == sessions).map(|run| run.round).max().unwrap_or_default();
        if points.len() > 1 && rounds < LEAST_ROUNDS {
            out += &format!(
                "{sessions} sessions, {kind}: cliffs cannot be told from {rounds} rounds, {LEAST_ROUNDS} are needed\n"
            );
            continue;
        }
        if points.len() > 1 && found.is_empty() {
            out += &format!("{sessions} sessions, {kind}: no cliff between {} sizes\n", points.len());
        }
        for (a, b, share) in found {
            out += &format!(
                "{sessions} sessions, {kind}: CLIFF from {} to {} octets: {:.0} % less than the further octets explain\n",
                a.bytes,
                b.bytes,
                share * 100.0
            );
        }
    }
    out
}

/// Returns the neighbours between which the rate falls too far, and by how much of the expected rate.
///
/// A further octet is expected to cost the time that it takes at the highest throughput that any size reaches.
fn cliffs(points: &[Point]) -> Vec<(Point, Point, f64)> {
    let throughput = points.iter().map(|p| p.bytes as f64 * p.rate).fold(1e-9, f64::max);
    let drop = |pair: &[Point]| {
        let (a, b) = (pair[0], pair[1]);
        let expected = 1.0 / (1.0 / a.rate.max(1e-9) + (b.bytes - a.bytes) as f64 / throughput);
        let share = 1.0 - b.rate / expected;
        (share > DROP).then_some((a, b, share))
    };
    points.windows(2).filter_map(drop).collect()
}

/// Returns the size of the last `-l` among the options.
fn length(options: &str) -> Option<u64> {
    let mut words = options.split_whitespace();
    let mut found = None;
    while let Some(word) = words.next() {
        if word == "-l" {
            found = words.next().and_then(|bytes| bytes.parse().ok());
        } else if let Some(bytes) = word.strip_prefix("-l").and_then(|bytes| bytes.parse().ok()) {
            found = Some(bytes);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{super::detect, *};

    fn points(rates: &[(u64, f64)]) -> Vec<Point> {
        rates.iter().map(|(bytes, rate)| Point { bytes: *bytes, rate: *rate }).collect()
    }

    #[test]
    fn the_cliff_of_the_seed_is_found() {
        // sendmail X on ReiserFS: 208, 35 and 29 messages a second.
        let found = cliffs(&points(&[(1024, 208.0), (4096, 35.0), (16_384, 29.0)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].0.bytes, found[0].1.bytes), (1024, 4096));
        assert!((0.55..0.85).contains(&found[0].2), "{found:?}");
        // On ext3: 55 and 54.
        assert!(cliffs(&points(&[(1024, 55.0), (4096, 54.0)])).is_empty());
    }

    #[test]
    fn what_bandwidth_explains_is_none() {
        // 100 us a message and 100 MB/s.
        let rate = |bytes: u64| (bytes, 1.0 / (1e-4 + bytes as f64 / 1e8));
        assert!(cliffs(&points(&[512, 4096, 65_536, 1 << 20, 10 << 20].map(rate))).is_empty());
    }

    #[test]
    fn the_sizes_are_those_of_the_variants() {
        let scenario = Scenario::parse(
            "title = \"x\"\nexperiment = \"relay\"\n[load]\nmessages = 10\nsessions = [1]\noptions = \"-N\"\n\
             [mta]\nname = \"m\"\nendpoint = \"127.0.0.1:25\"\n[[variant]]\nname = \"a\"\noptions = \"-l 1024\"\n\
             [[variant]]\nname = \"b\"\noptions = \"-d -l4096\"\n",
        )
        .unwrap();
        let run = |name: &str, rate: f64| Run {
            variant: name.into(),
            drained_rate: rate,
            round: 3,
            ..detect::tests::run("relay", 1, 10.0, 1.0, 1.0)
        };
        let text = super::text(&scenario, &[run("a", 208.0), run("b", 35.0)]);
        assert!(text.contains("1 sessions, relay: CLIFF from 1024 to 4096 octets: "), "{text}");
        let text = super::text(&scenario, &[run("a", 208.0), run("b", 200.0)]);
        assert_eq!(text, "1 sessions, relay: no cliff between 2 sizes\n");
        assert_eq!(super::text(&scenario, &[run("a", 208.0)]), "");
        let once = ["a", "b"].map(|name| Run { round: 1, ..run(name, 9.0) });
        assert!(super::text(&scenario, &once).contains("cannot be told from 1 rounds, 3 are needed"));
    }
}
