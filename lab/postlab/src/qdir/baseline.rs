//! Results of `postlab queuedirs` as a file, and the comparison of two of them.

use crate::{
    rounds::Figure,
    run::{
        compare::{CompareArgs, Gate},
        machine::Machine,
    },
    stat::{
        Confidence, Sample, Verdict,
        spread::{Spread, shown},
    },
    table::{Cell, Column, Table},
};
use serde::{Deserialize, Serialize};
use std::{fs, path::Path};

/// What one run of `queuedirs` has measured, kept to be compared with later ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// The command that measured; another kind of file has another one.
    pub(super) command: String,
    /// The load: message count and size, durability, version.
    pub(super) load: String,
    pub(super) machine: Machine,
    pub(super) cases: Vec<Case>,
}

/// All rounds of one setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) rounds: Vec<Round>,
}

/// What one round has measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Round {
    /// Messages a second of all senders.
    pub(super) rate: f64,
    /// Milliseconds for each further 500 entries.
    pub(super) points_ms: Vec<f64>,
}

const COMMAND: &str = "queuedirs";
/// Repeats that lie further apart than this share of their median are compared with nothing.
const SPREAD_SHARE: f64 = 0.5;

/// The change of a rate in percent of the reference, and the margin of its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Change {
    percent: f64,
    margin: f64,
}

/// What the comparison of one setting says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Outcome {
    /// The rates differ, beyond what the rounds leave open.
    Differs(Change),
    /// No difference is proven.
    Same(Change),
    /// Nothing can be said, for this reason.
    Undecided(String),
}

impl Baseline {
    pub(super) fn new(load: String, machine: Machine) -> Self {
        Self { command: COMMAND.into(), load, machine, cases: Vec::new() }
    }

    /// Adds a round to its case.
    pub(super) fn push(&mut self, name: &str, round: Round) {
        match self.cases.iter_mut().find(|case| case.name == name) {
            Some(case) => case.rounds.push(round),
            None => self.cases.push(Case { name: name.to_owned(), rounds: vec![round] }),
        }
    }

    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
        let read: Self = serde_json::from_str(&text)
            .map_err(|e| format!("read {}: {e}; it is not written by `queuedirs -o`", path.display()))?;
        if read.command != COMMAND {
            return Err(format!(
                "read {}: it is a result of `{}`, not of `{COMMAND}`",
                path.display(),
                read.command
            ));
        }
        Ok(read)
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| format!("write JSON: {e}"))?;
        fs::write(path, text + "\n").map_err(|e| format!("write {}: {e}", path.display()))
    }

    /// Compares with an older result, case by case.
    pub(super) fn against(&self, old: &Self, confidence: Confidence) -> Result<Comparison, String> {
        let differences = old.machine.differences(&self.machine).into_iter();
        let mut differences: Vec<String> =
            differences.map(|difference| format!("Not the same: {difference}")).collect();
        if old.load != self.load {
            differences.push(format!("Not the same: the load: {} and {}", old.load, self.load));
        }
        let pairs: Vec<(&Case, &Case)> = old
            .cases
            .iter()
            .filter_map(|a| Some((a, self.cases.iter().find(|b| b.name == a.name)?)))
            .collect();
        if pairs.is_empty() {
            return Err("the two have no case in common".into());
        }
        let case = |(a, b): (&Case, &Case)| Compared {
            name: a.name.clone(),
            a: a.figure(),
            b: b.figure(),
            outcome: judge(a, b, confidence),
        };
        Ok(Comparison { differences, cases: pairs.into_iter().map(case).collect() })
    }
}

/// Compares two files and prints; false if a case became slower, or with --gate if that cannot be told.
pub(crate) fn compare(args: &CompareArgs) -> Result<bool, String> {
    let (old, new) = (Baseline::read(&args.a)?, Baseline::read(&args.b)?);
    let comparison = new.against(&old, args.confidence)?;
    let mut table = Table::new(args.format, &COLUMNS, None);
    comparison.add_to(&mut table);
    let mut gate = Gate::default();
    comparison.cases.iter().for_each(|case| gate.add(case.outcome.passes(args.limit())));
    for case in old.cases.iter().filter(|a| !new.cases.iter().any(|b| b.name == a.name)) {
        table.note(format!("not compared: B has no case `{}`", case.name));
        gate.add(None);
    }
    let passes = gate.finish(args.gate, &mut table);
    table.finish();
    Ok(passes)
}

/// The same settings in two results.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Differences of machine and load.
    differences: Vec<String>,
    cases: Vec<Compared>,
}

#[derive(Debug)]
struct Compared {
    name: String,
    a: Figure,
    b: Figure,
    outcome: Outcome,
}

const COLUMNS: [Column; 6] = [
    Column::left("case", "case", 40),
    Column::right("A messages/s", "a_messages_per_second", 32),
    Column::right("B messages/s", "b_messages_per_second", 32),
    Column::left("verdict", "verdict", 8),
    Column::other("difference %", "difference_percent"),
    Column::other("margin %", "difference_margin_percent"),
];

impl Comparison {
    /// Returns whether no case became slower.
    pub(super) fn is_good(&self) -> bool {
        self.cases.iter().all(|case| case.outcome.passes(None) != Some(false))
    }

    /// Adds a part with a row for each case.
    pub(super) fn add_to(&self, table: &mut Table<'_>) {
        self.differences.iter().for_each(|difference| table.note(difference));
        table.part("comparison", &COLUMNS);
        for case in &self.cases {
            let (percent, margin) = match case.outcome {
                Outcome::Differs(change) => (Cell::Number(change.percent, 1), Cell::Number(change.margin, 1)),
                _ => (Cell::Empty, Cell::Empty),
            };
            let verdict = case.outcome.text().into();
            table.row([
                case.name.as_str().into(),
                (&case.a).into(),
                (&case.b).into(),
                verdict,
                percent,
                margin,
            ]);
        }
    }
}

