//! A flame graph as an SVG file: a box for each function, as wide as its share of the samples, above its caller.

use super::fold::Folded;
use crate::report::svg::escape;
use std::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const TOP: f64 = 28.0;
/// Width of a letter, on average.
const LETTER: f64 = 6.6;
/// Narrower boxes are not drawn.
const LEAST: f64 = 0.3;

/// A box of the picture: a function at one depth of the stacks.
#[derive(Debug, PartialEq)]
struct Frame<'f> {
    name: &'f str,
    depth: usize,
    first: u64,
    count: u64,
}

/// Stacks lie in order, so frames that have equal callers are neighbours.
fn frames(folded: &Folded) -> Vec<Frame<'_>> {
    let mut done = Vec::new();
    let mut open: Vec<Frame<'_>> = Vec::new();
    let mut at = 0;
    for (stack, count) in folded.stacks() {
        let shared = open.iter().zip(stack).take_while(|(frame, name)| frame.name == *name).count();
        done.extend(open.drain(shared..));
        for (depth, name) in stack.iter().enumerate().skip(shared) {
            open.push(Frame { name, depth, first: at, count: 0 });
        }
        open.iter_mut().for_each(|frame| frame.count += count);
        at += count;
    }
    done.append(&mut open);
    done
}

/// Returns the picture of all stacks.
pub(super) fn draw(folded: &Folded, title: &str) -> String {
    let frames = frames(folded);
    let all = folded.count().max(1) as f64;
    let depth = frames.iter().map(|frame| frame.depth).max().unwrap_or_default();
    let height = TOP + ROW * (depth + 1) as f64 + 8.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"8\" y=\"18\" font-size=\"13\">{}: {} samples</text>\n",
        escape(title),
        folded.count()
    );
    for frame in &frames {
        let (x, width) = (frame.first as f64 / all * WIDTH, frame.count as f64 / all * WIDTH);
        if width < LEAST {
            continue;
        }
        let y = height - 8.0 - ROW * (frame.depth + 1) as f64;
        let name = escape(frame.name);
        let letters = (width / LETTER) as usize;
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "<g><title>{name}: {} samples, {:.2} %</title>\
             <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\".5\"/>",
            frame.count,
            frame.count as f64 / all * 100.0,
            ROW - 1.0,
            colour(frame.name)
        );
        if letters > 3 {
            let shown: String = frame.name.chars().take(letters - 1).collect();
            let _ = write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + 3.0, y + 12.0, escape(&shown));
        }
        out += "</g>\n";
    }
    out + "</svg>\n"
}

/// A warm colour, the same for the same function.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    format!("hsl({},80%,{}%)", 10 + hash % 45, 62 + (hash >> 8) % 14)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_wide_as_their_samples_and_above_their_callers() {
        let sample = |stack: &[&str]| {
            let lines: String = stack.iter().map(|name| format!("\t 1 {name}\n")).collect();
            format!("p \n{lines}\n")
        };
        let text = sample(&["b", "main"]).repeat(3) + &sample(&["a", "main"]);
        let folded = Folded::read(&text);
        let mut all: Vec<_> =
            frames(&folded).iter().map(|f| (f.depth, f.name.to_owned(), f.first, f.count)).collect();
        all.sort();
        let expected = [(0, "p", 0, 4), (1, "main", 0, 4), (2, "a", 0, 1), (2, "b", 1, 3)];
        assert_eq!(all, expected.map(|(depth, name, first, count)| (depth, name.to_owned(), first, count)));
        let svg = draw(&folded, "a < b");
        assert_eq!(svg.matches("<g>").count(), 4);
        assert!(
            svg.contains("a &lt; b: 4 samples") && svg.contains("<title>b: 3 samples, 75.00 %</title>"),
            "{svg}"
        );
        assert!(svg.contains("x=\"300.0\"") && svg.contains("width=\"900.0\""), "{svg}");
    }
}
