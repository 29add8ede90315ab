//! The answer to the question of `queuedirs`: does it pay here to spread the queue over directories, and over how many?

use super::dirs::Setting;
use crate::stat::{Confidence, Sample, Verdict};
use std::fmt::Write as _;

/// Rounds that a comparison needs.
const ROUNDS_MIN: usize = 3;
const SURE: &str = "95";

/// A setting with the rate of each round, in messages a second.
pub(super) type Rates = (Setting, Vec<f64>);

/// Answers for each number of senders with more than one number of directories; nothing where there is none.
///
/// # Errors
/// Only if a rate is no number.
pub(super) fn text(all: &[Rates]) -> Result<String, String> {
    let confidence = Confidence::parse(SURE)?;
    let mut out = String::new();
    let mut groups: Vec<Vec<&Rates>> = Vec::new();
    for one in all {
        let is_alike = |other: &[&Rates]| {
            let (mine, theirs) = (&one.0, &other[0].0);
            (mine.senders, mine.processes, mine.is_hashed)
                == (theirs.senders, theirs.processes, theirs.is_hashed)
        };
        match groups.iter_mut().find(|group| is_alike(group)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    for mut group in groups.into_iter().filter(|group| group.len() > 1) {
        group.sort_by_key(|(setting, _)| setting.directories);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "- {}: {}", about(&group[0].0), answer(&group, confidence)?);
    }
    if out.is_empty() {
        return Ok(out);
    }
    Ok(format!(
        "\nDoes it pay to spread the queue over directories? (messages/s, Student's t at {SURE} %)\n{out}"
    ))
}

fn about(setting: &Setting) -> String {
    let senders =
        if setting.senders == 1 { "1 sender".to_owned() } else { format!("{} senders", setting.senders) };
    let layout = if setting.is_hashed { ", 16 subdirectories each" } else { "" };
    match setting.processes {
        1 => format!("{senders}{layout}"),
        processes => format!("{senders} in {processes} processes{layout}"),
    }
}

fn answer(group: &[&Rates], confidence: Confidence) -> Result<String, String> {
    if group.iter().any(|(_, rates)| rates.len() < ROUNDS_MIN) {
        return Ok(format!("it cannot be told: {ROUNDS_MIN} rounds of each are needed (--rounds)"));
    }
    let samples = group
        .iter()
        .map(|(setting, rates)| {
            Ok((setting.directories, Sample::new(&count(setting.directories), rates.clone())?))
        })
        .collect::<Result<Vec<(u32, Sample)>, String>>()?;
    let (fewest, reference) = &samples[0];
    let proven = |sample: &Sample, reference: &Sample| {
        let verdict = Verdict::new(sample, reference, confidence);
        let percent = |value: f64| value * 100.0 / verdict.base;
        verdict.is_proven().then(|| (percent(verdict.difference), percent(verdict.margin)))
    };
    let against: Vec<(u32, Option<(f64, f64)>)> =
        samples[1..].iter().map(|(directories, sample)| (*directories, proven(sample, reference))).collect();
    let best = samples[1..].iter().max_by(|a, b| a.1.mean().total_cmp(&b.1.mean()));
    let gain = best.and_then(|(_, best)| proven(best, reference)).filter(|(difference, _)| *difference > 0.0);
    if let (Some((_, best)), Some(_)) = (best, gain) {
        // The smallest number that is not proven to be worse than the best one.
        let is_as_good =
            |sample: &Sample| proven(sample, best).is_none_or(|(difference, _)| difference >= 0.0);
        let enough = samples[1..].iter().find(|(directories, sample)| {
            is_as_good(sample) && against.iter().any(|(other, found)| other == directories && found.is_some())
        });
        if let Some((directories, sample)) = enough {
            let (more, margin) = proven(sample, reference).unwrap_or_default();
            let further = match samples.last() {
                Some((most, _)) if most > directories => "; more are not proven to be better",
                _ => "",
            };
            return Ok(format!(
                "yes: with {}, {more:.1} % ± {margin:.1} % more than with {}{further}",
                count(*directories),
                count(*fewest)
            ));
        }
    }
    let worse = against.iter().filter_map(|(directories, found)| Some((directories, (*found)?)));
    let worse: Vec<String> = worse
        .filter(|(_, (difference, _))| *difference < 0.0)
        .map(|(directories, (less, margin))| {
            format!("with {}, {:.1} % ± {margin:.1} % less", count(*directories), -less)
        })
        .collect();
    Ok(match worse.is_empty() {
        true => format!("no: no other number is proven to be better than {}", count(*fewest)),
        false => format!("no: {}", worse.join(", ")),
    })
}

fn count(directories: u32) -> String {
    if directories == 1 { "1 directory".to_owned() } else { format!("{directories} directories") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(senders: u32, directories: u32, rates: &[f64]) -> Rates {
        (Setting { senders, directories, processes: 1, is_hashed: false }, rates.to_vec())
    }

    #[test]
    fn the_answer_is_the_fewest_directories_that_are_as_good_as_the_best() {
        let all = [
            rates(1, 1, &[100.0, 101.0, 99.0]),
            rates(1, 10, &[100.0, 99.0, 102.0]),
            rates(10, 1, &[200.0, 201.0, 199.0]),
            rates(10, 5, &[240.0, 241.0, 239.0]),
            rates(10, 10, &[300.0, 301.0, 299.0]),
            rates(10, 20, &[300.0, 302.0, 299.0]),
            rates(20, 1, &[200.0, 201.0, 199.0]),
            rates(20, 10, &[150.0, 151.0, 149.0]),
            rates(30, 1, &[200.0, 201.0, 199.0]),
        ];
        let text = text(&all).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "- 1 sender: no: no other number is proven to be better than 1 directory",
                "- 10 senders: yes: with 10 directories, 50.0 % ± 1.1 % more than with 1 directory; more are not proven to be better",
                "- 20 senders: no: with 10 directories, 25.0 % ± 1.1 % less",
            ]
        );
    }

    #[test]
    fn without_rounds_there_is_no_answer() {
        let all = [rates(10, 1, &[200.0]), rates(10, 10, &[300.0])];
        assert!(text(&all).unwrap().contains("10 senders: it cannot be told: 3 rounds of each are needed"));
        assert_eq!(text(&[rates(10, 1, &[200.0])]).unwrap(), "");
    }
}
