//! JSON, CSV and Markdown of a table.

use super::{Cell, Column, Part, Row, Table};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

/// The last fields of a record: the facts of the table, and the remarks of the row and of the table.
const LAST: [&str; 2] = ["conditions", "remarks"];

/// Returns the titles of the columns that the text has.
pub(super) fn heading(columns: &[Column]) -> String {
    let shown = columns.iter().filter(|column| column.is_in_text);
    let titles: Vec<String> = shown.map(|column| column.padded(column.title)).collect();
    titles.join(" ").trim_end().to_owned()
}

/// Returns a row of the text.
pub(super) fn line(columns: &[Column], cells: &[Cell]) -> String {
    let shown = columns.iter().zip(cells).filter(|(column, _)| column.is_in_text);
    let texts: Vec<String> = shown.map(|(column, cell)| column.padded(&cell.text())).collect();
    texts.join(" ").trim_end().to_owned()
}

impl Table<'_> {
    /// Returns the rows of a part as text, to be kept in a file.
    pub fn part_text(&self, name: &str) -> String {
        let Some(part) = self.parts.iter().find(|part| part.name == name) else { return String::new() };
        let rows = part.rows.iter().map(|row| line(part.columns, &row.cells));
        std::iter::once(heading(part.columns)).chain(rows).map(|line| line + "\n").collect()
    }

    fn has_parts(&self) -> bool {
        self.parts.iter().any(|part| !part.name.is_empty())
    }

    /// One object: `command`, `facts`, `rows` with a field for each column and `remarks`, `notes`, and further fields.
    pub(super) fn json(&self) -> Value {
        let mut all = self.fields.clone();
        let command: Vec<String> = std::env::args().collect();
        let rows: Vec<Value> =
            self.parts.iter().flat_map(|part| part.rows.iter().map(|row| part.json(row))).collect();
        let others = [
            ("command", json!(command)),
            ("facts", json!(self.facts)),
            ("rows", json!(rows)),
            ("notes", json!(self.notes)),
        ];
        all.extend(others.map(|(name, value)| (name.to_owned(), value)));
        all.into()
    }

    /// A record for each row. A column that several parts have stands once; what a part has not is empty.
    pub(super) fn csv(&self) -> String {
        let mut columns: Vec<(&Column, bool)> = Vec::new();
        for part in &self.parts {
            for (i, column) in part.columns.iter().enumerate() {
                let is_figure = part.rows.iter().any(|row| row.cells[i].is_figure());
                match columns.iter_mut().find(|(other, _)| other.key == column.key) {
                    Some(known) => known.1 |= is_figure,
                    None => columns.push((column, is_figure)),
                }
            }
        }
        let mut out = String::new();
        let head = columns.iter().flat_map(|(column, is_figure)| {
            let endings: &[&str] = if *is_figure { &["", "_min", "_max", "_n"] } else { &[""] };
            endings.iter().map(|ending| format!("{}{ending}", column.key))
        });
        let part_head = self.has_parts().then(|| "part".to_owned());
        push_record(&mut out, part_head.into_iter().chain(head).chain(LAST.map(str::to_owned)));
        let conditions = self.facts.iter().map(|fact| fact.trim()).collect::<Vec<_>>().join("; ");
        for part in &self.parts {
            for row in &part.rows {
                let fields =
                    columns.iter().flat_map(|(column, is_figure)| part.cell(row, column).fields(*is_figure));
                let remarks = row.remarks.iter().chain(&self.notes).map(|remark| remark.trim());
                let last = [conditions.clone(), remarks.collect::<Vec<_>>().join("; ")];
                let name = self.has_parts().then(|| part.name.to_owned());
                push_record(&mut out, name.into_iter().chain(fields).chain(last));
            }
        }
        out
    }

    /// The facts, a table for each part, and the notes.
    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        for fact in &self.facts {
            let _ = writeln!(out, "{}\n", fact.trim());
        }
        for (i, part) in self.parts.iter().enumerate() {
            if i > 0 {
                out.push('\n');
            }
            if !part.name.is_empty() {
                let _ = writeln!(out, "**{}**\n", part.name);
            }
            out += &part.markdown();
        }
        for note in &self.notes {
            let _ = write!(out, "\n{}\n", note.trim());
        }
        out
    }
}

