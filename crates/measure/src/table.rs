//! The result of a measurement as a table: as text while it runs, or at its end as JSON, CSV or Markdown.

use crate::rounds::{Figure, Progress};
use clap::Args;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The form of the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct Format {
    /// Print one JSON object, with the value of every round
    #[arg(long, conflicts_with_all = ["csv", "markdown"])]
    json: bool,
    /// Print comma-separated values (RFC 4180): of each figure the median, the smallest, the largest and N
    #[arg(long, conflicts_with = "markdown")]
    csv: bool,
    /// Print a table in Markdown
    #[arg(long)]
    markdown: bool,
}

impl Format {
    /// Is the output text for a terminal?
    pub fn is_text(self) -> bool {
        self == Self::default()
    }

    /// The command line options that ask for this form.
    pub fn options(self) -> &'static [&'static str] {
        match (self.json, self.csv, self.markdown) {
            (true, _, _) => &["--json"],
            (_, true, _) => &["--csv"],
            (_, _, true) => &["--markdown"],
            _ => &[],
        }
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Heading of the text and of Markdown.
    title: &'static str,
    /// Name in JSON and CSV: letters, digits and underscores.
    key: &'static str,
    /// Least width in text; negative aligns to the left.
    width: isize,
}

impl Column {
    /// Aligned to the right, in at least `width` characters.
    pub const fn right(title: &'static str, key: &'static str, width: isize) -> Self {
        Self { title, key, width }
    }

