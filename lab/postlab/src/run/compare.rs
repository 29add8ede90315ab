//! `postlab compare A B`: two result directories, case by case, with a verdict on each difference.

use super::{
    detect,
    machine::Machine,
    read,
    runner::{Kind, Run},
    scenario::{Scenario, Variant},
    table::{Name, cases, durability, label},
};
use crate::stat::{Confidence, Sample, Verdict, mann_whitney, spread::shown};
use crate::{
    rounds::Figure,
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use std::{collections::BTreeMap, path::PathBuf};

/// Compare two results: before and after, or one MTA and another
///
/// Results are directories of `run`, or files of `queuedirs -o`.
///
/// The exit code is 1 if a case became slower: by any proven difference, or with --max-slower, if its whole interval lies beyond
/// the limit. With --gate, it is also 1 if a case is inconclusive: because it was not compared, because the second result lacks
/// it, or because its interval overlaps the limit, which is 5 % unless --max-slower sets another. The same holds if no case was
/// compared at all. Ceilings are shown, but are not cases of a gate.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The reference
    pub(crate) a: PathBuf,
    /// The results to compare with it
    pub(crate) b: PathBuf,
    /// Confidence level required for a difference, in percent: 80, 90, 95, 98, 99 or 99.5
    #[arg(short = 'c', value_name = "PERCENT", default_value = "95", value_parser = Confidence::parse)]
    pub(crate) confidence: Confidence,
    /// Also fail if it is unclear whether a case became slower; the limit is 5 % without --max-slower
    #[arg(long)]
    pub(crate) gate: bool,
    /// Allow a case to become slower by this much
    #[arg(long, value_name = "PERCENT", value_parser = percent_of)]
    pub(crate) max_slower: Option<f64>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// By how much a case may become slower with --gate alone, in percent. Without a limit, results that are noisy enough would pass.
const GATE_LIMIT: f64 = 5.0;

impl CompareArgs {
    /// Returns by how much a case may become slower, in percent; none if any proven difference counts.
    pub(crate) fn limit(&self) -> Option<f64> {
        self.max_slower.or(self.gate.then_some(GATE_LIMIT))
    }
}

/// Reads `5` or `5%`.
fn percent_of(text: &str) -> Result<f64, String> {
    let percent = text.trim_end_matches('%').trim().parse::<f64>().ok();
    percent
        .filter(|percent| (0.0..100.0).contains(percent))
        .ok_or(format!("`{text}` is no percentage from 0 to 100: write 5%"))
}

/// One of the two results.
struct Side {
    scenario: Scenario,
    machine: Machine,
    runs: Vec<Run>,
}

/// The change of a rate in hundredths of the reference, with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Change {
    percent: f64,
    low: f64,
    high: f64,
}

/// What the comparison of one case says.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// The rates differ, beyond what the rounds leave open.
    Differs(Change),
    /// No difference is proven.
    Same(Change),
    /// Nothing can be said, for this reason.
    Undecided(String),
}

/// Compares and prints; false if a case became slower.
pub(crate) fn run(args: &CompareArgs) -> Result<bool, String> {
    if args.a.is_file() && args.b.is_file() {
        return crate::qdir::baseline::compare(args);
    }
    let [a, b] = [&args.a, &args.b]
        .map(|directory| read(directory).map(|(scenario, machine, runs)| Side { scenario, machine, runs }));
    let (a, b) = (a?, b?);
    let mut table = Table::new(args.format, &COLUMNS, None);
    let differences = a.machine.differences(&b.machine).into_iter();
    for difference in differences.chain(load_differences(&a.scenario, &b.scenario)) {
        table.fact(format!("Not the same: {difference}"));
    }
    let shared = shared(&a, &b);
    if shared.is_empty() {
        return Err("the two have no case in common".into());
    }
    let mut gate = Gate::default();
    for (name, theirs) in shared {
        let (old, new) = (rates(&a, name), rates(&b, theirs));
        let outcome = judge(args.confidence, &old, &new, &[problem(&a, name, "A"), problem(&b, theirs, "B")]);
        let promises = promises(&durability(&a.scenario, name), &durability(&b.scenario, theirs));
        let [percent, low, high] = outcome.change();
        table.row([
            name.0.into(),
            label(&a.scenario, name).into(),
            old.iter().copied().collect::<Figure>().into(),
            new.iter().copied().collect::<Figure>().into(),
            format!("{}{promises}", outcome.text()).into(),
            percent,
            low,
            high,
        ]);
        for caveat in caveats(&outcome, [(&a, name), (&b, theirs)]) {
            table.remark(format!("{:>8} {caveat}", ""));
        }
        // A ceiling that moves is the laboratory's.
        if name.2 == Kind::Relay {
            gate.add(outcome.passes(args.limit()));
        }
    }
    for case in missing(&a, &b) {
        table.note(format!("not compared: B has no case `{case}`"));
        gate.add(None);
    }
    let passes = gate.finish(args.gate, &mut table);
    table.finish();
    Ok(passes)
}

