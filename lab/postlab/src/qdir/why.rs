//! Sentences from the measured phases: the causes of an order's cost, and whether one empties the queue sooner.

use super::queue::{Order, Phases};
use crate::{
    rounds::Figure,
    stat::{
        Confidence, Sample, Verdict,
        spread::{Spread, shown},
    },
};
use std::fmt::Write as _;

/// The measured phases of an order, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) list: Figure,
    pub(super) facts: Figure,
    pub(super) locks: Figure,
    pub(super) sort: Figure,
    /// S1's queue-read: all but the sort.
    pub(super) read: Figure,
    pub(super) sum: Figure,
}

impl Parts {
    pub(super) fn push(&mut self, phases: &Phases) {
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        self.list.push(ms(phases.list));
        self.facts.push(ms(phases.facts));
        self.locks.push(ms(phases.locks));
        self.sort.push(ms(phases.sort));
        self.read.push(ms(phases.read()));
        self.sum.push(ms(phases.sum()));
    }

    fn medians(&self) -> [f64; 4] {
        [&self.list, &self.facts, &self.locks, &self.sort].map(|f| f.median().unwrap_or_default())
    }
}

/// Explains the sums of the lab's own orders by their phases.
pub(super) fn files(orders: &[Order], parts: &[Parts], messages: u32) -> String {
    let medians: Vec<(Order, [f64; 4])> =
        orders.iter().copied().zip(parts.iter().map(Parts::medians)).collect();
    let sum = |m: &[f64; 4]| m.iter().sum::<f64>().max(1e-9);
    let mut out = String::from("Why (medians):\n");
    let group = |is_in: &dyn Fn(Order) -> bool| -> Vec<(Order, [f64; 4])> {
        medians.iter().copied().filter(|(order, _)| is_in(*order)).collect()
    };
    let names = |group: &[(Order, [f64; 4])]| {
        group.iter().map(|(order, _)| order.name()).collect::<Vec<_>>().join(", ")
    };
    let all = |group: &[(Order, [f64; 4])], value: &dyn Fn(&[f64; 4]) -> f64| {
        range(group.iter().map(|(_, m)| value(m)))
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "- Each order lists the directory: {} ms.", all(&medians, &|m| m[0]));
    let names_only = group(&|order| !order.opens() && !order.stats());
    if !names_only.is_empty() {
        let _ = writeln!(
            out,
            "- {}: no file is opened or looked up; the listing is {} % of the sum.",
            names(&names_only),
            all(&names_only, &|m| m[0] / sum(m) * 100.0)
        );
    }
    for (what, group) in [
        ("looks up the inode (stat)", group(&Order::stats)),
        ("opens and reads the envelope", group(&|order| order.opens())),
    ]
    .map(|(what, group): (&str, Vec<_>)| (what, group))
    {
        if !group.is_empty() {
            let _ = writeln!(
                out,
                "- {}: {what} of each message: {} ms, {} µs a message, {} % of the sum.",
                names(&group),
                all(&group, &|m| m[1]),
                all(&group, &|m| m[1] * 1e3 / f64::from(messages.max(1))),
                all(&group, &|m| m[1] / sum(m) * 100.0)
            );
        }
    }
    if let Some((_, m)) = medians.iter().find(|(order, _)| *order == Order::Host) {
        let locks = m[2] / sum(m) * 100.0;
        let _ = writeln!(
            out,
            "- host: tests the lock of each envelope: {} ms, {} % of the sum; it sorts twice.",
            shown(m[2]),
            shown(locks)
        );
    }
    let _ = writeln!(out, "- Sorting is {} % of the sum.", all(&medians, &|m| m[3] / sum(m) * 100.0));
    out
}

/// The reading and sorting times of an order in a daemon, round for round.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) order: &'static str,
    pub(super) read_ms: Vec<f64>,
    pub(super) sort_ms: Vec<f64>,
}

impl Reading {
    fn sort_share(&self) -> f64 {
        let sort: f64 = self.sort_ms.iter().sum();
        sort / (sort + self.read_ms.iter().sum::<f64>()).max(1e-9) * 100.0
    }

    fn spread(&self) -> Option<Spread> {
        Spread::of(self.read_ms.iter().copied())
    }
}

/// Explains the reading and sorting times of a daemon's orders.
pub(super) fn daemon(rows: &[Reading]) -> String {
    let spreads: Vec<(&str, Spread)> =
        rows.iter().filter_map(|row| Some((row.order, row.spread()?))).collect();
    let Some((cheapest, least)) = spreads.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median)) else {
        return String::new();
    };
    let mut out = format!("Why: sorting is {} % of the sum. ", range(rows.iter().map(Reading::sort_share)));
    // Ranges that overlap prove nothing.
    let is_dear = |spread: &Spread| spread.min > least.max && spread.median > least.median * DEARER;
    let dear: Vec<_> = spreads.iter().filter(|(_, spread)| is_dear(spread)).collect();
    if rows.iter().any(|row| row.read_ms.len() < 3) {
        out += "Which order reads longer cannot be told: three rounds of each are needed.\n";
    } else if dear.is_empty() {
        out += "No order is proven to read longer than another by a quarter.\n";
    } else {
        let times = range(dear.iter().map(|(_, spread)| spread.median / least.median.max(1e-9)));
        let names: Vec<&str> = dear.iter().map(|(order, _)| *order).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}: reading takes {times} times as long as for {cheapest}.", names.join(", "));
    }
    out
}

