//! The page that `reproduce` leaves: a table of conclusions, the ratios as a picture, each question with its findings and the
//! circumstances of its step, and what each step printed.

use super::{
    Kept, METHOD, Seed,
    against::Published,
    count,
    finding::{Finding, measured},
    machines, ordered,
    relays::relays,
    seeds::Seeds,
    verdict::Verdict,
};
use crate::report::{
    document, escape,
    tracks::{Track, picture},
};
use std::fmt::Write as _;

const TITLE: &str = "The five papers' experiments again";

/// Returns the whole page. The introduction is Markdown.
pub(super) fn page(kept: &[Kept], seeds: &Seeds, against: Option<&Published>, introduction: &str) -> String {
    let mut out = String::new();
    out.push_str(&head(kept));
    pulldown_cmark::html::push_html(&mut out, pulldown_cmark::Parser::new(introduction));
    out.push_str(&summary(kept, seeds));
    out.push_str(&conclusions(kept));
    out.push_str(&answers(kept));
    out.push_str(&ratios(kept));
    out.push_str(&relays(kept));
    out.push_str(&against.map(|then| then.html(kept)).unwrap_or_default());
    for seed in Seed::TEXTS {
        out.push_str(&section(seed, kept, seeds));
    }
    out.push_str("<h2>Machines</h2>\n<ul>\n");
    for (machine, steps) in machines(kept) {
        let _ = writeln!(out, "<li>{} <small>({})</small>", escape(&machine), escape(&steps.join(", ")));
    }
    out.push_str("</ul>\n");
    document(TITLE, &out)
}

fn head(kept: &[Kept]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "<p>Five texts on mail queues, measured again. {}</p>", count(kept));
    pulldown_cmark::html::push_html(&mut out, pulldown_cmark::Parser::new(METHOD));
    let records = kept.iter().filter_map(|kept| kept.record.as_ref());
    let mut begins: Vec<&str> =
        records.clone().flat_map(|record| &record.rounds).map(|round| round.begin.as_str()).collect();
    begins.sort_unstable();
    let mut commits: Vec<&str> = records.map(|record| record.machine.commit.as_str()).collect();
    commits.sort_unstable();
    commits.dedup();
    if let (Some(first), Some(last)) = (begins.first(), begins.last()) {
        let _ = writeln!(
            out,
            "<p>Rounds from {} to {}, by builds of {}.</p>",
            escape(first),
            escape(last),
            escape(&commits.join(", "))
        );
    }
    let quick = kept.iter().filter(|kept| kept.record.as_ref().is_some_and(|record| record.quick)).count();
    if quick > 0 {
        let _ = writeln!(
            out,
            "<p class=\"warning\">{quick} steps are quick ones: little was measured, and intervals are wide.</p>"
        );
    }
    let mut remarks: Vec<(String, usize)> = Vec::new();
    for remark in kept.iter().filter_map(|kept| kept.record.as_ref()).flat_map(super::record::Record::remarks)
    {
        let kind = remark.split(':').next().unwrap_or_default().to_owned();
        match remarks.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => remarks.push((kind, 1)),
        }
    }
    for (remark, count) in remarks {
        let steps = if count == 1 { "step" } else { "steps" };
        let _ = writeln!(
            out,
            "<p class=\"warning\">{} in {count} {steps}: nothing is concluded from them.</p>",
            escape(&remark)
        );
    }
    out
}

/// A line for each text with its counts, and the finding whose statement does not hold and that is furthest from the text: a slide.
fn summary(kept: &[Kept], seeds: &Seeds) -> String {
    let mut out = "<h2>In short</h2>\n<table class=\"cards\">\n\
                   <thead><tr><th>text<th>direction agrees<th>differs<th>no effect<th>cannot tell<th>size agrees<th>the largest difference in direction</tr></thead>\n<tbody>\n"
        .to_owned();
    for seed in Seed::TEXTS {
        let all = kept.iter().flat_map(|kept| &kept.findings);
        let found: Vec<&Finding> = all
            .filter(|finding| finding.seed == seed && finding.judged.is_some() && finding.is_measured())
            .collect();
        if found.is_empty() {
            continue;
        }
        let count = |word: &str| found.iter().filter(|finding| finding.direction() == word).count();
        let differing = found.iter().filter(|finding| finding.direction() == "differs");
        let largest = differing.max_by(|a, b| distance(a).total_cmp(&distance(b)));
        let title = seeds.text(&format!("{seed:?}")).map(|text| text.title.clone()).unwrap_or_default();
        let _ = writeln!(
            out,
            "<tr class=\"plain\"><td>{seed:?}: {}<td class=\"figure\" data-head=\"direction agrees\">{}<td class=\"figure\" data-head=\"differs\">{}\
             <td class=\"figure\" data-head=\"no effect\">{}<td class=\"figure\" data-head=\"cannot tell\">{}<td class=\"figure\" data-head=\"size agrees\">{}<td>{}</tr>",
            escape(&title),
            count("agrees"),
            count("differs"),
            count("no effect"),
            count("cannot tell"),
            found.iter().filter(|finding| finding.size() == "agrees").count(),
            escape(largest.map_or("none", |finding| finding.sentence.as_str()))
        );
    }
    out + "</tbody></table>\n"
}