/// Whether the whole comparison fails: counts of what the cases say.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Cases that became slower, or not: those that can be told.
    told: usize,
    slower: usize,
    /// Cases of which nothing can be told.
    open: usize,
}

impl Gate {
    /// Adds a case: true if it passes, nothing if that cannot be told.
    pub(crate) fn add(&mut self, passes: Option<bool>) {
        match passes {
            Some(passes) => {
                self.told += 1;
                self.slower += usize::from(!passes);
            }
            None => self.open += 1,
        }
    }

    /// Returns whether the comparison passes, and with --gate notes why it does not.
    pub(crate) fn finish(&self, is_gate: bool, table: &mut Table<'_>) -> bool {
        if is_gate && self.open > 0 {
            let cases = if self.open == 1 { "case" } else { "cases" };
            table
                .note(format!("--gate: it cannot be told of {} {cases} whether it became slower", self.open));
        } else if is_gate && self.told == 0 {
            table.note("--gate: no case was compared: the results have only ceilings");
        }
        self.slower == 0 && (!is_gate || self.open == 0 && self.told > 0)
    }
}

const COLUMNS: [Column; 8] = [
    Column::right("sessions", "sessions", 8),
    Column::left("case", "case", 28),
    Column::right("A drained/s", "a_drained_per_second", 34),
    Column::right("B drained/s", "b_drained_per_second", 34),
    Column::left("verdict", "verdict", 8),
    Column::other("difference %", "difference_percent"),
    Column::other("from %", "difference_low_percent"),
    Column::other("to %", "difference_high_percent"),
];

/// Cases of both, by what they are called: a variant's place in its scenario says nothing.
fn shared(a: &Side, b: &Side) -> Vec<(Name, Name)> {
    let named = |side: &Side| -> Vec<((u32, String, Kind), Name)> {
        let cases = cases(&side.scenario, &side.runs).into_iter();
        cases.map(|(name, runs)| ((name.0, runs[0].variant.clone(), name.2), name)).collect()
    };
    let theirs: BTreeMap<_, Name> = named(b).into_iter().collect();
    named(a).into_iter().filter_map(|(key, name)| Some((name, *theirs.get(&key)?))).collect()
}

/// Returns the names of the relay cases that only A has.
fn missing(a: &Side, b: &Side) -> Vec<String> {
    let shared: Vec<Name> = shared(a, b).into_iter().map(|(name, _)| name).collect();
    let names = cases(&a.scenario, &a.runs).into_keys();
    let missing = names.filter(|name| name.2 == Kind::Relay && !shared.contains(name));
    missing.map(|name| format!("{} sessions, {}", name.0, label(&a.scenario, name))).collect()
}

/// Returns the differences between the loads and the sinks of two scenarios.
fn load_differences(a: &Scenario, b: &Scenario) -> Vec<String> {
    let load = |s: &Scenario| (s.load.options.clone(), s.load.messages, s.sink.options.clone());
    let mut told: Vec<String> = (load(a) != load(b)).then(|| "the load".to_owned()).into_iter().collect();
    for mine in a.variants() {
        let options = |v: &Variant| (v.options.clone(), v.sink_options.clone(), v.idle);
        let theirs = b.variants().into_iter().find(|v| v.name == mine.name);
        if theirs.is_some_and(|theirs| options(&theirs) != options(&mine)) {
            told.push(format!("the load of {}", mine.name));
        }
    }
    told
}

/// Said where one side promises something else of an accepted message: it may be faster for that alone.
fn promises(a: &str, b: &str) -> String {
    let shown = |text: &str| if text.is_empty() { "not said".to_owned() } else { text.to_owned() };
    if a == b { String::new() } else { format!("; NOT THE SAME DURABILITY: {}, and {}", shown(a), shown(b)) }
}

fn rates(side: &Side, name: Name) -> Vec<f64> {
    let cases = cases(&side.scenario, &side.runs);
    cases.get(&name).into_iter().flatten().map(|run| run.drained_rate).collect()
}

