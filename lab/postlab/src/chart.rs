//! `postlab chart`: the bars of a table of `postlab relay`, as a picture for a page that may be light or dark.

use crate::{report::escape, reproduce::thousands};
use std::{
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

/// Draw the rates of a table of `postlab relay` as bars: a picture in SVG
#[derive(Debug, clap::Args)]
pub(crate) struct ChartArgs {
    /// The table: `relay.md` of the results of `postlab relay`, or a page that has it; the first table with `sessions` and `server` is drawn
    table: PathBuf,
    /// The column
    #[arg(long, default_value = "drained/s")]
    column: String,
    /// The headline
    #[arg(long, default_value = "Messages a second that reach the sink")]
    title: String,
    /// A line below the bars
    #[arg(long, default_value = "")]
    note: String,
    /// The file for the picture; without it, standard output
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// A value of the table: the median with the smallest and the largest.
#[derive(Debug, Clone, PartialEq)]
struct Bar {
    sessions: u32,
    server: String,
    median: f64,
    least: f64,
    most: f64,
}

/// Reads, draws, writes.
///
/// # Errors
/// In words.
pub(crate) fn run(args: &ChartArgs) -> Result<(), String> {
    let name = args.table.display();
    let text = fs::read_to_string(&args.table).map_err(|error| format!("read {name}: {error}"))?;
    let bars = bars(&text, &args.column).map_err(|why| format!("{name}: {why}"))?;
    let picture = draw(&bars, &args.title, &args.note);
    match &args.output {
        Some(file) => fs::write(file, picture).map_err(|error| format!("write {}: {error}", file.display())),
        None => io::stdout().write_all(picture.as_bytes()).map_err(|error| error.to_string()),
    }
}

/// Returns the values of the first table that has the columns.
fn bars(text: &str, column: &str) -> Result<Vec<Bar>, String> {
    let mut lines =
        text.lines().skip_while(|line| !(line.starts_with("| sessions |") && line.contains("| server |")));
    let Some(head) = lines.next() else {
        return Err("there is no table with the columns `sessions` and `server`".to_owned());
    };
    let Some(at) = cells(head).position(|cell| cell == column) else {
        let known: Vec<&str> = cells(head).skip(2).collect();
        return Err(format!("the table has no column `{column}`; it has {}", known.join(", ")));
    };
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let bar = |row: &str| {
            let mut cells = cells(row);
            let (sessions, server) = (cells.next()?.parse().ok()?, cells.next()?.to_owned());
            let (median, least, most) = spread(cells.nth(at.checked_sub(2)?)?)?;
            Some(Bar { sessions, server, median, least, most })
        };
        bar(row).ok_or_else(|| format!("not a row of numbers: {row}"))
    })
    .collect()
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim().trim_matches('|').split('|').map(str::trim)
}

/// Reads `566 (499–571)`, or a value alone.
fn spread(text: &str) -> Option<(f64, f64, f64)> {
    let Some((median, range)) = text.split_once(" (") else {
        let value = text.parse().ok()?;
        return Some((value, value, value));
    };
    let (least, most) = range.strip_suffix(')')?.split_once('–')?;
    Some((median.parse().ok()?, least.parse().ok()?, most.parse().ok()?))
}

const LEFT: f64 = 150.0;
/// The longest bar, with its range.
const LENGTH: f64 = 420.0;
const BAR: f64 = 18.0;
const GAP: f64 = 14.0;
const HEAD: f64 = 70.0;
/// Colours of the servers in the order of the table, on light and on dark ground. The ceiling is grey.
const COLOURS: [[&str; 2]; 6] = [
    ["#1a7f5a", "#3fb98a"],
    ["#b35900", "#e08a3c"],
    ["#d9a066", "#8a6034"],
    ["#5a4fcf", "#9d94ff"],
    ["#a8325e", "#e0709a"],
    ["#2a7ab0", "#5fb0e6"],
];