/// The cells of a row that each table of findings has.
fn begin_row(finding: &Finding) -> String {
    format!(
        "<tr class=\"{}\"><td>{:?}<td><a href=\"#{}\">{}</a><td class=\"figure\" data-head=\"theirs\">{}\
         <td class=\"figure\" data-head=\"here\">{}",
        class(finding),
        finding.seed,
        finding.step,
        escape(&finding.what),
        escape(&finding.theirs_text()),
        escape(&finding.here_text()),
    )
}

/// The sentence of a finding, in a row of its own below its figures: beside them it would be a narrow column.
fn sentence_row(finding: &Finding, columns: usize) -> String {
    format!("<tr class=\"notes\"><td><td colspan=\"{}\">{}</tr>", columns - 1, escape(&finding.sentence))
}

/// Two rows for each finding, open questions first.
fn conclusions(kept: &[Kept]) -> String {
    let mut out = "<h2>Conclusions</h2>\n<table class=\"cards findings\">\n\
                   <thead><tr><th>text<th>finding<th>theirs<th>here<th>direction<th>size</tr></thead>\n<tbody>\n"
        .to_owned();
    let shown = |finding: &&Finding| finding.judged.is_some() && finding.is_measured();
    for finding in ordered(kept).into_iter().filter(shown) {
        let (direction, size) = finding.verdicts();
        let _ = writeln!(
            out,
            "{}<td class=\"verdict\" data-head=\"direction\">{}<td data-head=\"size\">{}</tr>\n{}",
            begin_row(finding),
            escape(&direction),
            escape(&size),
            sentence_row(finding, 6)
        );
    }
    out.push_str("</tbody></table>\n");
    let missing: Vec<&str> =
        ordered(kept).into_iter().filter(|finding| !finding.is_measured()).map(|f| f.what.as_str()).collect();
    if !missing.is_empty() {
        let _ = writeln!(out, "<p class=\"note\">Not measured: {}.</p>", escape(&missing.join("; ")));
    }
    out + "<p class=\"note\">Theirs: from the smallest to the largest machine of the text. Here: median of the rounds and its interval.</p>\n"
}

/// What Postrider does about the findings: no verdict on a text.
fn answers(kept: &[Kept]) -> String {
    let all: Vec<&Finding> =
        ordered(kept).into_iter().filter(|finding| finding.is_answer && finding.here.is_some()).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut out = "<h2>What Postrider does about it</h2>\n<p class=\"note\">The same figures of Postrider, which is another design: no verdict on a text.</p>\n\
                   <table class=\"cards findings\">\n<thead><tr><th>text<th>finding<th>theirs<th>Postrider</tr></thead>\n<tbody>\n"
        .to_owned();
    for finding in all {
        let _ = writeln!(out, "{}</tr>\n{}", begin_row(finding), sentence_row(finding, 4));
    }
    out + "</tbody></table>\n"
}

fn class(finding: &Finding) -> &'static str {
    match finding.judged.as_ref().map(|judged| &judged.direction) {
        Some(Verdict::Agrees) => "agrees",
        Some(Verdict::Above | Verdict::Below | Verdict::NoEffect) => "differs",
        Some(Verdict::CannotTell(_)) => "open",
        None => "plain",
    }
}

/// Findings that are ratios, by text; those that lie furthest from the text first.
fn ratios(kept: &[Kept]) -> String {
    let mut out = "<h2>Ratios</h2>\n".to_owned();
    for seed in Seed::TEXTS {
        let all = kept.iter().flat_map(|kept| &kept.findings);
        let mut found: Vec<&Finding> = all
            .filter(|f| f.seed == seed && f.unit == "×" && f.judged.is_some() && f.here.is_some())
            .filter(|f| f.theirs.words.is_none())
            .collect();
        found.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
        if found.is_empty() {
            continue;
        }
        let tracks: Vec<Track> = found.into_iter().map(track).collect();
        let caption = "Bar: theirs, over all machines. Shaded: the size that is allowed. The colour is that of the direction. Line and dot: here, interval and median. The strong line is 1×: no difference.";
        let _ = writeln!(out, "<h3>{seed:?}</h3>\n{}", picture(&tracks, "×", true, caption));
    }
    out
}