/// Returns the remarks that make a reported difference less reliable.
fn caveats(outcome: &Outcome, sides: [(&Side, Name); 2]) -> Vec<String> {
    if !matches!(outcome, Outcome::Differs(_)) {
        return Vec::new();
    }
    let told = ["A", "B"].into_iter().zip(sides).flat_map(|(which, (side, name))| {
        let cases = cases(&side.scenario, &side.runs);
        let remarks = cases.get(&name).map(|runs| detect::remarks(runs)).unwrap_or_default();
        remarks.into_iter().map(move |remark| format!("{which}: {remark}"))
    });
    told.collect()
}

/// Repeats that disagree can be compared with nothing.
fn problem(side: &Side, name: Name, which: &str) -> Option<String> {
    let cases = cases(&side.scenario, &side.runs);
    let remarks = detect::remarks(cases.get(&name)?);
    let found = remarks.into_iter().find(|r| r.starts_with("REPEATS DISAGREE") || r.contains("INCOMPLETE"));
    found.map(|remark| format!("{which}: {remark}"))
}

fn judge(confidence: Confidence, old: &[f64], new: &[f64], problems: &[Option<String>]) -> Outcome {
    if let Some(problem) = problems.iter().flatten().next() {
        return Outcome::Undecided(problem.clone());
    }
    let samples = Sample::new("A", old.to_vec()).and_then(|a| Ok((a, Sample::new("B", new.to_vec())?)));
    let Ok((a, b)) = samples else {
        return Outcome::Undecided(format!("{} and {} runs: three of each are needed", old.len(), new.len()));
    };
    let student = Verdict::new(&b, &a, confidence);
    // Rates are skewed where something else ran: with runs enough, ranks must agree.
    let ranks = old.len() < RANKED || new.len() < RANKED || mann_whitney(&b, &a).p < confidence.alpha();
    let share = |rate: f64| rate / a.mean() * 100.0;
    let change = Change {
        percent: share(student.difference),
        low: share(student.difference - student.margin),
        high: share(student.difference + student.margin),
    };
    if student.is_proven() && ranks { Outcome::Differs(change) } else { Outcome::Same(change) }
}

/// With fewer runs ranks can prove nothing at 95 %.
const RANKED: usize = 5;

impl Outcome {
    /// Tells whether the case became at most `limit` percent slower; nothing where that cannot be told.
    fn passes(&self, limit: Option<f64>) -> Option<bool> {
        match (self, limit) {
            (Self::Undecided(_), _) => None,
            (Self::Differs(change) | Self::Same(change), Some(limit)) if change.low >= -limit => Some(true),
            (Self::Differs(change) | Self::Same(change), Some(limit)) => {
                (change.high < -limit).then_some(false)
            }
            (Self::Differs(change), None) => Some(change.percent > 0.0),
            (Self::Same(_), None) => Some(true),
        }
    }

