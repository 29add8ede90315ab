//! `postlab log-format`: what it costs to write a line of the delivery log, in five ways, and with sendmail's sm_snprintf(), which the
//! paper on sendmail X found up to twice as slow as the system's snprintf().

use crate::{
    rounds::{Figure, Progress, Rounds},
    sm_snprintf::Program,
    snprintf::{self, CLine},
    table::{Cell, Column, Format, Table},
};
use clap::Args;
use serde::Serialize;
use std::{
    hint::black_box,
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

/// Measure ways to format a line of a delivery log
#[derive(Debug, Args)]
pub struct LogFormatArgs {
    /// Lines in each round
    #[arg(short = 'n', value_name = "COUNT", default_value = "1000000", value_parser = clap::value_parser!(u32).range(1..))]
    lines: u32,
    /// Compare sendmail's sm_snprintf() with snprintf() too, in a program in C; needs gcc and Debian's libmilter-dev
    #[arg(long)]
    sendmail: bool,
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    format: Format,
}

/// The fields that each method formats.
#[derive(Debug, Serialize)]
struct Line<'a> {
    time: &'a str,
    id: &'a str,
    to: &'a str,
    relay: &'a str,
    delay_ms: u64,
    code: u16,
    text: &'a str,
}

type Method = (&'static str, fn(&mut Vec<u8>, &Line<'_>));

const METHODS: [Method; 5] = [
    ("format!", by_string),
    ("write!", by_write),
    ("by hand", by_copying),
    ("snprintf", by_snprintf),
    ("serde_json", by_json),
];

/// Returns why [`LogFormatArgs`] may not ask for sendmail's formatter here.
#[must_use]
pub fn missing_libsm() -> Option<String> {
    Program::compile().err()
}

/// A row of the table, with what returns the seconds of a round: none if a signal stopped it.
struct Formatter<'p> {
    name: &'static str,
    measure: Box<dyn Fn() -> Result<Option<f64>, String> + 'p>,
}

/// As the program in C names them, and the table.
const IN_C: [(&str, &str); 2] = [("snprintf", "snprintf, in C"), ("sm_snprintf", "sm_snprintf, in C")];

/// Measures and prints.
pub fn run(args: &LogFormatArgs) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    crate::signals::on_end({
        let stop = stop.clone();
        move || stop.store(true, Relaxed)
    })?;
    let program = args.sendmail.then(Program::compile).transpose()?;
    let lines = args.lines;
    let own = METHODS
        .map(|(name, method)| Formatter { name, measure: Box::new(move || Ok(measure(method, lines))) });
    let in_c = program.iter().flat_map(|program| {
        IN_C.map(|(function, name)| Formatter {
            name,
            measure: Box::new(move || program.run(function, lines).map(|(seconds, _)| Some(seconds))),
        })
    });
    let mut formatters: Vec<(Formatter<'_>, Figure, Figure)> =
        own.into_iter().chain(in_c).map(|formatter| (formatter, Figure::new(), Figure::new())).collect();
    let progress = Progress::new("log-format", u64::from(args.rounds.count) * formatters.len() as u64);
    // Round for round, so that noise meets all of them.
    for _ in 0..args.rounds.count {
        for (formatter, rate, cost) in &mut formatters {
            if stop.load(Relaxed) {
                break;
            }
            let Some(seconds) = (formatter.measure)()? else { break };
            rate.push(f64::from(lines) / seconds / 1e6);
            cost.push(seconds * 1e9 / f64::from(lines));
            progress.step();
        }
    }
    drop(progress);
    let hand = formatters[2].2.median().unwrap_or_default();
    let mut table = Table::new(args.format, &COLUMNS, None);
    for (formatter, rate, cost) in &formatters {
        let ratio = cost.median().unwrap_or_default() / hand.max(1e-9);
        table.row([formatter.name.into(), rate.into(), cost.into(), Cell::Number(ratio, 2)]);
    }
    table.finish();
    Ok(())
}