/// The factor between the middle of theirs and ours, either way.
fn distance(finding: &Finding) -> f64 {
    let (low, high) = finding.theirs.range();
    let here = finding.here.map_or(1.0, |here| here.median.max(1e-9));
    (here / (low * high).sqrt().max(1e-9)).ln().abs()
}

fn track(finding: &Finding) -> Track {
    let size = finding.judged.as_ref().and_then(|judged| judged.size.as_ref());
    let window = size.map(|(window, _)| (window.low.max(1e-12), window.high.min(1e12)));
    Track {
        label: finding.what.clone(),
        numbers: format!("theirs {}, here {}", finding.theirs_text(), finding.here_text()),
        theirs: Some(finding.theirs.range()),
        window,
        interval: finding.here.map(|here| (here.low, here.high)),
        median: finding.here.map(|here| here.median),
        dots: Vec::new(),
        class: class(finding),
    }
}

/// Returns the section about one text, with its questions.
fn section(seed: Seed, kept: &[Kept], seeds: &Seeds) -> String {
    let title = seeds.text(&format!("{seed:?}")).map(|text| text.title.clone()).unwrap_or_default();
    let mut out = format!("<section>\n<h2>{seed:?}: {}</h2>\n", escape(&title));
    let mut steps: Vec<&Kept> = kept.iter().filter(|kept| kept.step.seed == seed).collect();
    steps.sort_by_key(|kept| kept.findings.iter().map(Finding::order).min());
    steps.into_iter().for_each(|kept| out.push_str(&question(kept)));
    out + "</section>\n"
}

fn question(kept: &Kept) -> String {
    let Kept { step, record, findings } = kept;
    let mut out = format!("<article id=\"{}\">\n<h3>{}</h3>\n", step.name, escape(&step.question));
    for finding in findings {
        let method =
            finding.here.map(|here| format!(" <small>({})</small>", here.method)).unwrap_or_default();
        let verdict = match (finding.judged.is_some(), finding.is_answer) {
            (true, _) => finding.direction(),
            (_, true) => "what Postrider does",
            _ => "not judged",
        };
        let _ = writeln!(
            out,
            "<dl class=\"finding {}\"><dt class=\"name\">{} <span class=\"verdict\">{verdict}</span>",
            class(finding),
            escape(&finding.what),
        );
        let place = escape(&finding.theirs.place);
        let _ = writeln!(
            out,
            "<dt>they found<dd>{} <span class=\"figure\">{}{}</span> <small>({place})</small>",
            escape(&finding.finding),
            escape(&finding.theirs.named()),
            escape(if finding.theirs.words.is_some() { "" } else { &finding.unit })
        );
        if finding.judged.is_some() {
            let (direction, size) = finding.verdicts();
            let _ = writeln!(
                out,
                "<dt>direction<dd>{}<dt>size<dd>{} <small><code>{}</code></small>",
                escape(&direction),
                escape(&size),
                escape(&finding.expression)
            );
        }
        let _ = writeln!(
            out,
            "<dt>here<dd><span class=\"figure\">{}</span>{method}",
            escape(&finding.here_text())
        );
        if !finding.sentence.is_empty() {
            let _ = writeln!(out, "<dt>conclusions<dd>{}", escape(&finding.sentence));
        }
        out.push_str("</dl>\n");
    }
    let Some(record) = record.as_ref().filter(|record| !record.rounds.is_empty()) else {
        return out + "</article>\n";
    };
    let begin = record.rounds.first().map(|round| round.begin.as_str()).unwrap_or_default();
    let mut facts = vec![
        measured(step, record),
        format!("begun {begin}"),
        format!("load {}", record.load()),
        format!("built from {}", record.machine.commit),
    ];
    facts.extend(record.servers());
    facts.extend(record.failed.iter().map(|why| format!("cut short: {why}")));
    facts.extend(record.remarks());
    let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(&facts.join(" · ")));
    let commands = record.commands.iter().map(|line| format!("$ {line}\n")).collect::<String>();
    let last = record
        .rounds
        .last()
        .map(|round| round.runs.iter().map(|run| run.output.as_str()).collect::<String>());
    let _ = writeln!(
        out,
        "<details><summary>Commands, and what the last round printed</summary><pre>{}\n{}</pre></details>\n</article>",
        escape(&commands),
        escape(last.unwrap_or_default().trim_end())
    );
    out
}