    /// Returns the cells for the change and the ends of its interval.
    fn change(&self) -> [Cell; 3] {
        match self {
            Self::Differs(change) | Self::Same(change) => {
                [change.percent, change.low, change.high].map(|percent| Cell::Number(percent, 1))
            }
            Self::Undecided(_) => [const { Cell::Empty }; 3],
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Differs(change) if change.percent > 0.0 => format!("FASTER by {} %", shown(change.percent)),
            Self::Differs(change) => format!("SLOWER by {} %", shown(-change.percent)),
            Self::Same(_) => "no difference proven".to_owned(),
            Self::Undecided(why) => format!("not compared: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_where_it_is_proven() {
        let sure = Confidence::parse("95").unwrap();
        let judge = |old: &[f64], new: &[f64]| judge(sure, old, new, &[None, None]);
        let old = [100.0, 101.0, 99.0, 100.5, 99.5];
        assert_eq!(judge(&old, &old.map(|x| x * 1.5)).text(), "FASTER by 50.0 %");
        assert_eq!(judge(&old, &old.map(|x| x * 0.8)).text(), "SLOWER by 20.0 %");
        assert_eq!(judge(&old, &[90.0, 112.0, 99.0, 108.0, 95.0]).text(), "no difference proven");
        assert_eq!(judge(&old, &[1.0, 2.0]).text(), "not compared: 5 and 2 runs: three of each are needed");
    }

    #[test]
    fn a_gate_fails_where_nothing_can_be_told() {
        let change = |percent, low, high| Change { percent, low, high };
        let (slower, noise) = (change(-4.0, -4.5, -3.5), change(-1.0, -9.0, 7.0));
        assert_eq!(Outcome::Undecided("x".into()).passes(Some(5.0)), None);
        assert_eq!(Outcome::Undecided("x".into()).passes(None), None);
        assert_eq!(Outcome::Differs(slower).passes(None), Some(false));
        assert_eq!(Outcome::Differs(slower).passes(Some(5.0)), Some(true));
        assert_eq!(Outcome::Differs(slower).passes(Some(4.0)), None);
        assert_eq!(Outcome::Differs(slower).passes(Some(1.0)), Some(false));
        assert_eq!(Outcome::Same(noise).passes(None), Some(true));
        assert_eq!(Outcome::Same(noise).passes(Some(5.0)), None);
        assert_eq!(Outcome::Same(noise).passes(Some(10.0)), Some(true));
        assert_eq!((percent_of("5%"), percent_of("7.5")), (Ok(5.0), Ok(7.5)));
        assert!(percent_of("x").is_err() && percent_of("-1").is_err());
    }

    #[test]
    fn a_gate_passes_only_where_cases_were_compared_and_all_can_be_told() {
        let finish = |cases: &[Option<bool>], is_gate| {
            let (mut gate, mut table) = (Gate::default(), Table::new(Format::default(), &COLUMNS, None));
            cases.iter().for_each(|passes| gate.add(*passes));
            gate.finish(is_gate, &mut table)
        };
        for (cases, passes, gate_passes) in [
            (&[Some(true)][..], true, true),
            (&[Some(true), None], true, false),
            (&[Some(true), Some(false)], false, false),
            (&[None], true, false),
            (&[], true, false),
        ] {
            assert_eq!((finish(cases, false), finish(cases, true)), (passes, gate_passes), "{cases:?}");
        }
    }

    /// A relay with these variants, and a run of each.
    fn side(variants: &[(&str, &str)]) -> Side {
        let tables: String = variants
            .iter()
            .map(|(name, durability)| {
                format!("[[variant]]\nname = \"{name}\"\ndurability = \"{durability}\"\n")
            })
            .collect();
        let text = format!(
            "title = \"x\"\nexperiment = \"relay\"\n[load]\nmessages = 10\nsessions = [1]\n\
             [mta]\nname = \"m\"\nendpoint = \"127.0.0.1:25\"\n{tables}"
        );
        let run = |(name, _): &(&str, &str)| Run {
            variant: (*name).to_owned(),
            ..detect::tests::run("relay", 1, 10.0, 1.0, 1.0)
        };
        Side {
            scenario: Scenario::parse(&text).unwrap(),
            machine: Machine::default(),
            runs: variants.iter().map(run).collect(),
        }
    }

    #[test]
    fn cases_are_found_by_name_and_another_durability_is_told() {
        let a = side(&[("log", "synced"), ("null", "nothing")]);
        let b = side(&[("null", "nothing"), ("new", "x"), ("log", "no sync")]);
        assert_eq!(
            shared(&a, &b),
            [((1, 0, Kind::Relay), (1, 2, Kind::Relay)), ((1, 1, Kind::Relay), (1, 0, Kind::Relay))]
        );
        let told =
            |(mine, theirs)| promises(&durability(&a.scenario, mine), &durability(&b.scenario, theirs));
        let told: Vec<String> = shared(&a, &b).into_iter().map(told).collect();
        assert_eq!(told, ["; NOT THE SAME DURABILITY: synced, and no sync", ""]);
        let mut other = a.scenario.clone();
        other.variant[1].options = "-d".into();
        assert_eq!(load_differences(&a.scenario, &other), ["the load of null"]);
        assert_eq!(missing(&b, &a), ["1 sessions, relay, new"]);
        assert!(missing(&a, &b).is_empty());
        assert!(load_differences(&a.scenario, &b.scenario).is_empty());
    }

    #[test]
    fn a_difference_has_the_remarks_of_both_sides_beside_it() {
        let (good, mut short) = (side(&[("log", "synced")]), side(&[("log", "synced")]));
        short.runs[0].source.seconds = 0.1;
        let name = (1, 0, Kind::Relay);
        let told = |outcome| caveats(&outcome, [(&good, name), (&short, name)]);
        let change = Change { percent: 9.0, low: 8.0, high: 10.0 };
        assert_eq!(told(Outcome::Differs(change)), ["B: too short to trust"]);
        assert!(told(Outcome::Same(change)).is_empty());
    }

    #[test]
    fn repeats_that_disagree_are_not_compared() {
        let sure = Confidence::parse("95").unwrap();
        let outcome = judge(sure, &[1.0; 3], &[2.0; 3], &[None, Some("B: REPEATS DISAGREE".into())]);
        assert_eq!(outcome.text(), "not compared: B: REPEATS DISAGREE");
    }
}