    /// Aligned to the left.
    pub const fn left(title: &'static str, key: &'static str, width: isize) -> Self {
        Self { title, key, width: -width }
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width.unsigned_abs();
        if self.width < 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// A value in a table.
#[derive(Debug, Clone)]
pub enum Cell {
    /// Nothing was measured.
    Empty,
    /// A name.
    Text(String),
    /// A count.
    Count(u64),
    /// A figure of one value, with so many decimals in text.
    Number(f64, usize),
    /// A figure with the values of all rounds.
    Figure(Figure),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<u32> for Cell {
    fn from(count: u32) -> Self {
        Self::Count(count.into())
    }
}

impl From<Figure> for Cell {
    fn from(figure: Figure) -> Self {
        Self::Figure(figure)
    }
}

impl From<&Figure> for Cell {
    fn from(figure: &Figure) -> Self {
        Self::Figure(figure.clone())
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Empty => "-".to_owned(),
            Self::Text(text) => text.clone(),
            Self::Count(count) => count.to_string(),
            Self::Number(value, decimals) => format!("{value:.decimals$}"),
            Self::Figure(figure) => figure.to_string(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Empty => Value::Null,
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Number(value, _) => json!(value),
            Self::Figure(figure) => match figure.spread() {
                Some(s) => {
                    json!({ "median": s.median, "min": s.min, "max": s.max, "values": figure.values() })
                }
                None => Value::Null,
            },
        }
    }

    /// The fields of the cell; a figure has four.
    fn fields(&self, is_figure: bool) -> Vec<String> {
        match self {
            Self::Figure(figure) => match figure.spread() {
                Some(s) => {
                    let values = [s.median, s.min, s.max].map(|value| value.to_string());
                    values.into_iter().chain([figure.values().len().to_string()]).collect()
                }
                None => vec![String::new(); 4],
            },
            Self::Empty => vec![String::new(); if is_figure { 4 } else { 1 }],
            Self::Number(value, _) => vec![value.to_string()],
            other => vec![other.text()],
        }
    }
}

/// The table of a measurement. In text each row is printed when it is there; else all is printed by [`Table::finish`].
#[derive(Debug)]
pub struct Table<'a> {
    format: Format,
    columns: &'a [Column],
    progress: Option<&'a Progress>,
    facts: Vec<String>,
    rows: Vec<Vec<Cell>>,
    notes: Vec<String>,
    has_head: bool,
}

impl<'a> Table<'a> {
    /// A table with these columns; `progress` is hidden while a row is printed.
    pub fn new(format: Format, columns: &'a [Column], progress: Option<&'a Progress>) -> Self {
        let (facts, rows, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { format, columns, progress, facts, rows, notes, has_head: false }
    }

    fn print(&self, text: &str) {
        match self.progress {
            Some(progress) => progress.beside(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    /// Adds a line above the table: the device, the conditions.
    pub fn fact(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.format.is_text() {
            self.print(&text);
        }
        self.facts.push(text);
    }

    /// Adds a row, a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        if self.format.is_text() {
            if !std::mem::replace(&mut self.has_head, true) {
                let titles = self.columns.iter().map(|column| column.padded(column.title));
                self.print(titles.collect::<Vec<_>>().join(" ").trim_end());
            }
            let texts = self.columns.iter().zip(&cells).map(|(column, cell)| column.padded(&cell.text()));
            self.print(texts.collect::<Vec<_>>().join(" ").trim_end());
        }
        self.record(cells);
    }

    /// Adds a row that is not a part of the text, where lines of [`Table::fact`] and [`Table::note`] say the same.
    pub fn record<const N: usize>(&mut self, cells: [Cell; N]) {
        debug_assert_eq!(N, self.columns.len(), "a cell for each column");
        self.rows.push(cells.into());
    }

    /// Adds a line of text, which other forms do not have.
    pub fn text(&self, text: &str) {
        if self.format.is_text() {
            self.print(text);
        }
    }

    /// Adds a line below the table, or between its rows: durability, a ratio, a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.format.is_text() {
            self.print(&text);
        }
        self.notes.push(text);
    }

    /// Prints what was not printed yet.
    pub fn finish(self) {
        match (self.format.json, self.format.csv, self.format.markdown) {
            (true, _, _) => println!("{}", self.json()),
            (_, true, _) => print!("{}", self.csv()),
            (_, _, true) => print!("{}", self.markdown()),
            _ => {}
        }
    }

    /// One object: `command`, `facts`, `rows` with a field for each column, `notes`.
    fn json(&self) -> Value {
        let row = |cells: &Vec<Cell>| -> Value {
            let fields = self.columns.iter().zip(cells);
            fields.map(|(column, cell)| (column.key.to_owned(), cell.json())).collect::<Map<_, _>>().into()
        };
        let command: Vec<String> = std::env::args().collect();
        json!({
            "command": command,
            "facts": self.facts,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    fn csv(&self) -> String {
        let is_figure = |i: usize| self.rows.iter().any(|row| matches!(row.get(i), Some(Cell::Figure(_))));
        let mut out = String::new();
        let head = self.columns.iter().enumerate().flat_map(|(i, column)| {
            let endings: &[&str] = if is_figure(i) { &["", "_min", "_max", "_n"] } else { &[""] };
            endings.iter().map(|ending| format!("{}{ending}", column.key))
        });
        push_record(&mut out, head);
        for row in &self.rows {
            let fields = row.iter().enumerate().flat_map(|(i, cell)| cell.fields(is_figure(i)));
            push_record(&mut out, fields);
        }
        out
    }

    fn markdown(&self) -> String {
        let mut out = String::new();
        for fact in &self.facts {
            let _ = writeln!(out, "{}\n", fact.trim());
        }
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        out += &line(self.columns.iter().map(|column| escaped(column.title)).collect());
        let rules = self.columns.iter().map(|column| if column.width < 0 { "---" } else { "---:" });
        out += &line(rules.map(str::to_owned).collect());
        for row in &self.rows {
            out += &line(row.iter().map(|cell| escaped(&cell.text())).collect());
        }
        for note in &self.notes {
            let _ = write!(out, "\n{}\n", note.trim());
        }
        out
    }
}

fn escaped(text: &str) -> String {
    text.trim().replace('|', "\\|")
}

/// Appends a record of RFC 4180, with LF at its end; a field with a comma, a quote or a line end is quoted.
pub fn push_record(out: &mut String, fields: impl IntoIterator<Item = String>) {
    for (i, field) in fields.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        if field.contains([',', '"', '\n', '\r']) {
            let _ = write!(out, "\"{}\"", field.replace('"', "\"\""));
        } else {
            out.push_str(&field);
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column::left("store", "store", 6),
        Column::right("-T", "group", 4),
        Column::right("KB/s", "kb_per_second", 20),
    ];

    fn table(format: Format) -> Table<'static> {
        let mut table = Table::new(format, &COLUMNS, None);
        table.fact("ext4 on a|disk");
        let mut figure = Figure::new();
        [3.0, 1.0, 2.5].iter().for_each(|value| figure.push(*value));
        table.row(["log, \"new\"".into(), 10u32.into(), figure.into()]);
        table.row(["a|b".into(), 20u32.into(), Cell::Empty]);
        table.note("Durability: synced.");
        table
    }

    #[test]
    fn json_has_a_field_for_each_column_and_every_value() {
        let json = table(Format { json: true, ..Format::default() }).json();
        assert_eq!(json["rows"][0]["kb_per_second"]["median"], 2.5);
        assert_eq!(json["rows"][0]["kb_per_second"]["values"], serde_json::json!([3.0, 1.0, 2.5]));
        assert_eq!(json["rows"][1]["kb_per_second"], Value::Null);
        assert_eq!(json["notes"][0], "Durability: synced.");
    }

    #[test]
    fn csv_has_as_many_fields_in_each_line() {
        let csv = table(Format { csv: true, ..Format::default() }).csv();
        assert_eq!(
            csv,
            "store,group,kb_per_second,kb_per_second_min,kb_per_second_max,kb_per_second_n\n\
             \"log, \"\"new\"\"\",10,2.5,1,3,3\na|b,20,,,,\n"
        );
    }

    #[test]
    fn markdown_escapes_bars_in_cells() {
        let text = table(Format { markdown: true, ..Format::default() }).markdown();
        let table = "| store | -T | KB/s |\n| --- | ---: | ---: |\n| log, \"new\" | 10 | 2.50 (1.00–3.00, N=3) |\n\
            | a\\|b | 20 | - |\n";
        assert!(text.contains(table), "{text}");
        assert!(text.ends_with("\nDurability: synced.\n"), "{text}");
    }

    #[test]
    fn two_forms_at_once_are_refused() {
        assert!(crate::arguments::arguments::<Format>(&["--json --csv"]).is_err());
        assert_eq!(
            crate::arguments::arguments::<Format>(&["--csv"]).map(Format::options),
            Ok(&["--csv"][..])
        );
    }
}
