//! A finding of a text beside what is measured here: interval, verdict, and a sentence for both.

use super::{
    Seed,
    read::Series,
    record::Record,
    seeds::{Figures, Seeds},
    step::{Claim, Step},
    verdict::{Prediction, Verdict, Window},
};
use crate::stat::interval::{Interval, Method};

/// A finding of a text beside the figure that was measured here.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) seed: Seed,
    pub(super) step: String,
    pub(super) what: String,
    /// The result of the text, in a sentence.
    pub(super) finding: String,
    pub(super) theirs: Figures,
    pub(super) here: Option<Interval>,
    /// With its multiplication sign or unit.
    pub(super) unit: String,
    /// The prediction as it is written.
    pub(super) expression: String,
    /// None where there is nothing to judge: a rate of another machine.
    pub(super) judged: Option<(Window, Verdict)>,
    pub(super) sentence: String,
}

/// The reason where a step has not been tried.
const NOT_MEASURED: &str = "not measured";

/// Compares a step's record with all findings of the step.
pub(super) fn findings(step: &Step, record: Option<&Record>, seeds: &Seeds) -> Result<Vec<Finding>, String> {
    step.claim.iter().map(|claim| finding(step, claim, record, seeds)).collect()
}

fn finding(step: &Step, claim: &Claim, record: Option<&Record>, seeds: &Seeds) -> Result<Finding, String> {
    let (theirs, prediction) = (claim.theirs(seeds)?, claim.prediction()?);
    let points = record.map(|record| points(step, &prediction, record)).unwrap_or_default();
    let here = Interval::of(&points);
    let judged = prediction.condition.map(|condition| {
        let window = condition.window(&theirs);
        let verdict = match record {
            None => Verdict::CannotTell(NOT_MEASURED.into()),
            Some(Record { failed: Some(why), rounds, .. }) if rounds.is_empty() => {
                Verdict::CannotTell(format!("not measured: {why}"))
            }
            Some(record) => window.judge(here, &remarks(step, claim, &prediction, record)),
        };
        (window, verdict)
    });
    let unit = if prediction.below.is_some() && claim.unit.is_empty() {
        "×".to_owned()
    } else {
        claim.unit.clone()
    };
    let sentence =
        judged.as_ref().map(|(_, verdict)| sentence(claim, verdict, here, &theirs)).unwrap_or_default();
    Ok(Finding {
        // A step may measure what two texts found.
        seed: Seed::of(&theirs.place).unwrap_or(step.seed),
        step: step.name.clone(),
        what: claim.what.clone(),
        finding: claim.finding.clone(),
        theirs,
        here,
        unit,
        expression: claim.expression().to_owned(),
        judged,
        sentence,
    })
}

/// The figure in each round.
fn points(step: &Step, prediction: &Prediction, record: &Record) -> Vec<f64> {
    prediction.points(|name| {
        let Some(series) = step.series.get(name) else { return Vec::new() };
        let read = |round: &super::record::Round| series.read(&round.runs.get(series.command)?.output);
        record.rounds.iter().map(read).collect()
    })
}

/// Reasons to doubt the figure: the step's, and those that the tools named with what the figure is made of.
fn remarks(step: &Step, claim: &Claim, prediction: &Prediction, record: &Record) -> Vec<String> {
    let mut remarks = record.remarks();
    for name in std::iter::once(&prediction.above).chain(&prediction.below) {
        let Some(series) = step.series.get(name) else { continue };
        let mut told: Vec<String> = record.command_remarks(series.command).into_iter().collect();
        let runs = record.rounds.iter().filter_map(|round| round.runs.get(series.command));
        told.extend(runs.flat_map(|run| series.remarks(&run.output)));
        let is_allowed = |remark: &String| claim.allows.iter().any(|allowed| remark.contains(allowed));
        for remark in told.into_iter().filter(|remark| !is_allowed(remark)) {
            // The same artefact in three rounds is one reason.
            let kind = |text: &str| text.replace(|c: char| c.is_ascii_digit() || c == '.', "");
            if !remarks.iter().any(|known| kind(known) == kind(&remark)) {
                remarks.push(remark);
            }
        }
    }
    remarks
}

