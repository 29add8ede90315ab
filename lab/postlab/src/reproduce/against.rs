//! The findings of a page in a file that programs read, and those of another day beside them: does a figure repeat?

use super::{
    Kept,
    finding::{Finding, shown},
    ordered,
};
use crate::report::escape;
use serde::{Deserialize, Serialize};
use std::{fmt::Write as _, fs, path::Path};

/// The file beside a page that has its findings.
pub(super) const NAME: &str = "reproduce.json";

/// The columns of the table; the first two need no name where a row is a card.
const HEADS: [&str; 6] = ["text", "figure", "then", "here", "median here", "verdict"];

/// What an earlier page has published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Published {
    /// When its first round began.
    begin: String,
    /// The commits that the measuring programs were built from.
    commits: Vec<String>,
    findings: Vec<Figure>,
    /// Judged findings whose step was measured and printed no figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    without_figure: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Figure {
    text: String,
    step: String,
    what: String,
    theirs: String,
    prediction: String,
    unit: String,
    median: f64,
    low: f64,
    high: f64,
    /// Of the size.
    verdict: String,
    /// The verdict on the direction; pages before 28 November 2026 have none.
    #[serde(default)]
    direction: String,
}

impl Figure {
    /// None for what was not measured.
    fn of(finding: &Finding) -> Option<Self> {
        let here = finding.here?;
        Some(Self {
            text: format!("{:?}", finding.seed),
            step: finding.step.clone(),
            what: finding.what.clone(),
            theirs: finding.theirs_text(),
            prediction: finding.expression.clone(),
            unit: finding.unit.clone(),
            median: here.median,
            low: here.low,
            high: here.high,
            verdict: finding.size().to_owned(),
            direction: finding.direction().to_owned(),
        })
    }

    fn shown(&self) -> String {
        format!("{}{} ({}–{})", shown(self.median), self.unit, shown(self.low), shown(self.high))
    }
}

/// One figure, as it was published and as it is now.
struct Pair<'p> {
    published: &'p Figure,
    here: Figure,
}

impl Pair<'_> {
    fn is_inside(&self) -> bool {
        let median = as_shown(self.here.median);
        (as_shown(self.published.low)..=as_shown(self.published.high)).contains(&median)
    }

    fn overlaps(&self) -> bool {
        as_shown(self.here.low) <= as_shown(self.published.high)
            && as_shown(self.published.low) <= as_shown(self.here.high)
    }

    fn word(&self) -> &'static str {
        match () {
            () if self.is_inside() => "inside",
            () if self.overlaps() => "intervals overlap",
            () => "outside",
        }
    }

    /// Returns the row of the table, below [`HEADS`].
    fn cells(&self) -> [String; 6] {
        [
            self.here.text.clone(),
            self.here.what.clone(),
            self.published.shown(),
            self.here.shown(),
            self.word().to_owned(),
            self.verdicts(),
        ]
    }

    /// Both verdicts on the direction, or on the size where the other page has no other.
    fn verdicts(&self) -> String {
        let (then, here) = self.compared();
        if then == here { here.to_owned() } else { format!("{here}; {then} then") }
    }

    fn compared(&self) -> (&str, &str) {
        if self.published.direction.is_empty() {
            (&self.published.verdict, &self.here.verdict)
        } else {
            (&self.published.direction, &self.here.direction)
        }
    }
}

/// The number that the page has: 1.001 is no other figure than 1.00.
fn as_shown(value: f64) -> f64 {
    shown(value).parse().unwrap_or(value)
}

impl Published {
    /// Returns the figures and verdicts of what was measured now.
    pub(super) fn of(kept: &[Kept]) -> Self {
        let records =
            || kept.iter().filter_map(|kept| kept.record.as_ref()).filter(|record| !record.rounds.is_empty());
        let mut commits: Vec<String> = records().map(|record| record.machine.commit.clone()).collect();
        commits.sort_unstable();
        commits.dedup();
        let is_blank =
            |finding: &&Finding| finding.judged.is_some() && finding.is_measured() && finding.here.is_none();
        let begin = records().flat_map(|record| &record.rounds).map(|round| round.begin.as_str()).min();
        Self {
            begin: begin.unwrap_or_default().to_owned(),
            commits,
            findings: ordered(kept).into_iter().filter_map(Figure::of).collect(),
            without_figure: ordered(kept)
                .into_iter()
                .filter(is_blank)
                .map(|finding| finding.what.clone())
                .collect(),
        }
    }

