//! `postlab stat`: ministat's input, look and verdicts, and three tests more.
//!
//! The median of an even number of points is the upper of the two in the middle, and 99.5 stands for
//! 99.8 %: ministat has both, and a verdict must not depend on which of the two programs was at hand.

mod format;
pub mod interval;
mod other;
mod plot;
mod sample;
pub mod spread;
mod student;

use crate::table::{Cell, Column, Format, Table};
use clap::{ArgAction, Args};
use format::general;
pub use other::mann_whitney;
use sample::Columns;
pub use sample::Sample;
use std::{fmt::Write as _, fs::File, path::PathBuf};
pub use student::{Confidence, Verdict};

/// Describe and compare samples, as ministat does
///
/// The first file is the reference; each other one is compared with it. A file has a number a line, at least
/// three; `#` begins a comment. Without files, standard input is described.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Column of the numbers, from 1
    #[arg(short = 'C', value_name = "COLUMN", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    column: u16,
    /// Confidence that a difference needs, in percent: 80, 90, 95, 98, 99 or 99.5
    #[arg(short = 'c', value_name = "PERCENT", default_value = "95", value_parser = Confidence::parse)]
    confidence: Confidence,
    /// Characters between columns
    #[arg(short = 'd', value_name = "CHARACTERS", default_value = " \t", hide_default_value = true)]
    delimiters: String,
    /// Statistics and comparisons only, no picture
    #[arg(short = 'A')]
    no_picture: bool,
    /// Statistics only
    #[arg(short = 'n')]
    only_numbers: bool,
    /// Draw each sample's bar on its own line
    #[arg(short = 's')]
    separate: bool,
    /// Width of the picture
    #[arg(short = 'w', value_name = "COLUMNS", default_value = "74", value_parser = clap::value_parser!(u16).range(5..=1000))]
    width: u16,
    /// Welch's t-test too, which allows unequal variances
    #[arg(long)]
    welch: bool,
    /// Mann and Whitney's U test too, for skewed samples
    #[arg(long)]
    mann_whitney: bool,
    /// A bootstrapped interval for the difference of means too
    #[arg(long)]
    bootstrap: bool,
    /// All three tests above
    #[arg(long, action = ArgAction::SetTrue)]
    all: bool,
    #[command(flatten)]
    format: Format,
    /// Samples; - is standard input
    files: Vec<PathBuf>,
}

/// ministat has seven marks, one of which means two samples.
const MOST: usize = 7;

/// Prints what `args` ask for.
pub fn run(args: &StatArgs) -> Result<(), String> {
    let samples = read(args)?;
    let mut table = Table::new(args.format, &COLUMNS, None);
    table.text(&text(args, &samples));
    for (i, sample) in samples.iter().enumerate() {
        let compared = (i > 0 && !args.only_numbers).then(|| &samples[0]);
        record(&mut table, args, sample, compared);
    }
    table.finish();
    Ok(())
}

/// The columns of a sample; those of a comparison with the first sample are empty where there is none.
const COLUMNS: [Column; 15] = [
    Column::left("sample", "sample", 20),
    Column::right("N", "n", 5),
    Column::right("min", "min", 13),
    Column::right("max", "max", 13),
    Column::right("median", "median", 13),
    Column::right("mean", "mean", 13),
    Column::right("standard deviation", "standard_deviation", 18),
    Column::right("difference", "difference", 13),
    Column::right("margin", "difference_margin", 13),
    Column::right("difference %", "difference_percent", 13),
    Column::right("proven by Student's t", "student_verdict", 20),
    Column::right("p of Welch", "welch_p", 13),
    Column::right("p of Mann-Whitney", "mann_whitney_p", 13),
    Column::right("bootstrap from", "bootstrap_low", 13),
    Column::right("bootstrap to", "bootstrap_high", 13),
];

