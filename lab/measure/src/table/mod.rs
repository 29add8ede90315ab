//! The result of a measurement as a table: as text while it runs, or at its end as JSON, CSV or Markdown.
//!
//! [`Table`] collects rows and remarks; `output` writes them in the form that [`Format`] asks for.

mod output;
mod schema;

use crate::rounds::{Figure, Progress};
use clap::Args;
pub use output::push_record;
pub use schema::schema;
use serde_json::{Map, Value, json};
use std::process::Stdio;

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

/// A form of the output, one of which is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Lines for a terminal.
    Text,
    /// One JSON object.
    Json,
    /// Records of RFC 4180.
    Csv,
    /// Tables of Markdown.
    Markdown,
}

impl Format {
    /// Returns the form that the options ask for; text without any.
    pub fn form(self) -> Form {
        match (self.json, self.csv, self.markdown) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Csv,
            (.., true) => Form::Markdown,
            _ => Form::Text,
        }
    }

    /// Is the output text for a terminal?
    pub fn is_text(self) -> bool {
        self == Self::default()
    }

    /// Returns the standard output of a command that is measured: in other forms than text, standard error.
    pub fn child_stdout(self) -> Stdio {
        if self.is_text() { Stdio::inherit() } else { std::io::stderr().into() }
    }

    /// The command line options that ask for this form.
    pub fn options(self) -> &'static [&'static str] {
        match self.form() {
            Form::Json => &["--json"],
            Form::Csv => &["--csv"],
            Form::Markdown => &["--markdown"],
            Form::Text => &[],
        }
    }
}

/// A column: its heading for people, and its key for programs.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Heading of the text and of Markdown.
    title: &'static str,
    /// Name in JSON and CSV: letters, digits and underscores.
    key: &'static str,
    /// Least width in text; negative aligns to the left.
    width: isize,
    /// Set where the text has the column.
    is_in_text: bool,
}

impl Column {
    /// Aligned to the right, in at least `width` characters.
    pub const fn right(title: &'static str, key: &'static str, width: isize) -> Self {
        Self { title, key, width, is_in_text: true }
    }

    /// Returns a column that is aligned to the left.
    pub const fn left(title: &'static str, key: &'static str, width: isize) -> Self {
        Self { title, key, width: -width, is_in_text: true }
    }

    /// A column that the text does not have, aligned to the right.
    pub const fn other(title: &'static str, key: &'static str) -> Self {
        Self { title, key, width: 0, is_in_text: false }
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width.unsigned_abs();
        if self.width < 0 { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

/// A value of one cell.
#[derive(Debug, Clone)]
pub enum Cell {
    /// Nothing was measured.
    Empty,
    /// Text, such as a name.
    Text(String),
    /// Shown without decimals.
    Count(u64),
    /// A figure of one value, with so many decimals in text.
    Number(f64, usize),
    /// A figure with the values of all rounds.
    Figure(Figure),
    /// A figure with the values of all rounds, of which the text has the median with so many decimals.
    Median(Figure, usize),
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

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Empty, Into::into)
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
            Self::Median(figure, decimals) => {
                figure.median().map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
            }
        }
    }

    fn is_figure(&self) -> bool {
        matches!(self, Self::Figure(_) | Self::Median(..))
    }

    fn json(&self) -> Value {
        match self {
            Self::Empty => Value::Null,
            Self::Text(text) => json!(text.trim()),
            Self::Count(count) => json!(count),
            Self::Number(value, _) => json!(value),
            Self::Figure(figure) | Self::Median(figure, _) => match figure.spread() {
                Some(s) => {
                    json!({ "median": s.median, "min": s.min, "max": s.max, "values": figure.values() })
                }
                None => Value::Null,
            },
        }
    }

    /// The fields of the cell in CSV; a figure has four.
    fn fields(&self, is_figure: bool) -> Vec<String> {
        match self {
            Self::Figure(figure) | Self::Median(figure, _) => match figure.spread() {
                Some(s) => {
                    let values = [s.median, s.min, s.max].map(|value| value.to_string());
                    values.into_iter().chain([figure.values().len().to_string()]).collect()
                }
                None => vec![String::new(); 4],
            },
            Self::Empty => vec![String::new(); if is_figure { 4 } else { 1 }],
            Self::Number(value, _) if is_figure => {
                let value = value.to_string();
                vec![value.clone(), value.clone(), value, "1".to_owned()]
            }
            Self::Number(value, _) => vec![value.to_string()],
            other => vec![other.text().trim().to_owned()],
        }
    }
}

/// Rows with the same columns.
#[derive(Debug)]
struct Part<'a> {
    /// Empty where the table has one part.
    name: &'static str,
    columns: &'a [Column],
    rows: Vec<Row>,
}

