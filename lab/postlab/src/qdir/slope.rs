//! The cost of a queue entry against the entries that are there: least squares, and pictures of the points.

use crate::report::svg::escape;
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use std::fmt::Write as _;

/// S0 has a point for so many entries.
pub(super) const POINT: u32 = 500;
/// The number of points below which a line through them says nothing.
const LEAST_POINTS: usize = 4;

/// From milliseconds for 500 entries to microseconds for one, for each thousand that are there.
const SCALE: f64 = 1e3 / POINT as f64 * 1000.0 / POINT as f64;

/// The growth of the milliseconds for 500 entries with the points before.
#[derive(Debug, PartialEq)]
pub(super) struct Slope {
    per_point: f64,
    margin: f64,
    points: usize,
    mean_x: f64,
    mean_y: f64,
    /// The standard error of a single point, and t of the interval.
    error: f64,
    t: f64,
    sum_xx: f64,
}

impl Slope {
    /// Least squares, with its 95 % interval.
    pub(super) fn of(points: &[f64]) -> Option<Self> {
        let n = points.len() as f64;
        if points.len() < LEAST_POINTS {
            return None;
        }
        let (mean_x, mean_y) = ((n - 1.0) / 2.0, points.iter().sum::<f64>() / n);
        let x = |i: usize| i as f64 - mean_x;
        let sum_xx: f64 = (0..points.len()).map(|i| x(i).powi(2)).sum();
        let per_point = points.iter().enumerate().map(|(i, y)| x(i) * (y - mean_y)).sum::<f64>() / sum_xx;
        let left: f64 = points.iter().enumerate().map(|(i, y)| (y - mean_y - per_point * x(i)).powi(2)).sum();
        let error = (left / (n - 2.0)).sqrt();
        let t = StudentsT::new(0.0, 1.0, n - 2.0).ok()?.inverse_cdf(0.975);
        let margin = t * error / sum_xx.sqrt();
        Some(Self { per_point, margin, points: points.len(), mean_x, mean_y, error, t, sum_xx })
    }

    /// Returns the microseconds that an entry takes longer for each thousand that are there.
    pub(super) fn us_per_thousand(&self) -> f64 {
        self.per_point * SCALE
    }

    pub(super) fn text(&self) -> String {
        let (slope, margin) = (self.us_per_thousand(), self.margin * SCALE);
        let verdict = if slope.abs() > margin { "differs from 0" } else { "not different from 0" };
        format!(
            "slope {slope:.3} ± {margin:.3} µs an entry for each 1000 there: {verdict} (95 %, N={})",
            self.points
        )
    }

    /// The line at point `i`, and half the width of its interval there.
    fn at(&self, i: f64) -> (f64, f64) {
        let x = i - self.mean_x;
        let error = self.error * (1.0 / self.points as f64 + x * x / self.sum_xx).sqrt();
        (self.mean_y + self.per_point * x, self.t * error)
    }
}

/// Returns the reason why points have no slope.
pub(super) fn why_none(points: usize) -> Option<String> {
    (points < LEAST_POINTS).then(|| {
        let least = LEAST_POINTS as u32 * POINT;
        format!(
            "no slope: {points} points of {POINT} messages, {LEAST_POINTS} are needed: use -m {least} or more"
        )
    })
}

/// The points of one round, for the picture.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) title: String,
    /// Milliseconds for each further 500 entries.
    pub(super) points: Vec<f64>,
}

const COLUMNS: usize = 64;
const ROWS: usize = 12;

