//! Bonnie++'s table and CSV line, as version 1.02 of the five papers has them.

use super::Done;
use std::{fmt::Write as _, time::Duration};

/// Shortest time that is a measurement; a phase that ends sooner is shown as `+++++`.
pub(super) const SHORT_SECONDS: f64 = 0.5;

/// What one phase has done, and in which time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Phase {
    /// KiB, seeks or files.
    pub(super) amount: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Time of the slowest operation.
    pub(super) longest: Duration,
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

/// Returns the line of Bonnie++ for programs.
pub(super) fn csv(done: &Done<'_>) -> String {
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

/// For programs, as Bonnie++ 2.00 has it.
pub(super) fn csv_of_2(done: &Done<'_>) -> String {
    let o = done.options;
    let some = |is: bool, value: String| if is { value } else { String::new() };
    let mut out = format!("1.98,2.00a,{},{},{}", done.name, o.copies, done.seed);
    let is_bulk = done.phases[..6].iter().any(Option::is_some);
    // Debian's leaves the octets of a block out, whatever they are.
    for value in [done.size.clone(), String::new(), o.seeks.to_string(), o.seekers.to_string()] {
        let _ = write!(out, ",{}", some(is_bulk, value));
    }
    for (i, phase) in done.phases.iter().enumerate() {
        if i == 6 {
            // Debian's has the directories in the fifth field, and nothing in the fourth.
            let mut sizes = done.files.split([':', '/']).skip(1);
            let is_plain = o.file_max == 0 && o.entry == super::Entry::File;
            let mut size = || some(!is_plain, sizes.next().unwrap_or_default().to_owned());
            let (max, min) = (size(), size());
            let min = some(o.entry == super::Entry::File, min);
            let directories = some(o.directories > 0, o.directories.to_string());
            let _ = write!(out, ",{},{max},{min},,{directories}", o.files);
        }
        let (rate, cpu) = words(phase.as_ref());
        let _ = write!(out, ",{rate},{cpu}");
    }
    for phase in &done.phases {
        let _ = write!(out, ",{}", phase.as_ref().map(latency).unwrap_or_default());
    }
    out + "\n"
}

/// Octets as `8k`.
fn unit(bytes: u64) -> String {
    if bytes.is_multiple_of(1024) { format!("{}k", bytes / 1024) } else { bytes.to_string() }
}

/// Of the longest operation, in at most seven columns: `74229us`, `204ms`, `12s`.
fn latency(phase: &Phase) -> String {
    let micros = phase.longest.as_micros();
    match micros {
        0..100_000 => format!("{micros}us"),
        100_000..100_000_000 => format!("{}ms", micros / 1000),
        _ => format!("{}s", micros / 1_000_000),
    }
}

/// KiB a second in at most five columns: `652k`, `36.6m`.
fn short_rate(kib: f64) -> String {
    let (value, unit) = match kib {
        ..1000.0 => (kib, "k"),
        ..1_024_000.0 => (kib / 1024.0, "m"),
        _ => (kib / 1_048_576.0, "g"),
    };
    if value < 100.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// For people, in at most 80 columns, as Bonnie++ 2.00 has it.
pub(super) fn table(done: &Done<'_>) -> String {
    let cell = |(i, phase): (usize, &Option<Phase>)| {
        let (mut rate, cpu) = words(phase.as_ref());
        // All of the large file but the seeks is K/sec.
        if let Some(kib) = phase.as_ref().and_then(Phase::rate).filter(|_| i < 5) {
            rate = short_rate(kib);
        }
        format!(" {rate:>5} {cpu:>3}")
    };
    let cells = |range: std::ops::Range<usize>| -> String {
        done.phases.iter().enumerate().skip(range.start).take(range.len()).map(cell).collect()
    };
    let latencies = |range: std::ops::Range<usize>| -> String {
        let cell = |phase: &Option<Phase>| format!(" {:>9}", phase.as_ref().map(latency).unwrap_or_default());
        done.phases[range].iter().map(cell).collect()
    };
    let units = " /sec %CP ".repeat(6);
    let mut out = String::new();
    let mut part = |heads: [&str; 2], left: [String; 3], range: std::ops::Range<usize>| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{:<19}{}", "", heads[0]);
        let _ = writeln!(out, "{:<19}{}", left[0], heads[1]);
        let _ = writeln!(out, "{:<19} {}", left[1], units.trim_end());
        let _ = writeln!(out, "{:<19}{}", left[2], cells(range.clone()).trim_end());
        let _ = writeln!(out, "{:<19}{}", "Latency", latencies(range).trim_end());
    };
    // A long name would move the columns.
    let name: String = done.name.chars().take(19).collect();
    if done.phases[..6].iter().any(Option::is_some) {
        let size = format!("{}:{}", done.size, unit(done.options.chunk as u64));
        let room = 18usize.saturating_sub(size.len());
        let short: String = done.name.chars().take(room).collect();
        let row = format!("{short:<room$} {size}");
        let heads = [
            " ------Sequential Output------ --Sequential Input- --Random-",
            " -Per Chr- --Block-- -Rewrite- -Per Chr- --Block-- --Seeks--",
        ];
        part(heads, [String::new(), "Name      Size etc".into(), row], 0..6);
    }
    if done.phases[6..].iter().any(Option::is_some) {
        let heads = [
            " ------Sequential Create------ --------Random Create--------",
            " -Create-- --Read--- -Delete-- -Create-- --Read--- -Delete--",
        ];
        part(heads, [name, "      files:max:min".into(), format!("{:>19}", done.files)], 6..12);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::{BonnieArgs, Options};

    fn options(words: &[&str]) -> Options {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: BonnieArgs,
        }
        let words = ["bonnie", "-r", "0"].iter().chain(words);
        <Cli as clap::Parser>::try_parse_from(words).unwrap().args.options().unwrap()
    }

    fn done(options: &Options) -> Done<'_> {
        let longest = Duration::from_micros(74_229);
        let phase = |amount, cpu_seconds| Some(Phase { amount, seconds: 1.0, cpu_seconds, longest });
        let short = Some(Phase { amount: 9999.0, seconds: 0.49, cpu_seconds: 0.4, longest });
        Done {
            options,
            name: "compaq-soft".into(),
            seed: "42".into(),
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
        }
    }

    #[test]
    fn the_line_is_that_of_the_seed_and_what_is_short_is_plus_signs() {
        let options = options(&["-s", "300"]);
        assert_eq!(
            csv(&done(&options)),
            "compaq-soft,300M,2407,67,4584,39,2052,21,,,3644,18,57.8,3,1:10:0,402,31,+++++,+++,832,49,\
             564,46,+++++,+++,1746,99\n"
        );
    }

    /// As Debian's bonnie++ 2.00a prints it for -s 40 -n 1 and for -n 1:1000:10:2.
    #[test]
    fn the_new_line_has_the_fields_of_debians() {
        let theirs = "1.98,2.00a,vm,1,1795455162,40M,,8192,5,,,37504,4,+++++,+++,,,+++++,+++,+++++,+++,1,,,,,507,14,\
                      +++++,+++,+++++,+++,148,8,+++++,+++,+++++,+++,,206ms,133ms,,74229us,52130us,300ms,66us,113ms,\
                      996ms,6us,20057us";
        let options = options(&["-s", "300", "-n", "1:10:0"]);
        let line = csv_of_2(&done(&options));
        assert_eq!(line.trim_end().split(',').count(), theirs.split(',').count(), "{line}");
        assert!(line.starts_with("1.98,2.00a,compaq-soft,1,42,300M,,8192,5,2407,67,4584,39,"), "{line}");
        assert!(line.contains(",57.8,3,1,10,0,,,402,31,") && line.ends_with(",74229us,74229us\n"), "{line}");
    }

    #[test]
    fn the_table_fits_80_columns_and_its_heads_stand_over_their_columns() {
        let options = options(&["-s", "300"]);
        let text = table(&done(&options));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 10, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
        // The end of the head is that of the rate's percent sign column.
        let end = |line: &str, word: &str| line.find(word).unwrap() + word.len();
        assert_eq!(end(lines[1], "--Block--"), end(lines[3], " 39"), "{text}");
        assert_eq!(end(lines[6], "-Delete--"), end(lines[8], "832  49"), "{text}");
        assert!(lines[4].starts_with("Latency") && lines[4].contains("  74229us   74229us"), "{text}");
        assert!(lines[3].contains(" 2.4m  67  4.5m  39") && lines[8].contains("+++++ +++"), "{text}");
    }

    #[test]
    fn a_phase_of_less_than_half_a_second_has_no_rate() {
        let words = |seconds| Phase { amount: 100.0, seconds, cpu_seconds: 0.1, ..Phase::default() }.words();
        assert_eq!(words(0.499), ("+++++".to_owned(), "+++".to_owned()));
        assert_eq!(words(0.5), ("200".to_owned(), "20".to_owned()));
    }

    #[test]
    fn rates_and_latencies_stay_in_their_columns() {
        assert_eq!([652.0, 37_504.0, 2e6, 5e5].map(short_rate), ["652k", "36.6m", "1.9g", "488m"]);
        let shown = |micros| latency(&Phase { longest: Duration::from_micros(micros), ..Phase::default() });
        assert_eq!([66, 99_999, 204_000, 120_000_000].map(shown), ["66us", "99999us", "204ms", "120s"]);
    }
}