const COLUMNS: [Column; 4] = [
    Column::left("", "method", 17),
    Column::right("million lines/s", "million_lines_per_second", 34),
    Column::right("ns a line", "ns_per_line", 34),
    Column::right("to by hand", "ratio_to_by_hand", 18),
];

/// Returns the seconds that the lines took; none if a signal stopped it.
fn measure(method: fn(&mut Vec<u8>, &Line<'_>), lines: u32) -> Option<f64> {
    let mut out = Vec::with_capacity(512);
    let begin = Instant::now();
    for i in 0..lines {
        // A look for each line would be a part of the result.
        if i.is_multiple_of(1 << 16) && crate::signals::is_stopped() {
            return None;
        }
        out.clear();
        let line = Line { delay_ms: u64::from(i), ..sample() };
        method(&mut out, black_box(&line));
        black_box(&out);
    }
    Some(begin.elapsed().as_secs_f64())
}

fn sample() -> Line<'static> {
    Line {
        time: "2026-11-21T11:42:59.123456Z",
        id: "01KA4T9W3M8Z",
        to: "recipient@sink.test",
        relay: "mx.sink.test[127.0.0.1]:25",
        delay_ms: 12,
        code: 250,
        text: "2.0.0 Ok: \"queued\"",
    }
}

fn by_string(out: &mut Vec<u8>, l: &Line<'_>) {
    let line = format!(
        "{} delivered id={} to=<{}> relay={} delay={}ms code={} text={:?}\n",
        l.time, l.id, l.to, l.relay, l.delay_ms, l.code, l.text
    );
    out.extend_from_slice(line.as_bytes());
}

fn by_write(out: &mut Vec<u8>, l: &Line<'_>) {
    // Writing to a vector cannot fail.
    let _ = writeln!(
        out,
        "{} delivered id={} to=<{}> relay={} delay={}ms code={} text={:?}",
        l.time, l.id, l.to, l.relay, l.delay_ms, l.code, l.text
    );
}

fn by_copying(out: &mut Vec<u8>, l: &Line<'_>) {
    let mut say = |text: &str| out.extend_from_slice(text.as_bytes());
    say(l.time);
    say(" delivered id=");
    say(l.id);
    say(" to=<");
    say(l.to);
    say("> relay=");
    say(l.relay);
    say(" delay=");
    number(out, l.delay_ms);
    out.extend_from_slice(b"ms code=");
    number(out, l.code.into());
    out.extend_from_slice(b" text=\"");
    for byte in l.text.bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.extend_from_slice(b"\"\n");
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The strings are constants for C: a mail server in C has no others. The text is the one that [`by_string`] escapes.
fn by_snprintf(out: &mut Vec<u8>, l: &Line<'_>) {
    let line = CLine {
        time: black_box(c"2026-11-21T11:42:59.123456Z"),
        id: black_box(c"01KA4T9W3M8Z"),
        to: black_box(c"recipient@sink.test"),
        relay: black_box(c"mx.sink.test[127.0.0.1]:25"),
        delay_ms: l.delay_ms,
        code: l.code,
        text: black_box(c"2.0.0 Ok: \\\"queued\\\""),
    };
    snprintf::format(out, &line);
}

fn by_json(out: &mut Vec<u8>, line: &Line<'_>) {
    // A vector takes all, and nothing in a line is without a JSON form.
    let _ = serde_json::to_writer(&mut *out, line);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_but_json_writes_the_same_line() {
        let lines = [by_string, by_write, by_copying, by_snprintf].map(|method| {
            let mut out = Vec::new();
            method(&mut out, &sample());
            String::from_utf8(out).unwrap()
        });
        assert!(lines.iter().all(|line| *line == lines[0]), "{lines:#?}");
        if let Ok(program) = Program::compile() {
            for (method, _) in IN_C {
                let (seconds, line) = program.run(method, 13).unwrap();
                assert!(seconds > 0.0);
                assert_eq!(line, lines[0]);
            }
        } else {
            println!("SKIPPED: there is no libmilter-dev, or no compiler");
        }
        assert!(lines[0].contains("delay=12ms code=250 text=\"2.0.0 Ok: \\\"queued\\\"\"\n"));
    }
}
