//! The JSON Schema (draft 2020-12) of what `--json` prints: programs that keep results for years read them by it.

use serde_json::{Value, json};

/// Returns the schema of [`Table`](super::Table)'s JSON.
pub fn schema() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Results of Postlab {}", env!("CARGO_PKG_VERSION")),
        "type": "object",
        "required": ["command", "facts", "rows", "notes"],
        "properties": {
            "command": described(&texts, "The command line that measured, word by word."),
            "facts": described(&texts, "What holds for all rows: the machine, the disk, the options."),
            "notes": described(&texts, "Remarks that must be read with all rows."),
            "rows": {
                "description": "The table: one object a row. A command has further fields beside `rows`.",
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["remarks"],
                    "properties": {
                        "part": described(&text, "The table's part, if it has several."),
                        "remarks": described(&texts, "Remarks that must be read with this row."),
                    },
                    "additionalProperties": {"$ref": "#/$defs/cell"},
                },
            },
        },
        "$defs": {
            "cell": {
                "description": "The value of a column: nothing, a word, one number, or a figure of several rounds.",
                "anyOf": [{"type": "null"}, text, {"type": "number"}, {"$ref": "#/$defs/figure"}],
            },
            "figure": {
                "description": "A figure that was measured in several rounds, in the unit that the column's name ends with.",
                "type": "object",
                "required": ["median", "min", "max", "values"],
                "properties": {
                    "median": {"type": "number"},
                    "min": {"type": "number"},
                    "max": {"type": "number"},
                    "values": {"type": "array", "items": {"type": "number"}, "minItems": 1},
                },
                "additionalProperties": false,
            },
        },
    })
}

fn described(schema: &Value, about: &str) -> Value {
    let mut schema = schema.clone();
    schema["description"] = about.into();
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rounds::Figure,
        table::{Cell, Column, Format, Table},
    };

    /// Checks a value against the keywords that the schema has.
    fn accepts(root: &Value, schema: &Value, value: &Value) -> bool {
        if let Some(name) = schema["$ref"].as_str() {
            return accepts(root, &root["$defs"][name.trim_start_matches("#/$defs/")], value);
        }
        if let Some(kinds) = schema["anyOf"].as_array() {
            return kinds.iter().any(|kind| accepts(root, kind, value));
        }
        match schema["type"].as_str() {
            Some("null") => value.is_null(),
            Some("string") => value.is_string(),
            Some("number") => value.is_number(),
            Some("array") => value
                .as_array()
                .is_some_and(|items| items.iter().all(|item| accepts(root, &schema["items"], item))),
            Some("object") => value.as_object().is_some_and(|object| {
                let required = schema["required"].as_array().unwrap();
                required.iter().all(|key| object.contains_key(key.as_str().unwrap()))
                    && object.iter().all(|(key, value)| {
                        let of_key = schema["properties"].get(key).unwrap_or(&schema["additionalProperties"]);
                        of_key.is_null() || accepts(root, of_key, value)
                    })
            }),
            _ => false,
        }
    }

    const COLUMNS: [Column; 2] =
        [Column::left("store", "store", 6), Column::right("KB/s", "kb_per_second", 20)];

    fn result() -> Value {
        let mut table = Table::new(Format { json: true, ..Format::default() }, &COLUMNS, None);
        table.fact("ext4 on a disk");
        let mut figure = Figure::new();
        [3.0, 1.0, 2.5].iter().for_each(|value| figure.push(*value));
        table.part("write", &COLUMNS);
        table.row(["log".into(), figure.into()]);
        table.row(["directories".into(), Cell::Empty]);
        table.row(["none".into(), 5u32.into()]);
        table.silent_remark("too short");
        table.note("Durability: synced.");
        table.json()
    }

    #[test]
    fn the_result_of_a_table_is_accepted() {
        let schema = schema();
        assert!(accepts(&schema, &schema, &result()), "{:#}", result());
    }

    #[test]
    fn a_result_without_its_values_is_not() {
        let schema = schema();
        let mut lacking = result();
        lacking["rows"][0]["kb_per_second"].as_object_mut().unwrap().remove("values");
        assert!(!accepts(&schema, &schema, &lacking));
        let mut lacking = result();
        lacking.as_object_mut().unwrap().remove("facts");
        assert!(!accepts(&schema, &schema, &lacking));
    }
}