    /// Reads a file that `reproduce` has written.
    ///
    /// # Errors
    /// The file cannot be read, or is another one.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let say = |e: std::io::Error| format!("read {}: {e}", path.display());
        if !fs::metadata(path).map_err(say)?.is_file() {
            return Err(format!("read {}: it is not a file", path.display()));
        }
        let text = fs::read_to_string(path).map_err(say)?;
        serde_json::from_str(&text).map_err(|e| {
            format!(
                "read {}: {e}: name the {NAME} that `postlab reproduce` wrote beside its page",
                path.display()
            )
        })
    }

    /// Writes it in JSON.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|e| format!("write JSON: {e}"))?;
        fs::write(path, text + "\n").map_err(|e| format!("write {}: {e}", path.display()))
    }

    /// The steps of today's program that have a figure on this page, and none in what was measured.
    pub(super) fn lost_steps<'p>(&'p self, kept: &[Kept]) -> Vec<&'p str> {
        let is_lost = |name: &str| {
            let mut steps = kept.iter().filter(|kept| kept.step.name == name);
            steps.any(|kept| kept.record.as_ref().is_none_or(|record| record.rounds.is_empty()))
        };
        let mut lost: Vec<&str> =
            self.findings.iter().map(|figure| &*figure.step).filter(|name| is_lost(name)).collect();
        lost.dedup();
        lost
    }

    /// The judged figures that were measured on both days; those that differ most first.
    fn pairs(&self, kept: &[Kept]) -> Vec<Pair<'_>> {
        let pair = |finding: &Finding| {
            let here = Figure::of(finding).filter(|_| finding.judged.is_some())?;
            let published = self.findings.iter().find(|there| there.what == here.what)?;
            Some(Pair { published, here })
        };
        let mut pairs: Vec<Pair<'_>> = ordered(kept).into_iter().filter_map(pair).collect();
        pairs.sort_by_key(|pair| (pair.is_inside(), pair.overlaps()));
        pairs
    }

    /// Returns in a sentence how many figures agree.
    fn count(&self, pairs: &[Pair<'_>]) -> String {
        let inside = pairs.iter().filter(|pair| pair.is_inside()).count();
        let overlap = pairs.iter().filter(|pair| !pair.is_inside() && pair.overlaps()).count();
        let verdicts = pairs.iter().filter(|pair| pair.compared().0 == pair.compared().1).count();
        format!(
            "Of {} figures that were measured at {} too (build of {}), {inside} medians lie within the interval of then, \
             {overlap} intervals overlap, {} do not; {verdicts} verdicts are the same.",
            pairs.len(),
            self.begin,
            self.commits.join(", "),
            pairs.len() - inside - overlap
        )
    }

    /// Returns a section in Markdown.
    pub(super) fn markdown(&self, kept: &[Kept]) -> String {
        let pairs = self.pairs(kept);
        let mut out = format!("\n## Beside another day\n\n{}\n\n", self.count(&pairs));
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        out += &row(&HEADS.map(str::to_owned));
        out += &format!("|{}\n", "---|".repeat(HEADS.len()));
        out.extend(pairs.iter().map(|pair| row(&pair.cells().map(|cell| cell.replace('|', "\\|")))));
        out
    }

    /// Returns a section of the page.
    pub(super) fn html(&self, kept: &[Kept]) -> String {
        let pairs = self.pairs(kept);
        let mut out = format!(
            "<h2 id=\"beside-another-day\">Beside another day</h2>\n<p>{}</p>\n",
            escape(&self.count(&pairs))
        );
        let heads = HEADS.join("<th>");
        let _ = writeln!(out, "<table class=\"cards\">\n<thead><tr><th>{heads}</tr></thead>\n<tbody>");
        for pair in &pairs {
            let [text, figure, then, here, word, verdicts] = pair.cells().map(|cell| escape(&cell));
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<tr class=\"plain\"><td>{text}<td>{figure}<td class=\"figure\" data-head=\"then\">{then}\
                 <td class=\"figure\" data-head=\"here\">{here}<td data-head=\"median here\">{word}<td data-head=\"verdict\">{verdicts}</tr>"
            );
        }
        out + "</tbody></table>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(median: f64, low: f64, high: f64, verdict: &str) -> Figure {
        Figure {
            text: "S4".into(),
            step: "net".into(),
            what: "LOCAL to INET".into(),
            theirs: "1.11 to 1.50×".into(),
            prediction: "ratio(a, b) in seeds".into(),
            unit: "×".into(),
            median,
            low,
            high,
            verdict: verdict.into(),
            direction: String::new(),
        }
    }

    #[test]
    fn a_figure_repeats_if_its_median_lies_within_the_interval_of_then() {
        let published = figure(1.3, 1.2, 1.4, "agrees");
        let pair =
            |median, low, high| Pair { published: &published, here: figure(median, low, high, "differs") };
        assert_eq!(pair(1.4, 1.0, 2.0).word(), "inside");
        assert_eq!(pair(1.5, 1.4, 1.6).word(), "intervals overlap");
        assert_eq!(pair(1.5, 1.41, 1.6).word(), "outside");
        assert_eq!(pair(1.1, 1.0, 1.19).word(), "outside");
        assert_eq!(pair(1.1996, 1.0, 1.3).word(), "inside");
        assert_eq!(pair(1.1, 1.0, 1.19).verdicts(), "differs; agrees then");
        assert_eq!(published.shown(), "1.30× (1.20–1.40)");
        let page = Published {
            begin: "b".into(),
            commits: vec!["c".into()],
            findings: vec![published.clone()],
            without_figure: Vec::new(),
        };
        assert_eq!(
            page.count(&[pair(1.4, 1.0, 2.0), pair(1.5, 1.41, 1.6)]),
            "Of 2 figures that were measured at b too (build of c), 1 medians lie within the interval of then, \
             0 intervals overlap, 1 do not; 0 verdicts are the same."
        );
    }
}
