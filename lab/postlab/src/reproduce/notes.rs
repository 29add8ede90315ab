//! Texts written by hand that belong to the page: how the steps were run, and explanations of findings that cannot be told.

use super::{Finding, Kept};
use serde::Deserialize;
use std::{collections::BTreeMap, fs, io::ErrorKind, path::Path};

/// The file of the notes in a directory of results, unless another is named.
pub(super) const NAME: &str = "reproduce-notes.toml";

/// What people have written about the results.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageNotes {
    /// Paragraphs in Markdown that stand above the table.
    #[serde(default)]
    pub(super) introduction: String,
    /// Explanations, by the name of the finding.
    #[serde(default)]
    open: BTreeMap<String, String>,
}

impl PageNotes {
    /// Reads the notes; without a named file, those of the results, if there are any.
    ///
    /// # Errors
    /// The file cannot be read, or is not as it should be.
    pub(super) fn read(named: Option<&Path>, results: &Path) -> Result<Self, String> {
        let path = named.map_or_else(|| results.join(NAME), Path::to_owned);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| format!("read {}: {e}", path.display())),
            Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("read {}: {error}", path.display())),
        }
    }

    /// Is there no note at all?
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds the explanations to the findings that cannot be told. Returns the names of the notes on findings that can be told
    /// now.
    ///
    /// # Errors
    /// A note is on a finding that does not exist.
    pub(super) fn explain(&self, kept: &mut [Kept]) -> Result<Vec<&str>, String> {
        let mut unused = Vec::new();
        for (what, note) in &self.open {
            let mut findings = kept.iter_mut().flat_map(|kept| &mut kept.findings);
            let found = findings.find(|finding| finding.what == *what);
            let finding = found.ok_or_else(|| {
                format!(
                    "notes: there is no finding `{what}`: write its name as in the column `what` of the page"
                )
            })?;
            if finding.is_open() {
                finding.sentence = format!("{} {}", finding.sentence, note.trim());
            } else {
                unused.push(what.as_str());
            }
        }
        Ok(unused)
    }

    /// Returns the names of findings that were measured, cannot be told, and have no explanation.
    pub(super) fn missing<'k>(&self, kept: &'k [Kept]) -> Vec<&'k str> {
        let findings = kept.iter().flat_map(|kept| &kept.findings);
        let is_missing = |finding: &&Finding| {
            finding.is_open() && finding.is_measured() && !self.open.contains_key(&finding.what)
        };
        findings.filter(is_missing).map(|finding| finding.what.as_str()).collect()
    }
}
