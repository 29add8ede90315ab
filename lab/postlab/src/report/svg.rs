//! Small pictures for the report: lines over time. Colours come from the page, so
//! that it can be light or dark.

use std::fmt::Write as _;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 36.0;

/// Text that may stand in HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Round values from zero to at least `max`.
fn ticks(max: f64) -> Vec<f64> {
    let rough = (max / 4.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|s| s * power).find(|s| *s >= rough).unwrap_or(rough);
    (0..).map(|i| f64::from(i) * step).take_while(|tick| *tick < max + step).collect()
}

/// `12.5k`
fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)
}

/// Frame, grid and labels; returns the value at the upper edge.
fn frame(out: &mut String, title: &str, max: f64) -> f64 {
    let ticks = ticks(max);
    let top = ticks.last().copied().unwrap_or(1.0);
    // Writing to a string cannot fail.
    let _ =
        write!(out, "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">", escape(title));
    for tick in ticks {
        let (y, right) = (y(tick, top), WIDTH - RIGHT);
        let _ = write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            y + 4.0,
            short(tick)
        );
    }
    top
}

/// Lines over seconds; one for each series.
pub(crate) fn lines(title: &str, series: &[Vec<(f64, f64)>]) -> String {
    let points = || series.iter().flatten();
    let max = points().fold(0.0, |a: f64, p| a.max(p.1));
    let end = points().fold(1e-6, |a: f64, p| a.max(p.0));
    let mut out = String::new();
    let top = frame(&mut out, title, max);
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - RIGHT);
    for (i, line) in series.iter().enumerate() {
        let path: Vec<String> = line.iter().map(|(s, v)| format!("{:.1},{:.1}", x(*s), y(*v, top))).collect();
        let _ = write!(out, "<polyline class=\"s{i}\" points=\"{}\"/>", path.join(" "));
    }
    for tick in ticks(end).into_iter().filter(|tick| *tick <= end) {
        let _ = write!(
            out,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} s</text>",
            x(tick),
            HEIGHT - 14.0,
            short(tick)
        );
    }
    out + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_beyond_the_largest() {
        assert_eq!(ticks(9.0), [0.0, 2.5, 5.0, 7.5, 10.0]);
        assert!(ticks(0.0).len() < 10 && *ticks(97_000.0).last().unwrap() >= 97_000.0);
        assert_eq!([short(0.0), short(12_500.0), short(3e6)], ["0", "12.5k", "3M"]);
    }

    #[test]
    fn what_is_written_cannot_break_the_page() {
        assert_eq!(escape("<b>\"&"), "&lt;b&gt;&quot;&amp;");
        assert!(!lines("<script>", &[vec![(0.0, 1.0)]]).contains("<script>"));
    }
}