/// Reading that takes longer by this factor reads something else.
const DEARER: f64 = 1.25;

/// Times to empty of one order.
#[derive(Debug)]
pub(super) struct Emptied {
    pub(super) runners: u32,
    pub(super) order: String,
    pub(super) ms: Vec<f64>,
}

/// Answers, for each number of runners: does host order empty the queue sooner?
pub(super) fn sooner(rows: &[Emptied]) -> Result<String, String> {
    let confidence = Confidence::parse("95")?;
    let mut out = String::new();
    for host in rows.iter().filter(|row| row.order == "host") {
        for other in rows.iter().filter(|row| row.runners == host.runners && row.order != "host") {
            let (n, of) = (host.ms.len(), other.ms.len());
            let samples = Sample::new("host", host.ms.clone())
                .and_then(|host| Ok((host, Sample::new(&other.order, other.ms.clone())?)));
            let said = match samples {
                Err(_) => "cannot tell: three rounds of each are needed".to_owned(),
                Ok((mine, theirs)) => answer(&Verdict::new(&mine, &theirs, confidence), &other.order),
            };
            let runners = host.runners;
            let _ =
                writeln!(out, "{runners} runners: host against {}: {said} (95 %, N={n}, {of})", other.order);
        }
    }
    if out.is_empty() { Ok(out) } else { Ok(format!("Does host order empty the queue sooner?\n{out}")) }
}

fn answer(verdict: &Verdict, other: &str) -> String {
    if !verdict.is_proven() {
        return "no difference proven".into();
    }
    let percent = 100.0 / verdict.base;
    let (difference, margin) = (verdict.difference * percent, verdict.margin * percent);
    let word = if difference < 0.0 { "sooner" } else { "later" };
    format!("{word} by {:.1} % ± {margin:.1} % of the time of {other}", difference.abs())
}

/// `3.1` or `3.1–4.5`
fn range(values: impl Iterator<Item = f64>) -> String {
    let all: Vec<f64> = values.collect();
    let least = all.iter().copied().min_by(f64::total_cmp).unwrap_or_default();
    let most = all.iter().copied().max_by(f64::total_cmp).unwrap_or_default();
    let (least, most) = (shown(least), shown(most));
    if least == most { least } else { format!("{least}–{most}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64) -> Figure {
        let mut figure = Figure::new();
        figure.push(value);
        figure
    }

    #[test]
    fn shares_are_those_of_the_measured_phases() {
        let parts = |list, facts, locks, sort| Parts {
            list: figure(list),
            facts: figure(facts),
            locks: figure(locks),
            sort: figure(sort),
            ..Parts::default()
        };
        let orders = [Order::None, Order::Host, Order::Modification];
        let text = files(
            &orders,
            &[parts(9.0, 0.0, 0.0, 1.0), parts(10.0, 70.0, 10.0, 10.0), parts(10.0, 30.0, 0.0, 0.0)],
            1000,
        );
        assert!(text.contains("- none: no file is opened or looked up; the listing is 90.0 %"), "{text}");
        assert!(text.contains(
            "- host: opens and reads the envelope of each message: 70.0 ms, 70.0 µs a message, 70.0 %"
        ));
        assert!(
            text.contains("- modification: looks up the inode (stat) of each message: 30.0 ms"),
            "{text}"
        );
        assert!(text.contains("tests the lock of each envelope: 10.0 ms, 10.0 %"), "{text}");
    }

    #[test]
    fn a_daemon_reads_longer_only_where_ranges_do_not_overlap() {
        let row =
            |order, read: &[f64]| Reading { order, read_ms: read.to_vec(), sort_ms: vec![0.1; read.len()] };
        let cheap = row("filename", &[10.0, 11.0, 12.0]);
        let text = daemon(&[cheap, row("priority", &[40.0, 44.0, 48.0])]);
        assert!(text.contains("priority: reading takes 4.00 times as long as for filename"), "{text}");
        let text = daemon(&[row("filename", &[10.0, 11.0, 41.0]), row("priority", &[40.0, 44.0, 48.0])]);
        assert!(text.contains("No order is proven"), "{text}");
        assert!(daemon(&[row("filename", &[1.0]), row("time", &[9.0])]).contains("cannot be told"));
    }

    #[test]
    fn host_order_is_sooner_only_where_that_is_proven() {
        let row = |order: &str, ms: &[f64]| Emptied { runners: 2, order: order.into(), ms: ms.to_vec() };
        let text =
            sooner(&[row("priority", &[100.0, 101.0, 99.0]), row("host", &[50.0, 51.0, 49.0])]).unwrap();
        assert!(text.contains("2 runners: host against priority: sooner by 50.0 % ± "), "{text}");
        let text = sooner(&[row("host", &[100.0, 101.0, 99.0]), row("time", &[50.0, 51.0, 49.0])]).unwrap();
        assert!(text.contains("host against time: later by 100.0 %"), "{text}");
        let text = sooner(&[row("host", &[90.0, 110.0, 99.0]), row("time", &[95.0, 105.0, 99.0])]).unwrap();
        assert!(text.contains("no difference proven"), "{text}");
        assert!(sooner(&[row("host", &[1.0]), row("time", &[2.0])]).unwrap().contains("cannot tell"));
        assert_eq!(sooner(&[row("time", &[1.0])]).unwrap(), "");
    }
}