/// Draws points and line for the terminal.
pub(super) fn scatter(series: &Series) -> String {
    let Some(slope) = Slope::of(&series.points) else { return String::new() };
    let n = series.points.len();
    let top = series.points.iter().copied().fold(0.0, f64::max).max(1e-9);
    let mut grid = [[' '; COLUMNS]; ROWS];
    let row = |y: f64| ((1.0 - (y / top).clamp(0.0, 1.0)) * (ROWS - 1) as f64).round() as usize;
    for (column, i) in (0..COLUMNS).map(|c| (c, c as f64 / (COLUMNS - 1) as f64 * (n - 1) as f64)) {
        grid[row(slope.at(i).0)][column] = '-';
    }
    for (i, y) in series.points.iter().enumerate() {
        let cell = &mut grid[row(*y)][i * (COLUMNS - 1) / (n - 1)];
        *cell = match *cell {
            ' ' | '-' => '.',
            '.' => ':',
            _ => '#',
        };
    }
    let mut out = format!("{}: ms for {POINT} entries\n", series.title);
    for (i, line) in grid.iter().enumerate() {
        let label = if i == 0 {
            format!("{top:.0}")
        } else if i == ROWS - 1 {
            "0".into()
        } else {
            String::new()
        };
        let _ = writeln!(out, "{label:>7} |{}", line.iter().collect::<String>().trim_end());
    }
    let entries = n as u64 * u64::from(POINT);
    let _ = writeln!(out, "{:>7} +{}", "", "-".repeat(COLUMNS));
    let _ = writeln!(out, "{:>9}{entries:>width$}", 0, width = COLUMNS);
    out + "        . one point, : two, # more, - the line; x: entries that are there\n"
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 56.0;

/// Draws all series, one below the other, with line and 95 % interval: an SVG file.
pub(super) fn svg(all: &[Series]) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>svg{{background:#fff;color:#222}}text{{fill:currentColor}}@media(prefers-color-scheme:dark){{svg{{background:#151515;color:#ddd}}}}</style>\n",
        HEIGHT * all.len() as f64
    );
    for (i, series) in all.iter().enumerate() {
        let _ = writeln!(out, "<g transform=\"translate(0 {})\">", HEIGHT * i as f64);
        plot(&mut out, series);
        out += "</g>\n";
    }
    out + "</svg>\n"
}

/// Writing to a string cannot fail.
fn plot(out: &mut String, series: &Series) {
    let n = series.points.len();
    let top = series.points.iter().copied().fold(0.0, f64::max).max(1e-9) * 1.05;
    let x = |i: f64| MARGIN + i / (n.max(2) - 1) as f64 * (WIDTH - MARGIN - 16.0);
    let y = |ms: f64| HEIGHT - MARGIN - (ms / top).clamp(0.0, 1.0) * (HEIGHT - MARGIN - 34.0);
    let slope = Slope::of(&series.points);
    let said = slope.as_ref().map_or_else(|| why_none(n).unwrap_or_default(), Slope::text);
    let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"14\">{}</text>", escape(&series.title));
    let _ = writeln!(out, "<text x=\"{MARGIN}\" y=\"29\">{}</text>", escape(&said));
    for share in [0.0, 0.5, 1.0] {
        let (at, value) = (y(top * share), top * share);
        let _ = writeln!(
            out,
            "<line x1=\"{MARGIN}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"currentColor\" stroke-opacity=\".15\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>",
            WIDTH - 16.0,
            MARGIN - 6.0,
            at + 4.0
        );
    }
    let entries = n as u64 * u64::from(POINT);
    let bottom = HEIGHT - MARGIN + 16.0;
    let _ = writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{bottom}\">0</text><text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\">{entries}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">entries that are there; y: ms for {POINT} more</text>",
        WIDTH - 16.0,
        WIDTH / 2.0,
        bottom + 16.0
    );
    if let Some(slope) = &slope {
        let steps: Vec<f64> = (0..=20).map(|s| f64::from(s) / 20.0 * (n - 1) as f64).collect();
        let edge = |sign: f64, i: &f64| {
            let (line, half) = slope.at(*i);
            format!("{:.1},{:.1}", x(*i), y(line + sign * half))
        };
        let band: Vec<String> =
            steps.iter().map(|i| edge(1.0, i)).chain(steps.iter().rev().map(|i| edge(-1.0, i))).collect();
        let line: Vec<String> = steps.iter().map(|i| edge(0.0, i)).collect();
        let _ = writeln!(
            out,
            "<polygon points=\"{}\" fill=\"#c33\" fill-opacity=\".2\"/><polyline points=\"{}\" fill=\"none\" stroke=\"#c33\" stroke-width=\"1.5\"/>",
            band.join(" "),
            line.join(" ")
        );
    }
    for (i, ms) in series.points.iter().enumerate() {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.6\" fill=\"currentColor\" fill-opacity=\".6\"/>",
            x(i as f64),
            y(*ms)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_found_and_noise_is_none() {
        let rising: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i) + f64::from(i % 2)).collect();
        let slope = Slope::of(&rising).unwrap();
        assert!((slope.per_point - 1.0).abs() < 0.05, "{slope:?}");
        let text = slope.text();
        assert!(text.contains("differs from 0 (95 %, N=20)") && !text.contains("not"), "{text}");
        let flat: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i * 7 % 5)).collect();
        assert!(Slope::of(&flat).unwrap().text().contains("not different from 0"));
        assert_eq!(Slope::of(&[1.0; 3]), None);
        assert!(why_none(3).unwrap().contains("use -m 2000 or more"));
        assert_eq!(why_none(4), None);
    }

    #[test]
    fn pictures_have_each_point_and_the_line() {
        // On the line y = 10 i but for the last one.
        let mut points: Vec<f64> = (0..30).map(|i| f64::from(i) * 10.0).collect();
        points[29] = 900.0;
        let series = Series { title: "1 < 2".into(), points };
        let text = scatter(&series);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("    900 |") && lines[1].ends_with('.'), "{text}");
        assert!(lines[ROWS].contains("0 |") && lines[ROWS].contains('.'), "{text}");
        assert!(text.contains("15000\n") && text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let svg = svg(&[series]);
        assert_eq!(svg.matches("<circle").count(), 30);
        assert_eq!((svg.matches("<polyline").count(), svg.matches("<polygon").count()), (1, 1));
        assert!(svg.contains("1 &lt; 2") && svg.ends_with("</svg>\n"));
    }
}