fn sentence(claim: &Claim, verdict: &Verdict, here: Option<Interval>, theirs: &Figures) -> String {
    let text = match verdict {
        Verdict::Agrees => &claim.agrees,
        Verdict::Above => &claim.above,
        Verdict::Below => &claim.below,
        Verdict::CannotTell(why) => return format!("Open: {why}."),
    };
    let here = here.map(|interval| shown(interval.median)).unwrap_or_default();
    text.replace("{here}", &here).replace("{theirs}", &theirs.text())
}

impl Finding {
    /// Returns the figure of the text with its unit; an inferred one is marked.
    pub(super) fn theirs_text(&self) -> String {
        let mark = if self.theirs.inferred { " (inferred)" } else { "" };
        format!("{}{}{mark}", self.theirs.text(), self.unit)
    }

    /// Ours with its interval.
    pub(super) fn here_text(&self) -> String {
        let Some(here) = self.here else { return "-".to_owned() };
        let median = format!("{}{}", shown(here.median), self.unit);
        match here.method {
            Method::Single => median,
            _ => format!("{median} ({}–{})", shown(here.low), shown(here.high)),
        }
    }

    /// Returns the condition of the prediction: `in seeds`, `> 1`.
    pub(super) fn prediction(&self) -> &str {
        let condition = self.expression.rfind(')').map_or("", |at| &self.expression[at + 1..]);
        condition.trim()
    }

    pub(super) fn is_measured(&self) -> bool {
        !matches!(&self.judged, Some((_, Verdict::CannotTell(why))) if why == NOT_MEASURED)
    }

    pub(super) fn word(&self) -> &'static str {
        self.judged.as_ref().map_or("not judged", |(_, verdict)| verdict.word())
    }

    /// Open questions first, then what differs.
    pub(super) fn order(&self) -> (u8, Seed) {
        let place = match self.judged.as_ref().map(|(_, verdict)| verdict) {
            Some(Verdict::CannotTell(_)) => 0,
            Some(Verdict::Above | Verdict::Below) => 1,
            Some(Verdict::Agrees) => 2,
            None => 3,
        };
        (place, self.seed)
    }
}

/// Returns the amount that was really measured: `3 rounds of 10,000 messages`.
pub(super) fn measured(step: &Step, record: &Record) -> String {
    let rounds = match record.rounds.len() {
        1 => "1 round".to_owned(),
        count => format!("{count} rounds"),
    };
    let amount = step.amount.as_ref().and_then(|series| {
        let counts =
            record.rounds.iter().filter_map(|round| series.read(&round.runs.get(series.command)?.output));
        let counts: Vec<f64> = counts.collect();
        let (low, high) =
            (counts.iter().copied().reduce(f64::min)?, counts.iter().copied().reduce(f64::max)?);
        let (low, high) = (thousands(low), thousands(high));
        Some(if low == high {
            format!(" of {low} {}", step.unit)
        } else {
            format!(" of {low} to {high} {}", step.unit)
        })
    });
    rounds + &amount.unwrap_or_default()
}

/// Returns the figures of a step that the output of some round does not have, as a tool that prints its table otherwise does.
pub(super) fn unread<'s>(step: &'s Step, record: &Record) -> Vec<&'s str> {
    let amount = step.amount.iter().map(|series| ("amount", series));
    let figures = step.series.iter().map(|(name, series)| (name.as_str(), series)).chain(amount);
    let is_unread = |series: &Series| {
        let mut outputs = record.rounds.iter().map(|round| round.runs.get(series.command));
        outputs.any(|run| run.and_then(|run| series.read(&run.output)).is_none())
    };
    figures.filter(|(_, series)| is_unread(series)).map(|(name, _)| name).collect()
}

/// Three digits, and two of what is below a tenth.
pub(super) fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.1 => {
            let decimals = (1.0 - size.log10().floor()).min(9.0) as usize;
            format!("{value:.decimals$}")
        }
        _ => crate::stat::spread::shown(value),
    }
}

