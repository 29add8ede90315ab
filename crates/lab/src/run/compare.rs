//! `postlab compare A B`: two result directories, case by case, with a verdict on each difference.

use super::{
    detect,
    machine::Machine,
    read,
    rig::{Kind, Run},
    scenario::Scenario,
    table::{Name, cases, label},
};
use crate::stat::{
    Confidence, Sample, Verdict, mann_whitney,
    spread::{Spread, shown},
};
use clap::Args;
use std::{collections::BTreeSet, path::PathBuf};

/// Compare two result directories: before and after, or one MTA and another
///
/// The exit code is 1 if a case became slower.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The reference
    a: PathBuf,
    /// What is compared with it
    b: PathBuf,
    /// How sure a difference must be: 80, 90, 95, 98, 99 or 99.5
    #[arg(short = 'c', value_name = "PERCENT", default_value = "95", value_parser = Confidence::parse)]
    confidence: Confidence,
}

/// One side.
struct Side {
    scenario: Scenario,
    machine: Machine,
    runs: Vec<Run>,
}

/// What came of a case.
#[derive(Debug, PartialEq)]
enum Outcome {
    /// In hundredths of the reference, if the difference is proven.
    Differs(f64),
    Same,
    /// Why nothing can be said.
    Undecided(String),
}

/// Compares and prints; false if a case became slower.
pub(crate) fn run(args: &CompareArgs) -> Result<bool, String> {
    let [a, b] = [&args.a, &args.b]
        .map(|directory| read(directory).map(|(scenario, machine, runs)| Side { scenario, machine, runs }));
    let (a, b) = (a?, b?);
    for difference in a.machine.differences(&b.machine) {
        println!("Not the same: {difference}");
    }
    if a.scenario.load.letters != b.scenario.load.letters
        || a.scenario.load.messages != b.scenario.load.messages
    {
        println!("Not the same: the load");
    }
    let names = |side: &Side| cases(&side.scenario, &side.runs).into_keys().collect::<BTreeSet<Name>>();
    let shared: Vec<Name> = names(&a).intersection(&names(&b)).copied().collect();
    if shared.is_empty() {
        return Err("the two have no case in common".into());
    }
    println!("{:>8}  {:<28} {:>34} {:>34}  messages a second until drained", "sessions", "", "A", "B");
    let mut good = true;
    for name in shared {
        let (old, new) = (rates(&a, name), rates(&b, name));
        let text = |rates: &[f64]| {
            Spread::of(rates.iter().copied()).map(|s| s.text_of(rates.len())).unwrap_or_default()
        };
        let outcome = judge(args.confidence, &old, &new, &[problem(&a, name, "A"), problem(&b, name, "B")]);
        println!(
            "{:>8}  {:<28} {:>34} {:>34}  {}",
            name.0,
            label(&a.scenario, name),
            text(&old),
            text(&new),
            outcome.text()
        );
        // A ceiling that moves is the laboratory's.
        good &= name.2 == Kind::Ceiling || !matches!(outcome, Outcome::Differs(percent) if percent < 0.0);
    }
    Ok(good)
}

fn rates(side: &Side, name: Name) -> Vec<f64> {
    let cases = cases(&side.scenario, &side.runs);
    cases.get(&name).into_iter().flatten().map(|run| run.drained_rate).collect()
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
    if student.is_proven() && ranks {
        Outcome::Differs((b.mean() / a.mean() - 1.0) * 100.0)
    } else {
        Outcome::Same
    }
}

/// With fewer runs ranks can prove nothing at 95 %.
const RANKED: usize = 5;

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Differs(percent) if *percent > 0.0 => format!("FASTER by {} %", shown(*percent)),
            Self::Differs(percent) => format!("SLOWER by {} %", shown(-percent)),
            Self::Same => "no difference proven".to_owned(),
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
        assert_eq!(judge(&old, &[90.0, 112.0, 99.0, 108.0, 95.0]), Outcome::Same);
        assert_eq!(judge(&old, &[1.0, 2.0]).text(), "not compared: 5 and 2 runs: three of each are needed");
    }

    #[test]
    fn repeats_that_disagree_are_not_compared() {
        let sure = Confidence::parse("95").unwrap();
        let outcome = judge(sure, &[1.0; 3], &[2.0; 3], &[None, Some("B: REPEATS DISAGREE".into())]);
        assert_eq!(outcome.text(), "not compared: B: REPEATS DISAGREE");
    }
}
