//! A finding of a text beside what is measured here: interval, verdict, and a sentence for both.

use super::{
    Kept, Seed,
    read::Series,
    record::Record,
    seeds::{Figures, Seeds},
    step::{Claim, Step},
    verdict::{NEAR_ONE, Prediction, Verdict, Window},
};
use crate::{
    rounds::disagreement,
    stat::interval::{Interval, Method},
};

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
    /// None where there is nothing to judge: a rate of another machine, or what Postrider does about the finding.
    pub(super) judged: Option<Judged>,
    /// Set for what Postrider does about a finding: another program and another design than the text measured.
    pub(super) is_answer: bool,
    pub(super) sentence: String,
}

/// The two verdicts on a finding.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    /// The statement of the text as a condition: `< 1`.
    pub(super) condition: String,
    /// Does the statement of the text hold here?
    pub(super) direction: Verdict,
    /// Is the effect as large as in the text? With what is allowed; none where the text has no figure, or measured something whose
    /// size cannot be compared.
    pub(super) size: Option<(Window, Verdict)>,
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
    let remarks = record.map(|record| remarks(step, claim, &prediction, record, points)).unwrap_or_default();
    let judge = |window: Window| match record {
        None => Verdict::CannotTell(NOT_MEASURED.into()),
        Some(Record { failed: Some(why), rounds, .. }) if rounds.is_empty() => {
            Verdict::CannotTell(format!("not measured: {why}"))
        }
        Some(_) => window.judge(here, &remarks),
    };
    let size = prediction.condition.map(|condition| {
        let window = condition.window(&theirs);
        (window, judge(window))
    });
    // A condition such as `> 1` could never be refuted by a ratio of one, however well it is measured.
    let direction = claim.direction()?.map(|condition| {
        let verdict = judge(condition.window(&theirs));
        let meets_one = here.is_some_and(|interval| Window::ONE.meets(interval));
        let is_small = theirs.words.is_none() && Window::NO_EFFECT.holds(theirs.range());
        match verdict {
            verdict if !condition.is_effect() || !meets_one => verdict,
            _ if !is_small && judge(Window::NO_EFFECT) == Verdict::Agrees => Verdict::NoEffect,
            verdict if verdict.is_told() => Verdict::CannotTell(NEAR_ONE.into()),
            verdict => verdict,
        }
    });
    let unit = if prediction.below.is_some() && claim.unit.is_empty() {
        "×".to_owned()
    } else {
        claim.unit.clone()
    };
    let size_verdict = size.as_ref().map(|(_, verdict)| verdict);
    let sentence = sentence(claim, direction.as_ref(), size_verdict, here, &theirs);
    let judged = direction.map(|direction| Judged { condition: claim.direction.clone(), direction, size });
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
        is_answer: claim.answer,
        sentence,
    })
}

/// Puts figures into a sentence: `{value(ext4)}` is the median of that expression in the record of the finding's step, and
/// `{relay: value(postfix)}` in that of another.
///
/// # Errors
/// There is no such step or series.
pub(super) fn fill(text: &str, own: &Kept, all: &[Kept]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        let (expression, behind) =
            behind.split_once('}').ok_or_else(|| format!("`{{{behind}`: `}}` is missing"))?;
        let (of, expression) = match expression.split_once(": ") {
            Some((name, expression)) => {
                let step = all.iter().find(|kept| kept.step.name == name);
                (
                    step.ok_or_else(|| format!("`{{{name}: {expression}}}`: there is no such step"))?,
                    expression,
                )
            }
            None => (own, expression),
        };
        let prediction = Prediction::parse(expression)?;
        if let Some(name) = prediction.series().find(|name| !of.step.has(name)) {
            return Err(format!("`{{{expression}}}`: {} has no series {name}", of.step.name));
        }
        let points = of.record.as_ref().map(|record| points(&of.step, &prediction, record));
        let median = Interval::of(&points.unwrap_or_default()).map(|interval| interval.median);
        out += before;
        out += &match median {
            Some(median) if median >= 1000.0 => thousands(median),
            Some(median) => shown(median),
            None => "(not measured)".to_owned(),
        };
        rest = behind;
    }
    Ok(out + rest)
}

/// The figure in each round; a number instead of a series is the same in each.
fn points(step: &Step, prediction: &Prediction, record: &Record) -> Vec<f64> {
    prediction.points(|name| {
        if let Ok(number) = name.parse() {
            return vec![Some(number); record.rounds.len()];
        }
        let Some(series) = step.series.get(name) else { return Vec::new() };
        let read = |round: &super::record::Round| series.read(&round.runs.get(series.command)?.output);
        record.rounds.iter().map(read).collect()
    })
}