/// `10,000`
pub(crate) fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reproduce::record::{Round, Run},
        run::machine::Machine,
    };

    fn step() -> Step {
        let text = "name = \"x\"\nquestion = \"q\"\nquick = [\"ipc\"]\nfull = [\"ipc\"]\nrounds = [3, 5]\nunit = \"trips\"\n\
                    amount = { row = \"LOCAL\", word = 1 }\n\
                    series.a = { row = \"LOCAL\" }\nseries.b = { row = \"INET\" }\n\
                    [[claim]]\nwhat = \"LOCAL to INET\"\nfinding = \"f\"\nexpect = \"ratio(a, b) in seeds\"\n\
                    theirs = \"S4.net[*;32].INET / S4.net[*;32].LOCAL\"\n\
                    agrees = \"As fast: {here}.\"\nabove = \"Faster: {here} beside {theirs}.\"\nbelow = \"Slower.\"\n";
        toml::from_str(text).unwrap()
    }

    fn record(rates: &[(f64, f64)]) -> Record {
        let output = |(local, inet): &(f64, f64)| {
            format!("INET 5000 {inet} (1–1, N=1)\nLOCAL 5000 {local} (1–1, N=1)\n")
        };
        let run = |rates| Run { seconds: 1.0, output: output(rates) };
        let round = |rates| Round { runs: vec![run(rates)], ..Round::default() };
        let machine = Machine { build: "release".into(), ..Machine::default() };
        Record { step: "x".into(), machine, rounds: rates.iter().map(round).collect(), ..Record::default() }
    }

    fn judged(record: Option<&Record>) -> Finding {
        findings(&step(), record, &Seeds::new().unwrap()).unwrap().remove(0)
    }

    #[test]
    fn a_sentence_belongs_to_the_verdict() {
        let agrees = judged(Some(&record(&[(13.0, 10.0), (12.0, 10.0), (14.0, 10.0)])));
        assert_eq!((agrees.word(), agrees.sentence.as_str()), ("agrees", "As fast: 1.30."));
        assert_eq!(
            (agrees.theirs_text(), agrees.here_text()),
            ("1.11 to 1.50×".into(), "1.30× (1.20–1.40)".into())
        );
        let above = judged(Some(&record(&[(20.0, 10.0), (21.0, 10.0), (22.0, 10.0)])));
        assert_eq!((above.word(), above.sentence.as_str()), ("differs", "Faster: 2.10 beside 1.11 to 1.50."));
        let below = judged(Some(&record(&[(5.0, 10.0); 3])));
        assert_eq!((below.word(), below.sentence.as_str()), ("differs", "Slower."));
    }

    #[test]
    fn what_cannot_be_told_names_its_reason() {
        assert_eq!(judged(None).sentence, "Open: not measured.");
        let one = judged(Some(&record(&[(13.0, 10.0)])));
        assert_eq!(one.sentence, "Open: one round: at least 3 are needed.");
        let mut short = record(&[(13.0, 10.0); 3]);
        short.rounds[1].runs[0].output.push_str("too short to trust\n");
        assert_eq!(judged(Some(&short)).sentence, "Open: too short to trust.");
        short.rounds.clear();
        short.failed = Some("no disk".into());
        assert_eq!(judged(Some(&short)).sentence, "Open: not measured: no disk.");
    }

    #[test]
    fn the_count_is_that_of_what_was_measured() {
        assert_eq!(measured(&step(), &record(&[(13.0, 10.0); 3])), "3 rounds of 5,000 trips");
        assert_eq!(unread(&step(), &record(&[(13.0, 10.0)])), Vec::<&str>::new());
        let mut other = record(&[(13.0, 10.0); 2]);
        other.rounds[1].runs[0].output = "INET 5000 10 (1–1, N=1)".to_owned();
        assert_eq!(unread(&step(), &other), ["a", "amount"]);
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!([0.0, 0.01465, 0.36, 49.42].map(shown), ["0", "0.015", "0.36", "49.4"]);
    }
}
