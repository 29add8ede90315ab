//! The set-ups and the differences of `docs/from-postfix.md`.

use crate::common::envelopes::Difference;
use std::{collections::BTreeSet, fs};

/// One set-up in the words of both programs.
#[derive(Debug)]
pub(crate) struct SetUp {
    pub(crate) number: usize,
    pub(crate) postfix: String,
    pub(crate) postrider: String,
}

/// What the document says of all set-ups.
pub(crate) struct Document {
    pub(crate) set_ups: Vec<SetUp>,
    pub(crate) explained: BTreeSet<Difference>,
}

impl Document {
    pub(crate) fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/from-postfix.md");
        let text = fs::read_to_string(path).unwrap();
        let sections = text.split("\n## ").skip(1);
        let set_ups: Vec<_> = sections.clone().filter_map(set_up).collect();
        assert_eq!(set_ups.len(), 8, "eight set-ups");
        let table = sections.clone().find(|section| section.starts_with("Differences"));
        let rows = table.unwrap_or_default().lines().filter(|line| line.starts_with("| `"));
        Self { set_ups, explained: rows.map(difference).collect() }
    }
}

fn set_up(section: &str) -> Option<SetUp> {
    let number = section.split('.').next()?.parse().ok()?;
    let block = |section: &str, kind: &str| {
        let text = section.split(&format!("```{kind}\n")).nth(1)?.split("```").next()?;
        Some(text.to_owned())
    };
    Some(SetUp { number, postfix: block(section, "")?, postrider: block(section, "toml")? })
}

/// A row: what Postfix does, what Postrider does, and why.
fn difference(row: &str) -> Difference {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert!(
        cells.len() == 5 && cells[3].len() > 10,
        "a row has three columns, the last one an explanation: {row}"
    );
    let cell = |at: usize| cells[at].trim_matches('`').to_owned();
    Difference { theirs: cell(1), ours: cell(2) }
}

impl SetUp {
    /// Returns the listener that the envelopes are for: the last one.
    pub(crate) fn listener(&self) -> Option<&str> {
        let at = self.postrider.rfind("[[listen]]")?;
        let rest = &self.postrider[at..];
        Some(&rest[..rest.find("\n\n").map_or(rest.len(), |end| end + 1)])
    }
}

/// Returns a configuration without the listeners of other addresses.
pub(crate) fn without_other_listeners(text: &str, address: &str) -> String {
    let is_kept = |block: &&str| !block.contains("[[listen]]") || block.contains(address);
    text.split("\n\n").filter(is_kept).collect::<Vec<_>>().join("\n\n") + "\n"
}
