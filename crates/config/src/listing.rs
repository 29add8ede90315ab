//! Effective values with their origin, as `postrider config show` lists them.

use std::{fmt::Write as _, ops::Range};

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// No file sets the key.
    Default,
    /// The value is set in the file.
    File {
        /// On this line of its file, from 1.
        line: usize,
        /// At these bytes of all files together.
        span: Range<usize>,
    },
}

/// The value of a key, with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// `relay.networks`, `route[0].domains`.
    pub path: String,
    /// The value; none if the key is not set and has no default.
    pub value: Option<toml::Value>,
    /// The origin of the value.
    pub origin: Origin,
}

impl Effective {
    /// `relay` and `networks`; the section of a top-level key is empty.
    pub fn split(&self) -> (&str, &str) {
        // The section [map.NAME] has a dot of its own. A key of [hosts] has, too, so elsewhere the first one separates.
        let named =
            ["map.", "policy_service.", "filter."].into_iter().find(|name| self.path.starts_with(name));
        let from = named.map_or(0, str::len);
        match self.path[from..].find('.') {
            Some(at) => (&self.path[..from + at], &self.path[from + at + 1..]),
            None => ("", &self.path),
        }
    }
}

/// The values as TOML that reads back to the same settings, each line with its origin.
pub(crate) fn as_toml(effective: &[Effective], file_of: impl Fn(&Range<usize>) -> String) -> String {
    let mut out = String::new();
    let mut section = String::new();
    for entry in effective {
        let (of, key) = entry.split();
        if of != section {
            section = of.to_owned();
            let name = of.split('[').next().unwrap_or(of);
            let _ =
                if of.ends_with(']') { writeln!(out, "\n[[{name}]]") } else { writeln!(out, "\n[{name}]") };
        }
        let line = match &entry.value {
            Some(value) => format!("{} = {value}", toml_key(key)),
            None => format!("# {key} is not set"),
        };
        let origin = match &entry.origin {
            Origin::Default => "default".to_owned(),
            Origin::File { line, span } => format!("{}:{line}", file_of(span)),
        };
        let _ = writeln!(out, "{line:<50}  # {origin}");
    }
    out
}

/// A key as it must be written: bare where TOML allows, else in quotes.
fn toml_key(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { toml::Value::from(key).to_string() }
}
