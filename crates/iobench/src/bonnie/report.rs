//! Bonnie++'s table and CSV line, as version 1.02 of the 2002–2005 papers has them.

use super::Done;
use std::fmt::Write as _;

/// Shortest time that is a measurement; a phase that ends sooner is shown as `+++++`.
const SHORT_SECONDS: f64 = 0.5;

/// Of one phase.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Phase {
    /// KiB, seeks or files.
    pub(super) amount: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
}

impl Phase {
    /// Amount a second, where that means anything.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.seconds >= SHORT_SECONDS).then(|| self.amount / self.seconds)
    }

    /// Rate and percent of a processor; `digits` wide where it was too short.
    fn words(&self) -> (String, String) {
        let Some(rate) = self.rate() else { return ("+++++".into(), "+++".into()) };
        // Seeks are so few that their first decimal counts.
        let rate = if rate < 100.0 { format!("{rate:.1}") } else { format!("{rate:.0}") };
        (rate, format!("{:.0}", self.cpu_seconds / self.seconds * 100.0))
    }
}

/// Rate and percent, or blanks for what was not done.
fn words(phase: Option<&Phase>) -> (String, String) {
    phase.map(Phase::words).unwrap_or_default()
}

/// The names of the phases, as the table's columns have them.
pub(super) const NAMES: [&str; 12] = [
    "write per char, K/s",
    "write block, K/s",
    "rewrite, K/s",
    "read per char, K/s",
    "read block, K/s",
    "seeks/s",
    "sequential create/s",
    "sequential read/s",
    "sequential delete/s",
    "random create/s",
    "random read/s",
    "random delete/s",
];

/// For programs.
pub(super) fn csv(done: &Done) -> String {
    let mut out = format!("{},{}", done.name, done.size);
    for (i, phase) in done.phases.iter().enumerate() {
        if i == 6 {
            let _ = write!(out, ",{}", done.files);
        }
        let (rate, cpu) = words(phase.as_ref());
        let _ = write!(out, ",{rate},{cpu}");
    }
    out + "\n"
}

/// For people.
pub(super) fn table(done: &Done) -> String {
    let cells = |range: std::ops::Range<usize>| -> String {
        let cell = |phase: &Option<Phase>| {
            let (rate, cpu) = words(phase.as_ref());
            format!(" {rate:>9} {cpu:>3}")
        };
        done.phases[range].iter().map(cell).collect()
    };
    let mut out = String::new();
    // Writing to a string cannot fail.
    if done.phases[..6].iter().any(Option::is_some) {
        let heads = ["Per Chr", "Block", "Rewrite", "Per Chr", "Block", "Seeks"];
        let columns: String = heads.iter().map(|h| format!(" {h:>9} %CP")).collect();
        let _ =
            writeln!(out, "{:30} ------ Sequential Output ------ --- Sequential Input ---- -- Random --", "");
        let _ = writeln!(out, "{:<16} {:>12}{columns}", "Machine", "Size K/sec");
        let _ = writeln!(out, "{:<16} {:>12}{}", done.name, done.size, cells(0..6));
    }
    if done.phases[6..].iter().any(Option::is_some) {
        let columns: String =
            ["Create", "Read", "Delete"].repeat(2).iter().map(|h| format!(" {h:>9} %CP")).collect();
        let _ = writeln!(
            out,
            "{:30} -------- Sequential Create -------- ---------- Random Create ----------",
            ""
        );
        let _ = writeln!(out, "{:<16} {:>12}{columns}", "", "files:max /s");
        let _ = writeln!(out, "{:<16} {:>12}{}", "", done.files, cells(6..12));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_that_of_the_seed_and_what_is_short_is_plus_signs() {
        let phase = |amount, cpu| Some(Phase { amount, seconds: 1.0, cpu_seconds: cpu });
        let short = Some(Phase { amount: 9999.0, seconds: 0.49, cpu_seconds: 0.4 });
        let done = Done {
            name: "compaq-soft".into(),
            size: "300M".into(),
            files: "1:10:0".into(),
            phases: [
                phase(2407.0, 0.67),
                phase(4584.0, 0.39),
                phase(2052.0, 0.21),
                None,
                phase(3644.0, 0.18),
                phase(57.8, 0.03),
                phase(402.0, 0.31),
                short,
                phase(832.0, 0.49),
                phase(564.0, 0.46),
                short,
                phase(1746.0, 0.99),
            ],
        };
        assert_eq!(
            csv(&done),
            "compaq-soft,300M,2407,67,4584,39,2052,21,,,3644,18,57.8,3,1:10:0,402,31,+++++,+++,832,49,\
             564,46,+++++,+++,1746,99\n"
        );
        assert!(table(&done).contains("+++++ +++"));
    }
}
