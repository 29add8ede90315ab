//! What checks found of a message, for checks that are asked later.

use std::sync::{Mutex, PoisonError};

/// The findings of the open transaction.
#[derive(Debug, Default)]
pub(crate) struct Findings(Mutex<Found>);

#[derive(Debug, Default)]
struct Found {
    /// Words that rules at the content can ask for, as those that other rules have set.
    tags: Vec<Box<str>>,
}

impl Findings {
    fn with<T>(&self, look: impl FnOnce(&mut Found) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets everything, as a new transaction does.
    pub(super) fn clear(&self) {
        self.with(|found| found.tags.clear());
    }

    /// Adds a tag of the message.
    pub(super) fn tag(&self, tag: impl Into<Box<str>>) {
        let tag = tag.into();
        self.with(|found| found.tags.push(tag));
    }

    /// Returns the tags.
    pub(super) fn tags(&self) -> Vec<Box<str>> {
        self.with(|found| found.tags.clone())
    }
}
