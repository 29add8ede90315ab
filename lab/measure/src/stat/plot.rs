//! The picture ministat draws of its samples: every point, and a bar from one deviation below the mean to
//! one above, with the median M and the mean A.

use super::sample::Sample;
use std::fmt::Write as _;

/// Marks of the samples, one each, and one where samples meet.
const MARKS: &[u8; 8] = b" x+*%#@O";

/// The mark of the sample at `index`: powers of two among the marks' places are used in ministat's order.
pub(super) fn mark(index: usize) -> char {
    MARKS.get(index + 1).map_or('?', |m| char::from(*m))
}

/// The scale of the picture, which gives a value its column.
#[derive(Debug, Clone, Copy)]
struct Scale {
    start: f64,
    step: f64,
}

impl Scale {
    /// From the smallest to the largest point or end of a bar; none if that is no distance.
    fn new(samples: &[Sample], width: usize) -> Option<Self> {
        let ends = |s: &Sample| [s.min(), s.max(), s.mean() - s.deviation(), s.mean() + s.deviation()];
        let all: Vec<f64> = samples.iter().flat_map(ends).collect();
        let (min, max) = all.iter().fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
        let step = (max - min) / (width as f64 - 1.0);
        (max > min).then_some(Self { start: min - 0.5 * step, step })
    }

    fn column(self, value: f64) -> usize {
        ((value - self.start) / self.step) as usize
    }
}

/// The picture, frame included. `separate` gives each sample a bar of its own line.
pub(super) fn draw(samples: &[Sample], width: usize, separate: bool) -> String {
    let Some(scale) = Scale::new(samples, width) else {
        return "[no plot, span is zero width]\n".to_owned();
    };
    let mut out = String::new();
    let frame = "-".repeat(width);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "+{frame}+");
    for row in rows(samples, scale, width).iter().rev().chain(&bars(samples, scale, width, separate)) {
        let _ = writeln!(out, "|{}|", String::from_utf8_lossy(row));
    }
    let _ = writeln!(out, "+{frame}+");
    out
}

/// Points, the lowest row first; a column with several points of one sample is as high.
fn rows(samples: &[Sample], scale: Scale, width: usize) -> Vec<Vec<u8>> {
    let mut counts: Vec<Vec<usize>> = vec![vec![0; width]; samples.len()];
    for (sample, counts) in samples.iter().zip(&mut counts) {
        for point in sample.points() {
            counts[scale.column(*point).min(width - 1)] += 1;
        }
    }
    let height = counts.iter().flatten().copied().max().unwrap_or_default();
    let symbol = |row: usize, column: usize| {
        let bits = counts.iter().enumerate().filter(|(_, c)| c[column] > row).map(|(i, _)| i + 1);
        MARKS[bits.fold(0, |all, bit| all | bit) & 7]
    };
    (0..height).map(|row| (0..width).map(|column| symbol(row, column)).collect()).collect()
}

fn bars(samples: &[Sample], scale: Scale, width: usize, separate: bool) -> Vec<Vec<u8>> {
    let mut lines = vec![vec![b' '; width]; if separate { samples.len() } else { 1 }];
    for (i, sample) in samples.iter().enumerate() {
        let line = &mut lines[if separate { i } else { 0 }];
        let at = |value: f64| scale.column(value).min(width - 1);
        let (from, to) = (at(sample.mean() - sample.deviation()), at(sample.mean() + sample.deviation()));
        line[to] = b'|';
        line[from] = b'|';
        for place in line.iter_mut().take(to).skip(from + 1).filter(|place| **place == b' ') {
            *place = b'_';
        }
        line[at(sample.median())] = b'M';
        line[at(sample.mean())] = b'A';
    }
    lines
}