fn draw(bars: &[Bar], title: &str, note: &str) -> String {
    let (mut servers, mut groups): (Vec<&str>, Vec<u32>) = (Vec::new(), Vec::new());
    for bar in bars {
        if !servers.contains(&&*bar.server) {
            servers.push(&bar.server);
        }
        if !groups.contains(&bar.sessions) {
            groups.push(bar.sessions);
        }
    }
    // What is measured comes behind the ceiling, and Postrider first.
    servers.sort_by_key(|server| (*server != "ceiling", !server.starts_with("postrider")));
    let class = |server: &str| {
        let coloured = servers.iter().filter(|one| **one != "ceiling");
        match coloured.into_iter().position(|one| *one == server) {
            None => "n".to_owned(),
            Some(number) => format!("s{}", number % COLOURS.len()),
        }
    };
    let top = bars.iter().map(|bar| bar.most).fold(1.0, f64::max);
    let x = |value: f64| LEFT + value / top * LENGTH;
    let group_height = BAR * servers.len() as f64 + GAP;
    let height = HEAD + group_height * groups.len() as f64 + 16.0;
    let mut out = String::new();
    let label = escape(&format!("{title}: {}", servers.join(", ")));
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 {height:.0}\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\" role=\"img\" aria-label=\"{label}\">\n<style>{}</style>\n\
         <text x=\"0\" y=\"18\" font-size=\"15\" font-weight=\"600\">{}</text>",
        style(),
        escape(title)
    );
    let mut at = 0.0;
    for server in &servers {
        let text = escape(&spoken(server));
        let _ = writeln!(
            out,
            "<rect class=\"{}\" x=\"{at:.1}\" y=\"29\" width=\"12\" height=\"12\"/><text x=\"{:.1}\" y=\"40\">{text}</text>",
            class(server),
            at + 18.0
        );
        // The width of a letter is not known; this is that of a wide one.
        at += 36.0 + 7.2 * spoken(server).chars().count() as f64;
    }
    for (number, sessions) in groups.iter().enumerate() {
        let y = HEAD + group_height * number as f64;
        let plural = if *sessions == 1 { "" } else { "s" };
        let middle = y + BAR * servers.len() as f64 / 2.0;
        let _ = writeln!(out, "<text x=\"0\" y=\"{middle:.0}\">{sessions} session{plural}</text>");
        for (place, server) in servers.iter().enumerate() {
            let Some(bar) = bars.iter().find(|bar| bar.sessions == *sessions && bar.server == *server) else {
                continue;
            };
            let y = y + BAR * place as f64;
            let _ = writeln!(
                out,
                "<rect class=\"{}\" x=\"{LEFT:.0}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"14\"/><path class=\"w\" d=\"M{:.1} {:.0}H{:.1}\"/>\
                 <text class=\"t\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
                class(server),
                x(bar.median) - LEFT,
                x(bar.least),
                y + 7.0,
                x(bar.most),
                x(bar.most) + 6.0,
                y + 12.0,
                thousands(bar.median)
            );
        }
    }
    if !note.is_empty() {
        let _ = writeln!(out, "<text class=\"t\" x=\"0\" y=\"{:.0}\">{}</text>", height - 6.0, escape(note));
    }
    out.push_str("</svg>\n");
    out
}

fn style() -> String {
    let rule = |dark: usize| {
        let colours = COLOURS.iter().enumerate();
        colours.fold(String::new(), |all, (number, one)| all + &format!(".s{number}{{fill:{}}}", one[dark]))
    };
    format!(
        "text{{fill:#1f2328}}.t{{fill:#59636e;font-size:12px}}.n{{fill:#c4cad1}}.w{{stroke:#1f2328;stroke-width:1.5}}{}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.t{{fill:#9198a1}}.n{{fill:#4a525c}}.w{{stroke:#e6edf3}}{}}}",
        rule(0),
        rule(1)
    )
}

/// Returns the name of a server of the table for a reader: `Postfix, tuned`.
fn spoken(server: &str) -> String {
    if server == "ceiling" {
        return "source straight into the sink".to_owned();
    }
    let (name, state) = server.split_once(':').unwrap_or((server, ""));
    let name = match name {
        "opensmtpd" => "OpenSMTPD".to_owned(),
        name if name.is_ascii() && !name.is_empty() => name[..1].to_ascii_uppercase() + &name[1..],
        name => name.to_owned(),
    };
    if state.is_empty() { name } else { format!("{name}, {state}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n\
        | sessions | server | N | accepted/s | drained/s |\n|---:|---|---:|---:|---:|\n\
        | 1 | ceiling | 3 | 1959 (1949–2275) | 1959 (1949–2275) |\n\
        | 1 | postfix:stock | 3 | 567 (499–571) | 566 (499–571) |\n\
        | 1 | postrider:stock | 3 | 1290 (1262–1600) | 1291 |\n\nmore\n";

    #[test]
    fn the_bars_are_those_of_the_column() {
        let bars = bars(PAGE, "drained/s").unwrap();
        let medians: Vec<f64> = bars.iter().map(|bar| bar.median).collect();
        assert_eq!(medians, [1959.0, 566.0, 1291.0]);
        assert_eq!((bars[1].least, bars[1].most), (499.0, 571.0));
        assert!(super::bars(PAGE, "x").unwrap_err().contains("accepted/s"));
        assert!(super::bars("nothing", "x").is_err());
        assert!(super::bars(&PAGE.replace("566", "?"), "drained/s").unwrap_err().contains("not a row"));
    }

    #[test]
    fn a_picture_has_each_value_and_bars_in_proportion() {
        let bars = bars(PAGE, "drained/s").unwrap();
        let picture = draw(&bars, "A < B", "Median of 3 runs.");
        for text in ["1,959", "566", "1,291", "A &lt; B", "Postfix, stock", "1 session<", "Median of 3 runs."]
        {
            assert!(picture.contains(text), "{text}: {picture}");
        }
        let width = |value: f64| format!("width=\"{:.1}\"", value / 2275.0 * LENGTH);
        assert!([1959.0, 566.0, 1291.0].map(width).iter().all(|text| picture.contains(text)), "{picture}");
    }
}
