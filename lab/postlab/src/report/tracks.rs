//! Ratios and rates on logarithmic tracks that are as wide as the page, with every range drawn: another's, what is expected,
//! and ours.

use super::escape;
use std::fmt::Write as _;

/// One line of a picture: a case.
#[derive(Debug, Default)]
pub(crate) struct Track {
    pub(crate) label: String,
    pub(crate) numbers: String,
    /// Another's figures, from the smallest to the largest.
    pub(crate) theirs: Option<(f64, f64)>,
    /// Values that the prediction allows.
    pub(crate) window: Option<(f64, f64)>,
    /// Lower and upper end of the interval that was measured.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) median: Option<f64>,
    /// One for each round.
    pub(crate) dots: Vec<f64>,
    /// For the colour: agrees, differs, open, or a series.
    pub(crate) class: &'static str,
}

/// A logarithmic scale that begins and ends at a power of ten.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    /// Covers all figures, with whole powers of ten.
    pub(crate) fn of(tracks: &[Track]) -> Self {
        let range = |range: Option<(f64, f64)>| range.map(|(low, high)| [low, high]).into_iter().flatten();
        let all = tracks.iter().flat_map(|t| {
            range(t.theirs).chain(range(t.interval)).chain(t.median).chain(t.dots.iter().copied())
        });
        let all: Vec<f64> = all.filter(|value| *value > 0.0 && value.is_finite()).map(f64::log10).collect();
        let low = all.iter().copied().reduce(f64::min).unwrap_or(0.0).floor() as i32;
        let high = all.iter().copied().reduce(f64::max).unwrap_or(0.0).ceil() as i32;
        Self { low: low.max(-6), high: high.max(low + 1).min(9) }
    }

    /// In hundredths of the width.
    fn place(self, value: f64) -> f64 {
        let (low, high) = (f64::from(self.low), f64::from(self.high));
        ((value.max(1e-12).log10() - low) / (high - low) * 100.0).clamp(0.0, 100.0)
    }

    fn marks(self, unit: &str) -> String {
        let mark = |power: i32| {
            let value = 10f64.powi(power);
            let text = match power {
                6.. => format!("{} M", value / 1e6),
                3.. => format!("{} k", value / 1e3),
                _ => format!("{value}"),
            };
            format!("<span style=\"left:{:.2}%\">{text}{unit}</span>", self.place(value))
        };
        let marks: String = (self.low..=self.high).map(mark).collect();
        format!("<div class=\"scale\"><div>{marks}</div></div>\n")
    }

    fn bar(self, class: &str, (low, high): (f64, f64)) -> String {
        let (from, to) = (self.place(low), self.place(high));
        format!("<i class=\"{class}\" style=\"left:{from:.2}%;width:{:.2}%\"></i>", to - from)
    }
}

/// The picture: a scale above and below the tracks, and a line at `one` where it is of ratios.
pub(crate) fn picture(tracks: &[Track], unit: &str, has_one: bool, caption: &str) -> String {
    let scale = Scale::of(tracks);
    let mut out = format!("<figure class=\"tracks\">\n{}", scale.marks(unit));
    for track in tracks {
        let mut bars = String::new();
        for power in scale.low..=scale.high {
            let class = if power == 0 && has_one { "one" } else { "decade" };
            let _ = write!(
                bars,
                "<i class=\"{class}\" style=\"left:{:.2}%\"></i>",
                scale.place(10f64.powi(power))
            );
        }
        bars.extend(track.window.map(|window| scale.bar("window", window)));
        bars.extend(track.theirs.map(|theirs| scale.bar("theirs", theirs)));
        bars.extend(track.interval.map(|interval| scale.bar("interval", interval)));
        bars.extend(
            track
                .dots
                .iter()
                .map(|dot| format!("<b class=\"round\" style=\"left:{:.2}%\"></b>", scale.place(*dot))),
        );
        bars.extend(
            track
                .median
                .map(|median| format!("<b class=\"median\" style=\"left:{:.2}%\"></b>", scale.place(median))),
        );
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<div class=\"row {}\"><p>{}<small>{}</small></p><div class=\"track\" role=\"img\" aria-label=\"{}: {}\">{bars}</div></div>",
            track.class,
            escape(&track.label),
            escape(&track.numbers),
            escape(&track.label),
            escape(&track.numbers)
        );
    }
    let _ = writeln!(out, "{}<figcaption>{caption}</figcaption></figure>", scale.marks(unit));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_covers_all_ranges_and_draws_one() {
        let track = Track {
            theirs: Some((9.0, 103.0)),
            interval: Some((0.5, 0.7)),
            median: Some(0.6),
            ..Track::default()
        };
        let scale = Scale::of(std::slice::from_ref(&track));
        assert_eq!(scale, Scale { low: -1, high: 3 });
        assert_eq!((scale.place(0.1), scale.place(1000.0), scale.place(1e9)), (0.0, 100.0, 100.0));
        let html = picture(&[track], "×", true, "c");
        assert_eq!(html.matches("class=\"one\" style=\"left:25.00%\"").count(), 1, "{html}");
        assert!(html.contains(">1×</span>") && html.contains("class=\"theirs\""), "{html}");
    }

    #[test]
    fn a_label_cannot_break_the_page() {
        let track = Track { label: "<script>\"".into(), ..Track::default() };
        assert!(!picture(&[track], "", false, "").contains("<script>"));
    }
}
