//! The configuration as a JSON Schema (draft 2020-12), for editors and generators of configurations. The schema is derived from
//! the same definitions as the reader. It checks names, types and words; `postrider config check` checks everything else.

use crate::{
    schema::schema,
    section::{KeyDoc, SectionDoc},
};
use serde_json::{Map, Value, json};

/// The schema of a kind of value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Schema {
    Boolean,
    /// `true` and nothing else.
    True,
    /// A whole number from zero.
    Number,
    /// It may be negative.
    Integer,
    Text,
    OneOf(&'static [&'static str]),
    List(Box<Schema>),
    /// Keys with their values, and whether each is required; no other key.
    Table(Vec<(&'static str, Schema, bool)>),
    /// Any keys, with values of one kind.
    FreeTable(Box<Schema>),
    /// Conditions, whose keys those of the section list.
    AnyTable,
    AnyOf(Vec<Schema>),
}

impl Schema {
    fn json(&self) -> Value {
        match self {
            Self::Boolean => json!({"type": "boolean"}),
            Self::True => json!({"const": true}),
            Self::Number => json!({"type": "integer", "minimum": 0}),
            Self::Integer => json!({"type": "integer"}),
            Self::Text => json!({"type": "string"}),
            Self::OneOf(words) => json!({"enum": words}),
            Self::List(item) => json!({"type": "array", "items": item.json()}),
            Self::Table(keys) => {
                let properties: Map<String, Value> =
                    keys.iter().map(|(key, schema, _)| ((*key).to_owned(), schema.json())).collect();
                let required: Vec<&str> =
                    keys.iter().filter(|(.., is_required)| *is_required).map(|(key, ..)| *key).collect();
                json!({
                    "type": "object", "properties": properties, "required": required,
                    "additionalProperties": false,
                })
            }
            Self::FreeTable(value) => json!({"type": "object", "additionalProperties": value.json()}),
            Self::AnyTable => json!({"type": "object"}),
            Self::AnyOf(kinds) => json!({"anyOf": kinds.iter().map(Self::json).collect::<Vec<_>>()}),
        }
    }
}

/// Returns the JSON Schema of a configuration file.
pub fn json_schema() -> Value {
    let sections = schema();
    let mut properties = Map::new();
    for section in &sections {
        if section.name.is_empty() {
            properties.extend(section.keys.iter().map(|key| (key.name.to_owned(), of_key(key))));
        } else {
            properties.insert(section.name.to_owned(), of_section(section));
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Configuration of Postrider {}", env!("CARGO_PKG_VERSION")),
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
}

fn of_section(section: &SectionDoc) -> Value {
    let about = sentences(section.about);
    if section.keys.is_empty() {
        let addresses = Schema::List(Box::new(Schema::Text));
        return described(Schema::FreeTable(Box::new(addresses)).json(), &about);
    }
    let keys: Map<String, Value> =
        section.keys.iter().map(|key| (key.name.to_owned(), of_key(key))).collect();
    let table = json!({"type": "object", "properties": keys, "additionalProperties": false});
    let schema = if section.repeated {
        json!({"type": "array", "items": table})
    } else if section.named {
        json!({"type": "object", "additionalProperties": table})
    } else {
        table
    };
    described(schema, &about)
}

fn of_key(key: &KeyDoc) -> Value {
    let mut schema = described((key.schema)().json(), &sentences(key.about));
    // A default that is made of other values is in the description.
    let default: Option<toml::Table> = (!key.default.is_empty() && !key.default.contains('{'))
        .then(|| format!("default = {}", key.default).parse().ok())
        .flatten();
    if let Some(default) = default
        && let Ok(json) = serde_json::to_value(&default["default"])
    {
        schema["default"] = json;
    }
    schema
}

fn described(mut schema: Value, about: &str) -> Value {
    schema["description"] = about.into();
    schema
}

/// Returns a text of the manual as one line.
fn sentences(about: &str) -> String {
    about.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts what the schema accepts: the parts of JSON Schema that are written here.
    fn accepts(schema: &Value, value: &Value) -> bool {
        if let Some(kinds) = schema["anyOf"].as_array() {
            return kinds.iter().any(|kind| accepts(kind, value));
        }
        if let Some(words) = schema["enum"].as_array() {
            return words.contains(value);
        }
        if !schema["const"].is_null() {
            return schema["const"] == *value;
        }
        match schema["type"].as_str() {
            Some("boolean") => value.is_boolean(),
            Some("integer") => value.is_u64(),
            Some("string") => value.is_string(),
            Some("array") => {
                value.as_array().is_some_and(|items| items.iter().all(|item| accepts(&schema["items"], item)))
            }
            Some("object") => value.as_object().is_some_and(|table| {
                let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
                required.iter().all(|key| key.as_str().is_some_and(|key| table.contains_key(key)))
                    && table.iter().all(|(key, value)| match schema["properties"].get(key) {
                        Some(of_key) => accepts(of_key, value),
                        None if schema["additionalProperties"] == false => false,
                        None if schema["additionalProperties"].is_object() => {
                            accepts(&schema["additionalProperties"], value)
                        }
                        None => true,
                    })
            }),
            _ => false,
        }
    }

    fn is_accepted(toml: &str) -> bool {
        let table: toml::Table = toml.parse().unwrap();
        accepts(&json_schema(), &serde_json::to_value(table).unwrap())
    }

    #[test]
    fn the_schema_accepts_every_set_up_of_the_guides() {
        let set_ups = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        for set_up in std::fs::read_dir(set_ups).unwrap() {
            let file = set_up.unwrap().path().join("postrider.toml");
            assert!(is_accepted(&std::fs::read_to_string(&file).unwrap()), "{}", file.display());
        }
    }

    #[test]
    fn the_schema_rejects_unknown_keys_wrong_types_and_wrong_words() {
        assert!(is_accepted(
            "hostname = \"mx.example.com\"\n[queue]\nexpire = \"5d\"\n[hosts]\n\"a\" = [\"192.0.2.1\"]"
        ));
        assert!(!is_accepted("hostnam = \"mx.example.com\""));
        assert!(!is_accepted("hostname = 5"));
        assert!(!is_accepted("[[listen]]\nkind = \"smtp\""));
        assert!(!is_accepted("[relay]\nnetworks = \"10.0.0.0/8\""));
        assert!(!is_accepted("[limits]\nmax_hops = -1"));
    }

    #[test]
    fn every_default_is_of_its_keys_kind() {
        let schema = json_schema();
        let mut count = 0;
        for (_, section) in schema["properties"].as_object().unwrap() {
            let keys = [&section["properties"], &section["items"]["properties"]];
            for (name, key) in keys.iter().filter_map(|keys| keys.as_object()).flatten() {
                if let Some(default) = key.get("default") {
                    assert!(accepts(key, default), "{name}: {default}");
                    count += 1;
                }
            }
        }
        assert!(count > 50, "{count} defaults");
    }
}