impl Case {
    fn rates(&self) -> Vec<f64> {
        self.rounds.iter().map(|round| round.rate).collect()
    }

    fn figure(&self) -> Figure {
        self.rates().into_iter().collect()
    }

    /// Returns the round that disagrees with the others, if they lie too far apart.
    fn disagreement(&self) -> Option<String> {
        let spread = Spread::of(self.rates())?;
        if spread.max - spread.min <= spread.median * SPREAD_SHARE {
            return None;
        }
        let off = |rate: &f64| (rate - spread.median).abs();
        let rates = self.rates();
        let (i, rate) = rates.iter().enumerate().max_by(|a, b| off(a.1).total_cmp(&off(b.1)))?;
        let (rate, median) = (shown(*rate), shown(spread.median));
        Some(format!("REPEATS DISAGREE: round {} has {rate}, the median is {median}", i + 1))
    }
}

fn judge(a: &Case, b: &Case, confidence: Confidence) -> Outcome {
    for (side, case) in [("A", a), ("B", b)] {
        if let Some(problem) = case.disagreement() {
            return Outcome::Undecided(format!("{side}: {problem}"));
        }
    }
    let (old, new) = (Sample::new("A", a.rates()), Sample::new("B", b.rates()));
    let (Ok(old), Ok(new)) = (old, new) else {
        let (n, m) = (a.rounds.len(), b.rounds.len());
        return Outcome::Undecided(format!("{n} and {m} rounds: three of each are needed"));
    };
    let verdict = Verdict::new(&new, &old, confidence);
    let share = 100.0 / verdict.base;
    let change = Change { percent: verdict.difference * share, margin: verdict.margin * share };
    if verdict.is_proven() { Outcome::Differs(change) } else { Outcome::Same(change) }
}

impl Outcome {
    /// Tells whether the case became at most `limit` percent slower; nothing where that cannot be told.
    fn passes(&self, limit: Option<f64>) -> Option<bool> {
        match (self, limit) {
            (Self::Undecided(_), _) => None,
            (Self::Differs(change), None) => Some(change.percent > 0.0),
            (Self::Same(_), None) => Some(true),
            (Self::Differs(change) | Self::Same(change), Some(limit)) => {
                let (low, high) = (change.percent - change.margin, change.percent + change.margin);
                if low >= -limit { Some(true) } else { (high < -limit).then_some(false) }
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Differs(Change { percent, margin }) => {
                let word = if *percent > 0.0 { "FASTER" } else { "SLOWER" };
                format!("{word} by {:.1} % ± {margin:.1} %", percent.abs())
            }
            Self::Same(_) => "no difference proven".to_owned(),
            Self::Undecided(why) => format!("not compared: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rates: &[f64]) -> Baseline {
        let mut result = Baseline::new("30 messages".into(), Machine::default());
        rates.iter().for_each(|rate| {
            result.push("1 directories, 1 senders", Round { rate: *rate, points_ms: vec![1.0] });
        });
        result
    }

    fn compared(old: &[f64], new: &[f64]) -> (String, bool) {
        let comparison = result(new).against(&result(old), Confidence::parse("95").unwrap()).unwrap();
        (comparison.cases[0].outcome.text(), comparison.is_good())
    }

    #[test]
    fn two_results_are_compared_where_their_repeats_agree() {
        let (text, good) = compared(&[100.0, 101.0, 99.0], &[80.0, 81.0, 79.0]);
        assert!(text.contains("SLOWER by 20.0 % ± ") && !good, "{text}");
        let (text, good) = compared(&[100.0, 101.0, 99.0], &[150.0, 151.0, 149.0]);
        assert!(text.contains("FASTER by 50.0 %") && good, "{text}");
        let (text, good) = compared(&[100.0, 101.0, 99.0], &[100.5, 101.0, 99.0]);
        assert!(text.contains("no difference proven") && good, "{text}");
        let (text, _) = compared(&[100.0, 101.0, 30.0], &[10.0, 10.0, 10.0]);
        assert!(
            text.contains("not compared: A: REPEATS DISAGREE: round 3 has 30.0, the median is 100"),
            "{text}"
        );
        assert!(compared(&[1.0], &[9.0]).0.contains("three of each are needed"));
    }

    #[test]
    fn a_limit_is_compared_with_the_interval() {
        let outcome = Outcome::Differs(Change { percent: -4.0, margin: 0.5 });
        let passes = [None, Some(5.0), Some(4.0), Some(1.0)].map(|limit| outcome.passes(limit));
        assert_eq!(passes, [Some(false), Some(true), None, Some(false)]);
        let same = Outcome::Same(Change { percent: -1.0, margin: 8.0 });
        let passes = [None, Some(5.0), Some(10.0)].map(|limit| same.passes(limit));
        assert_eq!(passes, [Some(true), None, Some(true)]);
        assert_eq!(Outcome::Undecided("x".into()).passes(None), None);
    }

    #[test]
    fn a_result_is_a_file_that_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        result(&[1.0, 2.0]).write(&path).unwrap();
        assert_eq!(Baseline::read(&path).unwrap().cases, result(&[1.0, 2.0]).cases);
        let other = fs::read_to_string(&path).unwrap().replace("\"queuedirs\"", "\"other\"");
        fs::write(&path, other).unwrap();
        assert!(Baseline::read(&path).unwrap_err().contains("it is a result of `other`"));
        fs::write(&path, "{").unwrap();
        assert!(Baseline::read(&path).unwrap_err().contains("it is not written by `queuedirs -o`"));
    }
}