/// The cells of a row, and the remarks that must be read with them.
#[derive(Debug)]
struct Row {
    cells: Vec<Cell>,
    remarks: Vec<String>,
}

/// The table of a measurement. In text each row is printed when it is there; else all is printed by [`Table::finish`].
#[derive(Debug)]
pub struct Table<'a> {
    format: Format,
    progress: Option<&'a Progress>,
    facts: Vec<String>,
    parts: Vec<Part<'a>>,
    notes: Vec<String>,
    fields: Map<String, Value>,
    has_head: bool,
}

impl<'a> Table<'a> {
    /// A table with these columns; `progress` is hidden while a row is printed.
    pub fn new(format: Format, columns: &'a [Column], progress: Option<&'a Progress>) -> Self {
        let (facts, notes, fields) = (Vec::new(), Vec::new(), Map::new());
        let parts = vec![Part { name: "", columns, rows: Vec::new() }];
        Self { format, progress, facts, parts, notes, fields, has_head: false }
    }

    fn print(&self, text: &str) {
        match self.progress {
            Some(progress) => progress.beside(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    /// Begins a part with columns of its own, or goes on with the last one; the text has the heading again. JSON and CSV name it in the field `part` of its rows.
    pub fn part(&mut self, name: &'static str, columns: &'a [Column]) {
        // The first part may be named before it has rows.
        self.parts.retain(|part| !part.rows.is_empty());
        self.has_head = false;
        let keys = |columns: &[Column]| columns.iter().map(|column| column.key).collect::<Vec<_>>();
        let is_same = |last: &Part<'_>| last.name == name && keys(last.columns) == keys(columns);
        if !self.parts.last().is_some_and(is_same) {
            self.parts.push(Part { name, columns, rows: Vec::new() });
        }
    }

    /// Adds a line above the table: the device, the conditions.
    pub fn fact(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.text(&text);
        self.facts.push(text);
    }

    /// Adds a line above the table that the text does not have, or has elsewhere.
    pub fn silent_fact(&mut self, text: impl Into<String>) {
        self.facts.push(text.into());
    }

    /// Adds a row, a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        if self.format.is_text() {
            if !std::mem::replace(&mut self.has_head, true) {
                self.print(&output::heading(self.columns()));
            }
            self.print(&output::line(self.columns(), &cells));
        }
        self.record(cells);
    }

    /// Adds a row that is not a part of the text, where lines of [`Table::text`] say the same.
    pub fn record(&mut self, cells: impl Into<Vec<Cell>>) {
        let cells = cells.into();
        debug_assert_eq!(cells.len(), self.columns().len(), "a cell for each column");
        if let Some(part) = self.parts.last_mut() {
            part.rows.push(Row { cells, remarks: Vec::new() });
        }
    }

    /// Adds a remark to the last row: in text a line below it.
    pub fn remark(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.text(&text);
        self.silent_remark(text);
    }

    /// Adds a remark to the last row that the text has elsewhere.
    pub fn silent_remark(&mut self, text: impl Into<String>) {
        let row = self.parts.last_mut().and_then(|part| part.rows.last_mut());
        // Without a row it is a remark on all.
        row.map_or(&mut self.notes, |row| &mut row.remarks).push(text.into().trim().to_owned());
    }

    /// Adds lines of text, which other forms do not have. The last line end is added here; of an empty text there is none.
    pub fn text(&self, text: &str) {
        if self.format.is_text() && !text.is_empty() {
            self.print(text.strip_suffix('\n').unwrap_or(text));
        }
    }

    /// Adds a line that is no part of the result, such as the name of a file: in other forms than text it goes to
    /// standard error.
    pub fn aside(&self, text: &str) {
        if self.format.is_text() {
            self.print(text);
        } else {
            eprintln!("postlab: {}", text.trim());
        }
    }

    /// Adds a line below the table, or between its rows: durability, a ratio, a remark.
    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.text(&text);
        self.silent_note(text);
    }

    /// Adds a line below the table that the text has elsewhere.
    pub fn silent_note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds the fields of an object to the JSON object.
    ///
    /// # Errors
    /// The value is no object.
    pub fn fields(&mut self, value: &impl serde::Serialize) -> Result<(), String> {
        match serde_json::to_value(value) {
            Ok(Value::Object(fields)) => self.fields.extend(fields),
            Ok(other) => return Err(format!("print the result: {other} is no object")),
            Err(error) => return Err(format!("print the result: {error}")),
        }
        Ok(())
    }

    fn columns(&self) -> &'a [Column] {
        self.parts.last().map_or(&[], |part| part.columns)
    }

    /// Prints what was not printed yet.
    pub fn finish(self) {
        match self.format.form() {
            Form::Json => println!("{}", self.json()),
            Form::Csv => print!("{}", self.csv()),
            Form::Markdown => print!("{}", self.markdown()),
            Form::Text => {}
        }
    }
}