impl Part<'_> {
    fn cell<'r>(&self, row: &'r Row, column: &Column) -> &'r Cell {
        let place = self.columns.iter().position(|own| own.key == column.key);
        place.map_or(&Cell::Empty, |i| &row.cells[i])
    }

    fn json(&self, row: &Row) -> Value {
        let mut fields = Map::new();
        if !self.name.is_empty() {
            fields.insert("part".to_owned(), json!(self.name));
        }
        let cells = self.columns.iter().zip(&row.cells);
        fields.extend(cells.map(|(column, cell)| (column.key.to_owned(), cell.json())));
        fields.insert("remarks".to_owned(), json!(row.remarks));
        fields.into()
    }

    fn markdown(&self) -> String {
        let has_remarks = self.rows.iter().any(|row| !row.remarks.is_empty());
        let line = |cells: &mut dyn Iterator<Item = String>, last: &str| {
            let last = has_remarks.then(|| last.to_owned());
            format!("| {} |\n", cells.chain(last).collect::<Vec<_>>().join(" | "))
        };
        let mut out = line(&mut self.columns.iter().map(|column| escaped(column.title)), "remarks");
        let rules = self.columns.iter().map(|column| if column.width < 0 { "---" } else { "---:" });
        out += &line(&mut rules.map(str::to_owned), "---");
        for row in &self.rows {
            let cells = &mut row.cells.iter().map(|cell| escaped(&cell.text()));
            out += &line(cells, &escaped(&row.remarks.join("; ")));
        }
        out
    }
}

fn escaped(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
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
    use super::{super::Format, *};
    use crate::rounds::Figure;

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
        table.silent_remark("too short");
        table.note("Durability: synced.");
        table
    }

    #[test]
    fn json_has_a_field_for_each_column_and_every_value() {
        let json = table(Format { json: true, ..Format::default() }).json();
        assert_eq!(json["rows"][0]["kb_per_second"]["median"], 2.5);
        assert_eq!(json["rows"][0]["kb_per_second"]["values"], serde_json::json!([3.0, 1.0, 2.5]));
        assert_eq!(json["rows"][1]["kb_per_second"], Value::Null);
        assert_eq!(json["rows"][1]["remarks"][0], "too short");
        assert_eq!(json["notes"][0], "Durability: synced.");
    }

    #[test]
    fn csv_has_as_many_fields_in_each_line() {
        let csv = table(Format { csv: true, ..Format::default() }).csv();
        assert_eq!(
            csv,
            "store,group,kb_per_second,kb_per_second_min,kb_per_second_max,kb_per_second_n,conditions,remarks\n\
             \"log, \"\"new\"\"\",10,2.5,1,3,3,ext4 on a|disk,Durability: synced.\n\
             a|b,20,,,,,ext4 on a|disk,too short; Durability: synced.\n"
        );
    }

    #[test]
    fn markdown_escapes_bars_in_cells() {
        let text = table(Format { markdown: true, ..Format::default() }).markdown();
        let table = "| store | -T | KB/s | remarks |\n| --- | ---: | ---: | --- |\n\
            | log, \"new\" | 10 | 2.50 (1.00–3.00, N=3) |  |\n| a\\|b | 20 | - | too short |\n";
        assert!(text.contains(table), "{text}");
        assert!(text.ends_with("\nDurability: synced.\n"), "{text}");
    }

    const OTHERS: [Column; 2] = [Column::left("store", "store", 6), Column::other("close ms", "close_ms")];

    #[test]
    fn parts_are_rows_of_one_array_and_share_the_columns_of_csv() {
        let fill = |format| {
            let mut table = Table::new(format, &COLUMNS, None);
            table.part("write", &COLUMNS);
            table.record([Cell::from("log"), 1u32.into(), Cell::Number(0.5, 1)]);
            table.part("close", &OTHERS);
            table.record([Cell::from("log"), Cell::Number(7.0, 0)]);
            table.fields(&json!({ "verdict": "good" })).unwrap();
            table
        };
        let json = fill(Format { json: true, ..Format::default() }).json();
        assert_eq!((&json["verdict"], &json["rows"][0]["part"]), (&json!("good"), &json!("write")));
        assert_eq!(
            json["rows"][1],
            json!({ "part": "close", "store": "log", "close_ms": 7.0, "remarks": [] })
        );
        assert_eq!(
            fill(Format { csv: true, ..Format::default() }).csv(),
            "part,store,group,kb_per_second,close_ms,conditions,remarks\nwrite,log,1,0.5,,,\nclose,log,,,7,,\n"
        );
        let text = fill(Format { markdown: true, ..Format::default() }).markdown();
        assert!(text.contains("**close**\n\n| store | close ms |\n| --- | ---: |\n| log | 7 |\n"), "{text}");
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