/// Reasons to doubt the figure: the step's, those that the tools named with what the figure is made of, and rounds that disagree.
fn remarks(
    step: &Step,
    claim: &Claim,
    prediction: &Prediction,
    record: &Record,
    points: Vec<f64>,
) -> Vec<String> {
    let mut remarks = record.remarks();
    remarks.extend(disagreement(&points.into_iter().collect()));
    for name in prediction.series() {
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

/// Says what is seen: by the size where it can be told, else by the direction. What differs has a cause, or is said to have none
/// that is known.
fn sentence(
    claim: &Claim,
    direction: Option<&Verdict>,
    size: Option<&Verdict>,
    here: Option<Interval>,
    theirs: &Figures,
) -> String {
    let told = |verdict: Option<&Verdict>| verdict.filter(|verdict| verdict.is_told()).cloned();
    let open = |verdict: Option<&Verdict>| match verdict {
        Some(Verdict::CannotTell(why)) => Some(why.clone()),
        _ => None,
    };
    let Some(verdict) = told(size).or_else(|| told(direction)) else {
        return open(direction.or(size)).map(|why| format!("Open: {why}.")).unwrap_or_default();
    };
    let no_effect = "No effect is seen: {here} times.".to_owned();
    let (text, cause) = match verdict {
        Verdict::Above => (&claim.above, claim.cause_above.as_str()),
        Verdict::Below => (&claim.below, claim.cause_below.as_str()),
        Verdict::Agrees | Verdict::CannotTell(_) => (&claim.agrees, ""),
        Verdict::NoEffect => (&no_effect, ""),
    };
    let here = here.map(|interval| shown(interval.median)).unwrap_or_default();
    let mut text = text.replace("{here}", &here).replace("{theirs}", &theirs.text());
    let differs = |verdict: Option<&Verdict>| verdict.is_some_and(Verdict::differs);
    if direction.is_some() && (differs(size) || differs(direction)) {
        text += &if cause.is_empty() { " Cause: unknown.".to_owned() } else { format!(" Cause: {cause}") };
    }
    if let (Some(why), true) = (open(size), direction.is_some()) {
        text += &format!(" Size open: {why}.");
    }
    if let Some(why) = open(direction) {
        text += &format!(" Direction open: {why}.");
    }
    text
}

impl Finding {
    /// Returns the figure of the text with its unit; an inferred one is marked.
    pub(super) fn theirs_text(&self) -> String {
        if let Some(words) = &self.theirs.words {
            return words.clone();
        }
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

    /// Returns the condition on the size, as the experiments have it: `in seeds`, `> 1`; nothing where it is not compared.
    pub(super) fn prediction(&self) -> &str {
        let condition = self.expression.rfind(')').map_or("", |at| &self.expression[at + 1..]);
        condition.trim()
    }

    pub(super) fn is_measured(&self) -> bool {
        let is_open = |why: &String| why == NOT_MEASURED;
        !matches!(&self.judged, Some(Judged { direction: Verdict::CannotTell(why), .. }) if is_open(why))
    }

    /// Returns true for a finding of which one of the two verdicts cannot be told.
    pub(super) fn is_open(&self) -> bool {
        self.judged.as_ref().is_some_and(|judged| {
            !judged.direction.is_told() || judged.size.as_ref().is_some_and(|(_, size)| !size.is_told())
        })
    }

    /// The verdict on the direction, in words.
    pub(super) fn direction(&self) -> &'static str {
        self.judged.as_ref().map_or("not judged", |judged| judged.direction.word())
    }

    /// The verdict on the size, in words.
    pub(super) fn size(&self) -> &'static str {
        let size = self.judged.as_ref().and_then(|judged| judged.size.as_ref());
        size.map_or("not compared", |(_, size)| size.word())
    }

    /// Both verdicts with the condition of each: `agrees (expected < 1)`.
    pub(super) fn verdicts(&self) -> (String, String) {
        let with = |verdict: &str, condition: &str| match condition {
            "" => verdict.to_owned(),
            condition => format!("{verdict} (expected {condition})"),
        };
        let condition = self.judged.as_ref().map_or("", |judged| judged.condition.as_str());
        let size = match self.prediction() {
            "in seeds" => "the text's range",
            "near seeds" => "near the text's figure",
            prediction => prediction,
        };
        (with(self.direction(), condition), with(self.size(), size))
    }

    /// What differs first, in its direction and then in its size; open questions after what agrees; then what is not judged.
    pub(super) fn order(&self) -> (u8, u8, Seed) {
        let place = |verdict: &Verdict| match verdict {
            Verdict::Above | Verdict::Below => 0,
            Verdict::NoEffect => 1,
            Verdict::Agrees => 2,
            Verdict::CannotTell(_) => 3,
        };
        let Some(judged) = &self.judged else { return (4, 0, self.seed) };
        let size = judged.size.as_ref().map_or(2, |(_, size)| place(size));
        (place(&judged.direction), size, self.seed)
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
                    [[claim]]\nwhat = \"LOCAL to INET\"\nfinding = \"f\"\nexpect = \"ratio(a, b) in seeds\"\ndirection = \"> 1\"\n\
                    cause_above = \"less copying.\"\ntheirs = \"S4.net[*;32].INET / S4.net[*;32].LOCAL\"\n\
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

    /// Both verdicts and the sentence.
    fn of(finding: &Finding) -> (&str, &str, &str) {
        (finding.direction(), finding.size(), &finding.sentence)
    }

    #[test]
    fn a_sentence_belongs_to_its_verdict_and_what_differs_has_a_cause_or_none_that_is_known() {
        let agrees = judged(Some(&record(&[(13.0, 10.0), (12.0, 10.0), (14.0, 10.0)])));
        assert_eq!(of(&agrees), ("agrees", "agrees", "As fast: 1.30."));
        assert_eq!(
            (agrees.theirs_text(), agrees.here_text()),
            ("1.11 to 1.50×".into(), "1.30× (1.20–1.40)".into())
        );
        let above = judged(Some(&record(&[(20.0, 10.0), (21.0, 10.0), (22.0, 10.0)])));
        let sentence = "Faster: 2.10 beside 1.11 to 1.50. Cause: less copying.";
        assert_eq!(of(&above), ("agrees", "differs", sentence));
        let below = judged(Some(&record(&[(5.0, 10.0); 3])));
        assert_eq!(of(&below), ("differs", "differs", "Slower. Cause: unknown."));
        let expected = ("differs (expected > 1)".into(), "differs (expected the text's range)".into());
        assert_eq!(below.verdicts(), expected);
    }

    #[test]
    fn figures_of_records_fill_a_sentence_and_what_there_is_not_is_an_error() {
        let kept = |record| Kept { step: step(), record, findings: Vec::new() };
        let all = [kept(Some(record(&[(2500.0, 10.0)]))), kept(None)];
        let filled = |own: usize, text: &str| fill(text, &all[own], &all);
        assert_eq!(filled(0, "{value(a)} and {ratio(b, a)}.").unwrap(), "2,500 and 0.0040.");
        assert_eq!(filled(0, "{x: value(b)}").unwrap(), filled(1, "{x: value(b)}").unwrap());
        assert_eq!(filled(1, "It was {value(a)}.").unwrap(), "It was (not measured).");
        for (text, error) in [
            ("{value(a)", "`}` is missing"),
            ("{value(z)}", "x has no series z"),
            ("{y: value(a)}", "there is no such step"),
        ] {
            let said = filled(0, text).unwrap_err();
            assert!(said.contains(error), "{said}");
        }
    }

    #[test]
    fn one_of_the_two_verdicts_can_be_told_where_the_other_cannot() {
        let large = judged(Some(&record(&[(14.0, 10.0), (15.0, 10.0), (16.0, 10.0)])));
        let edge = "As fast: 1.50. Size open: the interval crosses an edge of the prediction.";
        assert_eq!(of(&large), ("agrees", "cannot tell", edge));
        assert!(large.is_open());
        // No round of one reaches half of the median away from it, and those of the other do.
        let apart = judged(Some(&record(&[(20.0, 10.0), (40.0, 10.0), (25.0, 10.0)])));
        let why = "Open: REPEATS DISAGREE: 2.00 to 4.00; round 2 is furthest off.";
        assert_eq!(of(&apart), ("cannot tell", "cannot tell", why));
    }

    #[test]
    fn an_interval_that_begins_at_one_does_not_show_an_effect() {
        let direction = |rates: [f64; 3]| {
            let rounds = rates.map(|rate| (rate, 10.0));
            judged(Some(&record(&rounds))).direction().to_owned()
        };
        assert_eq!(direction([10.05, 10.1, 10.2]), "no effect");
        assert_eq!(direction([9.7, 9.8, 9.95]), "no effect");
        assert_eq!(direction([10.05, 11.0, 12.0]), "cannot tell");
        assert_eq!(direction([10.3, 10.4, 10.5]), "agrees");
        assert_eq!(direction([9.3, 9.5, 9.7]), "differs");
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
