//! The answer to the question of `queuedirs`: does it pay here to spread the queue over directories, and over how many?

use super::dirs::Setting;
use crate::stat::{Confidence, Sample, Verdict};
use std::fmt::Write as _;

/// Rounds that a comparison needs.
const ROUNDS_MIN: usize = 3;
/// Each answer is made of several comparisons.
const SURE: &str = "99.5";
/// What nobody would spread a queue for, in percent.
const GAIN_MIN: f64 = 5.0;

/// The rates of one setting, for the answer about the best one.
pub(super) struct Rates {
    pub(super) setting: Setting,
    /// Messages a second, of each round.
    pub(super) rates: Vec<f64>,
    /// The rounds are too short, or lie too far apart.
    pub(super) is_doubtful: bool,
}

/// Answers for each number of senders with more than one number of directories; nothing where there is none.
///
/// # Errors
/// Only if a rate is not a number.
pub(super) fn text(all: &[Rates]) -> Result<String, String> {
    let confidence = Confidence::parse(SURE)?;
    let mut out = String::new();
    let mut groups: Vec<Vec<&Rates>> = Vec::new();
    for one in all {
        let is_alike = |other: &[&Rates]| {
            let (mine, theirs) = (&one.setting, &other[0].setting);
            (mine.senders, mine.processes, mine.is_hashed)
                == (theirs.senders, theirs.processes, theirs.is_hashed)
        };
        match groups.iter_mut().find(|group| is_alike(group)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    for mut group in groups.into_iter().filter(|group| group.len() > 1) {
        group.sort_by_key(|one| one.setting.directories);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "- {}: {}", about(&group[0].setting), answer(&group, confidence)?);
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
    if group.iter().any(|one| one.rates.len() < ROUNDS_MIN) {
        return Ok(format!("it cannot be told: {ROUNDS_MIN} rounds of each are needed (--rounds)"));
    }
    if let Some(doubtful) = group.iter().find(|one| one.is_doubtful) {
        return Ok(format!(
            "it cannot be told: the rounds with {} are not to be believed (its remark says why)",
            count(doubtful.setting.directories)
        ));
    }
    let sample = |one: &&Rates| {
        let directories = one.setting.directories;
        Ok((directories, Sample::new(&count(directories), one.rates.clone())?))
    };
    let samples = group.iter().map(sample).collect::<Result<Vec<(u32, Sample)>, String>>()?;
    let (fewest, reference) = &samples[0];
    let compared = |sample: &Sample, reference: &Sample| Difference::new(sample, reference, confidence);
    let best = samples[1..].iter().max_by(|a, b| a.1.mean().total_cmp(&b.1.mean()));
    if let Some((_, best)) = best.filter(|(_, best)| compared(best, reference).is_more()) {
        // The smallest number that is better than the fewest, and not proven to be worse than the best one.
        let is_enough = |(_, sample): &&(u32, Sample)| {
            compared(sample, reference).is_more() && !compared(sample, best).is_less()
        };
        if let Some((directories, sample)) = samples[1..].iter().find(is_enough) {
            let Difference { percent, margin } = compared(sample, reference);
            let further = match samples.last() {
                Some((most, _)) if most > directories => "; more are not proven to be better",
                _ => "",
            };
            return Ok(format!(
                "yes: with {}, {percent:.1} % ± {margin:.1} % more than with {}{further}",
                count(*directories),
                count(*fewest)
            ));
        }
    }
    let others: Vec<(u32, Difference)> = samples[1..]
        .iter()
        .map(|(directories, sample)| (*directories, compared(sample, reference)))
        .collect();
    if let Some((directories, open)) = others.iter().find(|(_, other)| other.most() >= GAIN_MIN) {
        return Ok(format!(
            "it cannot be told: {} are between {:.1} % and {:+.1} % beside {}, and more rounds say it better (--rounds)",
            count(*directories),
            open.percent - open.margin,
            open.most(),
            count(*fewest)
        ));
    }
    let less = others.iter().filter(|(_, other)| other.is_less());
    let less: Vec<String> = less
        .map(|(directories, other)| {
            format!("with {}, {:.1} % ± {:.1} % less", count(*directories), -other.percent, other.margin)
        })
        .collect();
    Ok(match less.is_empty() {
        true => format!("no: no other number is {GAIN_MIN} % better than {}", count(*fewest)),
        false => format!("no: {}", less.join(", ")),
    })
}

/// A difference of two rates, in percent of the second.
struct Difference {
    percent: f64,
    /// Half the width of the interval around it.
    margin: f64,
}

impl Difference {
    fn new(sample: &Sample, reference: &Sample, confidence: Confidence) -> Self {
        let verdict = Verdict::new(sample, reference, confidence);
        let percent = |value: f64| value * 100.0 / verdict.base;
        Self { percent: percent(verdict.difference), margin: percent(verdict.margin) }
    }

    fn is_more(&self) -> bool {
        self.percent > self.margin
    }

    fn is_less(&self) -> bool {
        -self.percent > self.margin
    }

    /// Returns the upper end of the interval, in percent.
    fn most(&self) -> f64 {
        self.percent + self.margin
    }
}

fn count(directories: u32) -> String {
    if directories == 1 { "1 directory".to_owned() } else { format!("{directories} directories") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(senders: u32, directories: u32, rates: &[f64]) -> Rates {
        let setting = Setting { senders, directories, processes: 1, is_hashed: false };
        Rates { setting, rates: rates.to_vec(), is_doubtful: false }
    }

    #[test]
    fn the_answer_is_the_fewest_directories_that_are_as_good_as_the_best() {
        let doubtful = Rates { is_doubtful: true, ..rates(40, 10, &[300.0, 301.0, 299.0]) };
        let all = [
            rates(1, 1, &[100.0, 101.0, 99.0]),
            rates(1, 10, &[98.0, 98.1, 97.9]),
            rates(10, 1, &[200.0, 201.0, 199.0]),
            rates(10, 5, &[240.0, 241.0, 239.0]),
            rates(10, 10, &[300.0, 301.0, 299.0]),
            rates(10, 20, &[300.0, 302.0, 299.0]),
            rates(20, 1, &[200.0, 201.0, 199.0]),
            rates(20, 10, &[150.0, 151.0, 149.0]),
            rates(30, 1, &[200.0, 201.0, 199.0]),
            rates(40, 1, &[200.0, 201.0, 199.0]),
            doubtful,
            rates(50, 1, &[100.0, 110.0, 90.0]),
            rates(50, 10, &[105.0, 115.0, 95.0]),
        ];
        let text = text(&all).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "- 1 sender: no: no other number is 5 % better than 1 directory",
                "- 10 senders: yes: with 10 directories, 50.0 % ± 2.9 % more than with 1 directory; more are not proven to be better",
                "- 20 senders: no: with 10 directories, 25.0 % ± 2.9 % less",
                "- 40 senders: it cannot be told: the rounds with 10 directories are not to be believed (its remark says why)",
                "- 50 senders: it cannot be told: 10 directories are between -53.6 % and +63.6 % beside 1 directory, and more rounds say it better (--rounds)",
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
