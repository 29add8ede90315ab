//! The checks of a message's origin, and the tags that they set.

use super::{CheckMode, compile::Compiler, keys::Checks};

/// The checks of a message's origin that are not `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Authentication {
    /// SPF: also where only DMARC needs it.
    pub spf: bool,
    /// DKIM: also where only DMARC needs it.
    pub dkim: bool,
    /// DMARC.
    pub dmarc: bool,
}

impl Authentication {
    pub(super) fn wanted_by(checks: &Checks) -> Self {
        let is_on = |mode| mode != CheckMode::Off;
        let dmarc = is_on(checks.dmarc);
        Self { spf: dmarc || is_on(checks.spf), dkim: dmarc || is_on(checks.dkim), dmarc }
    }

    /// Returns whether a check that is not `off` sets a tag.
    pub(crate) fn sets(self, tag: &str) -> bool {
        let is_on = |check| match check {
            "spf" => self.spf,
            "dkim" => self.dkim,
            _ => self.dmarc,
        };
        check_of(tag)
            .is_some_and(|(check, results)| is_on(check) && results.contains(&&tag[check.len() + 1..]))
    }

    /// Says what to write for a tag that is meant to be one of a check, and is not set.
    pub(crate) fn advice(tag: &str) -> Option<String> {
        let (check, results) = check_of(tag)?;
        if tag.strip_prefix(check)?.strip_prefix('-').is_some_and(|result| results.contains(&result)) {
            return Some(format!("write {check} = \"tag\" in [checks]"));
        }
        let tags: Vec<String> = results.iter().map(|result| format!("{check}-{result}")).collect();
        Some(format!("the tags of this check are {}", tags.join(", ")))
    }
}

/// The results of each check: its tags are `CHECK-RESULT`.
const RESULTS: [(&str, &[&str]); 3] = [
    ("spf", &["pass", "fail", "softfail", "neutral", "none", "temperror", "permerror"]),
    ("dkim", &["pass", "fail", "none", "temperror"]),
    ("dmarc", &["pass", "fail", "none", "temperror", "permerror", "quarantine", "reject"]),
];

/// Returns the check that a tag is of, and its results.
fn check_of(tag: &str) -> Option<(&'static str, &'static [&'static str])> {
    let is_of =
        |check: &str| tag.strip_prefix(check).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    RESULTS.into_iter().find(|(check, _)| is_of(check))
}

impl Compiler<'_, '_> {
    /// Returns whether a tag is set when the content is there.
    pub(super) fn is_of_content(&self, tag: &str) -> bool {
        self.set.authentication.sets(tag) && !self.own_tags.iter().any(|own| **own == *tag)
    }
}