fn record(table: &mut Table<'_>, args: &StatArgs, sample: &Sample, reference: Option<&Sample>) {
    let number = |value: f64| Cell::Number(value, 6);
    let asked = |is_asked: bool| reference.filter(|_| is_asked || args.all);
    let verdict = reference.map(|reference| Verdict::new(sample, reference, args.confidence));
    let of = |value: fn(&Verdict) -> f64| verdict.as_ref().map_or(Cell::Empty, |v| number(value(v)));
    let interval =
        asked(args.bootstrap).map(|reference| other::bootstrap(sample, reference, args.confidence.alpha()));
    let welch = asked(args.welch).and_then(|reference| other::welch(sample, reference));
    let ranks = asked(args.mann_whitney).map(|reference| other::mann_whitney(sample, reference));
    let proven = |v: &Verdict| if v.is_proven() { "difference" } else { "no difference proven" };
    table.record([
        sample.name.as_str().into(),
        sample.count().into(),
        number(sample.min()),
        number(sample.max()),
        number(sample.median()),
        number(sample.mean()),
        number(sample.deviation()),
        of(|v| v.difference),
        of(|v| v.margin),
        of(|v| v.difference * 100.0 / v.base),
        verdict.as_ref().map(proven).into(),
        welch.map_or(Cell::Empty, |test| number(test.p)),
        ranks.map_or(Cell::Empty, |test| number(test.p)),
        interval.as_ref().map_or(Cell::Empty, |interval| number(interval.low)),
        interval.as_ref().map_or(Cell::Empty, |interval| number(interval.high)),
    ]);
    if let Some(verdict) = verdict {
        table.silent_remark(format!("at {} % confidence", verdict.confidence.percent));
    }
}

fn read(args: &StatArgs) -> Result<Vec<Sample>, String> {
    if args.files.len() > MOST {
        return Err(format!("compare {} samples: no more than {MOST} have marks", args.files.len()));
    }
    let columns = Columns { column: args.column.into(), delimiters: args.delimiters.clone() };
    let stdin = || Sample::read("<stdin>", std::io::stdin().lock(), &columns);
    if args.files.is_empty() {
        return Ok(vec![stdin()?]);
    }
    let one = |path: &PathBuf| {
        if path.as_os_str() == "-" {
            return stdin();
        }
        let name = path.display().to_string();
        let file = File::open(path).map_err(|e| format!("open {name}: {e}"))?;
        Sample::read(&name, file, &columns)
    };
    args.files.iter().map(one).collect()
}

fn text(args: &StatArgs, samples: &[Sample]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for (i, sample) in samples.iter().enumerate() {
        let _ = writeln!(out, "{} {}", plot::mark(i), sample.name);
    }
    if !args.no_picture && !args.only_numbers {
        out.push_str(&plot::draw(samples, args.width.into(), args.separate));
    }
    let _ = writeln!(out, "    N           Min           Max        Median           Avg        Stddev");
    for (i, sample) in samples.iter().enumerate() {
        out.push_str(&row(i, sample));
        if i > 0 && !args.only_numbers {
            out.push_str(&Verdict::new(sample, &samples[0], args.confidence).text());
            out.push_str(&more(args, sample, &samples[0]));
        }
    }
    out
}

fn row(i: usize, sample: &Sample) -> String {
    let numbers = [sample.min(), sample.max(), sample.median(), sample.mean(), sample.deviation()];
    let columns: String = numbers.iter().map(|n| format!(" {:>13}", general(*n, 8))).collect();
    format!("{} {:3}{columns}\n", plot::mark(i), sample.count())
}

/// Returns the results of tests that ministat does not have.
fn more(args: &StatArgs, sample: &Sample, reference: &Sample) -> String {
    let alpha = args.confidence.alpha();
    let verdict = |is_difference: bool| if is_difference { "difference" } else { "no difference proven" };
    let mut out = String::new();
    if args.welch || args.all {
        let _ = match other::welch(sample, reference) {
            Some(w) => writeln!(
                out,
                "Welch: {} (t = {}, {} degrees of freedom, p = {})",
                verdict(w.p < alpha),
                general(w.t, 6),
                general(w.degrees, 4),
                general(w.p, 3)
            ),
            None => writeln!(out, "Welch: no verdict, neither sample has any spread"),
        };
    }
    if args.mann_whitney || args.all {
        let u = other::mann_whitney(sample, reference);
        let how = if u.is_exact { "exact" } else { "approximate" };
        let _ = writeln!(
            out,
            "Mann-Whitney: {} (U = {}, {how} p = {})",
            verdict(u.p < alpha),
            general(u.u, 6),
            general(u.p, 3)
        );
    }
    if args.bootstrap || args.all {
        let interval = other::bootstrap(sample, reference, alpha);
        let _ = writeln!(
            out,
            "Bootstrap: {} (means differ by {} to {})",
            verdict(interval.is_difference()),
            general(interval.low, 6),
            general(interval.high, 6)
        );
    }
    out
}
